"""What surrounds a run while it trains: its folder's lock, its log file, and the signals that stop it in order."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import platform
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from lnexp.errors import UserError


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Keep a second process off the folder; the lock goes with the process, however it ends."""
    with open(folder / ".lock", "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            owner = file.read().strip() or "another process"
            raise UserError(f"{folder}: in use by {owner}; wait for it, or stop it first") from None
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {platform.node()}")
        file.flush()
        yield


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
    """A first SIGTERM or SIGINT asks the loop to save and leave after the update at hand; a second ends at once."""

    asked = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        # Signals go to the main thread; a run that a launcher put on another one is stopped by its process.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def ask(number: int, frame: object) -> None:
            self.asked = True
            for number, handler in before.items():
                signal.signal(number, handler)

        for number in before:
            signal.signal(number, ask)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
