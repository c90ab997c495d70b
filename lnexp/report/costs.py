"""What the runs of a configuration cost: speed, wall time, peak memory, and where the time went, from timing.json.

In: a group of runs, some of which have a timing.json. Out: plain data, and the table that shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lnexp.report import wording
from lnexp.report.collect import Result
from lnexp.report.live import number
from lnexp.report.markup import Grid

WORK = ("forward", "backward", "optimizer", "decoding")
"""The parts that stand alone; all others together are "the rest"."""
_TRAINING = ("data", "forward", "backward", "optimizer")


def costs(runs: Sequence[Result]) -> dict[str, Any] | None:
    """Add up the runs: seconds by part, target tokens; the mean of their wall times and the highest of their peaks.

    None where no run has a record.
    """
    seconds: dict[str, float] = {}
    tokens, timed = 0.0, [run.timing for run in runs if run.timing]
    for timing in timed:
        tokens += number(timing.get("target_tokens")) or 0.0
        for part, value in _mapping(timing.get("parts")).items():
            seconds[part] = seconds.get(part, 0.0) + (number(value) or 0.0)
    wall_s = sum(seconds.values())
    if not wall_s:
        return None
    training_s = sum(seconds.get(part, 0.0) for part in _TRAINING)
    return {
        "runs": len(timed),
        "tokens_per_s": round(tokens / training_s, 1) if training_s else None,
        "wall_s": round(wall_s / len(timed), 3),
        "peak_rss_mib": _highest(timed, "peak_rss_mib"),
        "peak_device_mib": _highest(timed, "peak_device_mib"),
        "share": {part: round(value / wall_s, 4) for part, value in seconds.items()},
    }


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _highest(timed: Sequence[dict[str, Any]], name: str) -> float | None:
    return max((value for timing in timed if (value := number(timing.get(name))) is not None), default=None)


def grid(rows: Sequence[dict[str, Any]]) -> Grid | None:
    """Give the table of the rows that have costs: a configuration a row; None where none has."""
    known = [(row["name"], row["costs"]) for row in rows if row["costs"]]
    if not known:
        return None
    gpu = any(cost["peak_device_mib"] is not None for _, cost in known)
    headers = [
        "time and memory",
        "tokens/s",
        "whole run",
        "memory",
        *(["GPU memory"] if gpu else []),
        *WORK,
        "the rest",
    ]
    cells = []
    for name, cost in known:
        share = cost["share"]
        peaks = [cost["peak_rss_mib"], *([cost["peak_device_mib"]] if gpu else [])]
        work = [share.get(part, 0.0) for part in WORK]
        cells.append([
            name,
            wording.NOTHING if cost["tokens_per_s"] is None else wording.count(round(cost["tokens_per_s"])),
            wording.duration(cost["wall_s"]),
            *(wording.NOTHING if peak is None else f"{wording.count(round(peak))} MiB" for peak in peaks),
            *(f"{100 * part:.1f}%" for part in [*work, sum(share.values()) - sum(work)]),
        ])  # fmt: skip
    return Grid("Where the time went, from the start of each run to its end.", headers, cells, [_rest(known)],
                set(range(1, len(headers))))  # fmt: skip


def _rest(known: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """Say what the rest is made of, over all configurations alike."""
    parts = [part for part in known[0][1]["share"] if part not in WORK]
    means = {part: sum(cost["share"].get(part, 0.0) for _, cost in known) / len(known) for part in parts}
    made_of = ", ".join(f"{wording.plain(part, 40)} {100 * mean:.1f}%" for part, mean in means.items())
    return (
        "tokens/s: target tokens a second of training without validation; memory: the peak of the run's process; "
        f"the rest on the mean: {made_of}."
    )
