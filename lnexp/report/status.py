"""How a sweep stands: a line a run with its last row and the time that it still takes. Never stops at a damaged file.

In: a sweep or run folder. Out: text, JSON, or a screen that follows the runs. Unlike the table it tells a run that
was killed from one that runs: its status.json still says "running", but nobody has its lock.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from lnexp.errors import UserError
from lnexp.report import live, wording
from lnexp.report.collect import DAMAGED, MISSING, NOT_BEGUN, PROBED, Result, collect, find

CUT = "cut"
STATES = ("done", "running", CUT, "diverged", "failed", "interrupted", DAMAGED, PROBED, MISSING)
OVER = ("done", "diverged", "failed", DAMAGED)
"""What `--watch` does not wait for: the others go on, or will with the same command."""
EVERY_S = 2.0
WHOLE = 2**18
"""Bytes: of a longer metrics.jsonl only the end is looked at. That of a run of 16,500 updates has 40 KB."""
_FIRST = ("running", CUT, "interrupted", "failed", DAMAGED, "diverged", MISSING, PROBED, "done")
_HEADERS = ("state", "updates", "valid loss", "valid BLEU", "so far", "left", "run")


@dataclass
class Standing:
    """How one run stands; None is what is not known."""

    folder: Path
    state: str
    updates: int = 0
    bound: int | None = None
    loss: float | None = None
    """Of the last validation, as is the BLEU; may be no finite number."""
    bleu: float | None = None
    wall_s: float = 0.0
    left_s: float | None = None
    """At the speed of its last rows; None unless it runs and has a bound in updates."""
    reason: str | None = None


def standings(folder: Path) -> list[Standing]:
    """Read every run at `folder` and every one that is missing there."""
    return [_stand(certain(result)) for result in collect(folder, strict=False)]


def status(path: Path | str, outputs: Path | str = "outputs") -> str:
    """Give one line a run, then the counts and the disk use."""
    folder = find(path, outputs)
    found = standings(folder)
    return "\n".join([*_lines(found), _counts(folder, found), _disk(found)]) + "\n"


def data(path: Path | str, outputs: Path | str = "outputs") -> str:
    """Give the same as JSON, unrounded; a number that is not finite is a string."""
    folder = find(path, outputs)
    found = standings(folder)
    whole, checkpoints = _bytes(found)
    content = {
        "sweep": folder.name,
        "folder": str(folder),
        "wanted": len(found) if _asked(folder) else None,
        "counts": {state: sum(run.state == state for run in found) for state in STATES},
        "disk": {"bytes": whole, "checkpoint_bytes": checkpoints},
        "runs": [_plain_data(run) for run in found],
    }
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def watch(path: Path | str, outputs: Path | str = "outputs", out: TextIO | None = None) -> None:
    """Draw the status anew every 2 seconds until every run is over or Ctrl-C; outside a terminal print it once."""
    out = out or sys.stdout
    if not out.isatty():
        out.write(status(path, outputs))
        return
    drawn = 0
    try:
        while True:
            folder = find(path, outputs)
            found = standings(folder)
            text = "\n".join([*_fitting(found), _counts(folder, found), _disk(found)]) + "\n"
            # Up to where it began, clear, and let no line wrap: the next drawing counts lines.
            out.write((f"\033[{drawn}F" if drawn else "") + f"\033[J\033[?7l{text}\033[?7h")
            out.flush()
            drawn = text.count("\n")
            # What was only probed is not waited for, unless a sweep asks for its training.
            if all(run.state in OVER or (run.state == PROBED and not _asked(folder)) for run in found):
                return
            time.sleep(EVERY_S)
    except KeyboardInterrupt:
        out.write("\033[?7h\n")


def certain(result: Result) -> Result:
    """Tell a run that was killed from one that runs."""
    if result.state != "running" or live.held(result.folder):
        return result
    try:
        (result,) = collect(result.folder, strict=False)  # it may have ended since it was read
    except (UserError, ValueError):
        return result
    if result.state == "running":
        result.state = CUT
    return result


def _stand(result: Result) -> Standing:
    rows = result.folder / "metrics.jsonl"
    if rows.is_file() and rows.stat().st_size <= WHOLE:
        result.forgive("_validations")  # as the table reads it
    recent = live.Recent()
    try:
        recent = live.recent(result.folder)
    except (ValueError, OSError) as error:
        if result.state != DAMAGED:
            result.state, result.reason = DAMAGED, f"{rows}: cannot be read as rows of JSON ({error})"
    run = Standing(result.folder, result.state, result.updates, _bound(result), wall_s=result.wall_s)
    run.reason = str(result.reason) if result.reason and result.state not in ("done", MISSING) else None
    run.loss, run.bleu = (
        float(v) if isinstance(v := recent.valid.get(name), int | float) else None for name in ("loss_bits", "bleu")
    )
    if run.state in ("running", CUT):  # status.json may be older than the last row
        run.updates = max(run.updates, recent.last.get("updates", 0))
        run.wall_s = max(run.wall_s, live.number(recent.last.get("wall_s")) or 0.0)
    if run.state == CUT:
        run.reason = f"killed at update {run.updates}; the same command goes on"
    speed = recent.updates_per_s() if run.state == "running" else None
    if speed and run.bound:
        run.left_s = max(0, run.bound - run.updates) / speed
        most = live.number(result.config.get("max_wall_s"))
        run.left_s = min(run.left_s, max(0.0, most - run.wall_s)) if most else run.left_s
    return run


def _bound(result: Result) -> int | None:
    """Give the updates at which the run stops, of whichever bounds it has; epochs count once their length is known."""
    bounds = (
        (result.config.get("max_updates"), 1),
        (result.config.get("max_epochs"), result.env.get("updates_per_epoch")),
    )
    return min((a * b for a, b in bounds if isinstance(a, int) and isinstance(b, int) and a * b > 0), default=None)


def _lines(runs: Sequence[Standing]) -> list[str]:
    rows = [_HEADERS, *(_cells(run) for run in runs)]
    width = [max(len(row[i]) for row in rows) for i in range(len(_HEADERS) - 1)]
    return [
        "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(row, width, strict=False)))
        + f"  {row[-1]}"
        for row in rows
    ]


def _cells(run: Standing) -> tuple[str, ...]:
    updates = str(run.updates or wording.NOTHING)
    if run.bound and run.state not in NOT_BEGUN:
        updates = f"{run.updates}/{run.bound} {100 * run.updates // run.bound:3d}%"
    return (
        run.state,
        updates,
        wording.NOTHING if run.loss is None else f"{run.loss:.3f}",
        wording.NOTHING if run.bleu is None else f"{run.bleu:.2f}",
        wording.duration(run.wall_s) if run.wall_s else wording.NOTHING,
        wording.NOTHING if run.left_s is None else wording.duration(run.left_s),
        wording.plain(run.folder.name, 100) + (f": {wording.plain(run.reason, 300)}" if run.reason else ""),
    )


def _fitting(runs: Sequence[Standing]) -> list[str]:
    """Give the lines that fit on the screen: what runs, then what needs a person, then the rest."""
    room = shutil.get_terminal_size().lines - 4  # header, counts, disk and the line that the cursor waits on
    if len(runs) <= room:
        return _lines(runs)
    shown = sorted(runs, key=lambda run: _FIRST.index(run.state))[: max(1, room - 1)]
    return [*_lines(shown), f"… and {len(runs) - len(shown)} more"]


def _counts(folder: Path, runs: Sequence[Standing]) -> str:
    counts = [(sum(run.state == state for run in runs), state) for state in STATES]
    text = ", ".join(f"{n} {state}" for n, state in counts if n)
    return f"{wording.plain(folder.name, 60)}: {len(runs)} {'wanted' if _asked(folder) else 'found'}: {text}"


def _asked(folder: Path) -> bool:
    return (folder / "sweep.json").is_file()


def _disk(runs: Sequence[Standing]) -> str:
    whole, checkpoints = _bytes(runs)
    return f"disk: {live.size(whole)} in the run folders, of it checkpoints {live.size(checkpoints)}"


def _bytes(runs: Sequence[Standing]) -> tuple[int, int]:
    parts = [live.disk(run.folder) for run in runs]
    return sum(whole for whole, _ in parts), sum(checkpoints for _, checkpoints in parts)


def _plain_data(run: Standing) -> dict[str, Any]:
    content = {
        "name": run.folder.name,
        "folder": str(run.folder),
        "state": run.state,
        "updates": run.updates,
        "bound": run.bound,
        "valid_loss_bits": run.loss,
        "valid_bleu": run.bleu,
        "wall_s": round(run.wall_s, 3),
        "left_s": None if run.left_s is None else round(run.left_s, 1),
        "reason": run.reason,
    }
    return {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in content.items()}
