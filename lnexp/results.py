"""`lnexp table`, `figure` and `dashboard`: the files, the table on the screen, and by name what is in no number.

Exit code 1 where a run of the sweep is damaged: what was printed is right, but not whole.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lnexp.errors import UserError
from lnexp.report.collect import DAMAGED, Result, collect, find
from lnexp.report.group import left_out


def show_table(path: str, form: str, outputs: str) -> int:
    """Write the table, and print it in Markdown; where it cannot be written print it all the same, and say so."""
    from lnexp.paired import Tester
    from lnexp.report import table

    results = collect(path, outputs=outputs)
    try:
        written = table.write(path, form, outputs, Tester())
    except UserError:
        print(table.render(results, form, Tester()))  # a fault of the runs comes up again here
        raise
    if form == "md":
        print(written[0].read_text(encoding="utf-8"))
        print(table.summary(results) + "\n")
    print(*written, sep="\n")
    return name_left_out("table", results)


def show_figure(path: str, form: str, outputs: str) -> int:
    """Draw the figures that the results allow, and print the files' names."""
    from lnexp.report import figure

    for file in figure.write(path, form, outputs):
        print(file)
    return name_left_out("figure", collect(path, outputs=outputs))


def show_dashboard(path: str, outputs: str) -> int:
    """Write the page and print the file's name; one of damaged runs alone is written, too, and says why they are."""
    from lnexp.paired import Tester
    from lnexp.report import dashboard

    folder = find(path, outputs)
    results = dashboard.runs(folder)
    print(dashboard.save(folder, dashboard.data(results, Tester())))
    return name_left_out("dashboard", results)


def name_left_out(verb: str, results: Sequence[Result]) -> int:
    """Say what of a sweep is in no number; 1 where a run is damaged, else 0."""
    for line in left_out(results):
        print(f"lnexp {verb}: left out: {line}", file=sys.stderr)
    return 1 if any(result.state == DAMAGED for result in results) else 0
