"""Every test in a place of its own: working folder, cache, outputs and HOME are in tmp_path; no W&B settings."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Before torch or numpy is imported anywhere: tests share the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell's background jobs ignore Ctrl-C, and so would every command that a test starts and stops.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_workers_left() -> Iterator[None]:
    """End joblib's workers with the test: they are kept for the next call, with this test's environment."""
    yield
    loky = sys.modules.get("joblib.externals.loky.reusable_executor")
    if loky and (executor := loky._executor):
        executor.shutdown(wait=True, kill_workers=True)


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LNEXP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LNEXP_OUTPUTS", str(tmp_path / "outputs"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def begun() -> Callable[..., Path]:
    """Make the folder of the run that a command line means, in some state, as if it had been trained."""

    def make(arguments: list[str], state: str = "done") -> Path:
        from lnexp import rundir
        from lnexp.config import freeze
        from lnexp.launch import plan

        job = plan(arguments).jobs[0]
        job.folder.mkdir(parents=True)
        rundir.write_text(job.folder / "config.yaml", freeze(job.run))
        rundir.write_status(job.folder, state, 2, 1.5)
        if state == "done":
            row = {"split": "valid", "updates": 2, "epoch": 1.0, "wall_s": 1.0, "loss_bits": 9.0, "bleu": 0.1}
            rundir.write_text(job.folder / "metrics.jsonl", json.dumps(row) + "\n")
            score = {"split": "test", "metric": "sacrebleu", "value": 0.1, "signature": "nrefs:1", "n_sentences": 2,
                     "checkpoint": "best", "decode": "beam5-lp1.2", "data": "0123456789ab"}  # fmt: skip
            rundir.write_json(job.folder / "scores.json", [score])
        return job.folder

    return make
