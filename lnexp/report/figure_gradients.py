"""Figure 3's layout: gradient norms at initialisation, and after warm-up where a checkpoint was probed.

In: results whose folders hold probe.json. Out: a file's content. Panels (a), (b): the FFN's W1 and W2 by decoder layer
of one depth; (c), (d): W2 of the last decoder layer by depth, Post-LN and Pre-LN. All: the norm of the mean gradient.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lnexp import rundir
from lnexp.errors import UserError
from lnexp.report import figure_style, wording
from lnexp.report.collect import Flat, Result
from lnexp.report.group import factors, group

FILE, QUANTITY = "probe.json", "grad_norm_of_mean"
MATRICES = {"fc1": "W1", "fc2": "W2"}
_MODULE = re.compile(r"(?:.*\.)?decoder\.layers\.(\d+)\.(fc[12])")
_DEPTH = "size.decoder_layers"
Values = dict[float, list[float]]
"""x -> a value a seed"""


@dataclass
class Model:
    """One norm at one depth: gradient norms by state ("init", "checkpoint"), matrix and layer counted from 1."""

    norm: str
    depth: int
    flat: Flat
    values: dict[tuple[str, str], Values] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    settings: set[str] = field(default_factory=set)
    updates: dict[str, int] = field(default_factory=dict)
    """State -> the updates that came before it."""


def drawable(results: Sequence[Result]) -> bool:
    """Say whether any run has been probed."""
    return any((run.folder / FILE).is_file() for run in results)


def models(results: Sequence[Result]) -> list[Model]:
    """Read probe.json of every run; UserError where a file is damaged or two configurations would share a line."""
    found: dict[tuple[str, int], Model] = {}
    for g in group([run for run in results if (run.folder / FILE).is_file() and run.flat]):
        model = Model(str(g.flat.get("model.norm")), int(g.flat.get(_DEPTH) or 0), g.flat)
        for run in g.runs:
            _add(model, run)
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


def _add(model: Model, run: Result) -> None:
    file = run.folder / FILE
    rows = rundir.read_json(file)
    try:
        latest = max((row["updates"] for row in rows if row["at"] == "checkpoint"), default=0)
        for row in rows:
            at = _MODULE.fullmatch(row["module"])
            value = float(row["value"])
            wanted = row["quantity"] == QUANTITY and row["updates"] == {"init": 0, "checkpoint": latest}[row["at"]]
            if at and wanted and math.isfinite(value):
                model.values[row["at"], at[2]][int(at[1]) + 1].append(value)
                model.settings.add(str(row.get("setting", "")))
                model.updates[row["at"]] = row["updates"]
    except (TypeError, KeyError, ValueError) as error:
        raise UserError(f"{file}: not the rows of a probe ({error}); delete it to have it made again") from None


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


def draw(results: Sequence[Result], title: str, fmt: str) -> bytes:
    """Draw the four panels. UserError where no decoder layer's FFN was probed."""
    found = models(results)
    if not found:
        raise UserError(f"{title}: {FILE} has no {QUANTITY} of a decoder layer's fc1 or fc2")
    depth = shown(found)
    styles = {(norm, state): 2 * i + j for i, norm in enumerate(("post", "pre"))
              for j, state in enumerate(("init", "checkpoint"))}  # fmt: skip
    with figure_style.sheet(2, 2) as (figure, panels):
        for letter, panel, (matrix, symbol) in zip("ab", panels[0], MATRICES.items(), strict=True):
            for model in (m for m in found if m.depth == depth):
                for state in ("init", "checkpoint"):
                    points = sorted(model.values.get((state, matrix), {}).items())
                    figure_style.curve(panel, styles.get((model.norm, state), 4), _label(model, state, points), points)
            _dress(panel, f"({letter}) {symbol} by decoder layer, {depth}-{depth} model", "layer", panel.lines)
        for letter, panel, norm in zip("cd", panels[1], ("post", "pre"), strict=True):
            points = last(found, norm)
            label = _label(next((m for m in found if m.norm == norm), None), "init", points)
            figure_style.curve(panel, styles[norm, "init"], label, points)
            _dress(panel, f"({letter}) W2 of the last layer, {_name(norm)}", "layers of each stack", panel.lines)
        setting = next(iter(sorted({s for m in found for s in m.settings})), "")
        foot = "norm of the mean gradient; line: mean over seeds; band: lowest to highest"
        foot += f"\n{wording.plain(setting, 160)}" if setting else ""
        return figure_style.finish(figure, title, list(panels.flat), foot, fmt)


def _label(model: Model | None, state: str, points: Sequence[tuple[float, list[float]]]) -> str:
    if model is None or not points:
        return ""
    when = "at initialisation" if state == "init" else f"after {wording.count(model.updates[state])} updates"
    return f"{_name(model.norm)} {when} (n={max(len(values) for _, values in points)})"


def last(found: Sequence[Model], norm: str) -> list[tuple[float, list[float]]]:
    """Give (depth, values of the seeds) of the last layer's W2 at initialisation."""
    chosen = [m for m in found if m.norm == norm]
    points = [(float(m.depth), m.values.get(("init", "fc2"), {}).get(m.depth, [])) for m in chosen]
    return [(depth, values) for depth, values in points if values]


def _dress(panel: Any, title: str, x: str, drawn: Sequence[Any]) -> None:
    panel.set(title=title, xlabel=x, ylabel="gradient norm")
    if drawn:
        panel.set_ylim(bottom=0)
        panel.set_xticks(sorted({at for line in drawn for at in line.get_xdata()}))
    else:
        panel.text(0.5, 0.5, "not probed", ha="center", va="center", transform=panel.transAxes)
