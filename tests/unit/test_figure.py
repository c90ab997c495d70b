"""Static figures: what is drawn, the same bytes each time, and what is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "golden"))
import fake_outputs as fake

from lnexp import cli
from lnexp.config import Optim
from lnexp.errors import UserError
from lnexp.report import content, figure, figure_curves, figure_gradients, figure_style
from lnexp.report.collect import collect

MAGIC = {"svg": b"<?xml", "pdf": b"%PDF-", "png": b"\x89PNG"}


@pytest.fixture
def demo() -> Path:
    return fake.write_demo(Path("outputs"))


def test_lines_hold_every_seed_and_mark_the_diverged(demo: Path) -> None:
    panels = figure_curves.lines(collect(demo))
    assert list(panels) == ["adam"]
    losses, bleus = panels["adam"]["loss_bits"], panels["adam"]["bleu"]
    assert [line.label for line in bleus] == [
        "Post-LN, no warm-up (n=2; 1 done, 1 diverged at update 900)",
        "Post-LN, warm-up 200 (n=2)",
        "Pre-LN, no warm-up (n=2)",
        "Pre-LN, warm-up 200 (n=1; 1 done, 1 missing)",
    ]
    expected: dict[float, list[float]] = {}
    for seed in (1, 2):
        for row in fake.rows("post", 200, seed):
            if row["split"] == "valid":
                expected.setdefault(row["epoch"], []).append(row["bleu"])
    assert bleus[1].points == [(epoch, values) for epoch, values in expected.items()]
    # Seed 2 of Post-LN without warm-up ended at update 900, its last loss was not a number.
    assert [len(values) for _, values in losses[0].points] == [2, 2, 2, 2, 2, 1, 1, 1]
    assert [epoch for epoch, _ in losses[0].ends] == [2.5]
    assert all(not line.ends for line in losses[1:])
    assert all(len(values) == 1 for _, values in bleus[3].points)


def test_each_optimizer_has_its_row_of_panels(demo: Path) -> None:
    for seed in (1, 2):
        config = fake.run("post", 0, seed, optim=Optim("sgd", 1e-3))
        fake.write_run(demo / f"sgd-{seed}", config, metrics=fake.rows("post", 0, seed))
    panels = figure_curves.lines(collect(demo))
    assert [(name, len(its["bleu"])) for name, its in panels.items()] == [("adam", 4), ("sgd", 1)]
    assert demo / "curves.svg" in figure.write(demo)


def test_seeds_with_epochs_of_other_lengths_are_laid_together(demo: Path) -> None:
    """Batches differ with the seed: the third validation of one may come an update after that of another."""
    file = next(demo.glob("pre_ln-warmup0-*22*"), None) or sorted(demo.glob("pre_ln-warmup0-*"))[1]
    rows = [json.loads(line) for line in (file / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        row["updates"] += 1
    (file / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    status = json.loads((file / "status.json").read_text())
    (file / "status.json").write_text(json.dumps(status | {"updates": status["updates"] + 1}))
    points = figure_curves.lines(collect(demo))["adam"]["bleu"][2].points
    assert [len(values) for _, values in points] == [2] * 8


@pytest.mark.parametrize("fmt", figure_style.FORMATS)
def test_every_format_is_written_and_the_same_again(fmt: str, demo: Path) -> None:
    files = figure.write("demo", fmt)
    first = [file.read_bytes() for file in files]
    assert files[0].name == f"curves.{fmt}" and all(content.startswith(MAGIC[fmt]) for content in first)
    assert figure.write(demo, fmt) == [demo / file.name for file in files]
    assert [file.read_bytes() for file in files] == first
    assert not list(demo.glob("*.tmp"))


@pytest.mark.parametrize("kind", ["curves", "gradients", "pace"])
def test_other_processes_write_the_same_bytes_whatever_matplotlib_is_set_to(
    kind: str, tmp_path: Path, demo: Path
) -> None:
    import matplotlib

    sweep = fake.write_probed(Path("outputs")) if kind == "gradients" else demo
    rc = tmp_path / "matplotlibrc"
    rc.write_text("font.size: 20\nsvg.fonttype: none\naxes.grid: False\nlines.linewidth: 5\n")
    contents = []
    for seed, more in (("1", {}), ("2", {"MATPLOTLIBRC": str(rc), "TZ": "Asia/Tokyo"})):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "MPLCONFIGDIR": matplotlib.get_cachedir(), **more}
        code = "import sys; from lnexp.cli import main; sys.exit(main(['figure', sys.argv[1]]))"
        done = subprocess.run(
            [sys.executable, "-c", code, str(sweep)], env=environment, capture_output=True, text=True, check=True
        )
        assert f"{sweep / kind}.svg" in done.stdout.splitlines()
        contents.append((sweep / f"{kind}.svg").read_bytes())
    assert contents[0] == contents[1]
    assert b"<dc:date>" not in contents[0]
    assert b"<text" not in contents[0]  # outlines: no font is looked for


def test_nothing_heavy_is_loaded_and_matplotlib_only_to_draw() -> None:
    code = "import sys, lnexp.report.figure; print([m for m in ('matplotlib', 'torch', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_line_looks_as_on_the_dashboard(demo: Path) -> None:
    on_page = [group["look"] for group in content.data(collect(demo))["groups"]]
    for metric in figure_curves.METRICS:
        drawn = figure_curves.lines(collect(demo))["adam"][metric]
        assert [vars(line.look) for line in drawn] == on_page
    with figure_style.sheet(1, 1) as (_, panels):
        for line in figure_curves.lines(collect(demo))["adam"]["bleu"]:
            figure_style.curve(panels[0, 0], line.look, line.label, line.points)
        lines = panels[0, 0].lines
        assert [line.get_color() for line in lines] == [look["light"] for look in on_page]
        assert [line.get_linestyle() for line in lines] == ["--", "-", "--", "-"]
        assert [line.get_markerfacecolor() == "white" for line in lines] == [False, False, True, True]


def drawn(monkeypatch: pytest.MonkeyPatch, sweep: Path) -> tuple[list[Any], str]:
    """Give the panels of a sweep's one figure, and the words below it."""
    seen: list[Any] = []

    def finish(_: Any, __: str, panels: Any, foot: str, ___: str) -> bytes:
        seen.append(([(p.get_title(), p.get_xlim(), p.get_ylim(), len(p.lines)) for p in panels], foot))
        return b""

    monkeypatch.setattr(figure_style, "finish", finish)
    monkeypatch.setattr(figure, "FIGURES", {name: figure.FIGURES[name] for name in ("curves", "gradients")})
    figure.write(sweep)
    (found,) = seen
    return found


