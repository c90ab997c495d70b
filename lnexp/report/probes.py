"""probe.json of run folders in; what it holds by layer out, every seed's value: the curves of Figure 3.

The only reader of probe.json: `lnexp probe` itself, the figure and the dashboard refuse the same damage.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from lnexp import rundir
from lnexp.errors import UserError
from lnexp.report.collect import DAMAGED, Flat, Result

Row = dict[str, Any]
FILE = "probe.json"
FIGURE_3 = "grad_norm_of_mean"
# Quantity -> its name and its unit on an axis; probe.py says how each is measured.
QUANTITIES = {
    FIGURE_3: ("norm of the mean gradient", "nats a token"),
    "grad_mean_of_norms": ("mean of the gradients' norms", "nats a token"),
    "hidden_norm": ("norm of what goes into a LayerNorm", "root mean square"),
    "ln_jacobian": ("norm of a LayerNorm's Jacobian", ""),
    "attention_entropy": ("attention entropy", "1 = uniform"),
    "update_ratio": ("size of an update over that of the matrix", ""),
}
DEPTHS = {"encoder": "size.encoder_layers", "decoder": "size.decoder_layers"}
"""Stack -> the setting that says how many layers it has."""
_LAYER = re.compile(r"(encoder|decoder)\.layers\.(\d{1,3})\.(.+)")
_DIGITS = 4  # of a number on the page: more than a screen shows


@dataclass(frozen=True)
class Series:
    """One line by layer."""

    at: str
    """init or checkpoint."""
    updates: int
    quantity: str
    stack: str
    module: str
    """Of a layer: fc2, self_attn.q_proj, ..."""
    setting: str
    """How it was measured, in words."""


Layers = dict[int, list[float]]
"""Layer, counted from 1 -> a value a seed."""


def read(path: Path) -> list[Row]:
    """Give the rows of a probe.json, none where there is none; UserError where it is damaged."""
    if not path.exists():
        return []
    rows = rundir.read_json(path)
    if not isinstance(rows, list) or not all(map(_whole, rows)):
        raise UserError(f"{path}: not the rows of a probe; delete it to have it made again")
    return rows


def _whole(row: Any) -> bool:
    try:
        float(row["value"])
        return row["at"] in ("init", "checkpoint") and all(
            isinstance(row[name], kind)
            for name, kind in (("updates", int), ("seed", int), ("module", str), ("quantity", str))
        )
    except (TypeError, KeyError, ValueError):
        return False


def forgiving(results: Iterable[Result]) -> dict[Path, list[Row]]:
    """Give the rows of every run that has some; a damaged file makes its run damaged, and leaves it without."""
    found = {}
    for run in results:
        try:
            if rows := read(run.folder / FILE):
                found[run.folder] = rows
        except UserError as error:
            run.state, run.reason = DAMAGED, str(error)
    return found


def by_layer(rows: Sequence[Row]) -> dict[Series, Layers]:
    """Gather rows of one configuration: its initialisation, and of its checkpoints the latest."""
    latest = max((row["updates"] for row in rows if row["at"] == "checkpoint"), default=0)
    found: dict[Series, Layers] = {}
    for row in rows:
        at, value = _LAYER.fullmatch(row["module"]), float(row["value"])
        if at and math.isfinite(value) and (row["at"] == "init" or row["updates"] == latest):
            setting = str(row.get("setting", ""))
            series = Series(row["at"], row["updates"], row["quantity"], at[1], at[3], setting)
            found.setdefault(series, {}).setdefault(int(at[2]) + 1, []).append(value)
    return found


def lines(groups: Sequence[Sequence[Row]]) -> dict[str, Any]:
    """Give the page's data of configurations, each with its rows: series, and a line for each that a group has.

    A line is [group, series, means, lowest, highest, seeds], the next three by layer, the last the most of any layer;
    lowest and highest are left out (null) where no layer has two seeds.
    """
    series: dict[Series, int] = {}
    drawn = []
    for index, rows in enumerate(groups):
        for key, layers in by_layer(rows).items():
            values = [layers.get(layer, []) for layer in range(1, max(layers) + 1)]
            most = max(map(len, values))
            band = [_each(values, min), _each(values, max)] if most > 1 else [None, None]
            drawn.append([index, series.setdefault(key, len(series)), _each(values, fmean), *band, most])
    known = {s.quantity for s in series}
    return {
        "quantities": [[name, *words] for name, words in QUANTITIES.items() if name in known],
        "series": [vars(s) for s in series],
        "lines": drawn,
    }


def _each(values: Sequence[Sequence[float]], what: Any) -> list[float | None]:
    return [float(f"{what(v):.{_DIGITS}g}") if v else None for v in values]


def depths(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Give how many layers each stack has; None where that is not known."""
    return {stack: flat.get(key) for stack, key in DEPTHS.items()}


def but_depth(flat: Flat) -> Flat:
    """Leave out how deep the stacks are: what models of one curve over depth have alike."""
    return {k: v for k, v in flat.items() if k not in DEPTHS.values()}
