"""How far a long step is: a bar on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tqdm import tqdm

_EVERY_S = 15.0


class Progress:
    """Counts what is done; in a log the first line comes after some seconds, so that quick steps say nothing."""

    def __init__(self, what: str, unit: str, say: Callable[[str], None]) -> None:
        self._what, self._unit, self._say = what, unit, say
        self._bar = tqdm(desc=what, unit=f" {unit}", disable=not sys.stderr.isatty(), dynamic_ncols=True, leave=False)
        self._done = 0
        self._began = self._said = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def add(self, n: int) -> None:
        """Count n more."""
        self._done += n
        self._bar.update(n)
        now = time.monotonic()
        if now - self._said > _EVERY_S and not sys.stderr.isatty():
            self._said = now
            rate = self._done / (now - self._began)
            self._say(f"data: {self._what}: {self._done:,} {self._unit} ({rate:,.0f} a second)")

    def reach(self, n: int) -> None:
        """Say that n are done in all."""
        self.add(n - self._done)
