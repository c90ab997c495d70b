"""What stands below a table's rows: verdicts and open points, in every format; LaTeX no wider than a page."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.verdicts import results, run

from lnexp import unstated
from lnexp.config import Scale
from lnexp.launch import plan
from lnexp.report import table, verdicts
from lnexp.report.collect import Result
from lnexp.report.judge import judge
from lnexp.report.markup import TEX_GAP_PT

SWEEPS = ("fig2_warmup", "fig2_sgd", "fig2_readings", "constant_small_lr", "fig4_iwslt", "fig4_wmt", "demo")


def of(sweep: str, scale: str = "cpu") -> list[Result]:
    """Give the runs of a sweep as shipped, three seeds each with a score of its own."""
    jobs = plan([f"sweep={sweep}", *([f"scale={scale}"] if sweep != "demo" else [])]).jobs
    return [
        r for i, job in enumerate(jobs) for r in results(job.run, [20.1 + i, 21.3 + i, 20.7 + 2 * i], name=job.id)
    ]  # fmt: skip


# ---- formats ----
def test_markdown_has_a_section_each() -> None:
    text = table.render(of("fig2_warmup"))
    first, claims, left = (part.splitlines() for part in re.split(r"\n\n(?=The paper's claims|What the paper)", text))
    assert first[0] == "sweep: 6 configurations, 18 runs (18 done)."
    assert claims[0].startswith("The paper's claims, judged by these runs in 7 comparisons: ")
    assert sum(line.startswith("| ") for line in claims) == 2 + 7
    assert left[0].startswith("What the paper leaves open")
    for rows in (claims, left):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in rows if line.startswith("|")}) == 1


def test_json_holds_the_numbers_of_the_verdicts() -> None:
    found = of("fig4_iwslt")
    content = json.loads(table.render(found, "json"))
    assert content["claims"] == json.loads(json.dumps(judge(found)))
    assert {p["point"] for p in content["open"]} >= {"dropout", "length penalty", "averaging of checkpoints"}


def test_csv_of_the_verdicts_is_a_second_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = of("fig2_warmup")
    monkeypatch.setattr(table, "collect", lambda _: found)
    monkeypatch.setattr(table, "find", lambda *_: tmp_path)
    assert [file.name for file in table.write(tmp_path, "csv")] == ["table.csv", "table.claims.csv"]
    assert [file.name for file in table.write(tmp_path, "md")] == ["table.md"]
    rows = list(csv.DictReader(io.StringIO((tmp_path / "table.claims.csv").read_text())))
    assert len(rows) == len(judge(found)) == 7
    for row, verdict in zip(rows, judge(found), strict=True):
        assert row["verdict"] == verdict["verdict"] and float(row["difference"]) == verdict["difference"]
        assert [float(row["interval_low"]), float(row["interval_high"])] == verdict["interval"]
    found = [r for r in found if r.config["model"] == "none of them"]
    assert verdicts.grid(judge(found)) is None


def test_sd_and_n_stand_in_the_rows() -> None:
    text = table.render(results(run(), (30.0, 32.0, 34.0)))
    assert "sweep: 1 configuration, 3 runs (3 done)." in text
    row = next(line for line in text.splitlines() if line.startswith("| Post-LN"))
    assert "| 32.00 ± 4.97 (n=3) | 2.00 |" in row  # t(2) = 4.303, times 2 over the root of 3
    assert "1 configuration, 1 run (1 done)." in table.render(results(run(), (30.0,)))
    assert "| sd" not in table.render(results(run(), (30.0,)))


def test_means_of_checkpoints_have_a_column_of_their_own() -> None:
    found = results(run(), (30.0, 32.0, 34.0))
    for result in found[:2]:
        single = result.scores[0]
        result.scores.append(replace(single, value=single.value + 1, checkpoint="mean of 5"))
    text = table.render(found)
    rows = text.partition("\n- ")[0].splitlines()[2:]
    headers, _, row = ([c.strip() for c in line.split("|")] for line in rows if line)
    cells = dict(zip(headers, row, strict=True))
    assert cells["test sacreBLEU"] == "32.00 ± 4.97 (n=3)"
    assert cells["test sacreBLEU, mean of 5"] == "32.00 ± 12.71 (n=2)"
    assert "- mean of 5 checkpoints: test sacreBLEU: nrefs:1" in text
    (values,) = csv.DictReader(io.StringIO(table.render(found, "csv")))
    assert (values["bleu_n"], values["averaged_n"]) == ("3", "2")
    assert (values["checkpoint"], values["averaged_checkpoint"]) == ("best", "mean of 5")
    assert json.loads(table.render(found, "json"))["averaged"]["checkpoint"] == "mean of 5"
    assert "BLEU, mean" in table.render(found, "latex")
    assert "averaged" not in table.render(results(run(), (30.0, 32.0)), "csv")


def test_a_verdict_says_what_it_rests_on() -> None:
    grid = verdicts.grid(judge(of("fig2_sgd")))
    assert grid
    cells = dict(zip(grid.headers, grid.rows[0], strict=True))
    assert cells["B"] == cells["B − A"] == "–" and cells["must be"] == "≤ 3 BLEU"
    assert cells["verdict"] == "does not hold" and cells["seeds"] == "0% of 27"
    assert any(note.startswith("A ~ 0: ≤ 3 BLEU; 2.77 is what the paper prints") for note in grid.notes)


def test_a_seed_alone_is_marked() -> None:
    found = results(run(warmup=4000), [30.0], name="b") + results(run(), [2.0], name="a")
    grid = verdicts.grid(judge(found))
    assert grid and {row[0] for row in grid.rows} == {"holds (one seed)"}


def test_a_missing_side_is_named_in_its_cell() -> None:
    found = results(run(warmup=4000), [30.0], name="b") + results(run(), [2.0], name="a")
    found[1].scores, found[1].state = [], "failed"
    grid = verdicts.grid(judge(found))
    assert grid and (grid.rows[0][0], grid.rows[0][2]) == ("cannot be said", "no warm-up: failed")


# ---- what the paper leaves open ----
@pytest.mark.parametrize(
    ("sweep", "scale", "points", "not_these"),
    [
        ("fig2_readings", "paper", {"meaning of T = 1", "training pairs", "end of training"}, {"momentum of SGD"}),
        ("fig2_readings", "cpu", {"meaning of T = 1", "dropout"}, {"training pairs", "drop on WMT14"}),
        ("fig2_sgd", "cpu", {"momentum of SGD"}, {"Adam's eps, weight decay, clipping"}),
        ("fig4_iwslt", "paper", {"Adam's eps, weight decay, clipping"}, {"meaning of T = 1", "drop on WMT14"}),
        ("fig4_wmt", "paper", {"drop on WMT14", "beam and length penalty"}, {"training pairs", "length penalty"}),
        ("fig4_wmt", "cpu", {"drop on WMT14"}, {"length penalty"}),
    ],
)
def test_only_points_that_matter(sweep: str, scale: str, points: set[str], not_these: set[str]) -> None:
    found = {p["point"] for p in table.below(of(sweep, scale))["open"]}
    assert points | {"dropout", "averaging of checkpoints", "BLEU"} <= found
    assert not not_these & found


def test_a_point_shows_the_choice_of_these_runs() -> None:
    left = {p["point"]: p["here"] for p in table.below(of("fig2_readings"))["open"]}
    assert left["meaning of T = 1"] == "schedule.name=flat_inverse_sqrt, inverse_sqrt"
    assert left["dropout"] == "size.dropout=0.1" and left["end of training"] == "max_epochs=15"


def test_what_changes_a_point_can_be_typed() -> None:
    """Each setting is one of lnexp's, as are those that show the choice."""
    names = set(re.findall(r"([\w.]+)=", " ".join(p.change for p in unstated.POINTS)))
    names |= {name for p in unstated.POINTS for name in (*p.fields, *p.where)}
    known = set(_flat(results(run(), [1.0])[0].config)) | {"schedule", "decode", "data"}
    assert names <= known


