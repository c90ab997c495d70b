"""The .wandb files of a run folder: how many rows each holds, which were sent, which are out of date.

wandb says nothing when its file falls short (full disk, killed helper), and its own reader costs 0.7 s a look. The
file is a LevelDB log: after 7 bytes, blocks of 32 KiB with fragments (checksum 4, length 2, kind 1, payload).
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_BLOCK = 32 * 1024
_FILE_HEADER = 7
_FRAGMENT = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class Held(NamedTuple):
    rows: int
    closed: bool
    """The end of the run is in it, with its exit code."""


def held(path: Path) -> Held:
    """Read a .wandb file, torn at the end or not; a file that is not there holds nothing."""
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]  # made at run time

    rows, closed = 0, False
    for payload in _payloads(path.read_bytes() if path.exists() else b""):
        kind = Record.FromString(payload).WhichOneof("record_type")
        rows += kind == "history"
        closed |= kind == "exit"
    return Held(rows, closed)


def sent(folder: Path) -> int:
    """Count the rows of the folder's offline records that `wandb sync` has sent, and so marked."""
    return sum(held(path).rows for path in _files(folder) if _marker(path).exists())


def drop(folder: Path, but: Path) -> None:
    """Delete the offline records that were not sent, all but the one at `but`: metrics.jsonl has what they hold."""
    for path in _files(folder):
        if path.parent != but and not _marker(path).exists():
            shutil.rmtree(path.parent, ignore_errors=True)


def mark_sent(folder: Path) -> None:
    """Have `wandb sync` pass over the folder's records, once the server has their rows."""
    for path in _files(folder):
        _marker(path).touch()


def _files(folder: Path) -> list[Path]:
    return sorted((folder / "wandb").glob("offline-run-*/run-*.wandb"))


def _marker(path: Path) -> Path:
    return path.with_name(path.name + ".synced")


def _payloads(raw: bytes) -> Iterator[bytes]:
    at, parts = _FILE_HEADER, b""
    while at + _FRAGMENT.size <= len(raw):
        left = _BLOCK - at % _BLOCK
        if left < _FRAGMENT.size:  # the rest of a block is padding
            at += left
            continue
        _, length, kind = _FRAGMENT.unpack_from(raw, at)
        at += _FRAGMENT.size
        payload = raw[at : at + length]
        if len(payload) < length or not _WHOLE <= kind <= _LAST:
            return
        at += length
        parts = payload if kind in (_WHOLE, _FIRST) else parts + payload
        if kind in (_WHOLE, _LAST):
            yield parts
