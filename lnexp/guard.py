"""What surrounds a run while it trains: its folder's lock and its log file."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from lnexp.errors import UserError
from lnexp.rundir import STALE_S

BEAT_S = 10.0
"""Between two signs of life in a lock file."""


class FolderLost(Exception):
    """The run folder is no longer this process's: nothing more may be written there."""


class Lock:
    """A run folder's lock, held."""

    def __init__(self, folder: Path, file: FileIO) -> None:
        self._folder, self._file = folder, file
        self._mark = json.dumps({"pid": os.getpid(), "host": platform.node()}).encode()
        file.truncate(0)
        file.write(self._mark)

    @property
    def _ours(self) -> bool:
        return os.pread(self._file.fileno(), 4096, 0) == self._mark

    def release(self) -> None:
        """Leave no owner: ended in order."""
        if self._ours:
            self._file.truncate(0)

    def check(self) -> None:
        """Raise FolderLost where the folder was deleted, is a new one of that name, or was taken over.

        Its paths would then be somebody else's, or make a part of the run anew that looks like one.
        """
        try:
            there = os.stat(self._folder / ".lock")
        except OSError:
            there = None
        if there is None or not os.path.samestat(there, os.fstat(self._file.fileno())):
            raise FolderLost(f"{self._folder}: deleted while this run was in it; nothing more is written there")
        if not self._ours:
            raise FolderLost(f"{self._folder}: another process has taken it over; nothing more is written there")


@contextlib.contextmanager
def lock(folder: Path, say: Callable[[str], None] = lambda _: None) -> Iterator[Lock]:
    """Keep a second process off the folder, on this machine or another that shares it.

    On one machine the system's lock goes with its process, however it ends. Between machines it may not be passed on,
    so the owner writes down who it is and touches the file while it lives.
    """
    path = folder / ".lock"
    with contextlib.ExitStack() as stack:
        with _writable(folder):
            file = stack.enter_context(open(path, "ab+", buffering=0))
        owner = _owner(file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"{folder}: in use by {_newcomer(file)}; wait for it, or stop it first") from None
        if owner and owner.get("host") != platform.node():
            if (silent_s := _silence(folder, path)) < STALE_S or _touched_again(path):
                last = f"its last sign of life came {silent_s:.0f} s ago"
                raise UserError(f"{folder}: in use by {_name(owner)} ({last}); wait for it, or stop it first")
            say(f"{folder.name}: {_name(owner)} has been silent for {silent_s:.0f} s; taking its lock over")
        elif owner:
            say(f"{folder.name}: {_name(owner)} ended without a word; taking its lock over")
        with _writable(folder):
            held = Lock(folder, file)
        over = threading.Event()
        beat = threading.Thread(target=_beat, args=(file.fileno(), over), daemon=True)
        beat.start()
        try:
            yield held
        finally:
            over.set()
            beat.join()
            held.release()


@contextlib.contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Turn a folder that takes no files into one line."""
    try:
        yield
    except OSError as error:
        rule = "make room or give write permission, then run it again"
        raise UserError(f"{folder}: cannot be written ({error.strerror}); {rule}") from None


def _owner(file: FileIO) -> dict[str, Any]:
    try:
        found = json.loads(os.pread(file.fileno(), 4096, 0) or "{}")
    except ValueError:
        return {"text": "another process"}
    return found if isinstance(found, dict) else {}


def _newcomer(file: FileIO) -> str:
    """Name who holds the lock; it may have taken it this moment and not have signed yet."""
    for _ in range(20):
        if owner := _owner(file):
            return _name(owner)
        time.sleep(0.05)
    return _name({})


def _name(owner: dict[str, Any]) -> str:
    return f"process {owner['pid']} on {owner['host']}" if {"pid", "host"} <= owner.keys() else "another process"


def _silence(folder: Path, path: Path) -> float:
    """Seconds since the lock was touched, by the clock of the file system that both machines share.

    A touch of the future says that this clock was set back: how far is no sign of life.
    """
    probe = folder / f".now-{os.getpid()}"
    with _writable(folder):
        probe.touch()
    try:
        return abs(probe.stat().st_mtime - path.stat().st_mtime)
    finally:
        probe.unlink()


def _touched_again(path: Path) -> bool:
    """Watch for a beat and a half: a clock that was set may make a living owner look silent."""
    before, until = os.stat(path).st_mtime_ns, time.monotonic() + 1.5 * BEAT_S
    while time.monotonic() < until:
        time.sleep(BEAT_S / 10)
        with open(path, "rb") as file:  # a shared file system looks anew when a file is opened
            if os.fstat(file.fileno()).st_mtime_ns != before:
                return True
    return False


def _beat(handle: int, over: threading.Event) -> None:
    while not over.wait(BEAT_S):
        with contextlib.suppress(OSError):
            os.utime(handle)


class _Log(logging.FileHandler):
    """On a full disk what cannot be logged is left out, without a traceback of logging's own."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


@contextlib.contextmanager
def log_file(folder: Path) -> Iterator[None]:
    """Send Python's log of this run to train.log; Hydra would lose it where a job raises."""
    with _writable(folder):
        handler = _Log(folder / "train.log", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        root.removeHandler(handler)
        with contextlib.suppress(OSError):
            handler.close()
