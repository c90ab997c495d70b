"""How much of a run a .wandb file holds: file in, number of rows and whether the run was closed out.

wandb says nothing when its file falls short (full disk, killed helper), and its own reader costs 0.7 s a look. The
file is a LevelDB log: after 7 bytes, blocks of 32 KiB with fragments (checksum 4, length 2, kind 1, payload).
"""

from __future__ import annotations

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
