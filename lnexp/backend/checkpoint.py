"""Checkpoints of a run: best.pt, last.pt and the one before it; each carries its own sha256 and runs no code.

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
    """Write whole or not at all: a kill or a full disk leaves the file of before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        torch.save(state, file)
        file.seek(-2, os.SEEK_END)  # a zip ends with the length of its comment
        file.write(struct.pack("<H", len(_MARK) + _DIGITS) + _MARK)
        digest = _hash(file, file.tell())
        file.seek(0, os.SEEK_END)
        file.write(digest.encode())


def write_last(state: dict[str, Any], folder: Path) -> None:
    """Write last.pt; what it was so far stays as previous.pt."""
    fresh = folder / "next.pt"
    write(state, fresh)
    if (folder / LAST).exists():
        os.replace(folder / LAST, folder / PREVIOUS)
    os.replace(fresh, folder / LAST)


def read(path: Path) -> dict[str, Any]:
    """Read on the CPU, weights only; UserError where the file is absent, damaged or no checkpoint."""
    try:
        with open(path, "rb") as file:
            end = file.seek(0, os.SEEK_END) - _DIGITS
            file.seek(max(end, 0))
            if end <= 0 or file.read().decode("ascii", "replace") != _hash(file, end):
                raise UserError(f"{path}: damaged: its bytes are not those that were written")
            file.seek(0)
            return torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path}: no such checkpoint; train the run first") from None
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path}: not a readable checkpoint ({type(error).__name__})") from None


def read_last(folder: Path, say: Callable[[str], None]) -> dict[str, Any] | None:
    """Read the newest checkpoint that is whole, and say so where it is not the last; None where there is none."""
    damaged = []
    for name in (LAST, PREVIOUS):
        if (folder / name).exists():
            try:
                state = read(folder / name)
            except UserError as error:
                damaged.append(str(error))
                continue
            if damaged:
                say(f"{damaged[0]}; {name} is used instead")
            return state
    if damaged:
        raise UserError(f"{'; '.join(damaged)}; delete {folder} and its run's metrics.jsonl to train it anew")
    return None


def _hash(file: BinaryIO, end: int) -> str:
    """Hash the first `end` bytes."""
    digest = hashlib.sha256()
    file.seek(0)
    while end > 0 and (block := file.read(min(end, 1 << 20))):
        digest.update(block)
        end -= len(block)
    return digest.hexdigest()
