"""One run on two processes: the path of one process with accumulation, one set of files, no silent copies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from lnexp import rundir
from lnexp.cli import main
from lnexp.launch import plan

# Dropout, and epochs that do not divide evenly into the passes of two processes.
RUN = ["data=toy_copy", "size=tiny", "size.dropout=0.1", "schedule=constant", "optim.lr=2e-3", "decode=greedy",
       "track=none", "devices.threads=2", "tokens_per_update=1500", "max_updates=24", "validate_every=12",
       "log_every=1"]  # fmt: skip


def folder(arguments: list[str]) -> Path:
    return plan(arguments).jobs[0].folder


def others(arguments: list[str]) -> list[int]:
    """Give the process numbers of a run's other processes."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    mine = [line for line in listed.splitlines() if "backend.parallel" in line and str(folder(arguments)) in line]
    return [int(line.split()[0]) for line in mine]


def test_two_processes_take_the_path_of_one() -> None:
    one = [*RUN, "sweep_name=one", "devices.max_tokens=750"]
    two = [*RUN, "sweep_name=two", "devices.processes=2"]
    assert plan(one).jobs[0].id == plan(two).jobs[0].id  # how fast it runs does not make it another run
    assert main(["train", *one]) == 0 and main(["train", *two]) == 0
    rows = [[row for row in rundir.rows(folder(arguments))] for arguments in (one, two)]
    losses = [[row["loss_bits"] for row in side if row["split"] == "train"] for side in rows]
    assert len(losses[0]) == 24 and losses[1] == pytest.approx(losses[0], rel=1e-4)
    valid = [
        [(row["updates"], row["loss_bits"], row["bleu"]) for row in side if row["split"] == "valid"] for side in rows
    ]
    assert [v[0] for v in valid[0]] == [v[0] for v in valid[1]] == [12, 24]
    for (_, loss, bleu), (_, other, again) in zip(*valid, strict=True):
        assert other == pytest.approx(loss, rel=1e-4) and abs(bleu - again) <= 0.5
    hypotheses = [(folder(arguments) / "hyp.test.txt").read_text().splitlines() for arguments in (one, two)]
    assert len(hypotheses[1]) == 200 and sum(a != b for a, b in zip(*hypotheses, strict=True)) <= 4
    assert others(two) == []


def test_stopped_and_gone_on_with_another_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    from lnexp.backend.session import Session

    update = Session._update

    def interrupted(self, samples):  # type: ignore[no-untyped-def]
        out = update(self, samples)
        if self.updates == 7:
            os.kill(os.getpid(), signal.SIGTERM)
        return out

    two = [*RUN, "devices.processes=2"]
    with monkeypatch.context() as patch:
        patch.setattr(Session, "_update", interrupted)
        assert main(["train", *two]) == 130
    assert main(["train", *RUN, "devices.max_tokens=750"]) == 0
    whole = [*RUN, "sweep_name=whole", "devices.max_tokens=750"]
    assert main(["train", *whole]) == 0
    states = [torch.load(folder(a) / "checkpoints" / "last.pt", weights_only=True)["model"] for a in (RUN, whole)]
    for name, value in states[0].items():
        if name.endswith("k_proj.bias"):
            continue  # adds the same to all scores of a query: its gradient is rounding, which Adam makes steps of
        torch.testing.assert_close(value, states[1][name], rtol=1e-3, atol=1e-3)


def test_the_death_of_one_process_fails_the_run_and_leaves_none(tmp_path: Path) -> None:
    arguments = [*RUN, "devices.processes=2", "max_updates=100000", "validate_every=50000"]
    run = subprocess.Popen([sys.executable, "-m", "lnexp", "train", *arguments], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (others(arguments) and list(rundir.rows(folder(arguments)))):
        time.sleep(0.2)
    try:
        os.kill(others(arguments)[0], signal.SIGKILL)
        assert run.wait(60) == 1
    finally:
        run.kill()
    status = rundir.read_status(folder(arguments))
    assert status and status["state"] == "failed" and "process 2 of 2" in status["reason"]


def test_torchrun_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It would start the same run several times, each alone with all the data."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert main(["train", *RUN]) == 2
    assert "set devices.processes" in capsys.readouterr().err
