"""What a run computes on, and whether this machine has it: asked before a run has a folder, and where it begins."""

from __future__ import annotations

import torch

from lnexp.backend.precision import resolve
from lnexp.config import Run
from lnexp.errors import UserError


def device_of(run: Run, rank: int) -> torch.device:
    """Give the device of one of the run's processes. UserError where there is none of its kind."""
    if _kind(run) == "cpu":
        return torch.device("cpu")
    torch.cuda.set_device(rank)
    return torch.device("cuda", rank)


def check_devices(run: Run, gpus: int | None = None) -> None:
    """Raise UserError where the run cannot compute here: no CUDA device, one too few, a precision that it lacks.

    `gpus`: as many as the run may use; None = all that torch sees.
    """
    kind = _kind(run)
    resolve(run.devices.precision, torch.device(kind))
    count = torch.cuda.device_count() if gpus is None else gpus
    if kind == "cuda" and count < run.devices.processes:
        found = f"{count} CUDA device{'' if count == 1 else 's'} here"
        whose = "" if gpus is None else " for each of the runs side by side"
        raise UserError(f"devices.processes={run.devices.processes}: {found}{whose}; need one a process")


def _kind(run: Run) -> str:
    cuda = torch.cuda.is_available()
    if run.devices.device == "cuda" and not cuda:
        raise UserError("devices.device=cuda: torch sees no CUDA device here; use devices=cpu, or install a CUDA torch")
    return "cpu" if not cuda or run.devices.device == "cpu" else "cuda"
