"""What a run finds in its folder before it begins: the state of an earlier call, and whether to try again."""

from __future__ import annotations

from pathlib import Path

from lnexp import rundir
from lnexp.config import Run, identity, load
from lnexp.errors import UserError


def take_over(run: Run, folder: Path) -> str | None:
    """Give the state the folder is in; refuse one that belongs to another config."""
    status = rundir.read_status(folder)
    if status is None:
        return None
    from lnexp.backend.checkpoint import differences

    if changed := differences(identity(load(folder / "config.yaml")), identity(run)):
        raise UserError(f"{folder}: holds another run ({changed}); delete it or set another run_name")
    return str(status["state"])


def again(run: Run, folder: Path) -> bool:
    """Say whether a failed run is to be tried again: asked for, or it never came to an update."""
    status = rundir.read_status(folder)
    return run.retry == "failed" or not status or not status["updates"]
