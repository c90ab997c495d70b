"""How the static figures look, and how they become files: the same bytes from the same results.

Which line looks how is look.py's to say, here and on the dashboard; this draws it. Text is drawn as outlines in SVG
(no font is looked for where it is shown) and embedded as TrueType in PDF.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lnexp.report.look import Look

FORMATS = ("svg", "pdf", "png")
WIDTH_IN, ROW_IN = 7.2, 2.4  # a paper's text width over two columns; one row of panels
_LINE_IN = 0.165  # a line of the legend

_CROSS = "X"
_MARKERS = {"circle": "o", "triangle": "^", "diamond": "D", "square": "s", "wedge": "v"}
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


def style(look: Look) -> dict[str, Any]:
    """Give what matplotlib calls a look. Its dashes count in line widths, of which the page's lines are two pixels."""
    return {
        "color": look.light,
        "linestyle": (0, tuple(pixels / 2 for pixels in look.dash)) if look.dash else "-",
        "marker": _MARKERS[look.shape],
        "markerfacecolor": "white" if look.hollow else look.light,
    }


def curve(panel: Any, look: Look, label: str, points: Sequence[tuple[float, Sequence[float]]]) -> None:
    """Draw the mean over seeds, and a band from the lowest to the highest, given (x, values of the seeds)."""
    if not points:
        return
    x = [at for at, _ in points]
    panel.plot(x, [sum(values) / len(values) for _, values in points], label=label, **style(look))
    if any(len(values) > 1 for _, values in points):
        low, high = [min(v) for _, v in points], [max(v) for _, v in points]
        panel.fill_between(x, low, high, color=look.light, alpha=0.15, linewidth=0)


def from_zero(panel: Any, x: bool = False, y: bool = False) -> None:
    """Begin an axis at 0, with room for markers that stand there; a long x axis has whole numbers alone."""
    if x:
        panel.set_xlim(left=0)
        if panel.get_xlim()[1] > 3:
            panel.xaxis.get_major_locator().set_params(integer=True)
    if y:
        panel.set_ylim(bottom=-0.03 * panel.get_ylim()[1])


def seeds(drawn: Iterable[Sequence[tuple[float, Sequence[float]]]]) -> str:
    """Say what a line is, given the points of all."""
    if any(len(values) > 1 for points in drawn for _, values in points):
        return "line: mean over seeds; band: lowest to highest"
    return "one seed a line"


def crosses(panel: Any, look: Look, label: str, points: Sequence[tuple[float, float]]) -> None:
    """Mark points (x, y) of a line."""
    if points:
        x, y = zip(*points, strict=True)
        panel.plot(x, y, color=look.light, marker=_CROSS, markersize=7, markeredgecolor="black", linestyle="",
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
