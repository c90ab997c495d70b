"""Things that break under a run: a full or read-only disk, damaged or foreign checkpoints, a deleted folder, a clock
that jumps, numbers that explode. One clear line, nothing lost, and the same command goes on to the same end."""

from __future__ import annotations

import errno
import functools
import json
import os
import pickle
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import disk
from fakes.outcome import outcome

from lnexp import evaluate, rundir
from lnexp.backend import checkpoint
from lnexp.backend.session import Session
from lnexp.cli import main
from lnexp.launch import plan

RUN = ["data=toy_copy", "size=tiny", "size.dropout=0.1", "schedule=constant", "optim.lr=2e-3", "decode=greedy",
       "track=none", "devices.threads=1", "tokens_per_update=300", "max_updates=12", "validate_every=4",
       "log_every=2"]  # fmt: skip
DAY = 86_400.0
Out = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@functools.cache
def _name(arguments: tuple[str, ...]) -> Path:
    folder = plan(list(arguments)).jobs[0].folder
    return folder.relative_to(folder.parents[1])


def folder(arguments: list[str] = RUN) -> Path:
    return Path(os.environ["LNEXP_OUTPUTS"]) / _name(tuple(arguments))


def status() -> dict[str, Any]:
    return rundir.read_status(folder()) or {}


@contextmanager
def stopped(at: int) -> Iterator[None]:
    """Ctrl-C in update `at`."""
    update = Session._update

    def broken(self: Session, samples: list[Any]) -> dict[str, float]:
        if self.updates == at:
            raise KeyboardInterrupt
        return update(self, samples)

    with Patch.context() as patch:
        patch.setattr(Session, "_update", broken)
        yield


