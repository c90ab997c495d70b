"""Static figures: what is drawn, the same bytes each time, and what is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path.append(str(Path(__file__).parents[1] / "golden"))
import fake_outputs as fake

from lnexp import cli
from lnexp.config import Optim, Size
from lnexp.errors import UserError
from lnexp.report import figure, figure_curves, figure_gradients, figure_style
from lnexp.report.collect import collect

MAGIC = {"svg": b"<?xml", "pdf": b"%PDF-", "png": b"\x89PNG"}


@pytest.fixture
def demo() -> Path:
    return fake.write_demo(Path("outputs"))


def probe_rows(norm: str, depth: int, seeds: int = 3, **changes: Any) -> list[dict[str, Any]]:
    """Give W1 and W2 of every decoder layer: layer + seed / 10 (Post-LN), a hundredth of it for W1."""
    return [
        {"at": "init", "updates": 0, "seed": seed, "module": f"decoder.layers.{layer}.{matrix}",
         "quantity": "grad_norm_of_mean", "value": scale * (layer + 1 + seed / 10), "setting": "4 batches", **changes}
        for seed in range(1, seeds + 1) for layer in range(depth) for matrix, scale in (("fc1", 0.01), ("fc2", 1.0))
    ]  # fmt: skip


def write_probed(outputs: Path, depths: tuple[int, ...] = (6, 8), **changes: Any) -> Path:
    """Write a sweep that was probed and never trained."""
    for norm in ("post", "pre"):
        for depth in depths:
            size = Size(depth, depth, 512, 1024, 4, dropout=0.1)
            folder = outputs / "fig3" / f"{norm}-{depth}"
            folder.mkdir(parents=True)
            config = fake.run(norm, 400, 1, size=size, sweep_name="fig3")
            (folder / "config.yaml").write_text(yaml.safe_dump(asdict(config), sort_keys=False))
            (folder / "probe.json").write_text(json.dumps(probe_rows(norm, depth, **changes)))
    return outputs / "fig3"


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
    assert figure.write(demo) == [demo / "curves.svg"]


def test_seeds_with_epochs_of_other_lengths_are_laid_together(demo: Path) -> None:
    """Batches differ with the seed: the third validation of one may come an update after that of another."""
    file = next(demo.glob("pre_ln-warmup0-*22*"), None) or sorted(demo.glob("pre_ln-warmup0-*"))[1]
    rows = [json.loads(line) for line in (file / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        row["updates"] += 1
    (file / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    points = figure_curves.lines(collect(demo))["adam"]["bleu"][2].points
    assert [len(values) for _, values in points] == [2] * 8


@pytest.mark.parametrize("fmt", figure_style.FORMATS)
def test_every_format_is_written_and_the_same_again(fmt: str, demo: Path) -> None:
    (file,) = figure.write("demo", fmt)
    first = file.read_bytes()
    assert first.startswith(MAGIC[fmt])
    assert figure.write(demo, fmt) == [demo / file.name]
    assert file.read_bytes() == first
    assert not list(demo.glob("*.tmp"))


@pytest.mark.parametrize("kind", ["curves", "gradients"])
def test_other_processes_write_the_same_bytes_whatever_matplotlib_is_set_to(
    kind: str, tmp_path: Path, demo: Path
) -> None:
    import matplotlib

    sweep = demo if kind == "curves" else write_probed(Path("outputs"))
    rc = tmp_path / "matplotlibrc"
    rc.write_text("font.size: 20\nsvg.fonttype: none\naxes.grid: False\nlines.linewidth: 5\n")
    contents = []
    for seed, more in (("1", {}), ("2", {"MATPLOTLIBRC": str(rc), "TZ": "Asia/Tokyo"})):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "MPLCONFIGDIR": matplotlib.get_cachedir(), **more}
        code = "import sys; from lnexp.cli import main; sys.exit(main(['figure', sys.argv[1]]))"
        done = subprocess.run(
            [sys.executable, "-c", code, str(sweep)], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout == f"{sweep / kind}.svg\n"
        contents.append((sweep / f"{kind}.svg").read_bytes())
    assert contents[0] == contents[1]
    assert b"<dc:date>" not in contents[0]
    assert b"<text" not in contents[0]  # outlines: no font is looked for


def test_nothing_heavy_is_loaded_and_matplotlib_only_to_draw() -> None:
    code = "import sys, lnexp.report.figure; print([m for m in ('matplotlib', 'torch', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_lines_stay_apart_in_grey() -> None:
    """Dash and marker alone tell the first twenty lines apart, colour the next hundred."""
    styles = [figure_style.line(i) for i in range(140)]
    assert len({(str(s["linestyle"]), s["marker"]) for s in styles[:20]}) == 20
    assert len({str(sorted(s.items(), key=str)) for s in styles}) == 140


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
    (file,) = figure.write(demo)
    assert b"<script" not in file.read_bytes()


def test_gradients_by_layer_and_by_depth() -> None:
    sweep = write_probed(Path("outputs"))
    models = figure_gradients.models(collect(sweep))
    assert [(m.norm, m.depth) for m in models] == [("post", 6), ("post", 8), ("pre", 6), ("pre", 8)]
    assert figure_gradients.shown(models) == 6
    assert models[0].values["init", "fc2"][3] == pytest.approx([3.1, 3.2, 3.3])
    assert models[0].values["init", "fc1"][1] == pytest.approx([0.011, 0.012, 0.013])
    by_depth = dict(figure_gradients.last(models, "pre"))
    assert by_depth == {6.0: pytest.approx([6.1, 6.2, 6.3]), 8.0: pytest.approx([8.1, 8.2, 8.3])}
    assert figure.write(sweep) == [sweep / "gradients.svg"]


def test_after_warm_up_the_latest_checkpoint_counts() -> None:
    sweep = write_probed(Path("outputs"))
    file = sweep / "post-8" / "probe.json"
    trained = [probe_rows("post", 8, 1, at="checkpoint", updates=u, value=float(u)) for u in (200, 400)]
    file.write_text(json.dumps([*json.loads(file.read_text()), *trained[0], *trained[1]]))
    models = figure_gradients.models(collect(sweep))
    assert figure_gradients.shown(models) == 8  # the depth that was trained is the one by layer
    (model,) = [m for m in models if m.updates.get("checkpoint")]
    assert model.values["checkpoint", "fc2"][8] == [400.0]
    assert model.updates["checkpoint"] == 400


def test_both_figures_where_both_kinds_of_results_lie(demo: Path) -> None:
    run = sorted(demo.glob("post_ln-warmup200-*"))[0]
    (run / "probe.json").write_text(json.dumps(probe_rows("post", 5)))
    assert [file.name for file in figure.write(demo)] == ["curves.svg", "gradients.svg"]
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
    sweep = write_probed(Path("outputs"))
    file = sweep / "post-6" / "probe.json"
    contents = {
        "damaged": '[{"at": "init"}]',
        "cut": "[{",
        "no decoder": json.dumps(probe_rows("post", 6, module="encoder.fc1")),
        "other setting": json.dumps(probe_rows("post", 6, setting="8 batches")),
        "state": json.dumps(probe_rows("post", 6, at="?")),
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
        (sweep / "narrow" / "probe.json").write_text(json.dumps(probe_rows("post", 6)))
    return sweep


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("begun", "nothing to draw yet"),
        ("other data", "cannot stand in one column: data fingerprint"),
        ("damaged", "post-6/probe.json: not the rows of a probe"),
        ("state", "post-6/probe.json: not the rows of a probe"),
        ("cut", "post-6/probe.json"),
        ("no decoder", "has no grad_norm_of_mean of a decoder layer's fc1 or fc2"),
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
