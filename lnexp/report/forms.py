"""The content of a table written down: Markdown, CSV, LaTeX, JSON.

In: what table.build and table.below made. Out: text. LaTeX is for a page: it leaves out what a paper does not print
(states, updates, times) and every factor that is not needed to tell the rows apart.
"""

from __future__ import annotations

import json
from typing import Any

from lnexp import paper
from lnexp.report import costs, markup, verdicts, wording
from lnexp.report.markup import Grid

Table = dict[str, Any]
_STATISTICS = ("mean", "half_width", "sd", "n")
_IDENTITY = ("metric", "split", "signature", "n_sentences", "data", "decode", "checkpoint")


def markdown(table: Table) -> str:
    """Give all there is, a section each: results, verdicts, open points, and where the time went."""
    grids = (_rows(table), verdicts.grid(table["claims"]), verdicts.open_grid(table["open"]), costs.grid(table["rows"]))
    return "\n".join(markup.markdown(grid) for grid in grids if grid)


def latex(table: Table) -> str:
    """Give results, verdicts and open points as tables that fit a page's width (345 pt)."""
    grids = (_page(table), verdicts.narrow(table["claims"]), verdicts.open_grid(table["open"]))
    return markup.latex(*(grid for grid in grids if grid))


def json_text(table: Table) -> str:
    """Give the content as it is."""
    return json.dumps(table, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def csv(table: Table) -> str:
    """Give the rows: numbers unrounded and bare of units, and the identity of the metric in every row."""
    columns = [("bleu", table["metric"]), *([("averaged", table["averaged"])] if "averaged" in table else [])]
    prefixes = {"bleu": "", "averaged": "averaged_"}
    headers = list(table["factors"])
    for name, _ in columns:
        headers += [f"{name}_{s}" for s in _STATISTICS] + [prefixes[name] + i for i in _IDENTITY]
    headers += [*(f"valid_loss_bits_{s}" for s in _STATISTICS), "state", "updates_min", "updates_max", "wall_s",
                "paper", "paper_locus", "paper_certainty", "difference"]  # fmt: skip
    rows = []
    for row in table["rows"]:
        loss, words = row["valid_loss_bits"] or {}, row["paper"]
        cells = [_cell(v) for v in row["factors"].values()]
        for name, identity in columns:
            numbers = row[name] or {}
            cells += [numbers.get(s) for s in _STATISTICS]
            cells += [(identity or {}).get(i) if numbers else None for i in _IDENTITY]
        cells += [loss.get(s) for s in _STATISTICS] + [row["state"], *(row["updates"][:1] or [None])]
        cells += [*(row["updates"][-1:] or [None]), row["wall_s"]]
        cells += [words["words"], words["locus"], words["certainty"], words["difference"]]
        rows.append(cells)
    return markup.comma_separated(headers, rows)


def _rows(table: Table) -> Grid:
    factors = table["factors"]
    headers = [wording.factor(k) for k in factors]
    rows = [[wording.level(k, v) for k, v in row["factors"].items()] for row in table["rows"]]
    right = _add_numbers(table, headers, rows)
    _add(headers, rows, "state", [row["state"] for row in table["rows"]])
    right |= _add(headers, rows, "updates", [_span(row["updates"]) for row in table["rows"]])
    right |= _add(headers, rows, "wall-clock", [row["wall"] for row in table["rows"]])
    if _compared(table):
        right |= _add(headers, rows, "ours − paper", [_gap(row) for row in table["rows"]])
    _add(headers, rows, "in the paper", [row["paper"]["words"] for row in table["rows"]])
    return Grid(_title(table), headers, rows, table["notes"], right)


def _page(table: Table) -> Grid:
    factors = _telling(table)
    headers = [wording.factor(k).rpartition(".")[2] for k in factors]
    rows = [[wording.level(k, row["factors"][k]) for k in factors] for row in table["rows"]]
    right = _add_numbers(table, headers, rows)
    if _compared(table):
        right |= _add(headers, rows, "− paper", [_gap(row) for row in table["rows"]])
    _add(headers, rows, "in the paper", [_short(row) for row in table["rows"]])
    return Grid(_title(table), headers, rows, table["notes"], right, {len(headers) - 1: 2.2})


def _add_numbers(table: Table, headers: list[str], rows: list[list[str]]) -> set[int]:
    """Add the columns of measured numbers: BLEU of one checkpoint, of a mean of several, validation loss."""
    split = table["metric"]["split"] if table["metric"] else "test"
    columns = [(f"{split} sacreBLEU", "bleu")]
    if "averaged" in table:
        columns.append((f"{table['averaged']['split']} sacreBLEU, {table['averaged']['checkpoint']}", "averaged"))
    right: set[int] = set()
    for name, key in (*columns, ("valid loss, bits", "valid_loss_bits")):
        found = [row[key] for row in table["rows"]]
        ns = [f" (n={n['n']})" if n and (key != "valid_loss_bits" or n["n"] != (row["bleu"] or n)["n"]) else ""
              for row, n in zip(table["rows"], found, strict=True)]  # fmt: skip
        cells = [f"{n['text']}{count}" if n else wording.NOTHING for n, count in zip(found, ns, strict=True)]
        right |= _add(headers, rows, name, cells)
        if any(n and n["sd"] is not None for n in found):
            cells = [wording.NOTHING if not n or n["sd"] is None else f"{n['sd']:.2f}" for n in found]
            right |= _add(headers, rows, "sd", cells)
    return right


def _add(headers: list[str], rows: list[list[str]], name: str, cells: list[str]) -> set[int]:
    """Add a column; gives its place."""
    headers.append(name)
    for row, cell in zip(rows, cells, strict=True):
        row.append(cell)
    return {len(headers) - 1}


def _title(table: Table) -> str:
    states = ", ".join(f"{n} {state}" for state, n in table["states"].items())
    configurations = wording.plural(len(table["rows"]), "configuration")
    return f"{table['name']}: {configurations}, {wording.plural(sum(table['states'].values()), 'run')} ({states})."


def _telling(table: Table) -> list[str]:
    """Keep of the factors, in their order, those that tell rows apart which the ones before do not."""
    levels = [row["factors"] for row in table["rows"]]
    kept: list[str] = []

    def apart(keys: list[str]) -> int:
        return len({repr([its[k] for k in keys]) for its in levels})

    for key in table["factors"]:
        if apart([*kept, key]) > apart(kept):
            kept.append(key)
    return kept or table["factors"][:1]


def _short(row: Table) -> str:
    """Give the paper's words at their shortest; the caption names the corpus that they are about."""
    return next((c.short for c in paper.CLAIMS if c.id == row["paper"]["claim"]), str(row["paper"]["words"]))


def _compared(table: Table) -> bool:
    return any(row["paper"]["difference"] is not None for row in table["rows"])


def _gap(row: Table) -> str:
    gap = row["paper"]["difference"]
    return wording.NOTHING if gap is None else f"{gap:+.2f}"


def _span(values: list[int]) -> str:
    if not values:
        return wording.NOTHING
    return str(values[0]) if len(values) == 1 else f"{values[0]}–{values[-1]}"


def _cell(value: Any) -> Any:
    return wording.plain(str(value), 200) if isinstance(value, str | list) else value
