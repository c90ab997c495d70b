"""A worker does not outlive the process that launched it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lnexp import launch, parent, rundir
from lnexp.cli import main

SWEEP = ["-m", "data=toy_copy", "size=tiny", "schedule=constant", "decode=greedy", "track=none", "devices.threads=1",
         "tokens_per_update=500", "max_updates=150", "validate_every=75", "log_every=3", "optim.lr=1e-3",
         "model=post_ln,pre_ln", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]  # fmt: skip


def children(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_workers_of_a_killed_sweep_save_and_end(capsys: pytest.CaptureFixture[str]) -> None:
    """SIGKILL to the command: within 15 s no process of it is left, and the same command goes on to the end."""
    folders = [job.folder for job in launch.plan(SWEEP).jobs]
    process = subprocess.Popen([sys.executable, "-m", "lnexp", "train", *SWEEP], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)  # fmt: skip
    end = time.monotonic() + 120
    while not all((rundir.read_status(f) or {"updates": 0})["updates"] for f in folders) and time.monotonic() < end:
        time.sleep(0.1)
    workers = children(process.pid)
    assert len(workers) >= 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    end = time.monotonic() + 15
    while any(map(alive, workers)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not [worker for worker in workers if alive(worker)]
    assert {rundir.read_status(f)["state"] for f in folders} == {"interrupted"}  # type: ignore[index]
    assert main(["train", *SWEEP]) == 0
    assert {rundir.read_status(f)["state"] for f in folders} == {"done"}  # type: ignore[index]


def test_the_process_that_launches_watches_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent, "_watched", [])
    monkeypatch.delenv(parent.VARIABLE, raising=False)
    parent.watch()  # nobody announced
    monkeypatch.setenv(parent.VARIABLE, str(os.getpid()))
    parent.watch()
    assert parent._watched == [] and not parent.gone()


def test_a_parent_that_died_before_the_watch_began_is_noticed() -> None:
    """The worker's parent is not the one that is named: it gets SIGTERM at once, here with the default effect."""
    code = "import time; from lnexp import parent; parent.watch(); time.sleep(30)"
    gone = subprocess.Popen(["true"])
    gone.wait()
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {parent.VARIABLE: str(gone.pid)}, timeout=20)
    assert done.returncode == -signal.SIGTERM


COMMAND, GROUP = os.kill, os.killpg


@pytest.mark.parametrize(
    ("number", "ways"),
    [
        pytest.param(signal.SIGTERM, [COMMAND], id="kill"),
        pytest.param(signal.SIGTERM, [COMMAND, GROUP], id="GNU timeout"),
        pytest.param(signal.SIGINT, [COMMAND], id="kill -INT"),
        pytest.param(signal.SIGINT, [GROUP], id="Ctrl-C on a terminal"),
    ],
)
def test_a_signal_to_a_sweep_lets_its_workers_save(number: int, ways: list[Callable[[int, int], None]]) -> None:
    """To the command, to every process of its group, or to both; the runs save at the update they are at."""
    sweep = [*SWEEP, "seed=1,2"]  # four runs, two at a time: those in the queue must not begin
    folders = [job.folder for job in launch.plan(sweep).jobs]
    process = subprocess.Popen([sys.executable, "-m", "lnexp", "train", *sweep], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)  # fmt: skip
    end = time.monotonic() + 120
    while sum((rundir.read_status(f) or {"updates": 0})["updates"] > 0 for f in folders) < 2 and time.monotonic() < end:
        time.sleep(0.1)
    workers = children(process.pid)
    for send in ways:
        send(process.pid, number)
        time.sleep(0.02)  # else the system may make one of two
    _, said = process.communicate(timeout=15)
    assert process.returncode == 130 and "Traceback" not in said, said
    states = [status["state"] if (status := rundir.read_status(f)) else "missing" for f in folders]
    assert sorted(states) == ["interrupted", "interrupted", "missing", "missing"]
    time.sleep(1)
    assert not [worker for worker in workers if alive(worker)]
