"""What a run records of its time and memory, over restarts too, and how one ends that does not fit in memory."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from lnexp import rundir
from lnexp.cli import main
from lnexp.launch import plan
from lnexp.timing import PARTS
from lnexp.train import train

SHORT = ["data=toy_copy", "size=tiny", "schedule=constant", "decode=greedy", "track=none", "devices.threads=1",
         "tokens_per_update=500", "max_updates=12", "validate_every=6", "log_every=3", "optim.lr=1e-3"]  # fmt: skip


def folder() -> Path:
    return plan(SHORT).jobs[0].folder


def timing() -> dict[str, Any]:
    return json.loads((folder() / "timing.json").read_text())


def test_parts_add_up_to_the_time_that_passed() -> None:
    job = plan(SHORT).jobs[0]
    began = time.perf_counter()
    assert train(job.run, job.folder.name[-8:], job.folder, 1, lambda _: None) == "done"
    passed = time.perf_counter() - began
    found = timing()
    assert found["wall_s"] == pytest.approx(passed, rel=0.01, abs=0.05)  # timing.json itself is written after it
    assert tuple(found["parts"]) == PARTS
    assert sum(found["parts"].values()) == pytest.approx(found["wall_s"], rel=0.01)
    assert sum(found["share"].values()) == pytest.approx(1, abs=1e-3)
    idle = {part for part, seconds in found["parts"].items() if not seconds > 0}
    assert not idle
    # What nothing claims is little, and the training itself is what the rows say it is.
    assert found["share"]["other"] < 0.05
    assert found["updates"] == 12
    rows = [row for row in rundir.rows(folder()) if row["split"] == "train"]
    update_s = sum(found["parts"][part] for part in ("data", "forward", "backward", "optimizer"))
    assert found["tokens_per_s"] == pytest.approx(found["target_tokens"] / update_s, rel=0.01)
    assert (
        min(r["tokens_per_s"] for r in rows) * 0.9 < found["tokens_per_s"] < max(r["tokens_per_s"] for r in rows) * 1.1
    )
    resident = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    assert found["peak_rss_mib"] == pytest.approx(int(resident.split()[1]) / 1024, rel=0.05)
    assert found["peak_device_mib"] is None


def test_forward_and_backward_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.05 s more in each forward pass and 0.1 s in each backward pass come out where they were put."""
    from lnexp.backend.optim import TorchOptimizer
    from lnexp.backend.session import Session

    assert main(["train", *SHORT, "sweep_name=plain"]) == 0
    backward, update, stream = TorchOptimizer.backward, Session._update, Session._next_batch

    def late(self: Any, loss: Any) -> None:
        time.sleep(0.1)
        backward(self, loss)

    def slow_update(self: Session, samples: list[Any]) -> dict[str, float]:
        forward = self._trainer.criterion.forward

        def late_forward(*arguments: Any, **more: Any) -> Any:
            time.sleep(0.05)
            return forward(*arguments, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self._trainer.criterion, "forward", late_forward)
            return update(self, samples)

    def late_batch(self: Session) -> list[Any]:
        with self.clock("data"):
            time.sleep(0.02)
        return stream(self)

    monkeypatch.setattr(TorchOptimizer, "backward", late)
    monkeypatch.setattr(Session, "_update", slow_update)
    monkeypatch.setattr(Session, "_next_batch", late_batch)
    assert main(["train", *SHORT, "sweep_name=slow"]) == 0
    plain, slow = (
        json.loads((plan([*SHORT, f"sweep_name={name}"]).jobs[0].folder / "timing.json").read_text())["parts"]
        for name in ("plain", "slow")
    )
    more = {part: slow[part] - plain[part] for part in ("data", "forward", "backward", "optimizer")}
    assert more == pytest.approx({"data": 0.24, "forward": 0.6, "backward": 1.2, "optimizer": 0.0}, abs=0.2)


def test_a_restart_goes_on_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    from lnexp.backend.session import Session

    update = Session._update

    def interrupted(self: Session, samples: list[Any]) -> dict[str, float]:
        out = update(self, samples)
        if self.updates == 8:
            os.kill(os.getpid(), signal.SIGTERM)
        return out

    with monkeypatch.context() as patch:
        patch.setattr(Session, "_update", interrupted)
        assert main(["train", *SHORT]) == 130
    before = timing()
    assert before["updates"] == 8 and before["target_tokens"] > 0
    assert main(["train", *SHORT]) == 0
    after = timing()
    assert after["updates"] == 12
    for part in ("startup", "forward", "backward", "optimizer", "validation", "decoding"):
        assert after["parts"][part] > before["parts"][part] * 0.999 > 0, part
    assert after["target_tokens"] == pytest.approx(before["target_tokens"] * 12 / 8, rel=0.15)
    assert sum(after["parts"].values()) == pytest.approx(after["wall_s"], rel=0.01)


def test_a_checkpoint_of_before_there_was_a_clock_still_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    from lnexp.backend import checkpoint
    from lnexp.backend.session import Session

    update, write = Session._update, checkpoint.write_last

    def interrupted(self: Session, samples: list[Any]) -> dict[str, float]:
        out = update(self, samples)
        if self.updates == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return out

    def old(state: dict[str, Any], place: Path) -> None:
        kept = {k: v for k, v in state["progress"].items() if k not in ("parts", "target_tokens")}
        write(state | {"progress": kept}, place)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "_update", interrupted)
        patch.setattr(checkpoint, "write_last", old)
        assert main(["train", *SHORT]) == 130
    saved = torch.load(folder() / "checkpoints" / "last.pt", weights_only=True)
    assert set(saved["progress"]) == {"wall_s", "best_loss", "best_nll", "stale", "validated"}
    assert main(["train", *SHORT]) == 0
    assert timing()["updates"] == 12


@pytest.mark.parametrize(
    ("refusal", "more"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."), []),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."), []),
        (MemoryError(), ["devices.max_tokens=250"]),
    ],
)
def test_an_update_that_does_not_fit_fails_with_the_mend(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], refusal: Exception, more: list[str]
) -> None:
    """The allocation fails in the backward pass of the fifth update; fairseq would pass over CUDA's refusal."""
    from lnexp.backend.optim import TorchOptimizer

    backward, passes = TorchOptimizer.backward, iter(range(1000))

    def refused(self: Any, loss: Any) -> None:
        if next(passes) == 4 * (2 if more else 1):
            raise refusal
        backward(self, loss)

    with monkeypatch.context() as patch:
        patch.setattr(TorchOptimizer, "backward", refused)
        assert main(["train", *SHORT, *more]) == 1
    status = rundir.read_status(folder())
    assert status and status["state"] == "failed" and "\n" not in status["reason"]
    below = 250 if more else 500
    assert f"update 5 is out of memory; set devices.max_tokens below {below} (" in status["reason"]
    assert f"below {below}" in capsys.readouterr().out
    # The mend is followed: the same run goes on with smaller passes.
    assert main(["train", *SHORT, "devices.max_tokens=125", "retry=failed"]) == 0
    assert timing()["updates"] == 12
