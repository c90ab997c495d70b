"""What may be deleted of a run that has ended, and all that must not be."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "golden"))
import fake_outputs as fake

from lnexp import clean, guard, retention, rundir
from lnexp.cli import main
from lnexp.rundir import ENDED

AVERAGED = {"update-900.pt", "update-1200.pt"}
OWN = {"own.pt", "update-mine.pt"}
ALL = {"best.pt", "last.pt", "previous.pt", "next.pt", "last.pt.tmp"} | AVERAGED | OWN
SCORES = [fake.score(20.0)]


def ended(folder: Path, state: str = "done", scores: list[dict[str, object]] | None = SCORES) -> Path:
    """Write one run with every kind of file in it."""
    metrics = fake.rows("pre", 200, 1, 300)
    fake.write_run(folder, fake.run("pre", 200, 1), state, metrics=metrics, scores=scores, checkpoints=tuple(ALL))
    for name in ("scores.json.tmp", "train.log", "last.pt", "wandb/a.tmp", "checkpoints/below/last.pt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"1234")
    return folder


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir() and p.name != ".lock"}


def cleaned(path: Path, keep: str = "best", yes: bool = True) -> list[str]:
    said: list[str] = []
    clean.clean(path, keep, yes, say=said.append)
    return said


def gone(keep: str) -> set[str]:
    names = ALL - OWN - ({"best.pt"} if keep == "best" else set())
    return {f"checkpoints/{name}" for name in names} | {"scores.json.tmp"}


# ---- what goes ----
@pytest.mark.parametrize("state", ENDED)
@pytest.mark.parametrize("keep", ["best", "none"])
def test_an_ended_run_loses_what_training_made_and_no_more(tmp_path: Path, state: str, keep: str) -> None:
    run = ended(tmp_path / "s" / "a", state)
    before = files(run)
    assert cleaned(tmp_path / "s", keep, yes=False)[-1].startswith(f"s: {7 + (keep == 'none')} files of 1 run, ")
    assert files(run) == before
    cleaned(tmp_path / "s", keep)
    assert files(run) == before - gone(keep)
    assert cleaned(tmp_path / "s", keep) == ["s: 0 files of 0 runs, 0.0 MB: nothing to delete"]


@pytest.mark.parametrize("state", ENDED)
@pytest.mark.parametrize("keep", ["all", "best", "none"])
def test_trim_leaves_the_same_as_clean(tmp_path: Path, state: str, keep: str) -> None:
    run = ended(tmp_path / "a", state)
    before = files(run)
    with guard.lock(run):  # as train has it
        retention.trim(run, keep)
    assert files(run) == before - (gone(keep) if keep != "all" else set())


@pytest.mark.parametrize("keep", ["best", "none"])
@pytest.mark.parametrize("state", ["running", "failed", "interrupted", None])
def test_trim_touches_nothing_of_a_run_that_has_not_ended(tmp_path: Path, keep: str, state: str | None) -> None:
    run = ended(tmp_path / "a", state or "done")
    if state is None:
        (run / "status.json").unlink()
    before = files(run)
    retention.trim(run, keep)
    assert files(run) == before


def test_trim_ends_well_where_nothing_can_be_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ended(tmp_path / "a")
    monkeypatch.setattr(Path, "unlink", denied)
    before = files(run)
    retention.trim(run, "none")
    assert files(run) == before


def test_without_scores_what_they_come_from_stays(tmp_path: Path) -> None:
    run = ended(tmp_path / "s" / "a", "diverged", scores=None)
    before = files(run)
    assert "a: has no scores yet, its best.pt stays" in cleaned(tmp_path / "s", "none", yes=False)
    assert "a: has no scores yet, its best.pt stays" in cleaned(tmp_path / "s", "none")
    assert files(run) == before - (gone("best") - {f"checkpoints/{name}" for name in AVERAGED})


def test_a_run_without_checkpoints(tmp_path: Path) -> None:
    run = fake.write_run(tmp_path / "a", fake.run("pre", 200, 1))
    retention.trim(run, "none")
    assert cleaned(run) == ["a: 0 files of 0 runs, 0.0 MB: nothing to delete"]


# ---- what stays ----
@pytest.mark.parametrize("keep", ["best", "none"])
@pytest.mark.parametrize("state", ["running", "cut", "failed", "interrupted", "damaged"])
def test_a_run_that_has_not_ended_keeps_all(tmp_path: Path, state: str, keep: str) -> None:
    run = ended(tmp_path / "s" / "a", {"cut": "running", "damaged": "done"}.get(state, state))
    if state == "damaged":
        (run / "metrics.jsonl").write_text("no row\n")
    before = files(run)
    if state == "running":
        with guard.lock(run):
            said = cleaned(tmp_path / "s", keep)
    else:
        said = cleaned(tmp_path / "s", keep)
    assert said == [f"left alone: 1 {state}", "s: 0 files of 0 runs, 0.0 MB: nothing to delete"]
    assert files(run) == before


@pytest.mark.parametrize("yes", [False, True])
def test_a_locked_run_is_passed_over_and_the_others_are_not(tmp_path: Path, yes: bool) -> None:
    locked, free = ended(tmp_path / "s" / "a"), ended(tmp_path / "s" / "b")
    before = files(locked)
    with guard.lock(locked):
        said = cleaned(tmp_path / "s", yes=yes)
    assert [line for line in said if line.startswith(f"passed over: {locked}: in use")]
    assert said[-1].startswith("s: 7 files of 1 run, ")
    assert files(locked) == before
    assert files(free) == (before - gone("best") if yes else before)


def test_a_run_begun_anew_in_between_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ended(tmp_path / "a")
    before = files(run)
    found = clean.standings(run)
    rundir.write_status(run, "interrupted", 3, 1.0)
    monkeypatch.setattr(clean, "standings", lambda _: found)
    assert cleaned(run)[0] == f"passed over: {run}: is trained again"
    assert files(run) == before


def test_a_listing_changes_nothing(tmp_path: Path) -> None:
    run = ended(tmp_path / "a")
    before = sorted((p, p.lstat().st_mtime_ns) for p in [run, *run.rglob("*")])
    cleaned(run, yes=False)
    assert sorted((p, p.lstat().st_mtime_ns) for p in [run, *run.rglob("*")]) == before


# ---- links ----
@pytest.mark.parametrize("yes", [False, True])
@pytest.mark.parametrize("place", ["", "checkpoints", ".lock"])
def test_no_link_is_followed(tmp_path: Path, place: str, yes: bool) -> None:
    run, elsewhere = tmp_path / "s" / "a", tmp_path / "elsewhere"
    ended(run)
    ended(tmp_path / "s" / "b")
    if place == ".lock":
        elsewhere.write_text("precious")
        (run / ".lock").symlink_to(elsewhere)
    else:
        (run / place).rename(elsewhere)
        (run / place).symlink_to(elsewhere, target_is_directory=True)
    before = files(elsewhere) if place != ".lock" else {"last.pt"}
    said = cleaned(tmp_path / "s", "none", yes)
    assert f"passed over: {run / place}: is a link, which is not followed" in said
    assert said[-1].startswith("s: 8 files of 1 run, ")
    assert elsewhere.read_text() == "precious" if place == ".lock" else files(elsewhere) == before
    retention.trim(run, "none")  # of a run whose checkpoints lie elsewhere training deletes nothing either
    if place == "checkpoints":
        assert files(elsewhere) == before


def test_a_sweep_that_is_a_link_is_passed_over_from_above(tmp_path: Path) -> None:
    run = ended(tmp_path / "elsewhere" / "s" / "a")
    before = files(run)
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "s").symlink_to(run.parent)
    link = tmp_path / "outputs" / "s"
    assert cleaned(tmp_path / "outputs")[0] == f"passed over: {link}: is a link, which is not followed"
    assert files(run) == before
    cleaned(link)  # named outright it is meant
    assert files(run) == before - gone("best")


def test_a_file_that_is_a_link_or_no_file_stays(tmp_path: Path) -> None:
    run = ended(tmp_path / "a")
    (tmp_path / "precious").write_text("1")
    for name in ("last.pt", "previous.pt", "next.pt"):
        (run / "checkpoints" / name).unlink()
    (run / "checkpoints" / "last.pt").symlink_to(tmp_path / "precious")
    (run / "checkpoints" / "previous.pt").mkdir()
    os.mkfifo(run / "checkpoints" / "next.pt")
    cleaned(run)
    retention.trim(run, "none")
    assert (tmp_path / "precious").exists()
    assert {"last.pt", "previous.pt", "next.pt"} <= {p.name for p in (run / "checkpoints").iterdir()}


# ---- the command ----
def denied(path: Path, missing_ok: bool = False) -> None:
    raise PermissionError(13, "Permission denied", str(path))


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ended(tmp_path / "outputs" / "s" / "a")
    before = files(run)
    for arguments in (["s"], ["s", "--keep", "none"], ["--keep=none", "s"]):
        assert main(["clean", *arguments]) == 0
        assert "nothing is deleted without --yes" in capsys.readouterr().out and files(run) == before
    assert main(["clean", "--yes", "--keep=best", "s"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "s: 7 files of 1 run, 229.1 MB: deleted, best.pt stays"
    assert files(run) == before - gone("best")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "nothing given: need a sweep or run folder, as in outputs/demo or just demo"),
        (["a", "b"], "a b: need a sweep or run folder, as in outputs/demo or just demo"),
        (["s", "--all"], "--all: no such option (see `lnexp --help`)"),
        (["s", "--keep", "all"], "--keep all: need best (best.pt stays) or none"),
        (["s", "--keep"], "--keep : need best (best.pt stays) or none"),
        (["nosuch"], "nosuch: no such folder; outputs/ has s"),
    ],
    ids=str,
)
def test_wrong_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    monkeypatch.setenv("LNEXP_OUTPUTS", "outputs")
    run = ended(tmp_path / "outputs" / "s" / "a")
    before = files(run)
    assert main(["clean", "--yes", *arguments]) == 2
    assert capsys.readouterr() == ("", f"lnexp clean: {line}\n")
    assert files(run) == before


def test_a_file_that_cannot_be_deleted_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ended(tmp_path / "a")
    monkeypatch.setattr(Path, "unlink", denied)
    assert main(["clean", str(run), "--yes"]) == 2
    file = run / "scores.json.tmp"
    assert capsys.readouterr() == ("", f"lnexp clean: {file}: cannot be deleted (Permission denied)\n")


# ---- what it knows of training ----
def test_names_and_states_are_those_of_training() -> None:
    from lnexp.backend import checkpoint

    assert {checkpoint.BEST, checkpoint.LAST, checkpoint.PREVIOUS} <= set(retention.MADE)


@pytest.fixture
def cli_modules() -> Callable[[str], set[str]]:
    def loaded(verb: str) -> set[str]:
        code = f"import sys; from lnexp.cli import main; assert main(['{verb}', 'outputs']) == 0; print(*sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        return set(done.stdout.split())

    return loaded


@pytest.mark.parametrize("verb", ["clean", "status"])
def test_nothing_heavy_is_loaded(tmp_path: Path, cli_modules: Callable[[str], set[str]], verb: str) -> None:
    ended(tmp_path / "outputs" / "s" / "a")
    assert not cli_modules(verb) & {"torch", "fairseq", "wandb", "hydra", "omegaconf", "numpy", "tqdm"}
