"""Figure 2's layout (and Figure 4's): validation loss and BLEU over epochs, a line a configuration, a row an optimizer.

In: results. Out: a file's content. Seeds are laid together by the number of their validation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from lnexp.report import figure_style, wording
from lnexp.report.collect import Result
from lnexp.report.column import check_data
from lnexp.report.group import Group, factors, group
from lnexp.report.look import Look, looks

METRICS = {"loss_bits": "validation loss, bits a token", "bleu": "validation BLEU"}
_OPTIMIZER = "optim.name"
Point = tuple[float, float]


@dataclass
class Line:
    """One configuration of one panel."""

    label: str
    look: Look
    points: list[tuple[float, list[float]]] = field(default_factory=list)
    """(mean epoch of a validation, its finite values, one a seed that got so far)"""
    ends: list[Point] = field(default_factory=list)
    """Where diverged runs had their last finite value."""


def drawable(results: Sequence[Result]) -> bool:
    """Say whether any run has been validated."""
    return any(run.series("valid", "loss_bits") for run in results)


def lines(results: Sequence[Result]) -> dict[str, dict[str, list[Line]]]:
    """Give {optimizer: {metric: lines}}; a configuration has the same place in each, empty where nothing is known.

    Raises UserError where runs are of different data, whose losses do not compare.
    """
    check_data(results)
    groups = group(results)
    flats = [g.flat for g in groups]
    varying = factors(flats)
    found: dict[str, dict[str, list[Line]]] = {}
    for g, look in zip(groups, looks(flats), strict=True):
        panels = found.setdefault(str(g.flat.get(_OPTIMIZER, "")), {metric: [] for metric in METRICS})
        for metric in METRICS:
            panels[metric].append(_line(g, look, varying, metric))
    return found


def _line(g: Group, look: Look, varying: list[str], metric: str) -> Line:
    label = wording.config_name(g.flat, varying)
    extra = "" if set(g.states) == {"done"} else f"; {wording.states(g)}"
    drawn = sum(bool(_points(run, "loss_bits")) for run in g.runs)
    line = Line(f"{label} (n={drawn}{extra})", look)
    by_validation: dict[int, list[Point]] = {}
    for run in g.runs:
        points = _points(run, metric)
        for n, point in points:
            by_validation.setdefault(n, []).append(point)
        if run.state == "diverged" and points:
            line.ends.append(points[-1][1])
    for _, points_there in sorted(by_validation.items()):
        epochs, values = zip(*points_there, strict=True)
        line.points.append((sum(epochs) / len(epochs), list(values)))
    return line


def _points(run: Result, metric: str) -> list[tuple[int, Point]]:
    """Give (number of the validation, (epoch, value)) where both are finite numbers."""
    values = dict(run.series("valid", metric))
    epochs = enumerate(run.series("valid", "epoch"))
    pairs = [(n, (epoch, values.get(updates, math.nan))) for n, (updates, epoch) in epochs]
    return [(n, point) for n, point in pairs if all(map(math.isfinite, point))]


def draw(results: Sequence[Result], title: str, fmt: str) -> bytes:
    """Draw all of it."""
    found = lines(results)
    known = [m for m in METRICS if any(line.points for metrics in found.values() for line in metrics[m])]
    drawn = []
    with figure_style.sheet(len(found), len(known)) as (figure, panels):
        for row, (optimizer, metrics) in zip(panels, found.items(), strict=True):
            for panel, metric in zip(row, known, strict=True):
                if not any(line.points for line in metrics[metric]):
                    panel.remove()
                    continue
                for line in metrics[metric]:
                    figure_style.curve(panel, line.look, line.label, line.points)
                    figure_style.crosses(panel, line.look, "where a run diverged", line.ends)
                    drawn.append(line.points)
                figure_style.from_zero(panel, x=True, y=metric == "bleu")
                panel.set(xlabel="epoch", ylabel=METRICS[metric])
                if len(found) > 1:
                    panel.set_title(wording.plain(optimizer, 20))
        return figure_style.finish(figure, title, list(panels.flat), _foot(results, figure_style.seeds(drawn)), fmt)


def _foot(results: Sequence[Result], seeds: str) -> str:
    """Say what the numbers are."""
    signatures = {s.signature for r in results for s in r.scores if (s.split, s.metric) == ("valid", "sacrebleu")}
    data = {str(r.env["data_fingerprint"]) for r in results if r.env.get("data_fingerprint")}
    parts = [seeds, *(f"data {wording.plain(d, 20)}" for d in sorted(data))]
    text = "; ".join(parts)
    return text + (f"\nBLEU: {wording.plain(signatures.pop(), 100)}" if len(signatures) == 1 else "")
