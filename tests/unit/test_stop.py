"""The signals that stop a run in order, and the second ones that end it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lnexp import parent, signals
from lnexp.signals import Interrupted, Stop, sigterm_like_ctrl_c

STOPPING = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give the time, in a list, for a test to set; no signal has come yet."""
    now = [1000.0]
    monkeypatch.setattr(signals, "monotonic", lambda: now[0])
    monkeypatch.setattr(signals, "_counted_s", float("-inf"))
    return now


@pytest.fixture(autouse=True)
def python_s_own_handlers() -> Iterator[None]:
    """Ctrl-C is ignored where the tests run in the background."""
    before = {number: signal.getsignal(number) for number in STOPPING}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@contextmanager
def as_the_command_does() -> Iterator[Stop]:
    """Handlers one in another: the command's, the launching process's, the run's."""
    stop = Stop()
    with sigterm_like_ctrl_c(), parent.passing_on(), stop.listening(), stop.gently():
        yield stop


def test_a_signal_waits_while_there_is_something_to_save() -> None:
    stop, reached = Stop(), []
    with pytest.raises(Interrupted), stop.listening(), stop.gently():
        signal.raise_signal(signal.SIGTERM)
        reached.append("saved")
        stop.obey()
        reached.append("went on")
    assert reached == ["saved"]


def test_a_signal_at_the_end_of_training_counts() -> None:
    stop = Stop()
    with pytest.raises(Interrupted), stop.listening():
        with stop.gently():
            signal.raise_signal(signal.SIGINT)
        pytest.fail("went on")


def test_a_signal_ends_a_start_at_once() -> None:
    stop = Stop()
    with pytest.raises(Interrupted), stop.listening():
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("went on")


@pytest.mark.parametrize("number", STOPPING)
def test_a_second_signal_ends_at_once(number: int, clock: list[float]) -> None:
    with pytest.raises(KeyboardInterrupt), as_the_command_does():
        signal.raise_signal(number)
        clock[0] += 0.6
        signal.raise_signal(number)
        pytest.fail("went on")


@pytest.mark.parametrize("number", STOPPING)
@pytest.mark.parametrize("other", STOPPING)
def test_a_signal_that_comes_twice_at_once_is_one(number: int, other: int, clock: list[float]) -> None:
    with pytest.raises(BaseException) as caught, as_the_command_does():  # a KeyboardInterrupt would end the tests
        signal.raise_signal(number)
        for _ in range(4):
            clock[0] += 0.1
            signal.raise_signal(other)
    assert caught.type is Interrupted


def test_half_a_second_counts_from_the_first(clock: list[float]) -> None:
    """Signals without end, each soon after the one before, end the command all the same."""
    heard = 0
    with pytest.raises(KeyboardInterrupt), as_the_command_does():
        for _ in range(9):
            heard += 1
            signal.raise_signal(signal.SIGTERM)
            clock[0] += 0.125
    assert heard == 5


def test_an_echo_finds_another_handler(clock: list[float]) -> None:
    """The run has stopped at the first one; what comes while the command ends does not break that off."""
    ended = []
    with pytest.raises(KeyboardInterrupt), sigterm_like_ctrl_c(), parent.passing_on():
        try:
            with Stop().listening():
                signal.raise_signal(signal.SIGTERM)
        except Interrupted:
            signal.raise_signal(signal.SIGTERM)
            ended.append("said so")
            raise KeyboardInterrupt from None
    assert ended == ["said so"]


def test_a_run_is_stopped_by_what_another_handler_has_counted(clock: list[float]) -> None:
    """As in a worker that was between two runs when the first of the two came."""
    assert not signals.echo()
    with pytest.raises(Interrupted), Stop().listening():
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("went on")


def test_the_workers_are_told_once(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(parent, "_workers", lambda: [7])
    monkeypatch.setattr(parent.os, "kill", lambda process, number: told.append(process))
    counts = []
    with pytest.raises(KeyboardInterrupt), parent.passing_on():
        for wait_s in (0.001, 0.001, 2):
            signal.raise_signal(signal.SIGTERM)
            counts.append(len(told))
            clock[0] += wait_s
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("went on")
    assert counts == [1, 1, 1] and len(told) == 2


def test_a_launcher_s_signal_right_after_a_sigterm_is_passed_on(clock: list[float]) -> None:
    stop, order = Stop(), []
    before = signal.signal(signal.SIGUSR2, lambda *_: order.append("launcher"))
    try:
        with pytest.raises(Interrupted), stop.listening(), stop.gently():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGUSR2)
            order.append("saved")
        stop.pass_on()
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert order == ["saved", "launcher"]


def test_handlers_are_put_back() -> None:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    with Stop().listening():
        assert signal.getsignal(signal.SIGUSR1) == before[2]  # nobody listens: not ours to take
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_launcher_s_signal_is_passed_on_afterwards(number: int) -> None:
    stop, order = Stop(), []
    before = signal.signal(number, lambda *_: order.append("launcher"))
    try:
        with pytest.raises(Interrupted), stop.listening(), stop.gently():
            signal.raise_signal(number)
            order.append("saved")
            stop.obey()
        stop.pass_on()
    finally:
        signal.signal(number, before)
    assert order == ["saved", "launcher"]


def test_other_signals_are_not_passed_on() -> None:
    stop = Stop()
    with pytest.raises(Interrupted), stop.listening():
        signal.raise_signal(signal.SIGTERM)
    stop.pass_on()  # SIGTERM would end the tests


def test_another_thread_hears_no_signals() -> None:
    def work() -> None:
        with Stop().listening() as listening:
            heard.append(listening)

    heard: list[None] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert heard == [None]
