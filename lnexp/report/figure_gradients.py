"""Figure 3's layout: gradient norms at initialisation, and after warm-up where a checkpoint was probed.

In: results whose folders hold probe.json. Out: a file's content. Panels: the FFN's W1 and W2 by decoder layer of one
depth; W2 of the last decoder layer by depth, Post-LN and Pre-LN. All: the norm of the mean gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lnexp.errors import UserError
from lnexp.report import figure_style, probes, wording
from lnexp.report.collect import Flat, Result
from lnexp.report.group import factors, group
from lnexp.report.look import Look, look
from lnexp.report.probes import FIGURE_3, FILE, Layers

MATRICES = {"fc1": "W1", "fc2": "W2"}
STATES = ("init", "checkpoint")
Points = list[tuple[float, list[float]]]
"""(x, a value a seed)"""


@dataclass
class Model:
    """One norm at one depth: gradient norms by state ("init", "checkpoint") and matrix."""

    norm: str
    depth: int
    flat: Flat
    values: dict[tuple[str, str], Layers] = field(default_factory=dict)
    settings: set[str] = field(default_factory=set)
    updates: dict[str, int] = field(default_factory=dict)
    """State -> the updates that came before it."""


@dataclass
class Panel:
    """One of the figure's panels."""

    title: str
    x: str
    lines: list[tuple[Look, str, Points]]


def drawable(results: Sequence[Result]) -> bool:
    """Say whether any run has been probed."""
    return any((run.folder / FILE).is_file() for run in results)


def models(results: Sequence[Result]) -> list[Model]:
    """Read probe.json of every run; UserError where a file is damaged or two configurations would share a line."""
    found: dict[tuple[str, int], Model] = {}
    for g in group([run for run in results if (run.folder / FILE).is_file() and run.flat]):
        model = Model(str(g.flat.get("model.norm")), int(g.flat.get(probes.DEPTHS["decoder"]) or 0), g.flat)
        _fill(model, [row for run in g.runs for row in probes.read(run.folder / FILE)])
        if not model.values:
            continue
        other = found.setdefault((model.norm, model.depth), model)
        if other is not model:
            differing = [k for k in factors([other.flat, model.flat]) if other.flat.get(k) != model.flat.get(k)]
            raise UserError(
                f"two configurations of {_name(model.norm)} with {model.depth} layers: they differ in "
                f"{', '.join(differing)}; give the folder of one"
            )
    _one_setting(list(found.values()))
    return sorted(found.values(), key=lambda m: (m.norm, m.depth))


def _fill(model: Model, rows: Sequence[probes.Row]) -> None:
    for series, layers in probes.by_layer(rows).items():
        if series.quantity == FIGURE_3 and series.stack == "decoder" and series.module in MATRICES:
            model.values[series.at, series.module] = layers
            model.settings.add(series.setting)
            model.updates[series.at] = series.updates


def _one_setting(found: Sequence[Model]) -> None:
    settings = sorted({s for model in found for s in model.settings})
    if len(settings) > 1:
        raise UserError(
            f"probes of different settings do not compare: {settings[0]!r} and {settings[1]!r}; "
            f"delete the {FILE} of one kind, or give the folder of one"
        )


def _name(norm: str) -> str:
    return wording.MODELS.get(norm, wording.plain(norm, 20))


def shown(found: Sequence[Model]) -> int:
    """Give the depth of the panels by layer: the smallest that was also probed after warm-up, else the smallest."""
    trained = [m.depth for m in found if any(state == "checkpoint" for state, _ in m.values)]
    return min(trained or [m.depth for m in found])


def panels(found: Sequence[Model]) -> list[Panel]:
    """Give the panels that there is something for: by depth from two depths on."""
    depth = shown(found)
    states = [state for state in STATES if any(state in m.updates for m in found)]
    those = [(m, state) for m in found if m.depth == depth for state in states]
    drawn = []
    for matrix, symbol in MATRICES.items():
        lines = [_line(m, state, states, sorted(m.values.get((state, matrix), {}).items())) for m, state in those]
        drawn.append(Panel(f"{symbol} by decoder layer, {depth}-{depth} model", "layer", lines))
    for norm in dict.fromkeys(m.norm for m in found):
        if len(points := last(found, norm)) > 1:
            line = _line(next(m for m in found if m.norm == norm), "init", states, points)
            drawn.append(Panel(f"W2 of the last layer, {_name(norm)}", "layers of each stack", [line]))
    return [panel for panel in drawn if any(points for *_, points in panel.lines)]


def _line(
    model: Model, state: str, states: Sequence[str], points: Sequence[tuple[float, list[float]]]
) -> tuple[Look, str, Points]:
    when = "at initialisation" if state == "init" else f"after {wording.count(model.updates.get(state, 0))} updates"
    label = f"{_name(model.norm)} {when} (n={max((len(values) for _, values in points), default=0)})"
    return look(model.norm, states.index(state), len(states)), label, list(points)


def last(found: Sequence[Model], norm: str) -> Points:
    """Give (depth, values of the seeds) of the last layer's W2 at initialisation."""
    chosen = [m for m in found if m.norm == norm]
    points = [(float(m.depth), m.values.get(("init", "fc2"), {}).get(m.depth, [])) for m in chosen]
    return [(depth, values) for depth, values in points if values]


def draw(results: Sequence[Result], title: str, fmt: str) -> bytes:
    """Draw all panels. UserError where no decoder layer's FFN was probed."""
    found = models(results)
    if not found:
        raise UserError(
            f"{title}: no {FILE} here has {FIGURE_3} of a decoder layer's fc1 or fc2; delete it, `lnexp probe` makes it"
        )
    drawn = panels(found)
    rows = (len(drawn) + 1) // 2
    with figure_style.sheet(rows, min(2, len(drawn))) as (figure, axes):
        for letter, panel, place in zip("abcdefgh", drawn, axes.flat, strict=False):
            for its, label, points in panel.lines:
                figure_style.curve(place, its, label, points)
            _dress(place, f"({letter}) {panel.title}", panel)
        for place in list(axes.flat)[len(drawn) :]:
            place.remove()
        setting = next(iter(sorted({s for m in found for s in m.settings})), "")
        seeds = figure_style.seeds(points for panel in drawn for *_, points in panel.lines)
        foot = f"norm of the mean gradient; {seeds}" + (f"\n{wording.plain(setting, 160)}" if setting else "")
        return figure_style.finish(figure, title, list(axes.flat)[: len(drawn)], foot, fmt)


def _dress(place: Any, title: str, panel: Panel) -> None:
    place.set(title=title, xlabel=panel.x, ylabel="gradient norm")
    figure_style.from_zero(place, y=True)
    place.set_xticks(sorted({x for *_, points in panel.lines for x, _ in points}))
