"""`lnexp dashboard`: the paper's claims as `lnexp table` has them, and by name what is in no number."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "golden"))
import fake_outputs as fake

from lnexp.cli import main
from lnexp.report import content
from lnexp.report.collect import collect

Out = pytest.CaptureFixture[str]


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    return fake.write_demo(tmp_path / "outputs")


def shown(sweep: Path) -> Any:
    """Give the data of the page in a sweep's folder."""
    page = (sweep / "dashboard.html").read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found
    return json.loads(found[1])


# ---- the paper's claims ----
def test_the_claims_are_those_of_the_table(demo: Path, capsys: Out) -> None:
    """Cell by cell the Markdown that `lnexp table` prints, with its title and its notes."""
    assert main(["dashboard", str(demo)]) == main(["table", str(demo)]) == 0
    text = capsys.readouterr().out
    title, _, below = text[text.index("The paper's claims") :].partition("\n\n")
    table, notes = below.split("\n\n")[:2]
    header, _, *rows = ([cell.strip() for cell in line[2:-2].split(" | ")] for line in table.splitlines())
    claims = shown(demo)["claims"]
    assert (claims["title"], claims["headers"], claims["rows"]) == (title, header, rows)
    assert [f"- {note}" for note in claims["notes"]] == re.sub(r"\\([<>~])", r"\1", notes).splitlines()
    assert "sentences: not tested" in text  # no translation here gives the score beside it
    assert [row[0] for row in rows] == ["holds", "cannot be said"] and claims["marks"] == ["holds", "open"]
    assert claims["how"][1].startswith("the mean lies within the bounds, the 95% interval on both sides")


def test_a_claim_that_does_not_hold(tmp_path: Path) -> None:
    """Post-LN without warm-up as good as with it; the sentences' p comes from whoever tests them."""
    for warmup in (0, 200):
        for seed in (1, 2):
            fake.write_run(tmp_path / "s" / f"{warmup}-{seed}", fake.run("post", warmup, seed),
                           scores=[fake.score(30 + seed / 10)])  # fmt: skip
    claims = content.data(collect(tmp_path / "s"), lambda *_: {"p": 0.2504, "signature": "bs:9"})["claims"]
    assert claims["marks"] == ["fails"] and claims["rows"][0][0] == "does not hold"
    assert claims["rows"][0][claims["headers"].index("sentences")] == "p = 0.250"


def test_runs_that_no_claim_is_about(tmp_path: Path) -> None:
    fake.write_run(tmp_path / "s" / "a", fake.run("pre", 200, 1))
    assert content.data(collect(tmp_path / "s"))["claims"] is None


# ---- what is in no number ----
TORN = '{"split": "train", "upd\n{"split": "valid", "updates": 2, "loss_bits": 5.0}\n'


@pytest.mark.parametrize(("name", "text"), [("scores.json", "["), ("metrics.jsonl", TORN), ("status.json", "{")])
def test_a_damaged_run_is_named(demo: Path, capsys: Out, name: str, text: str) -> None:
    file = demo / "pre_ln-warmup0-21c0ffee" / name
    file.write_text(text)
    assert main(["dashboard", str(demo)]) == 1
    out, err = capsys.readouterr()
    assert out == f"{demo}/dashboard.html\n"
    assert err.startswith(f"lnexp dashboard: left out: {file}") and err.count("\n") == 1
    assert [run["name"] for run in shown(demo)["runs"] if run["state"] == "damaged"] == [file.parent.name]


def test_a_damaged_probe_is_named(tmp_path: Path, capsys: Out) -> None:
    sweep = fake.write_probed(tmp_path)
    (sweep / "post-6" / "probe.json").write_text("{}")
    assert main(["dashboard", str(sweep)]) == 1
    assert capsys.readouterr().err.startswith(f"lnexp dashboard: left out: {sweep}/post-6/probe.json: not the rows")


def test_a_page_of_damaged_runs_alone_says_why(tmp_path: Path, capsys: Out) -> None:
    for seed in (1, 2):
        (fake.write_run(tmp_path / "s" / f"{seed}", fake.run("pre", 200, seed)) / "scores.json").write_text("[")
    assert main(["dashboard", str(tmp_path / "s")]) == 1
    assert capsys.readouterr().err.count("lnexp dashboard: left out: ") == 2
    assert all("scores.json: cannot be read as JSON" in run["reason"] for run in shown(tmp_path / "s")["runs"])


def test_a_twin_is_named_and_does_no_harm(tmp_path: Path, capsys: Out) -> None:
    for name in "ab":
        fake.write_run(tmp_path / "s" / name, fake.run("pre", 200, 1))
    assert main(["dashboard", str(tmp_path / "s")]) == 0
    line = f"lnexp dashboard: left out: {tmp_path}/s/b: the configuration and seed of {tmp_path}/s/a once more\n"
    assert capsys.readouterr().err == line
