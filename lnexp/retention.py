"""Which checkpoints stay once a run has ended: the setting `keep`.

"all" = every one, "best" = best.pt, "none" = nothing once the run is scored. Only files that training itself made go,
and only where a run has ended.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lnexp import rundir
from lnexp.rundir import ENDED

BEST = "best.pt"
MADE = (BEST, "last.pt", "previous.pt", "next.pt")
"""What training puts into checkpoints/; a file of any other name is somebody's own."""


@dataclass(frozen=True)
class Spare:
    """A file that may go."""

    path: Path
    size: int


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
    """List what may go of a run that has ended. Without scores best.pt stays, whatever `keep` says."""
    stays = () if keep == "none" and scored(folder) else (BEST,)
    found = []
    for place in (folder, folder / "checkpoints"):
        if place.is_symlink() or not place.is_dir():
            continue
        with os.scandir(place) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                made = place != folder and entry.name in MADE and entry.name not in stays
                if (made or entry.name.endswith(".tmp")) and entry.is_file(follow_symlinks=False):
                    found.append(Spare(Path(entry.path), entry.stat(follow_symlinks=False).st_size))
    return found


def scored(run: Path) -> bool:
    return (run / "scores.json").is_file()
