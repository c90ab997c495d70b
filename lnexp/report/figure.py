"""The paper's figures from a sweep's results, as files for papers and READMEs: SVG, PDF or PNG.

In: a run or sweep folder. Out: curves.* (Figures 2 and 4) where runs were validated, gradients.* (Figure 3) where they
were probed, pace.* where Post-LN and Pre-LN can be compared in speed. matplotlib is loaded only here, when something is
drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from lnexp.errors import UserError
from lnexp.files import replacing
from lnexp.report import figure_curves, figure_gradients, figure_pace, wording
from lnexp.report.collect import Result, collect, find
from lnexp.report.figure_style import FORMATS

Draw = Callable[[Sequence[Result], str, str], bytes]
FIGURES: dict[str, tuple[Callable[[Sequence[Result]], bool], Draw]] = {
    "curves": (figure_curves.drawable, figure_curves.draw),
    "gradients": (figure_gradients.drawable, figure_gradients.draw),
    "pace": (figure_pace.drawable, figure_pace.draw),
}


def write(path: Path | str, fmt: str = "svg", outputs: Path | str = "outputs") -> list[Path]:
    """Write every figure that the results allow into PATH and give the files."""
    if fmt not in FORMATS:
        raise UserError(f"--format {fmt}: need one of {', '.join(FORMATS)}")
    folder = find(path, outputs)
    results = collect(folder)
    title = wording.plain(folder.resolve().name, 60)
    contents = {name: draw(results, title, fmt) for name, (drawable, draw) in FIGURES.items() if drawable(results)}
    if not contents:
        raise UserError(f"{path}: nothing to draw yet: no run has been validated (lnexp train) or probed (lnexp probe)")
    files = []
    for name, content in contents.items():
        files.append(folder / f"{name}.{fmt}")
        try:
            with replacing(files[-1]) as file:
                file.write(content)
        except OSError as error:
            raise UserError(f"{files[-1]}: cannot be written ({error.strerror})") from None
    return files
