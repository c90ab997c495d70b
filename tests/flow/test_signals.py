"""Stopped by a signal, at each moment of a run: gone within seconds, resumable, and in the end nothing is different."""

from __future__ import annotations

import functools
import os
import platform
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from fakes.outcome import outcome
from fakes.process import Command

from lnexp import rundir
from lnexp.launch import plan
from lnexp.signals import ECHO_S

RUN = ["train", "data=toy_copy", "size=tiny", "size.dropout=0.1", "schedule=constant", "optim.lr=2e-3",
       "decode.beam=2", "track=none", "devices.threads=1", "tokens_per_update=300", "max_updates=12",
       "validate_every=6", "log_every=2"]  # fmt: skip
TERM, INT, USR1 = signal.SIGTERM, signal.SIGINT, signal.SIGUSR1


@functools.cache
def _name() -> Path:
    folder = plan(RUN[1:]).jobs[0].folder
    return folder.relative_to(folder.parents[1])


def folder() -> Path:
    return Path(os.environ["LNEXP_OUTPUTS"]) / _name()


def state() -> str | None:
    return (rundir.read_status(folder()) or {}).get("state")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("LNEXP_CACHE", str(place / "cache"))
        patch.setenv("LNEXP_OUTPUTS", str(place / "outputs"))
        assert Command(RUN).end(60) == 0
        return outcome(folder())


def struck(moment: str, number: int, fresh: bool = False) -> Command:
    """Start the run, send a signal at the moment, wait for the end, which is to come within 10 s."""
    command = Command(RUN, moment, fresh)
    command.reach()
    command.strike(number)
    assert command.end(10) == 130, command.said
    assert "Traceback" not in command.said
    return command


def goes_on_to(expected: dict[str, Any]) -> None:
    again = Command(RUN)
    assert again.end(60) == 0, again.said
    assert outcome(folder()) == expected


FAST = [("update", TERM), ("validation", TERM), ("scoring", INT)]
MOMENTS = ["update", "validation", "saving", "scoring"]
OTHER = [(moment, number) for moment in MOMENTS for number in (TERM, INT) if (moment, number) not in FAST]
DECODING = [pytest.param("decoding", number, marks=pytest.mark.slow) for number in (TERM, INT)]


@pytest.mark.parametrize(
    ("moment", "number"), FAST + [pytest.param(*each, marks=pytest.mark.slow) for each in OTHER] + DECODING
)
def test_a_signal_while_training(moment: str, number: int, undisturbed: dict[str, Any]) -> None:
    command = struck(moment, number)
    assert state() == "interrupted"
    assert "interrupted; the same command goes on from here" in command.said
    assert not list(folder().rglob("*.tmp"))
    goes_on_to(undisturbed)


@pytest.mark.parametrize("number", [TERM, pytest.param(INT, marks=pytest.mark.slow)])
def test_a_second_signal_ends_at_once(number: int, undisturbed: dict[str, Any]) -> None:
    """In a checkpoint that takes a minute: the first signal waits for it, the second does not."""
    command = Command(RUN, "stuck")
    command.reach()
    command.strike(number)
    time.sleep(ECHO_S + 0.5)
    assert command.code is None
    os.kill(command.pid, number)
    assert command.end(3) in (-number, 130), command.said
    goes_on_to(undisturbed)


@pytest.mark.parametrize("number", [TERM, pytest.param(INT, marks=pytest.mark.slow)])
def test_a_signal_that_comes_twice_at_once_is_one(number: int, undisturbed: dict[str, Any]) -> None:
    """As GNU timeout sends it: to the process, then to its group. Nothing but the signal has update 5 saved."""
    command = Command(RUN, "update")
    command.reach()
    os.kill(command.pid, number)
    time.sleep(0.02)  # else the system may make one of them
    command.strike(number)
    assert command.end(10) == 130 and "Traceback" not in command.said, command.said
    assert state() == "interrupted" and (folder() / "checkpoints" / "last.pt").exists()
    goes_on_to(undisturbed)


def test_a_signal_in_start_up() -> None:
    """After the lock is taken, before there is anything to save."""
    struck("start_up", TERM)
    assert state() == "interrupted"
    assert not list(folder().rglob("*.pt"))


