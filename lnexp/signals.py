"""The signals that ask a command to stop: the first one stops it in order, a second one ends it at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from math import inf
from time import monotonic

ECHO_S = 0.5
"""A signal that comes so soon after another is the same one: GNU timeout and some schedulers send SIGTERM to a process
and then to its whole group, so that it comes twice within milliseconds. No finger is as fast."""
_OF_LAUNCHERS = {signal.SIGUSR1, signal.SIGUSR2}
_counted_s = -inf


class Interrupted(BaseException):
    """A signal asked the run to stop: save, say so, go."""


def echo() -> bool:
    """Tell whether the signal at hand is the last one that counted, sent again. One that is not counts from now on.

    One memory for all handlers of the process: the first of two may be answered by a run, the second by whoever had
    the signal before.
    """
    global _counted_s
    now = monotonic()
    if now - _counted_s < ECHO_S:
        return True
    _counted_s = now
    return False


def _forget() -> None:
    global _counted_s
    _counted_s = -inf


@contextlib.contextmanager
def answered(numbers: Iterable[int], answer: Callable[[int, object], None]) -> Iterator[None]:
    """Have `answer` take these signals, then whoever had them before. Signals go to the main thread: on another one,
    where a launcher may put a run, nothing is done, for it is stopped by its process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in numbers}
    for number in before:
        signal.signal(number, answer)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def sigterm_like_ctrl_c() -> Iterator[None]:
    """Have SIGTERM end a command as Ctrl-C does, whatever it is at: in order, with exit code 130."""

    def end(number: int, frame: object) -> None:
        if not echo():
            raise KeyboardInterrupt

    own = signal.getsignal(signal.SIGINT) == signal.default_int_handler
    with answered([signal.SIGTERM, *([signal.SIGINT] if own else [])], end):
        yield


class Stop:
    """A first signal stops the run: at once while it starts, at the next safe point while it trains (`gently`), where
    it saves first. A second signal ends at once.

    SIGUSR1 and SIGUSR2 count where a launcher listens to them (Slurm's warning before it takes a job away): its own
    answer, which queues the job again, comes after the run has saved.
    """

    _asked: int | None = None
    _gently = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        if before[signal.SIGINT] == signal.SIG_IGN:  # as in a background job
            del before[signal.SIGINT]
        for number in _OF_LAUNCHERS:
            if callable(signal.getsignal(number)):
                before[number] = signal.getsignal(number)

        def ask(number: int, frame: object) -> None:
            again, first = echo(), self._asked is None
            if first or number in _OF_LAUNCHERS:  # which may come after a SIGTERM
                self._asked = number
                if not self._gently and (first or not again):
                    raise Interrupted
            elif not again:
                for each in before.keys() - _OF_LAUNCHERS:
                    signal.signal(each, before[each])
                _forget()  # for whoever has it now it is the first
                signal.raise_signal(number)

        with answered(before, ask):
            yield

    @contextlib.contextmanager
    def gently(self) -> Iterator[None]:
        """Have signals wait for `obey`."""
        self._gently = True
        try:
            yield
        finally:
            self._gently = False
        self.obey()

    def pass_on(self) -> None:
        """Let the launcher answer the signal that it sent; for when the run has saved and said so."""
        if self._asked in _OF_LAUNCHERS:
            signal.raise_signal(self._asked)

    def obey(self) -> None:
        """Raise Interrupted where a signal has come."""
        if self._asked is not None:
            raise Interrupted
