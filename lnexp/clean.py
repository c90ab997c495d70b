"""`lnexp clean`: list the checkpoints that ended runs no longer need, and delete them when told to.

A run that can still go on keeps what it goes on from, and a file or folder that is a link is let be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from lnexp import rundir
from lnexp.errors import UserError
from lnexp.guard import lock
from lnexp.report import live, wording
from lnexp.report.collect import find
from lnexp.report.status import STATES, standings
from lnexp.retention import BEST, Spare, scored, spare
from lnexp.rundir import ENDED


def clean(
    path: Path | str, keep: str = "best", yes: bool = False, outputs: Path | str = "outputs",
    say: Callable[[str], None] = print,
) -> None:  # fmt: skip
    """Say what may go, and with `yes` delete it; one line a file, then the sums and what was passed over."""
    if keep not in ("best", "none"):
        raise UserError(f"--keep {keep}: need best (best.pt stays) or none")
    folder = find(path, outputs)
    files: list[Spare] = []
    passed: list[str] = []
    unscored: list[str] = []
    runs, others = set[Path](), Counter[str]()
    for run in standings(folder):
        if run.state not in ENDED:
            others[run.state] += 1
            continue
        try:
            _check_links(folder, run.folder)
            for file in (_deleted if yes else _free)(run.folder, keep):
                say(f"{run.state:8}  {live.size(file.size):>9}  {wording.plain(str(file.path), 300)}")
                files.append(file)
                runs.add(run.folder)
        except UserError as error:
            passed.append(wording.plain(str(error), 300))
            continue
        except OSError as error:
            raise UserError(f"{error.filename or run.folder}: cannot be deleted ({error.strerror})") from None
        if keep == "none" and (run.folder / "checkpoints" / BEST).is_file() and not scored(run.folder):
            unscored.append(wording.plain(run.folder.name, 100))
    for name in unscored:
        say(f"{name}: has no scores yet, its {BEST} stays")
    for line in passed:
        say(f"passed over: {line}")
    if others:
        say(f"left alone: {', '.join(f'{others[state]} {state}' for state in STATES if others[state])}")
    total = live.size(sum(file.size for file in files))
    say(f"{wording.plain(folder.name, 60)}: {_count(len(files), 'file')} of {_count(len(runs), 'run')}, {total}: "
        + _verdict(bool(files), keep, yes))  # fmt: skip


def _verdict(any_files: bool, keep: str, yes: bool) -> str:
    if not any_files:
        return "nothing to delete"
    best = f"with {BEST}, so that `lnexp eval` is impossible for them" if keep == "none" else f"{BEST} stays"
    return f"deleted, {best}" if yes else f"would go, {best}; nothing is deleted without --yes"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _check_links(sweep: Path, run: Path) -> None:
    """Refuse what leads out of the sweep: a run folder, its checkpoints or its lock that is a link."""
    inside = [run, *(p for p in run.parents if p != sweep and p.is_relative_to(sweep))] if run != sweep else []
    for place in (*inside, run / "checkpoints", run / ".lock"):
        if place.is_symlink():
            raise UserError(f"{place}: is a link, which is not followed")


def _free(run: Path, keep: str) -> Iterator[Spare]:
    if live.held(run):
        raise UserError(f"{run}: in use")
    yield from spare(run, keep)


def _deleted(run: Path, keep: str) -> Iterator[Spare]:
    with lock(run):
        status = rundir.read_status(run)  # again: it may have been begun anew in between
        if not status or status["state"] not in ENDED:
            raise UserError(f"{run}: is trained again")
        for file in spare(run, keep):
            file.path.unlink(missing_ok=True)
            yield file