@contextmanager
def elsewhere(place: Path) -> Iterator[None]:
    with Patch.context() as patch:
        patch.chdir(place)
        patch.setenv("LNEXP_CACHE", str(place / "cache"))
        patch.setenv("LNEXP_OUTPUTS", str(place / "outputs"))
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed: place of its cache and outputs."""
    place = tmp_path_factory.mktemp("whole")
    with elsewhere(place):
        assert main(["train", *RUN]) == 0
    return place


@pytest.fixture(scope="module")
def expected(whole: Path) -> dict[str, Any]:
    with elsewhere(whole):
        return outcome(folder())


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory, whole: Path) -> Path:
    """The same run, stopped hard in update 10: last.pt of update 8, previous.pt of update 4."""
    place = tmp_path_factory.mktemp("half")
    with elsewhere(place), stopped(at=10):
        shutil.copytree(whole / "cache", "cache")
        assert main(["train", *RUN]) == 130
    return place


@pytest.fixture
def take(tmp_path: Path) -> Callable[[Path], Path]:
    """Take over a place with its run; gives the run folder."""

    def copy(place: Path) -> Path:
        shutil.copytree(place, tmp_path, dirs_exist_ok=True)
        return folder()

    return copy


def goes_on_to(expected: dict[str, Any], *more: str) -> None:
    assert main(["train", *RUN, *more]) == 0
    assert outcome(folder()) == expected


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def one_line(capsys: Out) -> str:
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1 and err.startswith("lnexp "), err
    return err


# A full disk.


@contextmanager
def full_before(owner: Any, name: str, when: Callable[..., bool], place: Path) -> Iterator[None]:
    """Fill the disk before the call of `owner.name` for which `when` holds; make room at the end."""
    real = getattr(owner, name)

    def call(*arguments: Any, **more: Any) -> Any:
        if when(*arguments):
            disk.fill(place)
        return real(*arguments, **more)

    with Patch.context() as patch:
        patch.setattr(owner, name, call)
        yield
    (place / "ballast").unlink()


def valid_json(run: Path) -> None:
    for path in (*run.glob("*.json"), run / "status.json"):
        json.loads(path.read_text())
    list(rundir.rows(run))


@pytest.mark.parametrize(
    ("name", "of", "checkpoints"),
    [
        ("checkpoints/next.pt", 8, [8, 4]),
        pytest.param("checkpoints/best.pt", 4, [], marks=pytest.mark.slow),
        pytest.param("checkpoints/best.pt", 12, [8, 8, 4], marks=pytest.mark.slow),
        pytest.param("scores.json", 12, [12, 12, 8], marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_full_disk(
    tmp_path: Path,
    monkeypatch: Patch,
    expected: dict[str, Any],
    capsys: Out,
    name: str,
    of: int,
    checkpoints: list[int],
) -> None:
    """While `name` is written at update `of`; `checkpoints` are those that stand: best.pt, last.pt, previous.pt."""
    with disk.small(tmp_path / "small", "16m") as small:
        monkeypatch.setenv("LNEXP_OUTPUTS", str(small))
        file = folder() / name
        if name == "scores.json":
            filled = full_before(rundir, "write_json", lambda path, _: path == file, small)
        else:
            filled = full_before(checkpoint, "write", lambda state, path: (path, state["updates"]) == (file, of), small)
        with filled:
            assert main(["train", *RUN]) == 1
            assert status()["state"] == "failed" and status()["updates"] == of
            assert status()["reason"] == f"{file}: No space left on device"
            out, err = capsys.readouterr()
            assert f"failed: {file}: No space left on device; retry=failed tries it again" in out
            assert "Traceback" not in out + err
            assert not list(folder().rglob("*.tmp"))
            valid_json(folder())
            found = [folder() / "checkpoints" / n for n in ("best.pt", "last.pt", "previous.pt")]
            assert [checkpoint.read(path)["updates"] for path in found if path.exists()] == checkpoints
        goes_on_to(expected, "retry=failed")
        if checkpoints:
            assert f"goes on from update {checkpoints[1]}" in capsys.readouterr().out


def test_a_full_disk_at_a_row(monkeypatch: Patch, expected: dict[str, Any]) -> None:
    """Simulated: half a row fits. The half is taken back, and the row is there once in the end."""
    opened = rundir.RowFile.__init__

    class Nearly:
        """Takes half of the ninth write."""

        def __init__(self, file: Any) -> None:
            self.file, self.count = file, 0

        def write(self, line: bytes) -> int:
            self.count += 1
            if self.count > 9:
                disk.no_space()
            return int(self.file.write(line[: len(line) // 2] if self.count == 9 else line))

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    def narrow(self: rundir.RowFile, place: Path) -> None:
        opened(self, place)
        self._file = Nearly(self._file)  # type: ignore[assignment]

    with monkeypatch.context() as patch:
        patch.setattr(rundir.RowFile, "__init__", narrow)
        assert main(["train", *RUN]) == 1
    assert status()["reason"] == f"{folder() / 'metrics.jsonl'}: No space left on device"
    raw = (folder() / "metrics.jsonl").read_text()
    assert raw.endswith("}\n") and len(raw.splitlines()) == 8 == len(list(rundir.rows(folder())))
    goes_on_to(expected, "retry=failed")


def test_rows_on_a_disk_that_runs_full(tmp_path: Path) -> None:
    with disk.small(tmp_path / "disk", "64k") as small:
        file = rundir.RowFile(small)
        with pytest.raises(OSError, match=r"No space left on device.*metrics\.jsonl"):
            for updates in range(10_000):
                file.write({"split": "train", "updates": updates})
        raw = (small / "metrics.jsonl").read_bytes()
        assert raw.endswith(b"}\n") and len(list(rundir.rows(small))) == updates == len(raw.splitlines())
        os.truncate(small / "metrics.jsonl", raw.index(b"\n") + 1)
        file.write({"split": "train", "updates": 7})
        file.close()
        assert [row["updates"] for row in rundir.rows(small)] == [0, 7]


# A disk that cannot be written.


def test_read_only_from_the_start(take: Callable[[Path], Path], half: Path, capsys: Out) -> None:
    run = take(half)
    files = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for place, line in ((run, f"{run}: cannot be written"), (run.parents[1], "paths.outputs: ")):
        with disk.read_only(place):
            capsys.readouterr()
            assert main(["train", *RUN]) == 2
            assert line in (err := one_line(capsys)) and "Read-only file system" in err
            assert main(["eval", str(run)]) == 2
            assert "cannot be written (Read-only file system)" in one_line(capsys)
    assert files == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_read_only_in_mid_run(take: Callable[[Path], Path], half: Path, expected: dict[str, Any], capsys: Out) -> None:
    """Nothing can be written down then, not even that it failed; what was saved before counts."""
    run = take(half)
    update, mounted = Session._update, []

    def falls(self: Session, samples: list[Any]) -> dict[str, float]:
        if self.updates == 10 and not mounted:
            mounted.append(disk.read_only(run))
            mounted[0].__enter__()
        return update(self, samples)

    with Patch.context() as patch:
        patch.setattr(Session, "_update", falls)
        try:
            assert main(["train", *RUN]) == 1
        finally:
            for each in mounted:
                each.__exit__(None, None, None)
    out = capsys.readouterr().out
    assert re.search(r"failed: .*: Read-only file system; its status\.json cannot be written", out), out
    assert checkpoint.read(run / "checkpoints" / "last.pt")["updates"] == 8
    goes_on_to(expected)


def test_read_only_in_mid_run_simulated(take: Callable[[Path], Path], half: Path, monkeypatch: Patch, capsys: Out):
    run = take(half)

    def refused(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write", refused)
        patch.setattr(rundir, "write_json", refused)
        assert main(["train", *RUN]) == 1
    out, err = capsys.readouterr()
    assert "Read-only file system" in out and "Traceback" not in out + err
    assert checkpoint.read(run / "checkpoints" / "last.pt")["updates"] == 8


# Damaged checkpoints; each bit and length is test_checkpoint.py's.


def test_a_damaged_last_checkpoint(take: Callable[[Path], Path], half: Path, expected: dict[str, Any], capsys: Out):
    run = take(half)
    flip(run / "checkpoints" / "last.pt")
    goes_on_to(expected)
    out = capsys.readouterr().out
    assert "last.pt: damaged: its bytes are not those that were written; previous.pt is used instead" in out
    assert "goes on from update 4" in out


def test_both_checkpoints_damaged(take: Callable[[Path], Path], half: Path, expected: dict[str, Any], capsys: Out):
    run = take(half)
    for name in ("last.pt", "previous.pt"):
        flip(run / "checkpoints" / name)
    capsys.readouterr()
    assert main(["train", *RUN]) == 2
    assert (err := one_line(capsys)).endswith(f"delete {run / 'checkpoints'} to train it anew\n"), err
    assert "last.pt: damaged" in err and "previous.pt: damaged" in err
    assert status()["state"] == "failed"
    shutil.rmtree(run / "checkpoints")  # as the line says
    goes_on_to(expected)


def test_deleted_checkpoints(take: Callable[[Path], Path], half: Path, expected: dict[str, Any], capsys: Out):
    shutil.rmtree(take(half) / "checkpoints")
    goes_on_to(expected)
    assert "no checkpoint of its 10 updates is left; begins anew" in capsys.readouterr().out


def test_best_damaged_at_the_final_scores(take: Callable[[Path], Path], half: Path, capsys: Out) -> None:
    run = take(half)
    best = run / "checkpoints" / "best.pt"
    save = checkpoint.write_last

    def spoils(state: dict[str, Any], place: Path) -> None:
        save(state, place)
        if state["updates"] == 12:
            flip(best)

    with Patch.context() as patch:
        patch.setattr(checkpoint, "write_last", spoils)
        capsys.readouterr()
        assert main(["train", *RUN]) == 2
    assert f"best.pt: damaged: its bytes are not those that were written; delete {run} to train" in one_line(capsys)
    assert status()["state"] == "failed" and not (run / "scores.json").exists()


def test_best_damaged_in_eval(take: Callable[[Path], Path], whole: Path, capsys: Out) -> None:
    run = take(whole)
    before = (run / "scores.json").read_bytes()
    flip(run / "checkpoints" / "best.pt")
    capsys.readouterr()
    assert main(["eval", str(run)]) == 2
    assert f"best.pt: damaged: its bytes are not those that were written; delete {run} to train" in one_line(capsys)
    assert (run / "scores.json").read_bytes() == before


class Hostile:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch trap",)


def test_a_hostile_checkpoint(take: Callable[[Path], Path], half: Path, expected: dict[str, Any], capsys: Out) -> None:
    run = take(half)
    for name in ("last.pt", "best.pt"):
        (run / "checkpoints" / name).write_bytes(pickle.dumps({"model": Hostile(), "trained": {}}))
    capsys.readouterr()
    assert main(["eval", str(run)]) == 2
    assert "best.pt: damaged" in one_line(capsys)
    (run / "checkpoints" / "best.pt").unlink()
    assert main(["train", *RUN]) == 0
    assert "last.pt: damaged" in capsys.readouterr().out
    assert not Path("trap").exists()
    assert outcome(run) == expected  # update 8 or 12 is the best one


# Checkpoints of other runs.


def resigned(path: Path, **trained: Any) -> None:
    """Have a checkpoint say that it is of another run."""
    state = checkpoint._read(path)
    checkpoint.write(state | {"trained": state["trained"] | trained}, path)


OTHERS = [
    ({"optim.lr": 0.5}, "optim.lr: 0.5 there, 0.002 here"),
    pytest.param({"seed": 7}, "seed: 7 there, None here", marks=pytest.mark.slow),
    pytest.param({"data (train)": "0" * 12}, "data (train): 000000000000 there, ", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("other", "line"), OTHERS, ids=lambda x: next(iter(x)) if isinstance(x, dict) else "")
def test_a_checkpoint_of_another_run(take: Callable[[Path], Path], half: Path, capsys: Out, other: Any, line: str):
    run = take(half)
    resigned(run / "checkpoints" / "last.pt", **other)
    capsys.readouterr()
    assert main(["train", *RUN]) == 2
    err = one_line(capsys)
    assert f"last.pt: of another run ({line}" in err and f"delete {run} to train this one anew" in err
    assert status()["state"] == "failed"


@pytest.mark.slow
def test_a_best_checkpoint_of_another_run(take: Callable[[Path], Path], half: Path, capsys: Out) -> None:
    run = take(half)
    resigned(run / "checkpoints" / "best.pt", **{"optim.lr": 0.5})
    capsys.readouterr()
    with Patch.context() as patch:  # no later validation is better
        patch.setattr(Session, "validate", lambda self, split="valid": {"loss_bits": 99.0, "nll_bits": 1.0})
        assert main(["train", *RUN]) == 2
    assert f"{run / 'checkpoints' / 'best.pt'}: of another run (optim.lr: 0.5 there, 0.002 here)" in one_line(capsys)


def test_a_best_checkpoint_of_another_run_in_eval(take: Callable[[Path], Path], whole: Path, capsys: Out) -> None:
    run = take(whole)
    resigned(run / "checkpoints" / "best.pt", **{"optim.lr": 0.5})
    capsys.readouterr()
    assert main(["eval", str(run)]) == 2
    assert "best.pt: of another run (optim.lr: 0.5 there, 0.002 here)" in one_line(capsys)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("other", "line"),
    [("optim.lr=1e-3", "optim.lr: 0.001 there, 0.002 here"), ("seed=2", "seed: 2 there, None here")],
)
def test_the_checkpoints_of_a_real_other_run(
    take: Callable[[Path], Path], half: Path, capsys: Out, other: str, line: str
) -> None:
    run = take(half)
    assert main(["train", *RUN, other, "max_updates=4"]) == 0
    shutil.copytree(folder([*RUN, other, "max_updates=4"]) / "checkpoints", run / "checkpoints", dirs_exist_ok=True)
    capsys.readouterr()
    assert main(["train", *RUN]) == 2
    assert line in one_line(capsys)


# A clock that jumps.


@pytest.mark.parametrize("jump_s", [DAY, pytest.param(-DAY, marks=pytest.mark.slow)])
def test_a_clock_that_jumps_in_mid_run(monkeypatch: Patch, expected: dict[str, Any], jump_s: float) -> None:
    from lnexp import train

    real, update, jumped = time.time, Session._update, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + jumped[0])
    monkeypatch.setattr(train, "SAVE_EVERY_S", 0.05)  # the clock of saving goes on as well
    saved: list[int] = []
    save = checkpoint.write_last

    def jumps(self: Session, samples: list[Any]) -> dict[str, float]:
        if self.updates == 5:
            jumped[0] = jump_s
        time.sleep(0.06)
        return update(self, samples)

    monkeypatch.setattr(Session, "_update", jumps)
    monkeypatch.setattr(
        checkpoint, "write_last", lambda state, place: (saved.append(state["updates"]), save(state, place))
    )
    goes_on_to(expected)
    assert set(saved) >= set(range(1, 13))
    walls = [row["wall_s"] for row in rundir.rows(folder())]
    assert walls == sorted(walls) and walls[0] > 0 and status()["wall_s"] < 600


# A folder that is deleted.


@pytest.mark.parametrize("at", [11, pytest.param(5, marks=pytest.mark.slow)])
def test_a_run_folder_deleted_in_mid_run(at: int, capsys: Out) -> None:
    """The run ends at its next row or checkpoint; nothing of the folder comes back, no status.json either."""
    update = Session._update

    def deletes(self: Session, samples: list[Any]) -> dict[str, float]:
        if self.updates == at:
            shutil.rmtree(folder())
        return update(self, samples)

    with Patch.context() as patch:
        patch.setattr(Session, "_update", deletes)
        assert main(["train", *RUN]) == 1
    out, err = capsys.readouterr()
    lines = [line for line in out.splitlines() if "deleted while this run was in it; nothing more is written" in line]
    assert len(lines) == 1 and str(folder()) in lines[0] and "Traceback" not in out + err
    assert not folder().exists()


@pytest.mark.parametrize("split", ["test", pytest.param("valid", marks=pytest.mark.slow)])
def test_a_run_folder_deleted_while_it_is_scored(split: str, capsys: Out) -> None:
    translate = evaluate.translate

    def deletes(session: Any, data: Any, run: Any, name: str, decode: Any) -> Any:
        done = translate(session, data, run, name, decode)
        if name == split and session.updates == 12:
            shutil.rmtree(folder())
        return done

    with Patch.context() as patch:
        patch.setattr(evaluate, "translate", deletes)
        assert main(["train", *RUN]) == 1
    assert "deleted while this run was in it" in capsys.readouterr().out
    assert not folder().exists()


def test_a_new_run_in_a_deleted_folder_is_left_alone(whole: Path, capsys: Out) -> None:
    """Somebody deletes the folder and starts again: the first process must not write into the second's folder."""
    update, files = Session._update, {}

    def replaced(self: Session, samples: list[Any]) -> dict[str, float]:
        if self.updates == 5:
            shutil.rmtree(folder())
            with elsewhere(whole):
                there = folder()
            shutil.copytree(there, folder())
            (folder() / ".lock").write_text("")
            files.update({path: path.read_bytes() for path in folder().rglob("*") if path.is_file()})
        return update(self, samples)

    with Patch.context() as patch:
        patch.setattr(Session, "_update", replaced)
        assert main(["train", *RUN]) == 0  # the run itself is done, by the other
    assert "deleted while this run was in it" in capsys.readouterr().out
    assert files == {path: path.read_bytes() for path in folder().rglob("*") if path.is_file()}


