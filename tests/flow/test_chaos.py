"""Killed without warning, again and again: what comes out is what an undisturbed run gives, to the last bit."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes.outcome import outcome

from lnexp import rundir
from lnexp.launch import plan

COMMAND = [sys.executable, "-m", "lnexp", "train"]
# Dropout, a validation every 5 updates and a row every 2: a kill hits updates, validations, decodings and writes.
RUN = ["data=toy_copy", "size=tiny", "size.dropout=0.1", "schedule=constant", "optim.lr=2e-3", "decode.beam=2",
       "track=none", "devices.threads=1", "tokens_per_update=300", "max_updates=60", "validate_every=5",
       "log_every=2"]  # fmt: skip


def start(arguments: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*COMMAND, *arguments], start_new_session=True, stdout=subprocess.DEVNULL)


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL the command and every process that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def killed(arguments: list[str], times: int, seed: int) -> list[int]:
    """Kill the command at random moments, restart it each time, let it end; gives the updates reached at each kill."""
    draw = random.Random(seed)
    folder = plan(arguments).jobs[0].folder
    reached = []
    for _ in range(times):
        process = start(arguments)
        begun = time.monotonic()
        while time.monotonic() - begun < 60 and not (folder / ".lock").exists() and process.poll() is None:
            time.sleep(0.05)
        time.sleep(draw.uniform(0.0, 4.0))
        assert process.poll() in (None, 0)
        kill(process)
        rows = [row["updates"] for row in rundir.rows(folder)]
        reached.append(max(rows, default=0))
    assert start(arguments).wait(300) == 0
    return reached


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_run_killed_at_random_moments(times: int) -> None:
    whole, cut = [*RUN, "sweep_name=whole"], [*RUN, "sweep_name=cut"]
    assert start(whole).wait(300) == 0
    reached = killed(cut, times, seed=times)
    expected, found = (outcome(plan(arguments).jobs[0].folder) for arguments in (whole, cut))
    assert found == expected, reached


@pytest.mark.slow
def test_a_sweep_killed_five_times(tmp_path: Path) -> None:
    sweep = ["-m", *RUN, "seed=1,2,3,4", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    whole, cut = [*sweep, "sweep_name=whole"], [*sweep, "sweep_name=cut"]
    assert start(whole).wait(600) == 0
    draw = random.Random(5)
    for _ in range(5):
        process = start(cut)
        time.sleep(draw.uniform(6.0, 16.0))
        kill(process)
    assert start(cut).wait(600) == 0
    for one, other in zip(plan(whole).jobs, plan(cut).jobs, strict=True):
        assert outcome(one.folder) == outcome(other.folder)
        updates = [(row["split"], row["updates"]) for row in rundir.rows(other.folder)]
        assert len(set(updates)) == len(updates)
    before = {job.folder: (job.folder / "metrics.jsonl").stat().st_mtime_ns for job in plan(cut).jobs}
    assert start(cut).wait(60) == 0  # ended runs are not touched
    assert before == {job.folder: (job.folder / "metrics.jsonl").stat().st_mtime_ns for job in plan(cut).jobs}
