"""How fast, drawn: validation loss and BLEU by checkpoint, and where Post-LN and Pre-LN have what Post-LN ends with.

In: results. Out: a file's content; a row of panels a pair (pace_pairs.py), whose definitions are pace.py's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lnexp.report import figure_style, wording
from lnexp.report.collect import Result
from lnexp.report.figure_curves import METRICS
from lnexp.report.group import group
from lnexp.report.look import Look, looks
from lnexp.report.pace import measure, pace, signature, validations
from lnexp.report.pace_pairs import MOST, Pair, pairs

Points = list[tuple[float, list[float]]]


def drawable(results: Sequence[Result]) -> bool:
    """Say whether there is a pair whose runs have ended. UserError where runs are of different data."""
    return pace(results) is not None


def curve(runs: Sequence[Result], metric: str, axis: str) -> Points:
    """Give (checkpoint or mean updates, its finite values, one a seed that got so far)."""
    found: dict[int, list[tuple[float, float]]] = {}
    for run in runs:
        for point in validations(run, metric):
            if math.isfinite(point.value):
                found.setdefault(point.checkpoint, []).append((getattr(point, axis), point.value))
    columns = [tuple(zip(*found[k], strict=True)) for k in sorted(found)]
    return [(sum(at) / len(at), list(values)) for at, values in columns]


def draw(results: Sequence[Result], title: str, fmt: str) -> bytes:
    """Draw every pair that has a target, at most MOST of them."""
    flats = [one.flat for one in group(results)]
    look = {repr(flat): its for flat, its in zip(flats, looks(flats), strict=True)}
    reached = [
        (pair, {m: found for m in METRICS if (found := measure(pair, m, "last"))["n"]}) for pair in pairs(results)
    ]
    reached = [(pair, metrics) for pair, metrics in reached if metrics]
    known = [m for m in METRICS if any(m in metrics for _, metrics in reached)]
    drawn: list[Points] = []
    with figure_style.sheet(len(reached[:MOST]), len(known)) as (figure, panels):
        for row, (pair, metrics) in zip(panels, reached[:MOST], strict=True):
            for panel, metric in zip(row, known, strict=True):
                if metric not in metrics:
                    panel.remove()
                    continue
                drawn += _panel(panel, pair, metric, metrics[metric], look)
        foot = [figure_style.seeds(drawn), "mark: the first validation at or beyond what Post-LN has at its last"]
        foot += [f"{len(reached) - MOST} more pairs are not drawn"] if len(reached) > MOST else []
        words = "; ".join(foot)
        if (signed := signature(results)) and "bleu" in known:
            words += f"\nBLEU: {wording.plain(signed, 100)}"
        return figure_style.finish(figure, title, list(panels.flat), words, fmt)


def _panel(panel: Any, pair: Pair, metric: str, found: dict[str, Any], look: dict[str, Look]) -> list[Points]:
    """Draw both curves, the target and the two arrivals; the numbers are those of the table."""
    goal, drawn = found["value"]["mean"], []
    sides = zip(("post", "pre"), (pair.post, pair.pre), pair.names, zip(*pair.partners, strict=True), strict=True)
    panel.axhline(goal, color="#444444", linewidth=0.8, linestyle=":", label="what Post-LN ends with, mean over seeds")
    for side, one, name, runs in sides:
        its = look[repr(one.flat)]
        points = curve(runs, metric, pair.axis)
        label = ", ".join(filter(None, [name, pair.settings]))
        figure_style.curve(panel, its, f"{label} (n={len(runs)})", points)
        drawn.append(points)
        if there := found[side][pair.axis]:
            _mark(panel, its, metric, side, there["mean"], goal)
    ratio = found["ratio"][pair.axis]
    outcome = f"Pre-LN there in {found['reached']} of {found['n']} seeds"
    outcome = f"Pre/Post {ratio['text']}, {outcome}" if ratio else outcome
    panel.set_title("\n".join(filter(None, [pair.settings, outcome])))
    figure_style.from_zero(panel, x=True, y=metric == "bleu")
    panel.set_xlim(right=1.1 * max(at for points in drawn for at, _ in points))  # the last number needs room
    panel.set(xlabel="updates" if pair.axis == "updates" else "checkpoint", ylabel=METRICS[metric])
    return drawn


def _mark(panel: Any, look: Look, metric: str, side: str, at: float, goal: float) -> None:
    """Mark an arrival by a star and its number, which stands where no curve is: losses leave the top free."""
    panel.axvline(at, color=look.light, linewidth=0.8, linestyle=":")
    panel.plot([at], [goal], color=look.light, marker="*", markersize=9, markeredgecolor="black",
               markeredgewidth=0.5, linestyle="", zorder=5)  # fmt: skip
    shift, align = (3, "left") if side == "post" else (-3, "right")
    height, edge = (0.03, "bottom") if metric == "bleu" else (0.97, "top")
    number = f"{at:,.1f}".removesuffix(".0")
    panel.annotate(number, (at, height), xycoords=panel.get_xaxis_transform(), ha=align, va=edge, xytext=(shift, 0),
                   textcoords="offset points", color=look.light, fontweight="bold")  # fmt: skip
