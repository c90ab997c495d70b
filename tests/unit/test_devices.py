"""What a run computes on: chosen, or refused in one line, on machines with no, one and several CUDA devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from lnexp.backend.devices import check_devices, device_of
from lnexp.config import Run
from lnexp.errors import UserError
from lnexp.launch import plan

Machine = Callable[[int], None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Have torch see so many CUDA devices."""

    def see(count: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "set_device", lambda rank: None)

    return see


def a_run(device: str, precision: str = "auto", processes: int = 1) -> Run:
    run = plan(["data=toy_copy", "size=tiny"], bound=False).jobs[0].run
    return replace(run, devices=replace(run.devices, device=device, precision=precision, processes=processes))


@pytest.mark.parametrize(
    ("device", "count", "found"),
    [("cpu", 0, "cpu"), ("cpu", 2, "cpu"), ("auto", 0, "cpu"), ("auto", 2, "cuda:1"), ("cuda", 2, "cuda:1")],
)
def test_the_device_of_a_process(machine: Machine, device: str, count: int, found: str) -> None:
    machine(count)
    check_devices(a_run(device, processes=2))
    assert str(device_of(a_run(device), 1)) == found


@pytest.mark.parametrize(
    ("count", "run", "gpus", "refused"),
    [
        (0, ("cuda",), None, "devices.device=cuda: torch sees no CUDA device here; use devices=cpu"),
        (0, ("auto", "fp16"), None, "devices.precision=fp16: no fast kernels on a CPU"),
        (1, ("cuda", "auto", 2), None, "devices.processes=2: 1 CUDA device here; need one a process"),
        (2, ("auto", "auto", 3), None, "devices.processes=3: 2 CUDA devices here; need one a process"),
        (4, ("cuda", "bf16", 2), 1, "devices.processes=2: 1 CUDA device here for each of the runs side by side"),
    ],
)
def test_refused(machine: Machine, count: int, run: tuple, gpus: int | None, refused: str) -> None:
    machine(count)
    with pytest.raises(UserError, match=refused):
        check_devices(a_run(*run), gpus)


@pytest.mark.parametrize("run", [("cuda", "fp16", 4), ("auto", "fp16"), ("cpu", "bf16", 8)])
def test_let_through(machine: Machine, run: tuple) -> None:
    machine(4)
    check_devices(a_run(*run))
