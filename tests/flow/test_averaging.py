"""Checkpoint averaging in whole runs: beside the best checkpoint, the same after a kill, and again by `lnexp eval`."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes.outcome import outcome
from fakes.process import Command

from lnexp import rundir
from lnexp.cli import main
from lnexp.launch import plan

# A run of seconds: 12 updates, a validation every third; no translation is longer than its source.
RUN = ["data=toy_copy", "size=tiny", "size.dropout=0.1", "schedule=constant", "optim.lr=2e-3", "decode=greedy",
       "decode.max_len_a=1", "decode.max_len_b=0", "track=none", "devices.threads=1",
       "tokens_per_update=300", "max_updates=12", "validate_every=3", "log_every=2"]  # fmt: skip
MEAN = [*RUN, "average=3"]


def folder(arguments: list[str]) -> Path:
    return plan(arguments).jobs[0].folder


def parameters(run: Path) -> dict[str, dict[str, Any]]:
    """Give what the files for averaging hold: name -> parameters as numpy has them."""
    files = sorted((run / "checkpoints").glob("update-*.pt"))
    states = {file.name: torch.load(file, weights_only=True)["model"] for file in files}
    return {name: {k: v.numpy() for k, v in state.items()} for name, state in states.items()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


def scores(run: Path, checkpoint: str) -> dict[tuple[str, str], dict[str, Any]]:
    entries = rundir.read_json(run / "scores.json")
    return {(e["split"], e["metric"]): e for e in entries if e["checkpoint"] == checkpoint}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared data of all tests here."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def shared(cache: Path, apart: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LNEXP_CACHE", str(cache))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A run with the mean of its last 3 checkpoints; tests that write into it take a copy."""
    place = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("LNEXP_CACHE", str(cache))
        patch.setenv("LNEXP_OUTPUTS", str(place / "outputs"))
        command = Command(["train", *MEAN])
        assert command.end(60) == 0, command.said
        return place / folder(MEAN)


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    """That run as outputs/adhoc/RUN of this test."""
    return Path(shutil.copytree(trained, tmp_path / "outputs" / "adhoc" / trained.name))


def test_the_mean_is_scored_beside_the_best(trained: Path, tmp_path: Path) -> None:
    assert parameters(trained).keys() == {"update-6.pt", "update-9.pt", "update-12.pt"}
    best, mean = scores(trained, "best"), scores(trained, "mean of 3")
    assert best.keys() == mean.keys() and len(best) == 4
    entry = mean["test", "sacrebleu"]
    assert [(i["file"], i["updates"]) for i in entry["inputs"]] == [
        (f"checkpoints/update-{n}.pt", n) for n in (6, 9, 12)
    ]
    assert len({i["sha256"] for i in entry["inputs"]}) == 3 and len(entry["inputs_sha256"]) == 64
    assert all("inputs" not in e for e in best.values())
    assert len((trained / "hyp.test.mean-of-3.txt").read_text().splitlines()) == 200
    assert (trained / "checkpoints" / "update-6.pt").stat().st_size < (
        trained / "checkpoints" / "best.pt"
    ).stat().st_size / 2


def test_without_it_all_else_is_the_same(trained: Path) -> None:
    assert main(["train", *RUN]) == 0
    plain = folder(RUN)
    assert plain.name == trained.name and not parameters(plain)
    assert scores(plain, "best") == scores(trained, "best") and not scores(plain, "mean of 3")
    ours, theirs = outcome(plain), outcome(trained)
    assert ours | {"scores": None} == theirs | {"scores": None}
    for split in ("valid", "test"):
        assert (plain / f"hyp.{split}.txt").read_bytes() == (trained / f"hyp.{split}.txt").read_bytes()


