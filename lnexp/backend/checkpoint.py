"""Checkpoint files: tensors and plain values, written whole or not at all, read without running code from them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from lnexp.errors import UserError


def write(state: dict[str, Any], path: Path) -> None:
    """Write by temporary file, fsync and rename: a kill leaves the file of before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def read(path: Path) -> dict[str, Any]:
    """Read on the CPU, weights only; UserError where the file is absent, damaged or no checkpoint."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path}: no such checkpoint; train the run first") from None
    except Exception as error:
        raise UserError(f"{path}: not a readable checkpoint ({type(error).__name__}); delete it to go on") from None
