"""What surrounds a run while it trains: its folder's lock, its log file, and the signals that stop it in order."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import platform
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from lnexp.errors import UserError
from lnexp.rundir import STALE_S

BEAT_S = 10.0
"""Between two signs of life in a lock file."""


class Interrupted(BaseException):
    """A signal asked the run to stop: save, say so, go."""


@contextlib.contextmanager
def lock(folder: Path, say: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Keep a second process off the folder, on this machine or another that shares it.

    On one machine the system's lock goes with its process, however it ends. Between machines it may not be passed on,
    so the owner writes down who it is and touches the file while it lives.
    """
    path = folder / ".lock"
    with open(path, "a+", encoding="utf-8") as file:
        owner = _owner(file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"{folder}: in use by {_name(owner)}; wait for it, or stop it first") from None
        if owner and owner.get("host") != platform.node():
            if (silent_s := _silence(folder, path)) < STALE_S:
                last = f"its last sign of life came {silent_s:.0f} s ago"
                raise UserError(f"{folder}: in use by {_name(owner)} ({last}); wait for it, or stop it first")
            say(f"{folder.name}: {_name(owner)} has been silent for {silent_s:.0f} s; taking its lock over")
        elif owner:
            say(f"{folder.name}: {_name(owner)} ended without a word; taking its lock over")
        file.seek(0)
        file.truncate()
        json.dump({"pid": os.getpid(), "host": platform.node()}, file)
        file.flush()
        over = threading.Event()
        beat = threading.Thread(target=_beat, args=(path, over), daemon=True)
        beat.start()
        try:
            yield
        finally:
            over.set()
            beat.join()
            file.truncate(0)  # no owner: ended in order


def _owner(file: TextIO) -> dict[str, Any]:
    file.seek(0)
    try:
        found = json.loads(file.read() or "{}")
    except ValueError:
        return {"text": "another process"}
    return found if isinstance(found, dict) else {}


def _name(owner: dict[str, Any]) -> str:
    return f"process {owner['pid']} on {owner['host']}" if {"pid", "host"} <= owner.keys() else "another process"


def _silence(folder: Path, path: Path) -> float:
    """Seconds since the lock was touched, by the clock of the file system that both machines share."""
    probe = folder / f".now-{os.getpid()}"
    probe.touch()
    try:
        return probe.stat().st_mtime - path.stat().st_mtime
    finally:
        probe.unlink()


def _beat(path: Path, over: threading.Event) -> None:
    while not over.wait(BEAT_S):
        with contextlib.suppress(OSError):
            os.utime(path)


@contextlib.contextmanager
def log_file(folder: Path) -> Iterator[None]:
    """Send Python's log of this run to train.log; Hydra would lose it where a job raises."""
    handler = logging.FileHandler(folder / "train.log", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


class Stop:
    """A first signal asks the run to save and leave at the next safe point; a second ends at once.

    SIGUSR1 and SIGUSR2 count where a launcher listens to them (Slurm's warning before it takes a job away): its own
    answer, which queues the job again, comes after the run has saved.
    """

    _asked: int | None = None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        # Signals go to the main thread; a run that a launcher put on another one is stopped by its process.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            if callable(signal.getsignal(number)):
                before[number] = signal.getsignal(number)

        def ask(number: int, frame: object) -> None:
            self._asked = number
            for each, handler in before.items():
                signal.signal(each, handler)

        for number in before:
            signal.signal(number, ask)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def pass_on(self) -> None:
        """Let the launcher answer the signal that it sent; for when the run has saved and said so."""
        if self._asked in (signal.SIGUSR1, signal.SIGUSR2):
            signal.raise_signal(self._asked)

    def obey(self) -> None:
        """Raise Interrupted where a signal has come."""
        if self._asked is not None:
            raise Interrupted
