"""Disks that are full or read-only, where a test may mount one; else the test is skipped with a word."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"nothing may be mounted here ({done.stderr.strip()}); the simulated variant stands in")


@contextlib.contextmanager
def small(place: Path, size: str = "6m") -> Iterator[Path]:
    """A disk of its own at `place`."""
    place.mkdir(parents=True)
    _mount("-t", "tmpfs", "-o", f"size={size}", "lnexp-test", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> Path:
    """Leave no byte free below `place`; gives the file to delete."""
    ballast = place / "ballast"
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return ballast


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Everything opened below `folder` from now on is on a read-only file system; root, too, is refused."""
    _mount("--bind", str(folder), str(folder))
    try:
        _mount("-o", "remount,bind,ro", str(folder))
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
