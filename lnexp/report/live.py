"""What a run folder says while a run may still write to it: its lock, its last rows, its speed, its size.

Everything here reads only, and reads little: `lnexp status --watch` asks a thousand folders every two seconds.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import platform
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from lnexp.rundir import STALE_S, Row

TAIL = 8192
"""Bytes of metrics.jsonl that tell the last rows and the speed: some 40 rows."""
LONG_TAIL = 16 * TAIL
"""Read where TAIL does not tell the speed: a probe's row names every matrix and may be longer than that."""


def held(folder: Path) -> bool:
    """Say whether a process has the run's lock, here or on another machine; what cannot be told counts as held.

    A shared lock, let go at once, is refused where guard.lock has its own; the file stays as it is.
    """
    try:
        handle = os.open(folder / ".lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(handle, fcntl.LOCK_UN)
        owner = _owner(os.read(handle, 4096))
        # Another machine's lock may not be seen from here: its owner touches the file while it lives.
        elsewhere = bool(owner) and owner.get("host") != platform.node()
        return elsewhere and time.time() - os.fstat(handle).st_mtime < STALE_S
    except OSError:
        return True
    finally:
        os.close(handle)


def _owner(raw: bytes) -> dict[str, Any]:
    try:
        owner = json.loads(raw or b"{}")
    except ValueError:
        return {"text": "another process"}
    return owner if isinstance(owner, dict) else {}


@dataclass
class Recent:
    """The end of metrics.jsonl."""

    rows: list[Row] = field(default_factory=list)
    """The last ones, in order."""
    valid: Row = field(default_factory=dict)
    """The last one of a validation, however long ago."""
    whole: bool = True
    """Whether `rows` are all there are."""

    @property
    def last(self) -> Row:
        return self.rows[-1] if self.rows else {}

    def updates_per_s(self) -> float | None:
        """Give the speed over these rows, validations included; None where they do not tell."""
        points = [(0, 0.0)] if self.whole else []
        points += [(row["updates"], row["wall_s"]) for row in self.rows if number(row.get("wall_s")) is not None]
        if len(points) < 2:
            return None
        (first, begun), (last, now) = points[0], points[-1]
        return (last - first) / (now - begun) if last > first and now > begun else None


def recent(folder: Path) -> Recent:
    """Read the last rows; a torn last one is passed over. ValueError where a line is no row, OSError as it comes."""
    try:
        file = open(folder / "metrics.jsonl", "rb")
    except (FileNotFoundError, NotADirectoryError):
        return Recent()
    with file:
        start, rows = _end(file, TAIL)
        if start and Recent(rows, whole=False).updates_per_s() is None:
            start, rows = _end(file, LONG_TAIL)
        valid = _last_valid(rows)
        if start and not valid:
            file.seek(0)
            valid = _last_valid(_rows(line for line in file.read().split(b"\n")[:-1] if b'"valid"' in line))
    return Recent(rows, valid, start == 0)


def _end(file: BinaryIO, size: int) -> tuple[int, list[Row]]:
    """Give where the last `size` bytes begin, and the whole rows in them."""
    start = max(0, file.seek(0, os.SEEK_END) - size)
    file.seek(start)
    return start, _rows(file.read().split(b"\n")[start > 0 : -1])


def validations(folder: Path) -> list[Row]:
    """Give the rows of validations; of the many others only that they look like rows is checked."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    rows = _rows(line for line in lines if b'"valid"' in line or line[:1] + line[-1:] != b"{}")
    return [row for row in rows if row.get("split") == "valid"]


def _last_valid(rows: list[Row]) -> Row:
    return next((row for row in reversed(rows) if row.get("split") == "valid"), {})


def _rows(lines: Iterable[bytes]) -> list[Row]:
    rows = []
    for line in lines:
        row = json.loads(line.decode())
        if not isinstance(row, dict):
            raise ValueError(f"a row is no mapping: {str(row)[:40]}")
        if isinstance(row.get("updates"), int):
            rows.append({k: float(v) if v in ("nan", "inf", "-inf") else v for k, v in row.items()})
    return rows


def number(value: Any) -> float | None:
    """Give a finite number, or None."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def disk(folder: Path) -> tuple[int, int]:
    """Give the bytes of a run folder's files, and of those below its checkpoints/. Links are not followed."""
    seen: set[tuple[int, int]] = set()
    parts = {entry.name: _bytes(entry, seen) for entry in _entries(folder)}
    return sum(parts.values()), parts.get("checkpoints", 0)


def _bytes(entry: os.DirEntry[str], seen: set[tuple[int, int]]) -> int:
    if entry.is_dir(follow_symlinks=False):
        return sum(_bytes(each, seen) for each in _entries(entry.path))
    try:
        stat = entry.stat(follow_symlinks=False)
    except OSError:  # a temporary file, gone by now
        return 0
    if stat.st_nlink > 1:  # a file with several names counts once
        if (stat.st_dev, stat.st_ino) in seen:
            return 0
        seen.add((stat.st_dev, stat.st_ino))
    return stat.st_size


def _entries(folder: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def size(count: int) -> str:
    """Write bytes in the unit that disks are sold in: "0.3 MB", "412.0 MB", "1.3 GB"."""
    return f"{count / 1e9:.1f} GB" if count >= 999.95e6 else f"{count / 1e6:.1f} MB"