@pytest.mark.parametrize("moment", ["preparation", pytest.param("composing", marks=pytest.mark.slow)])
def test_ctrl_c_before_a_run_has_begun(moment: str) -> None:
    struck(moment, INT)
    assert state() is None


@pytest.mark.parametrize("moment", ["preparation", pytest.param("composing", marks=pytest.mark.slow)])
def test_sigterm_before_a_run_has_begun(moment: str) -> None:
    struck(moment, TERM)
    assert state() is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "number"),
    [(moment, number) for moment in ("start_up", *MOMENTS) for number in (TERM, INT)]
    + [(moment, INT) for moment in ("composing", "preparation")]
    + [(moment, TERM) for moment in ("composing", "preparation")]
    + DECODING,
)
def test_a_signal_to_the_command_as_a_person_starts_it(moment: str, number: int, undisturbed: dict[str, Any]) -> None:
    struck(moment, number, fresh=True)
    assert state() == (None if moment in ("composing", "preparation") else "interrupted")
    goes_on_to(undisturbed)


@pytest.mark.slow
def test_signals_at_any_time_of_a_start(undisturbed: dict[str, Any]) -> None:
    """Every 0.4 s: in the imports too. Before the first line of ours Python itself answers."""
    for number in (TERM, INT):
        for step in range(20):
            command = Command(RUN, fresh=True)
            time.sleep(0.4 * step)
            command.strike(number)
            # Python itself ends by SIGINT (130 for a shell) where an interrupt struck an import that C had started.
            assert command.end(10) in (0, 130, -number, -signal.SIGINT), command.said
            assert state() in (None, "interrupted", "done")
    goes_on_to(undisturbed)


@pytest.mark.slow
def test_ctrl_c_in_a_decoding_of_real_text() -> None:
    """Beam 10 on the shipped corpus: a minute and more."""
    real = [*RUN, "data=tatoeba_deen", "decode.beam=10", "decode.max_len_b=200", "validate_every=2"]
    command = Command(real)
    until = time.monotonic() + 300
    while not (job := plan(real[1:]).jobs[0].folder / "metrics.jsonl").exists() or not job.read_bytes():
        assert command.code is None and time.monotonic() < until, command.said
        time.sleep(0.1)
    time.sleep(5)  # well in it
    os.kill(command.pid, INT)
    assert command.end(10) == 130
    assert (rundir.read_status(job.parent) or {})["state"] == "interrupted"


def test_a_launcher_answers_when_the_run_has_saved() -> None:
    """SIGUSR1, for which a handler was there before: what it finds is an interrupted run with its checkpoint."""
    struck("launcher", USR1)
    answered = Path("answered").read_text()
    assert '"interrupted"' in answered and answered.endswith("2")


def at_once(fresh: bool) -> None:
    """Start the same run twice at the same time: one trains, the other says who does."""
    pair = [Command(RUN, "slow_updates", fresh) for _ in range(2)]
    codes = [command.end(120) for command in pair]
    assert sorted(codes) == [0, 2], [command.said for command in pair]
    winner, loser = pair if codes[0] == 0 else reversed(pair)
    assert f"in use by process {winner.pid} on {platform.node()}; " in loser.said
    assert "lnexp train: " in loser.said and "Traceback" not in loser.said


def test_two_processes_on_one_run(undisturbed: dict[str, Any]) -> None:
    at_once(fresh=False)
    assert outcome(folder()) == undisturbed


@pytest.mark.slow
def test_two_processes_on_one_run_five_times(undisturbed: dict[str, Any]) -> None:
    for turn in range(5):
        os.environ["LNEXP_OUTPUTS"] = f"outputs{turn}"  # the fixture of conftest.py puts it back
        at_once(fresh=True)
        assert outcome(folder()) == undisturbed


@pytest.mark.slow
def test_a_killed_process_is_followed_by_the_next(undisturbed: dict[str, Any]) -> None:
    killed = Command(RUN, "update")
    killed.reach()
    killed.strike(signal.SIGKILL)
    assert killed.end(3) == -signal.SIGKILL
    again = Command(RUN)
    assert again.end(60) == 0
    assert f"process {killed.pid} on {platform.node()} ended without a word; taking its lock over" in again.said
    assert outcome(folder()) == undisturbed
