"""What a person sees while something runs: plain lines, and on a terminal a progress bar beneath them."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from lnexp.rundir import read_status


def say(line: str) -> None:
    """Print one line at once; on a terminal it first clears the bar, which draws itself anew below."""
    clear = "\r\033[K" if sys.stdout.isatty() else ""
    print(clear + line, flush=True)


def quiet() -> None:
    """Keep what libraries log and warn of while they load off the terminal; a run's own log file still gets it."""
    logging.getLogger().addHandler(logging.NullHandler())
    logging.captureWarnings(True)


def progress_bar(total: int, done: int, wanted: bool, unit: str = "update") -> tqdm:
    """Give a bar over updates (or another unit); it stays silent where there is no terminal or none is wanted."""
    silent = not (wanted and sys.stderr.isatty())
    return tqdm(total=total or None, initial=done, unit=unit, disable=silent, dynamic_ncols=True, leave=False)


@contextmanager
def watch(folders: list[Path], total: int, name: str) -> Iterator[None]:
    """Show one bar for a whole sweep while it runs, fed by the run folders' own status.json."""
    if not sys.stderr.isatty():
        yield
        return
    over = threading.Event()
    bar = tqdm(total=total or None, desc=name, unit="update", dynamic_ncols=True, leave=False)

    def follow() -> None:
        while not over.wait(1.0):
            states = [status for status in map(read_status, folders) if status]
            bar.n = sum(status["updates"] for status in states)
            running = sum(status["state"] == "running" for status in states)
            bar.set_postfix_str(f"{running} running, {len(states) - running} of {len(folders)} ended")

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()
        bar.close()
