"""Where the time of a run goes: seconds by part, which add up to the wall time, and its peak memory, in timing.json.

A part is what the host does or waits for. On a GPU work is asynchronous and the clock adds no synchronisation: there
"forward" and "backward" are the time to queue the kernels, and the part that first needs a result (the optimizer's
norm, a loss that is read) waits for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

from lnexp import rundir
from lnexp.memory import peak_rss_mib

FILE, EVERY_S = "timing.json", 5.0
"""The file in the run folder, and the time between two writings of it in training."""
OTHER = "other"
TRAINING = ("data", "forward", "backward", "optimizer")
"""What tokens a second are counted over, here as in the rows of training."""
PARTS = ("startup", *TRAINING, "validation", "decoding", "scoring", "tracking", "checkpointing", OTHER)


class Clock:
    """Adds up seconds by part, from its making on. One part at a time: within another it interrupts that one, so
    nothing counts twice and what no part claims is "other"."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._part, self._since = OTHER, perf_counter()

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Count the block as `part`, one of PARTS."""
        outer = self._turn(part)
        try:
            yield
        finally:
            self._turn(outer)

    def _turn(self, part: str) -> str:
        now, before = perf_counter(), self._part
        self._seconds[before] += now - self._since
        self._part, self._since = part, now
        return before

    def seconds(self) -> dict[str, float]:
        """Give the seconds of each part up to now."""
        self._turn(self._part)
        return dict(self._seconds)

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add what was counted before a restart."""
        for part, value in seconds.items():
            self._seconds[part] = self._seconds.get(part, 0.0) + value


def costs(
    seconds: Mapping[str, float], updates: int, target_tokens: float, peak_device_mib: float | None
) -> dict[str, Any]:
    """Give what timing.json records: seconds and share of each part over all restarts, the peaks of this process."""
    wall_s = sum(seconds.values())
    training_s = sum(seconds[part] for part in TRAINING)
    return {
        "wall_s": round(wall_s, 3),
        "parts": {part: round(value, 3) for part, value in seconds.items()},
        "share": {part: round(value / wall_s, 5) for part, value in seconds.items()},
        "updates": updates,
        "target_tokens": round(target_tokens),
        "tokens_per_s": round(target_tokens / training_s, 1) if training_s else None,
        "peak_rss_mib": round(peak_rss_mib(), 1),
        "peak_device_mib": None if peak_device_mib is None else round(peak_device_mib, 1),
    }


def write(folder: Path, found: dict[str, Any]) -> None:
    """Put `costs` into the run folder, whole or not at all; a full disk fails where a result is written, not here."""
    with suppress(OSError):
        rundir.write_json(folder / FILE, found)


def flat(found: dict[str, Any]) -> dict[str, Any]:
    """Give `costs` in a tracker's names: timing/tokens_per_s, timing/share/forward."""
    share = {f"timing/share/{part}": value for part, value in found["share"].items()}
    return {f"timing/{name}": value for name, value in found.items() if name not in ("parts", "share")} | share