def _flat(config: dict[str, Any], prefix: str = "") -> list[str]:
    parts = ((f"{prefix}{k}", v) for k, v in config.items())
    return [name for k, v in parts for name in (_flat(v, k + ".") if isinstance(v, dict) else [k])]


def test_runs_of_nothing_in_the_paper_have_no_section() -> None:
    text = table.render(results(run("pre", 4000), [30.0, 31.0]))
    assert "The paper's claims" not in text and "leaves open" not in text


# ---- the scale ----
def test_a_table_names_its_scale() -> None:
    scaled, plain = (table.render(results(run(scale=scale), [1.0, 2.0])) for scale in (Scale(11, 3), Scale()))
    assert "its counts of updates divided by 11, its peak rates times 3." in scaled
    assert "At a scale" not in plain


# ---- a page of LaTeX ----
_PT = {"cm": 28.4528}
TEXT_WIDTH_PT = 345.0  # of the article class, on A4 and letter paper
CMR8 = 1.0625  # its letters are so much wider than those of cmr10 at the same size


def _width(text: str) -> float:
    """Measure text in points as \\footnotesize sets it: Computer Modern at 8 pt."""
    font_manager, textpath = (pytest.importorskip(f"matplotlib.{part}") for part in ("font_manager", "textpath"))
    font = font_manager.FontProperties(fname=font_manager.findfont("cmr10"), size=8)
    plain = re.sub(r"\$\\(?:pm|geq|leq)\$|\$-\$", "+", text).replace("\\", "").replace("{}", "")
    return CMR8 * float(textpath.text_to_path.get_text_width_height_descent(plain, font, ismath=False)[0])


def _columns(spec: str) -> list[float | None]:
    """Give the width in points of each column that has one."""
    found = re.findall(r"[lr]|>\{\\raggedright\\arraybackslash\}p\{([\d.]+)cm\}", spec)
    return [float(cm) * _PT["cm"] if cm else None for cm in found]


@pytest.mark.parametrize("scale", ["paper", "cpu"])
@pytest.mark.parametrize("sweep", SWEEPS)
def test_latex_fits_a_page(sweep: str, scale: str) -> None:
    text = table.render(of(sweep, scale), "latex")
    tables = re.findall(r"\\begin\{tabular\}\{([^\n]*)\}\n(.*?)\\end\{tabular\}", text, re.S)
    fast = sweep in ("fig4_iwslt", "fig4_wmt", "demo")  # these alone have both models
    assert len(tables) == (2 if sweep == "fig4_wmt" else 3) + fast
    for spec, body in tables:
        rows = [row.strip().removesuffix("\\\\").split(" & ") for row in body.splitlines() if " & " in row]
        columns = _columns(spec)
        assert {len(row) for row in rows} == {len(columns)}
        widths = []
        for i, fixed in enumerate(columns):
            cells = [row[i].strip() for row in rows]
            if fixed:  # TeX breaks at spaces, after hyphens and where it may
                longest = max(re.split(r"[ -]|\\allowbreak\{\}", " ".join(cells)), key=_width)
                assert _width(longest) <= fixed, longest
            widths.append(fixed or max(map(_width, cells)))
        total = sum(widths) + 2 * TEX_GAP_PT * len(columns)
        assert total <= TEXT_WIDTH_PT, (sweep, round(total), spec)
    assert text.startswith("% needs \\usepackage{booktabs,array}\n")
    assert text.count("{") - text.count("\\{") == text.count("}") - text.count("\\}")