@pytest.mark.parametrize(("seeds", "words"), [(1, "one seed a line"), (3, "mean over seeds; band: lowest to highest")])
def test_a_band_is_spoken_of_only_where_there_is_one(seeds: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, foot = drawn(monkeypatch, fake.write_probed(Path("outputs"), seeds=seeds))
    assert words in foot and ("band" in foot) == (seeds > 1)


def test_only_panels_with_something_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    panels, _ = drawn(monkeypatch, fake.write_probed(Path("outputs/both")))
    assert [(title, lines) for title, *_, lines in panels] == [
        ("(a) W1 by decoder layer, 6-6 model", 2),
        ("(b) W2 by decoder layer, 6-6 model", 2),
        ("(c) W2 of the last layer, Post-LN", 1),
        ("(d) W2 of the last layer, Pre-LN", 1),
    ]
    panels, _ = drawn(monkeypatch, fake.write_probed(Path("outputs/one"), depths=(6,)))
    assert [title[:6] for title, *_ in panels] == ["(a) W1", "(b) W2"]  # one depth is no curve over depth


def test_without_bleu_there_is_no_panel_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{k: v for k, v in row.items() if k != "bleu"} for row in fake.rows("pre", 200, 1)]
    fake.write_run(Path("outputs/s/a"), fake.run("pre", 200, 1), metrics=rows)
    with monkeypatch.context() as patch:
        panels, foot = drawn(patch, Path("outputs/s"))
    assert len(panels) == 1 and foot.startswith("one seed a line")
    fake.write_run(Path("outputs/s/b"), fake.run("pre", 0, 1, optim=Optim("sgd", 1e-3)), metrics=fake.rows("pre", 0, 1))
    assert Path("outputs/s/curves.svg") in figure.write(Path("outputs/s"))  # the row of Adam has one panel


