"""The run folder: the only thing that training, reports and trackers share.

outputs/<sweep>/<run_name>-<id8>/
  config.yaml     the run, resolved            status.json   state, updates, wall_s, reason
  env.json        versions, machine, data      scores.json   final scores with their identity
  metrics.jsonl   one row an event             hyp.*.txt     translations, one a line
  timing.json     where the time went, memory
  checkpoints/    best.pt, last.pt, previous.pt  train.log   what the run said
  probe.json      gradient norms and the like, where `lnexp probe` measured them

Every write is whole or absent (temporary file, fsync, rename); metrics.jsonl is appended and flushed a row.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from lnexp.errors import UserError
from lnexp.files import write_text

# The closed list of row fields: name -> (display name, unit). Rows may hold no other.
FIELDS = {
    "split": ("split", ""),
    "updates": ("updates", ""),
    "epoch": ("epoch", ""),
    "wall_s": ("wall-clock", "s"),
    "lr": ("learning rate", ""),
    "loss_bits": ("loss, label-smoothed", "bits/token"),
    "nll_bits": ("cross-entropy", "bits/token"),
    "bleu": ("BLEU", ""),
    "gnorm": ("gradient norm", ""),
    "tokens_per_s": ("target tokens a second", "1/s"),
    # Of probes, by module (probe.py says what each is).
    "grad": ("gradient norm by matrix, before clipping", ""),
    "update_ratio": ("size of the update over that of the matrix", ""),
    "hidden": ("root mean square norm of what goes into a LayerNorm", ""),
    "entropy": ("attention entropy over that of uniform attention", ""),
}
STATES = ("running", "done", "diverged", "failed", "interrupted")
ENDED = ("done", "diverged")
"""States that nothing comes after; a diverged run is a result."""
AVERAGED = "mean of "
"""What the `checkpoint` of a score begins with where the parameters are a mean: "mean of 5"."""
STALE_S = 60.0
"""Without a sign of life in .lock for so long a process of another machine counts as gone."""

Row = dict[str, Any]


def check_writable(folder: Path) -> Path:
    """Give the nearest folder above that is there; UserError where nothing can be made in it. Leaves nothing."""
    place = folder.absolute()
    there = next(p for p in (place, *place.parents) if os.path.lexists(p))
    probe = there / f".write-{os.getpid()}"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        rule = "set paths.outputs=DIR"
        raise UserError(f"paths.outputs: {folder} cannot be written ({error.strerror}); {rule}") from None
    return there


def finite(value: Any) -> Any:
    """Spell non-finite numbers as strings ("nan", "inf"), so that every line is valid JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        mend = _AGAIN.get(path.name, "put it back, or delete it")
        raise UserError(f"{path}: cannot be read as JSON ({error}); {mend}") from None


_AGAIN = {
    "status.json": "delete it, and the command that trained the run goes on and writes it again",
    "probe.json": "delete it to have it made again",
    "scores.json": "put it back, or delete it: `lnexp eval` makes it again while the checkpoints are there",
}


class RowFile:
    """metrics.jsonl, open for appending. A half-written last line (a killed run) is cut off first."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "metrics.jsonl"
        # Without a buffer: what a full disk refused would stay in it and come out later, in the middle of a line.
        self._file = open(self._path, "ab+", buffering=0)
        self._file.seek(0)
        raw = self._file.read()
        if (whole := raw.rfind(b"\n") + 1) < len(raw):
            self._file.truncate(whole)

    def write(self, row: Row) -> None:
        unknown = set(row) - set(FIELDS)
        if unknown:
            raise ValueError(f"row fields outside the list: {sorted(unknown)}")
        line = (json.dumps(finite(row), allow_nan=False) + "\n").encode()
        before = self._file.seek(0, os.SEEK_END)
        try:
            while line:  # a disk that is nearly full takes a part
                line = line[self._file.write(line) :]
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(before)
            error.filename = str(self._path)
            raise

    def close(self) -> None:
        self._file.close()


def rows(folder: Path) -> Iterator[Row]:
    """Read metrics.jsonl; a torn last line is passed over, non-finite numbers come back as floats."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith("\n"):
                return
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not isinstance(row, dict) or "updates" not in row or "split" not in row:
                raise UserError(
                    f"{path}, line {number:,}: not a row of JSON; delete this line, then the command goes on"
                )
            yield {k: float(v) if v in ("nan", "inf", "-inf") else v for k, v in row.items()}


def cut_rows(folder: Path, updates: int) -> None:
    """Drop rows after `updates`: a resumed run writes them again."""
    path = folder / "metrics.jsonl"
    if path.exists():
        kept = [json.dumps(finite(row), allow_nan=False) + "\n" for row in rows(folder) if row["updates"] <= updates]
        write_text(path, "".join(kept))


def write_status(folder: Path, state: str, updates: int, wall_s: float, reason: str | None = None) -> None:
    assert state in STATES
    status = {"state": state, "updates": updates, "wall_s": round(wall_s, 3), "reason": reason}
    try:
        write_json(folder / "status.json", status)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        # A full disk must not leave "running" there: the old file's own block holds the new text.
        with open(folder / "status.json", "r+", encoding="utf-8") as file:
            file.write(json.dumps(status) + "\n")
            file.truncate()


def read_status(folder: Path) -> dict[str, Any] | None:
    """Give status.json, or None where a run has not begun."""
    path = folder / "status.json"
    if not path.exists():
        return None
    status = read_json(path)
    if not isinstance(status, dict) or status.get("state") not in STATES:
        raise UserError(f"{path}: need a state, one of {', '.join(STATES)}; {_AGAIN['status.json']}")
    return status
