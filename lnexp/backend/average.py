"""The mean of the parameters in several checkpoints, and what says which parameters these were.

Deterministic: summed in float64 in the order of the files, then rounded once to the type that the parameters have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lnexp.backend.checkpoint import read

Parameters = dict[str, Tensor]


@dataclass(frozen=True)
class Input:
    """One of the checkpoints that a mean is of."""

    file: str
    """In the run folder."""
    updates: int
    sha256: str
    """Of the parameters (`digest`)."""


def mean(files: Sequence[Path], trained: dict[str, Any]) -> tuple[Parameters, list[dict[str, Any]]]:
    """Give the mean by name, (1/n) * sum of the n files' parameters, and the `Input`s as plain values.

    `trained` as for `read`: UserError where a file is absent, damaged or of another run.
    """
    total: Parameters = {}
    first: Parameters = {}
    inputs = []
    for file in files:
        state = read(file, trained)
        parameters: Parameters = state["model"]
        inputs.append(asdict(Input(f"{file.parent.name}/{file.name}", state["updates"], digest(parameters))))
        first = first or parameters
        total = {name: total.get(name, 0) + value.double() for name, value in parameters.items()}
    return {name: (value / len(files)).to(first[name].dtype) for name, value in total.items()}, inputs


def digest(parameters: Parameters) -> str:
    """Give the sha256 over the name, type, shape and bytes of each tensor, by name: the same in whatever file."""
    found = hashlib.sha256()
    for name, value in sorted(parameters.items()):
        found.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
        found.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
