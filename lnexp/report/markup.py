"""A table of text in; Markdown, CSV or LaTeX out. Whatever the cells hold stays text in the target language."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Grid:
    """Headers, cells and the notes that belong under them; `right` names the columns of numbers."""

    title: str
    headers: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    right: set[int] = field(default_factory=set)
    widths: dict[int, float] = field(default_factory=dict)
    """Column -> cm, of those whose text LaTeX shall break into lines."""


def markdown(grid: Grid) -> str:
    """Give a Markdown table, padded so that it reads well in a terminal too; the last column is left ragged."""
    rows = [[_md(c).replace("|", "\\|") for c in row] for row in [grid.headers, *grid.rows]]
    last = len(grid.headers) - 1
    width = [max(3, *(len(r[i]) for r in rows)) if i < last else 3 for i in range(last + 1)]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i in grid.right else c.ljust(w) for i, (c, w) in enumerate(zip(row, width, strict=True))]
        lines.append(f"| {' | '.join(cells)} |".replace("  |\n", "|\n"))
    rule = [("-" * (w - 1) + ":") if i in grid.right else "-" * w for i, w in enumerate(width)]
    lines.insert(1, f"| {' | '.join(rule)} |")
    notes = ["", *(f"- {_md(note)}" for note in grid.notes)] if grid.notes else []
    return "\n".join([_md(grid.title), "", *lines, *notes]) + "\n"


def _md(text: str) -> str:
    # "*" and "_" act only around a word's edge, and field names such as lr_max should stay legible: left alone
    # inside words, escaped at their edges. "<" could open HTML, "`" code, "[" a link.
    text = re.sub(r"([\\`<>\[\]~])", r"\\\1", text)
    return re.sub(r"(?<![^\W_])([*_])|([*_])(?![^\W_])", r"\\\1\2", text)


def comma_separated(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Give CSV (RFC 4180). Text that a spreadsheet would run as a formula gets a leading apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(headers)
    for row in rows:
        writer.writerow(["'" + c if isinstance(c, str) and c[:1] in ("=", "+", "-", "@") else c for c in row])
    return out.getvalue()


def latex(*grids: Grid) -> str:
    """Give LaTeX tables, one a grid; notes stand in the caption's place below it."""
    return "\n".join(["% needs \\usepackage{booktabs,array}\n", *map(_latex, grids)])


def _latex(grid: Grid) -> str:
    columns = [_column(grid, i) for i in range(len(grid.headers))]
    lines = [
        "\\begin{table}",
        "  \\centering",
        "  \\footnotesize",
        f"  \\setlength{{\\tabcolsep}}{{{TEX_GAP_PT}pt}}",
        f"  \\begin{{tabular}}{{{''.join(columns)}}}",
        "    \\toprule",
        *(f"    {' & '.join(map(_tex, row))} \\\\" for row in [grid.headers]),
        "    \\midrule",
        *(f"    {' & '.join(_cell(grid, i, text) for i, text in enumerate(row))} \\\\" for row in grid.rows),
        "    \\bottomrule",
        "  \\end{tabular}",
        f"  \\caption{{{_tex(' '.join([grid.title, *grid.notes]))}}}",
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


TEX_GAP_PT = 2.5
"""On either side of a column."""


def _column(grid: Grid, i: int) -> str:
    if i in grid.widths:
        return f">{{\\raggedright\\arraybackslash}}p{{{grid.widths[i]:g}cm}}"
    return "r" if i in grid.right else "l"


def _cell(grid: Grid, i: int, text: str) -> str:
    # Names of settings have no space to break a line at.
    return _tex(text).replace(r"\_", r"\_\allowbreak{}") if i in grid.widths else _tex(text)


_TEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}", "–": "--", "±": r"$\pm$", "…": r"\dots{}",
    "−": "$-$", "≥": r"$\geq$", "≤": r"$\leq$",
    **{c: "\\" + c for c in "&%$#_{}"},
}  # fmt: skip


def _tex(text: str) -> str:
    # pdflatex stops at characters that its fonts lack: beyond Latin they are spelt as code points.
    return "".join(_TEX.get(c) or (c if ord(c) < 0x250 else f"[U+{ord(c):04X}]") for c in text)
