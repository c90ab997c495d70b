"""The table of `lnexp probe --theory`: a row a claim, a column a width; predicted, measured, tolerance, holds.

In: rows as plain data (lemmas.Statement.row). Out: Markdown or JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lnexp import rundir
from lnexp.errors import UserError
from lnexp.report import markup
from lnexp.report.markup import Grid

FORMATS = ("md", "json")
Rows = Sequence[dict[str, Any]]


def check_format(fmt: str) -> None:
    """Raise UserError where there is no such format: before anything is measured."""
    if fmt not in FORMATS:
        raise UserError(f"--format {fmt}: need one of {', '.join(FORMATS)}")


def failed(rows: Rows) -> list[dict[str, Any]]:
    """Give the judged rows that do not hold."""
    return [row for row in rows if row["judged"] and not row["holds"]]


def render(rows: Rows, fmt: str, notes: Sequence[str] = ()) -> str:
    """Give the rows as text; `notes` stand below the Markdown table."""
    check_format(fmt)
    if fmt == "json":
        return json.dumps(rundir.finite(rows), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return markup.markdown(_grid(rows, notes))


def _grid(rows: Rows, notes: Sequence[str]) -> Grid:
    widths = sorted({row["d"] for row in rows})
    claims: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        claims.setdefault((row["locus"], row["name"]), []).append(row)
    judged, wrong = sum(row["judged"] for row in rows), len(failed(rows))
    title = f"{len(claims)} claims, {judged} measurements judged: {judged - wrong} hold, {wrong} do not."
    headers = ["in the paper", "statement", "at", "predicted", *(f"d={d}" for d in widths), "tolerance", "holds"]
    cells = []
    for (locus, name), its in claims.items():
        by_width = [_measured([row for row in its if row["d"] == d]) for d in widths]
        first = its[0]
        predicted = first["predicted"] + ("" if first["source"] == "paper" else f" ({first['source']})")
        tolerance = f"{first['tolerance']:.0%}" if first["tolerance"] else "none"
        cells.append([locus, name, _at(its), predicted, *by_width, tolerance, _verdict(its)])
    return Grid(title, headers, cells, list(notes), set(range(4, 5 + len(widths))))


def _at(rows: Rows) -> str:
    """Name the settings of a claim: "l = 1 to 14", "L = 6, 8, 10"."""
    names = list(dict.fromkeys(row["at"] for row in rows))
    index = [name.partition(" = ")[::2] for name in names]
    if len(names) < 2 or len({symbol for symbol, _ in index}) > 1 or not all(value.isdigit() for _, value in index):
        return ", ".join(names)
    symbol, values = index[0][0], [int(value) for _, value in index]
    whole = values == list(range(values[0], values[-1] + 1)) and len(values) > 2
    return f"{symbol} = {f'{values[0]} to {values[-1]}' if whole else ', '.join(map(str, values))}"


def _measured(rows: Rows) -> str:
    """Write one measurement with its standard error, or the lowest and the highest of several."""
    if not rows:
        return "–"
    values = [row["measured"] for row in rows]
    if len(rows) > 1:
        low, high = _number(min(values)), _number(max(values))
        return low if low == high else f"{low} to {high}"
    return _number(values[0]) + (f" ± {rows[0]['error']:.4f}" if rows[0]["error"] else "")


def _number(value: float) -> str:
    return f"{value:.1e}" if 0 < abs(value) < 5e-5 else f"{value:.4f}"


def _verdict(rows: Rows) -> str:
    if not rows[0]["judged"]:
        off = [row["measured"] / row["low"] - 1 for row in rows]
        return f"an estimate; {min(off):+.0%} to {max(off):+.0%} off"
    wrong = failed(rows)
    if not wrong:
        return "yes"
    return "no: " + ", ".join(f"d={row['d']} {row['at']}".strip() for row in wrong)
