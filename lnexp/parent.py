"""The process that launches workers (Hydra's joblib launcher), and what it owes them: they stop with it, and in order.

A signal to the launching process goes on to its workers, which save and take no further job; without that joblib would
kill them. Where it is killed itself they notice, since nobody waits for them any more, and do the same.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lnexp.signals import answered, echo

# Set by the process that launches, inherited by its workers.
VARIABLE = "LNEXP_PARENT"
_EVERY_S = 1.0
_watched: list[int] = []
_stopped: list[int] = []


def announce() -> None:
    """Name this process as the parent of the workers it will start."""
    os.environ[VARIABLE] = str(os.getpid())


def watch() -> None:
    """Follow the parent that announced itself; once a process, and not where that is this very process."""
    parent = int(os.environ.get(VARIABLE) or os.getpid())
    if parent == os.getpid() or _watched:
        return
    _watched.append(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent passes it on, once
    signal.signal(signal.SIGTERM, _between_runs)
    threading.Thread(target=_follow, args=(parent,), name="parent", daemon=True).start()


def gone() -> bool:
    """Tell whether the watched parent has died: whatever the worker does next, nobody asked for it."""
    return bool(_watched) and os.getppid() != _watched[0]


def _between_runs(number: int, frame: object) -> None:
    if gone():
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    _stopped.append(number)


def stop() -> None:
    """Have this worker take no further job."""
    _stopped.append(signal.SIGTERM)


def stopped() -> bool:
    """Tell whether this worker is to take no further job."""
    return bool(_stopped)


@contextmanager
def passing_on() -> Iterator[None]:
    """Pass the first SIGTERM or Ctrl-C on to the workers and wait for them; a second ends at once, and them with it."""
    asked: list[int] = []

    def ask(number: int, frame: object) -> None:
        if echo():
            return
        workers = _workers()
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGTERM)
        if asked or not workers:
            raise KeyboardInterrupt
        asked.append(number)

    with answered([n for n in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(n) != signal.SIG_IGN], ask):
        yield
    if asked:
        raise KeyboardInterrupt


def _workers() -> list[int]:
    loky = sys.modules.get("joblib.externals.loky.reusable_executor")
    executor = loky._executor if loky else None
    return list(executor._processes or ()) if executor else []


def _follow(parent: int) -> None:
    # The id of the parent changes when it dies: the system gives its children to another.
    while os.getppid() == parent:
        time.sleep(_EVERY_S)
    os.kill(os.getpid(), signal.SIGTERM)