# Numbers that explode.


def test_an_explosion_is_a_result_with_its_last_numbers(capsys: Out) -> None:
    """Finite for some updates; of a sweep the other runs go on, and the exit code is 0."""
    sweep = ["-m", *RUN, "optim=sgd", "size.dropout=0", "optim.lr=0.1,300", "sweep_name=explodes",
             "max_updates=40", "validate_every=40"]  # fmt: skip
    assert main(["train", *sweep]) == 0
    calm, wild = (rundir.read_status(job.folder) or {} for job in plan(sweep).jobs)
    assert calm["state"] == "done" and calm["reason"] is None
    number = r"(\d[\d.e+]*)"
    said = re.fullmatch(
        rf"update (\d+): .*; before it training loss {number} bits, gradient norm {number}", wild["reason"]
    )
    assert wild["state"] == "diverged" and said, wild
    assert int(said[1]) == wild["updates"] + 1 >= 3
    assert float(said[2]) > 5 and float(said[3]) > 0
    assert "1 diverged" in capsys.readouterr().out


@pytest.mark.slow
def test_an_explosion_after_a_restart_says_the_same() -> None:
    wild = [*RUN, "optim=sgd", "size.dropout=0", "optim.lr=300", "max_updates=40"]
    assert main(["train", *wild, "sweep_name=whole"]) == 0
    expected = rundir.read_status(folder([*wild, "sweep_name=whole"])) or {}
    cut = [*wild, "sweep_name=cut"]
    update = Session._update

    def stops(self: Session, samples: list[Any]) -> dict[str, float]:
        found = update(self, samples)
        if self.updates == expected["updates"]:  # nothing is between the signal and the explosion
            signal.raise_signal(signal.SIGTERM)
        return found

    with Patch.context() as patch:
        patch.setattr(Session, "_update", stops)
        assert main(["train", *cut]) == 130
    assert main(["train", *cut]) == 0
    found = rundir.read_status(folder(cut)) or {}
    assert found | {"wall_s": 0} == expected | {"wall_s": 0}