def test_epochs_and_bleu_begin_at_zero(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (loss, bleu), _ = drawn(monkeypatch, demo)
    assert loss[1][0] == bleu[1][0] == 0 and loss[1][1] > 4
    assert -0.05 * bleu[2][1] < bleu[2][0] < 0 and loss[2][0] > 0


@pytest.mark.parametrize("name", ["$\\frac{$x", "<script>&\"'", "ünïcode 訓練 🎉", "a_b^c", "x" * 300])
def test_foreign_names_are_text(name: str, demo: Path) -> None:
    for config in demo.glob("*/config.yaml"):
        text = config.read_text()
        config.write_text(
            re.sub(r"^(  name: )linear$", lambda m: m[1] + json.dumps(name, ensure_ascii=False), text, flags=re.M)
        )
    config = sorted(demo.glob("*/config.yaml"))[0]
    config.write_text(re.sub(r"^(schedule:\n  name: ).*$", r"\1constant", config.read_text(), flags=re.M))
    assert any(name[:8] in line.label for line in figure_curves.lines(collect(demo))["adam"]["bleu"])
    assert all(b"<script" not in file.read_bytes() for file in figure.write(demo))


def test_gradients_by_layer_and_by_depth() -> None:
    sweep = fake.write_probed(Path("outputs"))
    models = figure_gradients.models(collect(sweep))
    assert [(m.norm, m.depth) for m in models] == [("post", 6), ("post", 8), ("pre", 6), ("pre", 8)]
    assert figure_gradients.shown(models) == 6
    assert models[0].values["init", "fc2"][3] == pytest.approx([3.1, 3.2, 3.3])
    assert models[0].values["init", "fc1"][1] == pytest.approx([0.011, 0.012, 0.013])
    by_depth = dict(figure_gradients.last(models, "pre"))
    assert by_depth == {6.0: pytest.approx([6.1, 6.2, 6.3]), 8.0: pytest.approx([8.1, 8.2, 8.3])}
    assert figure.write(sweep) == [sweep / "gradients.svg"]


def test_after_warm_up_the_latest_checkpoint_counts() -> None:
    sweep = fake.write_probed(Path("outputs"))
    file = sweep / "post-8" / "probe.json"
    trained = [fake.probe_rows("post", 8, 1, at="checkpoint", updates=u, value=float(u)) for u in (200, 400)]
    file.write_text(json.dumps([*json.loads(file.read_text()), *trained[0], *trained[1]]))
    models = figure_gradients.models(collect(sweep))
    assert figure_gradients.shown(models) == 8  # the depth that was trained is the one by layer
    (model,) = [m for m in models if m.updates.get("checkpoint")]
    assert model.values["checkpoint", "fc2"][8] == [400.0]
    assert model.updates["checkpoint"] == 400


def test_both_figures_where_both_kinds_of_results_lie(demo: Path) -> None:
    run = sorted(demo.glob("post_ln-warmup200-*"))[0]
    (run / "probe.json").write_text(json.dumps(fake.probe_rows("post", 5)))
    assert [file.name for file in figure.write(demo)][:2] == ["curves.svg", "gradients.svg"]
    assert [file.parent for file in figure.write(run)] == [run, run]


def spoil(kind: str) -> Path:
    """Write a sweep of which nothing can be drawn, for one reason."""
    if kind == "begun":
        sweep = Path("outputs/new")
        fake.write_run(sweep / "a", fake.run("pre", 0, 1), "running", 0)
        return sweep
    if kind == "other data":
        sweep = fake.write_demo(Path("outputs"))
        fake.write_run(sweep / "b", fake.run("pre", 7, 1), metrics=fake.rows("pre", 0, 1), fingerprint="0ther")
        return sweep
    sweep = fake.write_probed(Path("outputs"))
    file = sweep / "post-6" / "probe.json"
    contents = {
        "damaged": '[{"at": "init"}]',
        "cut": "[{",
        "mapping": "{}",
        "no decoder": json.dumps(fake.probe_rows("post", 6, module="encoder.fc1")),
        "other setting": json.dumps(fake.probe_rows("post", 6, setting="8 batches")),
        "state": json.dumps(fake.probe_rows("post", 6, at="?")),
    }
    if kind in contents:
        file.write_text(contents[kind])
    if kind == "no decoder":
        for other in sweep.glob("*/probe.json"):
            other.write_text(contents[kind])
    if kind == "two widths":
        config = (sweep / "post-6" / "config.yaml").read_text().replace("d_model: 512", "d_model: 256")
        (sweep / "narrow").mkdir()
        (sweep / "narrow" / "config.yaml").write_text(config)
        (sweep / "narrow" / "probe.json").write_text(json.dumps(fake.probe_rows("post", 6)))
    return sweep


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("begun", "nothing to draw yet"),
        ("other data", "cannot stand in one column: data fingerprint"),
        ("damaged", "post-6/probe.json: not the rows of a probe"),
        ("state", "post-6/probe.json: not the rows of a probe"),
        ("cut", "post-6/probe.json"),
        ("mapping", "post-6/probe.json: not the rows of a probe; delete it to have it made again"),
        ("no decoder", "no probe.json here has grad_norm_of_mean of a decoder layer's fc1 or fc2"),
        ("other setting", "probes of different settings do not compare: '4 batches' and '8 batches'"),
        ("two widths", "two configurations of Post-LN with 6 layers: they differ in size.d_model"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(kind: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["figure", str(spoil(kind))]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


@pytest.mark.parametrize("rest", [["--format", "jpeg"], ["--format"], [], ["demo", "x"], ["nowhere"]])
def test_wrong_arguments(rest: list[str], demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(demo), *rest] if rest[:1] == ["--format"] else rest
    assert cli.main(["figure", *arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not list(demo.glob("curves.*"))


def test_a_folder_that_cannot_be_written_is_named(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (demo / "curves.svg").mkdir()
    with pytest.raises(UserError, match=r"curves\.svg: cannot be written"):
        figure.write(demo)
