"""Rows of metrics.jsonl in, columns of a bounded size out: the curves that the dashboard draws.

A page holds at most ROWS rows of all its runs together and SPOTS gradient norms by layer; longer logs are thinned
evenly, their last row kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from lnexp.report.collect import Result
from lnexp.rundir import Row

# Which columns the page gets; a chart more is a name more here and a line in page/panels.js.
COLUMNS = {
    "train": ("updates", "epoch", "wall_s", "loss_bits", "lr", "gnorm", "tokens_per_s"),
    "valid": ("updates", "epoch", "wall_s", "loss_bits", "bleu"),
}
_ALONG = ("updates", "epoch", "wall_s")
ROWS, SPOTS = 120_000, 400_000
_FEWEST, _MOST = 60, 2000  # rows of one run: a curve should stay one; no screen has more columns than that


def thinning(results: Sequence[Result]) -> int:
    """Give the step at which rows are taken: 1 takes all."""
    longest = max((sum(row.get("split") == "train" for row in r.rows) for r in results), default=0)
    room = min(_MOST, max(_FEWEST, ROWS // max(1, len(results))))
    return max(1, math.ceil(longest / room))


def columns(run: Result, step: int) -> dict[str, dict[str, list[float | None]]]:
    """Give {"train": {column: numbers}, "valid": ...}; of the training rows every `step`-th."""
    found: dict[str, list[Row]] = {split: [] for split in COLUMNS}
    for row in run.rows:
        if row.get("split") in found:
            found[row["split"]].append(row)
    found["train"] = every(found["train"], step)
    return {split: {n: [number(row.get(n)) for row in found[split]] for n in names} for split, names in COLUMNS.items()}


def every(rows: list[Row], step: int) -> list[Row]:
    """Take every `step`-th row, counted so that the last one is among them."""
    return rows[(len(rows) - 1) % step :: step] if rows else rows


def number(value: Any) -> float | None:
    """Keep six digits of a finite number; all else is a gap in the curve."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.6g}")


def _probes(run: Result) -> list[Row]:
    return [row for row in run.rows if row.get("split") == "probe" and isinstance(row.get("grad"), dict)]


def layer_names(results: Sequence[Result]) -> list[str]:
    """Name every matrix that any probe has measured, layer 2 before layer 10."""
    names = {str(name) for r in results for row in _probes(r) for name in row["grad"]}
    return sorted(names, key=lambda name: [(int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"(\d+)", name)])


def layers(run: Result, names: Sequence[str], runs: int) -> dict[str, Any] | None:
    """Give the gradient norms of a run's probes: columns along the run, and a list of numbers a matrix."""
    rows = _probes(run)
    if not rows:
        return None
    room = max(2, SPOTS // max(1, len(names) * runs))
    rows = every(rows, math.ceil(len(rows) / room))
    along = {name: [number(row.get(name)) for row in rows] for name in _ALONG}
    return {**along, "grad": [[number(row["grad"].get(name)) for row in rows] for name in names]}