def test_a_loss_that_is_no_number(monkeypatch: Patch) -> None:
    update = Session._update

    def breaks(self: Session, samples: list[Any]) -> dict[str, float]:
        if self.updates == 5:
            with torch.no_grad():
                next(iter(self._trainer.model.parameters())).fill_(float("nan"))
        return update(self, samples)

    monkeypatch.setattr(Session, "_update", breaks)
    assert main(["train", *RUN]) == 0
    assert status()["state"] == "diverged"
    assert re.fullmatch(
        r"update 6: .*nan.*; before it training loss [\d.]+ bits, gradient norm [\d.]+", status()["reason"]
    )
    scores = json.loads((folder() / "scores.json").read_text())
    assert {score["split"] for score in scores} == {"valid", "test"}  # of the best checkpoint, which is from before


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["devices.max_tokens=5"], ["devices.max_tokens=5", "longest training sentence"]),
        (["tokens_per_update=5"], ["tokens_per_update=5", "longest training sentence"]),
    ],
)
def test_no_sentence_is_left_out_because_a_pass_is_short(words: list[str], named: list[str], capsys: Out) -> None:
    assert main(["train", *RUN, *words, "max_updates=2", "sweep_name=short"]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in named)


@pytest.mark.parametrize(
    ("words", "said"),
    [(["devices.max_tokens=250"], "began with 1 passes"), (["devices.device=cuda"], "no CUDA device")],
)
def test_a_run_that_cannot_go_on_so_keeps_what_it_has(words: list[str], said: str, capsys: Out) -> None:
    """Refused in another setting that makes no other run; as it was begun it goes on."""
    run = [*RUN, "tokens_per_update=500", "max_updates=8", "sweep_name=kept"]

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "write", interrupt)
        assert main(["train", *run]) == 130
    before = rundir.read_status(folder(run)) or {}
    assert before["updates"] == 8 and main(["train", *run, *words]) == 2
    assert said in capsys.readouterr().err
    after = rundir.read_status(folder(run)) or {}
    assert {k: after[k] for k in ("state", "updates", "wall_s")} == {
        k: before[k] for k in ("state", "updates", "wall_s")
    }
    assert main(["train", *run]) == 0 and "goes on from update 8" in capsys.readouterr().out