def test_its_scores_are_those_of_numpys_mean_of_the_files(trained: Path, copy: Path) -> None:
    """The mean, taken by numpy, as the best checkpoint of a copy of the run."""
    from lnexp.backend import checkpoint

    files = list(parameters(copy).values())
    averaged = {k: np.mean([f[k] for f in files], axis=0, dtype=np.float64).astype(np.float32) for k in files[0]}
    best = copy / "checkpoints" / "best.pt"
    state = torch.load(best, weights_only=True) | {"model": {k: torch.from_numpy(v) for k, v in averaged.items()}}
    checkpoint.write(state, best)
    assert main(["eval", str(copy)]) == 0
    for key, entry in scores(trained, "mean of 3").items():
        assert scores(copy, "best")[key]["value"] == entry["value"]
    for split in ("valid", "test"):
        assert (copy / f"hyp.{split}.txt").read_bytes() == (trained / f"hyp.{split}.mean-of-3.txt").read_bytes()


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("kept", signal.SIGKILL),
        ("known", signal.SIGKILL),
        pytest.param("saving", signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param("scoring", signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param("update", signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_killed_and_gone_on_leaves_the_same_set(trained: Path, moment: str, number: int) -> None:
    command = Command(["train", *MEAN], moment)
    command.reach()
    command.strike(number)
    assert command.end(10) in (-9, 130)
    run = folder(MEAN)
    assert (rundir.read_status(run) or {})["state"] != "done"
    # What a longer run left there, or a validation that is not reached again: later than the last checkpoint.
    shutil.copy(trained / "checkpoints" / "update-9.pt", run / "checkpoints" / "update-99.pt")
    again = Command(["train", *MEAN])
    assert again.end(60) == 0, again.said
    assert outcome(run) == outcome(trained)  # the list of inputs and its hash among it
    ours, theirs = parameters(run), parameters(trained)
    assert ours.keys() == theirs.keys() and all(same(ours[name], theirs[name]) for name in ours)
    names = ("hyp.valid.mean-of-3.txt", "hyp.test.mean-of-3.txt", "hyp.test.txt")
    assert all((run / name).read_bytes() == (trained / name).read_bytes() for name in names)


def test_eval_gives_the_same_mean_and_others_and_overwrites_nothing(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {p.name: p.read_bytes() for p in copy.iterdir() if p.is_file()}
    assert main(["eval", str(copy), "--average", "3"]) == 0
    assert "test sacrebleu" in (out := capsys.readouterr().out) and "(mean of 3, 200 sentences" in out
    assert {p.name: p.read_bytes() for p in copy.iterdir() if p.is_file()} == before  # bit for bit
    assert main(["eval", copy.name, "average=2", "decode.beam=2"]) == 2  # a run is named by its path
    capsys.readouterr()
    assert main(["eval", str(copy), "average=2"]) == 0
    assert main(["eval", str(copy), "--average=2", "decode.beam=2"]) == 0
    after = {p.name: p.read_bytes() for p in copy.iterdir() if p.is_file()}
    assert {name for name in after if name not in before} == {
        f"hyp.{split}.mean-of-2.{how}txt" for split in ("valid", "test") for how in ("", "beam2-lp1-len1x+0.")
    }
    assert all(after[name] == before[name] for name in before if name != "scores.json")
    old, new = (json.loads(side["scores.json"]) for side in (before, after))
    assert new[: len(old)] == old and len(new) == len(old) + 8
    assert scores(copy, "mean of 2")["test", "sacrebleu"]["inputs"] == old[-1]["inputs"][1:]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--average", "4"],
            ("--average 4: has the parameters of 3 validations", "--average 3, or train with average=4"),
        ),
        (["average=many"], ("--average many: need a whole number",)),
        (["--average"], ("--average : need a whole number",)),
    ],
)
def test_eval_refuses_what_is_not_there(
    copy: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: tuple[str, ...]
) -> None:
    before = (copy / "scores.json").read_bytes()
    assert main(["eval", str(copy), *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and all(word in err for word in words)
    assert (copy / "scores.json").read_bytes() == before


def test_eval_of_a_damaged_file_changes_nothing(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, before = copy / "checkpoints" / "update-9.pt", (copy / "scores.json").read_bytes()
    file.write_bytes(file.read_bytes()[:-100])
    assert main(["eval", str(copy), "--average", "3"]) == 2
    assert "update-9.pt: damaged" in capsys.readouterr().err
    assert (copy / "scores.json").read_bytes() == before


def test_fewer_validations_are_labelled_and_keep_best_leaves_scores_and_best(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", *RUN, "average=9", "keep=best"]) == 0
    assert "average=9, but 4 validations since it was set: a mean of 4" in capsys.readouterr().out
    run = folder(RUN)
    assert len(scores(run, "mean of 4")) == 4 and len(rundir.read_json(run / "scores.json")) == 8
    assert {p.name for p in (run / "checkpoints").iterdir()} == {"best.pt"}
    assert main(["eval", str(run), "--average", "3"]) == 2
    assert "has the parameters of 0 validations" in (err := capsys.readouterr().err) and "train with average=3" in err


def test_two_processes_keep_and_average(trained: Path) -> None:
    assert main(["train", *MEAN, "devices.processes=2", "tokens_per_update=600"]) == 0
    run = folder([*MEAN, "tokens_per_update=600"])
    assert parameters(run).keys() == {"update-6.pt", "update-9.pt", "update-12.pt"}
    assert len(scores(run, "mean of 3")) == 4
    before = (run / "scores.json").read_bytes()
    assert main(["eval", str(run), "--average", "3"]) == 0  # in one process
    assert (run / "scores.json").read_bytes() == before


def test_reports_of_such_a_run(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("status", "table", "dashboard"):
        assert main([verb, "adhoc"]) == 0, capsys.readouterr().err
    value = scores(copy, "best")["test", "sacrebleu"]["value"]
    assert f"{value:.2f} (n=1)" in (copy.parent / "table.md").read_text()
    assert "sacrebleu, mean of 3" in (copy.parent / "dashboard.html").read_text()
