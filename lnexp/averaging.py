"""Checkpoint averaging, `average=N`: a result of its own beside that of the best checkpoint, never in its place.

In training: the parameters after each of the last N validations, checkpoints/update-<updates>.pt. Afterwards: their
mean, for scores that call their checkpoint "mean of N" and list what went into it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lnexp.errors import UserError
from lnexp.retention import for_average, name_for_average
from lnexp.rundir import AVERAGED

if TYPE_CHECKING:
    from lnexp.backend.session import Session


@dataclass(frozen=True)
class Mean:
    """Which parameters a score is of, where they are a mean."""

    inputs: list[dict[str, Any]]
    """file, updates and sha256 of the parameters, the oldest first."""

    @property
    def label(self) -> str:
        return f"{AVERAGED}{len(self.inputs)}"

    @property
    def more(self) -> dict[str, Any]:
        """What its entries in scores.json have more than those of the best checkpoint: the inputs, and their hash."""
        text = json.dumps(self.inputs, sort_keys=True)
        return {"inputs": self.inputs, "inputs_sha256": hashlib.sha256(text.encode()).hexdigest()}


def keep(state: dict[str, Any], checkpoints: Path, count: int) -> None:
    """Write the parameters of a validated `state` beside those of the `count` - 1 validations before; older ones go.

    In this order, and before last.pt knows of the validation, a kill in between leaves what a restart completes.
    """
    from lnexp.backend import checkpoint

    before = [file for updates, file in for_average(checkpoints.parent) if updates < state["updates"]]
    for file in before[: max(0, len(before) + 1 - count)]:
        file.unlink()
    if count:
        own = {name: state[name] for name in ("model", "trained", "updates")}
        checkpoint.write(own, checkpoints / name_for_average(own["updates"]))


def forget(folder: Path, validated: int) -> None:
    """Delete the parameters of validations after update `validated`: a run that goes on from there makes them again."""
    for updates, file in for_average(folder):
        if updates > validated:
            file.unlink()


def asked(text: str) -> int:
    """Read the N of `--average N`; none = 0, the best checkpoint."""
    if text == "none":
        return 0
    if not (text.isascii() and text.isdigit()):
        raise UserError(f"--average {text}: need a whole number, of validations whose parameters the mean is of")
    if not int(text):
        raise UserError(f"--average {text}: need >= 1; leave it out to score the best checkpoint, no mean")
    return int(text)


def choose(folder: Path, count: int) -> list[Path]:
    """Give the last `count` of the files; UserError where there are fewer."""
    found = for_average(folder)
    if len(found) < count:
        what = f"has the parameters of {validations(len(found))} (keep=best, keep=none and `lnexp clean` delete them)"
        fewer = f"--average {len(found)}, or " if found else ""
        rule = f"{fewer}train with average={count}, which for a run that has ended needs its folder deleted"
        raise UserError(f"{folder}: --average {count}: {what}; {rule}")
    return [file for _, file in found[-count:]]


def validations(number: int) -> str:
    return f"{number} validation{'' if number == 1 else 's'}"


def load(session: Session, files: list[Path], trained: dict[str, Any]) -> Mean:
    """Have `session` translate with the mean of `files`. UserError where one is damaged or of another run."""
    from lnexp.backend.average import mean

    with session.clock("checkpointing"):
        parameters, inputs = mean(files, trained)
        session.load_state({"model": parameters}, optimizer=False)
    return Mean(inputs)


def at_end(session: Session, folder: Path, trained: dict[str, Any], say: Callable[[str], None]) -> Mean | None:
    """Have `session` translate with the mean that its run asks for, or of as many as there are; None without.

    A file that cannot be read costs the mean and is said: the run has ended well all the same.
    """
    wanted = session.run.average
    if not wanted:
        return None
    files = [file for _, file in for_average(folder)][-wanted:]
    if len(files) < wanted:
        label = f"a mean of {len(files)}" if files else "no mean"
        say(f"{folder.name}: average={wanted}, but {validations(len(files))} since it was set: {label}")
    try:
        return load(session, files, trained) if files else None
    except UserError as error:
        say(f"{folder.name}: no mean of checkpoints: {error}")
        return None
