"""How the static figures look, and how they become files: the same bytes from the same results.

Colours are Okabe and Ito's, told apart by colour-blind readers; line style and marker tell the lines apart in grey.
Text is drawn as outlines in SVG (no font is looked for where it is shown) and embedded as TrueType in PDF.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

FORMATS = ("svg", "pdf", "png")
WIDTH_IN, ROW_IN = 7.2, 2.4  # a paper's text width over two columns; one row of panels
_LINE_IN = 0.165  # a line of the legend

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_DASHES = ((), (4, 1.5), (1, 1.2), (6, 1.5, 1, 1.5))
_CROSS, _MARKERS = "X", "os^Dv"  # 7 colours, 4 dashes, 5 markers share no divisor: 140 lines before one comes again
_NO_DATE: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": "lnexp"},
    "pdf": {"CreationDate": None, "Creator": "lnexp", "Producer": None},
    "png": {"Software": "lnexp"},
}
_SETTINGS: Any = {
    "svg.hashsalt": "lnexp", "svg.fonttype": "path", "pdf.fonttype": 42, "font.family": "DejaVu Sans",
    "font.size": 8, "axes.titlesize": 8.5, "legend.fontsize": 7.5, "lines.linewidth": 1.4, "lines.markersize": 3.4,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25, "grid.linewidth": 0.6,
    "text.parse_math": False, "text.usetex": False, "savefig.dpi": 200, "figure.facecolor": "white",
}  # fmt: skip


@contextmanager
def sheet(rows: int, columns: int) -> Iterator[tuple[Any, Any]]:
    """Give a figure and its panels, an array [rows, columns]; nothing of a person's own matplotlib settings counts."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # characters that the font lacks are drawn as boxes
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        figure = Figure(figsize=(WIDTH_IN, ROW_IN * rows + 0.3), layout="constrained")
        yield figure, figure.subplots(rows, columns, squeeze=False)


def line(index: int) -> dict[str, Any]:
    """Give the colour, dash and marker of the index-th line."""
    dash = _DASHES[index % len(_DASHES)]
    return {"color": _COLOURS[index % len(_COLOURS)], "marker": _MARKERS[index % len(_MARKERS)],
            "linestyle": (0, dash) if dash else "-"}  # fmt: skip


def curve(panel: Any, index: int, label: str, points: Sequence[tuple[float, Sequence[float]]]) -> None:
    """Draw the mean over seeds, and a band from the lowest to the highest, given (x, values of the seeds)."""
    if not points:
        return
    x = [at for at, _ in points]
    style = line(index)
    panel.plot(x, [sum(values) / len(values) for _, values in points], label=label, **style)
    if any(len(values) > 1 for _, values in points):
        low, high = [min(v) for _, v in points], [max(v) for _, v in points]
        panel.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0)


def crosses(panel: Any, index: int, label: str, points: Sequence[tuple[float, float]]) -> None:
    """Mark points (x, y) of the index-th line."""
    if points:
        x, y = zip(*points, strict=True)
        panel.plot(x, y, color=line(index)["color"], marker=_CROSS, markersize=7, markeredgecolor="black", linestyle="",
                   label=label)  # fmt: skip


def finish(figure: Any, title: str, panels: Sequence[Any], foot: str, fmt: str) -> bytes:
    """Put the title above, one legend for all panels and the foot below, and give the file's content."""
    figure.suptitle(title, fontsize=9)
    entries: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    labels = sorted(entries, key=lambda label: entries[label].get_marker() == _CROSS)  # marks behind the lines
    columns = 1 if max(map(len, entries), default=0) > 55 else 2
    figure.legend([entries[label] for label in labels], labels, loc="outside lower center", ncols=columns,
                  frameon=False, title=foot, title_fontsize=7, handlelength=3.6)  # fmt: skip
    lines = math.ceil(len(labels) / columns) + foot.count("\n") + 1
    figure.set_size_inches(WIDTH_IN, figure.get_figheight() + _LINE_IN * lines)
    out = io.BytesIO()
    figure.savefig(out, format=fmt, metadata=_NO_DATE[fmt])
    return out.getvalue()
