"""Checkpoints of a run (best.pt, last.pt and the one before it, and those that a mean is of): each carries its own
sha256 and runs no code.

A file is what torch.save writes, with "sha256:<64 hex digits>" as the comment of its zip archive, so that plain
torch.load reads it too. The hash is over all bytes before those digits.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch

from lnexp.errors import UserError
from lnexp.files import replacing

BEST, LAST, PREVIOUS = "best.pt", "last.pt", "previous.pt"
_MARK = b"sha256:"
_DIGITS = 64


def write(state: dict[str, Any], path: Path) -> None:
    """Write whole or not at all: a kill or a full disk leaves the file of before.

    The folder above must be there: a run folder deleted in mid-run does not come back in part.
    """
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as file:
        _save(state, file)
        file.seek(-2, os.SEEK_END)  # a zip ends with the length of its comment
        file.write(struct.pack("<H", len(_MARK) + _DIGITS) + _MARK)
        digest = _hash(file, file.tell())
        file.seek(0, os.SEEK_END)
        file.write(digest.encode())


class _Kept:
    """A file that keeps the error of a write, which torch.save turns into "unexpected pos"."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self._file.flush()


def _save(state: dict[str, Any], file: BinaryIO) -> None:
    kept = _Kept(file)
    try:
        torch.save(state, kept)  # type: ignore[arg-type]  # it asks for write and flush only
    except RuntimeError:
        if kept.error:
            raise kept.error from None
        raise


def write_last(state: dict[str, Any], folder: Path) -> None:
    """Write last.pt; what it was so far stays as previous.pt."""
    fresh = folder / "next.pt"
    write(state, fresh)
    if (folder / LAST).exists():
        os.replace(folder / LAST, folder / PREVIOUS)
    os.replace(fresh, folder / LAST)


def read(path: Path, trained: dict[str, Any] | None = None) -> dict[str, Any]:
    """Read on the CPU, weights only; UserError where the file is absent, damaged or no checkpoint.

    With `trained`, what the run is of (config and data), also where the checkpoint is of another.
    """
    if not path.exists():
        raise UserError(f"{path}: no such checkpoint; train the run first")
    try:
        state = _read(path)
    except UserError as error:
        rule = f"delete {path.parent.parent} to train it anew"
        raise UserError(f"{error}; {rule} (a run that was cut goes on by its command all the same)") from None
    return _own(state, path, trained)


def _own(state: dict[str, Any], path: Path, trained: dict[str, Any] | None) -> dict[str, Any]:
    """Give the state back, or name what it is of."""
    if trained is not None and (changed := differences(state["trained"], trained)):
        raise UserError(f"{path}: of another run ({changed}); delete {path.parent.parent} to train this one anew")
    return state


def differences(there: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Name what differs between what two runs are of, three settings at most."""
    differing = sorted(k for k in there.keys() | wanted.keys() if there.get(k) != wanted.get(k))
    more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
    return ", ".join(f"{k}: {there.get(k)} there, {wanted.get(k)} here" for k in differing[:3]) + more


def _read(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            end = file.seek(0, os.SEEK_END) - _DIGITS
            file.seek(max(end, 0))
            if end <= 0 or file.read().decode("ascii", "replace") != _hash(file, end):
                raise UserError(f"{path}: damaged: its bytes are not those that were written")
            file.seek(0)
            state = torch.load(file, map_location="cpu", weights_only=True)
            if not isinstance(state, dict) or not {"model", "trained"} <= state.keys():
                raise UserError(f"{path}: not a checkpoint of a run")
            return state
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path}: not a readable checkpoint ({type(error).__name__})") from None


def read_last(folder: Path, say: Callable[[str], None], trained: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """Read the newest checkpoint that is whole, and say so where it is not the last; None where there is none.

    `trained` as in `read`.
    """
    damaged = []
    for name in (LAST, PREVIOUS):
        if (folder / name).exists():
            try:
                state = _read(folder / name)
            except UserError as error:
                damaged.append(str(error))
                continue
            if damaged:
                say(f"{damaged[0]}; {name} is used instead")
            return _own(state, folder / name, trained)
    if damaged:
        raise UserError(f"{'; '.join(damaged)}; delete {folder} to train it anew")
    return None


def _hash(file: BinaryIO, end: int) -> str:
    """Hash the first `end` bytes."""
    digest = hashlib.sha256()
    file.seek(0)
    while end > 0 and (block := file.read(min(end, 1 << 20))):
        digest.update(block)
        end -= len(block)
    return digest.hexdigest()
