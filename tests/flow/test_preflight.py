"""`lnexp doctor --run`: what is said of a run before it starts, and that the demo's arms are told apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lnexp import preflight
from lnexp.cli import main
from lnexp.config import Optim, Run
from lnexp.preflight import LEAST_REACH, Flight, verdict
from lnexp.schedule import Schedule

FLIGHT = Flight(11.69, 9.26, 0.8, 0.04, 0.0025, 7.0)


def run(warmup: int) -> Run:
    return Run(optim=Optim(lr=1.5e-3), schedule=Schedule("linear", warmup))


@pytest.mark.parametrize(
    ("reach", "warmup", "good", "words"),
    [
        (0.0025, 0, False, "expect it to fail; set schedule.warmup_updates"),
        (0.0025, 375, True, "it needs its warm-up of 375 updates"),
        (LEAST_REACH, 0, True, "it learns without one"),
        (0.24, 375, True, "it learns without one"),
        (0.0, 0, False, "none or not finite"),
        (float("nan"), 0, False, "expect it to fail"),
    ],
)
def test_verdict(reach: float, warmup: int, good: bool, words: str) -> None:
    found, text = verdict(run(warmup), replace(FLIGHT, reach=reach))
    assert found is good and words in text
    assert all(number in text for number in ("0.0015", "11.69 to 9.26 bits", "4.0%", "0.8", "0.008"))


TINY = ["data=toy_copy", "size=tiny", "track=none", "devices.threads=1", "tokens_per_update=500"]


def test_a_line_a_run_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--run", "-m", *TINY, "model=post_ln,pre_ln", "optim.lr=1e-3"]) == 0
    said = capsys.readouterr()
    lines = [line for line in said.out.splitlines() if not line.startswith("data: ")]
    assert [line.endswith(": 20 updates to try") for line in said.err.splitlines()] == [True, True]
    assert len(lines) == 2 and all(line.startswith("ok ") for line in lines)
    assert not Path("outputs").exists()


@pytest.mark.parametrize("rate", ["1e3", "1e30"])  # stalls; breaks at its second update
def test_a_rate_that_breaks_everything_ends_with_1(rate: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = [*TINY, "model=post_ln", "optim=sgd", f"optim.lr={rate}", "schedule.warmup_updates=0"]
    assert main(["doctor", "--run", *args]) == 1
    assert "BAD " in (out := capsys.readouterr().out) and "expect it to fail" in out


def test_wrong_settings_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--run", "model=ln"]) == 2
    assert main(["doctor", "model=post_ln"]) == 2
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 2 and "model=ln: no such option" in err[0] and "takes no settings" in err[1]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "stalls"), [("post_ln", True), ("pre_ln", False)])
def test_the_arms_of_the_demo_are_told_apart(model: str, stalls: bool) -> None:
    """Without warm-up the demo's Post-LN fails and its Pre-LN learns (README)."""
    from lnexp.data.prepare import prepare
    from lnexp.launch import plan

    one = plan(["sweep=demo", f"model={model}"]).jobs[0].run
    data = prepare(one.data, Path(one.paths.cache))
    assert preflight.fly(one, data, 1).stalls is stalls
