"""Words from run folders stay words: in the page, in Markdown, in LaTeX, in CSV, on a terminal."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import fake_outputs
import pytest

from lnexp.report import dashboard, table
from lnexp.report.collect import collect

HOSTILE = {
    "script": "</script><script>alert(1)</script><!-- ",
    "quotes": "\"'`${alert(1)}` \\ \u2028 & <b>",
    "rtl": "abc \u202e gnp.exe \u2066 عربي",
    "emoji": "👩‍🔬 🏳️‍🌈 Ünïcødé",
    "long": "x" * 10_000,
    "markup": "| a | *b* _c_ [d](http://e) \n# h $\\input{/etc/passwd}$ %",
    "formula": "=HYPERLINK(0)",
    "escape": "\x1b[31mred\x1b[0m\x07",
}


@pytest.fixture(params=HOSTILE)
def sweep(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    text = HOSTILE[request.param]
    for norm, seed in (("post", 1), ("pre", 2)):
        config = fake_outputs.run(norm, 200, seed, run_name=text, expected=text)
        config.optim.name = text if norm == "post" else "adam"  # a factor of the table
        name = re.sub(r"[/\x00]", "_", text)[:60] + f"-{seed}"
        fake_outputs.write_run(
            tmp_path / "s" / name, config, "failed", 3, text,
            fake_outputs.rows(norm, 200, seed, 200), [fake_outputs.score(1.0)],
        )  # fmt: skip
    return tmp_path / "s"


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.scripts: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def test_page_keeps_its_three_scripts(sweep: Path) -> None:
    page = dashboard.write(sweep).read_text(encoding="utf-8")
    parser = _Parser()
    parser.feed(page)
    assert len(parser.scripts) == 3
    data = json.loads(parser.scripts[0])
    assert len(data["runs"]) == 2
    assert all(len(run["name"]) < 1000 and len(run["reason"]) < 1000 for run in data["runs"])
    assert not re.search(r"[<>&\u2028\u2029]", parser.scripts[0])
    assert not re.search(r"[\u202a-\u202e\u2066-\u2069\x00-\x08\x1b]", parser.scripts[0])
    # The page never hands text to a parser of HTML or code.
    ours = parser.scripts[2]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function", ours)


def test_markdown_rows_stay_rows(sweep: Path) -> None:
    text = table.render(collect(sweep), "md")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 4
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert not re.search(r"(?<!\\)<", text)
    assert max(map(len, lines)) < 1500


def test_csv_cells_are_no_formulas(sweep: Path) -> None:
    rows = list(csv.reader(io.StringIO(table.render(collect(sweep), "csv"))))
    assert len(rows) == 3
    assert {len(row) for row in rows} == {len(rows[0])}
    assert not any(cell.startswith(("=", "@")) for row in rows for cell in row)


def test_latex_is_escaped(sweep: Path) -> None:
    text = table.render(collect(sweep), "latex")
    assert "\\input" not in text.replace("\\textbackslash{}input", "")
    assert all(ord(c) < 0x250 for c in text)
    body = text[text.index("\\midrule") : text.index("\\bottomrule")]
    assert len(re.findall(r"(?<!\\)&", body)) % 2 == 0
    assert text.count("{") - text.count("\\{") == text.count("}") - text.count("\\}")


def test_json_and_status_stay_readable(sweep: Path) -> None:
    assert len(json.loads(table.render(collect(sweep), "json"))["rows"]) == 2
    text = table.status(sweep)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202a-\u202e\u2066-\u2069]", text)
    assert max(map(len, text.splitlines())) < 600
