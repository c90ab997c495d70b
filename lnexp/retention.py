"""Which checkpoints stay once a run has ended: the setting `keep`.

"all" = every one, "best" = best.pt, "none" = nothing once the run is scored; what was kept for averaging goes with
either once it is scored. Only files that training itself made go, and only where a run has ended.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lnexp import rundir
from lnexp.rundir import ENDED

BEST = "best.pt"
MADE = (BEST, "last.pt", "previous.pt", "next.pt")
"""What training puts into checkpoints/, beside parameters kept for averaging; any other file is somebody's own."""
_FOR_AVERAGE = re.compile(r"update-([0-9]+)\.pt")


@dataclass(frozen=True)
class Spare:
    """A file that may go."""

    path: Path
    size: int


def name_for_average(updates: int) -> str:
    """Name the file of the parameters after an update that are kept for averaging."""
    return f"update-{updates}.pt"


def for_average(folder: Path) -> list[tuple[int, Path]]:
    """List the parameters kept for averaging by their update, the oldest first."""
    files = (folder / "checkpoints").glob("update-*.pt")
    return sorted((int(match[1]), file) for file in files if (match := _FOR_AVERAGE.fullmatch(file.name)))


def trim(folder: Path, keep: str) -> None:
    """Delete what `keep` does not name, once status.json says that the run has ended; the caller has its lock.

    A file that cannot be deleted is left for `lnexp clean`, which says so: the run has ended well all the same.
    """
    status = rundir.read_status(folder)
    if keep != "all" and status and status["state"] in ENDED:
        for file in spare(folder, keep):
            with suppress(OSError):
                file.path.unlink()


def spare(folder: Path, keep: str) -> list[Spare]:
    """List what may go of a run that has ended. Without scores what they come from stays, whatever `keep` says."""
    done = scored(folder)

    def goes(name: str) -> bool:
        if name == BEST:
            return done and keep == "none"
        return name in MADE or (done and _FOR_AVERAGE.fullmatch(name) is not None)

    found = []
    for place in (folder, folder / "checkpoints"):
        if place.is_symlink() or not place.is_dir():
            continue
        with os.scandir(place) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                made = place != folder and goes(entry.name)
                if (made or entry.name.endswith(".tmp")) and entry.is_file(follow_symlinks=False):
                    found.append(Spare(Path(entry.path), entry.stat(follow_symlinks=False).st_size))
    return found


def scored(run: Path) -> bool:
    return (run / "scores.json").is_file()
