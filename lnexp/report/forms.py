"""The content of a table written down: Markdown, CSV, LaTeX, JSON.

In: what table.build and table.below made. Out: text. LaTeX is for a page: it leaves out what a paper does not print
(states, updates, times) and every factor that is not needed to tell the rows apart.
"""

from __future__ import annotations

import json
from typing import Any

from lnexp import paper
from lnexp.report import costs, markup, pace, verdicts, wording
from lnexp.report.markup import Grid

Table = dict[str, Any]
_STATISTICS = ("mean", "half_width", "sd", "n")
_IDENTITY = ("metric", "split", "signature", "n_sentences", "data", "decode", "checkpoint")


def markdown(table: Table) -> str:
    """Give all there is, a section each: results, verdicts, how fast, open points, and where the time went."""
    grids = (_rows(table), verdicts.grid(table["claims"]), _pace(table), verdicts.open_grid(table["open"]),
             costs.grid(table["rows"]))  # fmt: skip
    return "\n".join(markup.markdown(grid) for grid in grids if grid)


def latex(table: Table) -> str:
    """Give results, verdicts, how fast and open points as tables that fit a page's width (345 pt)."""
    speed = _pace(table)
    grids = (_page(table), verdicts.narrow(table["claims"]), speed and _narrow(speed, _PACE),
             verdicts.open_grid(table["open"]))  # fmt: skip
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


def _pace(table: Table) -> Grid | None:
    return pace.grid(table["pace"]) if table["pace"] else None


_PACE = {"how fast": 2.3, "until Post-LN's": 2.1, "Post-LN, checkpoint": 1.45, "Pre-LN, checkpoint": 1.45,
         "Pre/Post": 1.5, "reached": 1.0, "sooner": 1.0}  # fmt: skip


def _narrow(grid: Grid, widths: dict[str, float]) -> Grid:
    """Keep these columns, so many cm wide, in the order they have."""
    kept = [i for i, header in enumerate(grid.headers) if header in widths]
    headers, *rows = ([row[i] for i in kept] for row in (grid.headers, *grid.rows))
    return Grid(grid.title, headers, rows, grid.notes, widths={at: widths[name] for at, name in enumerate(headers)})


def _rows(table: Table) -> Grid:
    headers = [wording.factor(k) for k in table["factors"]]
    rows = [[wording.level(k, v) for k, v in row["factors"].items()] for row in table["rows"]]
    right: set[int] = set()
    for name, key in _measured(table):
        found = [row[key] for row in table["rows"]]
        ns = [f" (n={n['n']})" if n and (key != _LOSS or n["n"] != (row["bleu"] or n)["n"]) else ""
              for row, n in zip(table["rows"], found, strict=True)]  # fmt: skip
        cells = [f"{n['text']}{count}" if n else wording.NOTHING for n, count in zip(found, ns, strict=True)]
        right |= _add(headers, rows, name, cells) | _add_sd(headers, rows, found)
    _add(headers, rows, "state", [row["state"] for row in table["rows"]])
    right |= _add(headers, rows, "updates", [_span(row["updates"]) for row in table["rows"]])
    right |= _add(headers, rows, "wall-clock", [row["wall"] for row in table["rows"]])
    if _compared(table):
        right |= _add(headers, rows, "ours − paper", [_gap(row) for row in table["rows"]])
    _add(headers, rows, "in the paper", [row["paper"]["words"] for row in table["rows"]])
    return Grid(_title(table), headers, rows, table["notes"], right)


def _page(table: Table) -> Grid:
    """Give the rows for a page; the caption says in full what the short headers mean."""
    factors = _telling(table)
    headers = [wording.factor(k).rpartition(".")[2] for k in factors]
    rows = [[wording.level(k, row["factors"][k]) for k in factors] for row in table["rows"]]
    widths = {i: 1.6 for i in range(len(factors)) if max(len(row[i]) for row in rows) > _LONG}
    right: set[int] = set()
    short = {"bleu": "BLEU", "averaged": "BLEU, mean", _LOSS: "loss"}
    for _, key in _measured(table):
        found = [row[key] for row in table["rows"]]
        right |= _add(headers, rows, short[key], [n["text"] if n else wording.NOTHING for n in found])
        right |= _add_sd(headers, rows, found)
        if key != _LOSS:
            right |= _add(headers, rows, "n", [str(n["n"]) if n else wording.NOTHING for n in found])
    if _compared(table):
        right |= _add(headers, rows, "− paper", [_gap(row) for row in table["rows"]])
    _add(headers, rows, "in the paper", [_short(row) for row in table["rows"]])
    return Grid(_title(table), headers, rows, table["notes"], right, widths | {len(headers) - 1: 1.8})


_LOSS = "valid_loss_bits"
_LONG = 10
"""Letters of a factor's level beyond which LaTeX breaks it into lines."""


def _measured(table: Table) -> list[tuple[str, str]]:
    """Name the measured columns, and where a row has them: BLEU of one checkpoint, of a mean of several, loss."""
    split = table["metric"]["split"] if table["metric"] else "test"
    columns = [(f"{split} sacreBLEU", "bleu")]
    if "averaged" in table:
        columns.append((f"{table['averaged']['split']} sacreBLEU, {table['averaged']['checkpoint']}", "averaged"))
    return [*columns, ("valid loss, bits", _LOSS)]


def _add_sd(headers: list[str], rows: list[list[str]], found: list[Any]) -> set[int]:
    """Add the standard deviations, where any configuration has one."""
    if not any(n and n["sd"] is not None for n in found):
        return set()
    cells = [wording.NOTHING if not n or n["sd"] is None else f"{n['sd']:.2f}" for n in found]
    return _add(headers, rows, "sd", cells)


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
    """Keep no more factors than tell all rows apart: the earlier ones, as far as the later do not do without them."""
    levels = [row["factors"] for row in table["rows"]]
    kept: list[str] = list(table["factors"])

    def apart(keys: list[str]) -> int:
        return len({repr([its[k] for k in keys]) for its in levels})

    for key in (*reversed(table["factors"][1:]), *table["factors"][:1]):
        fewer = [k for k in kept if k != key]
        if fewer and apart(fewer) == apart(kept):
            kept = fewer
    return kept


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
