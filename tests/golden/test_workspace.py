"""The W&B workspace and report of the synthetic sweep, word for word, and what must hold of every one; no server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_outputs
import pytest
from test_reports import same

from lnexp.board import describe
from lnexp.cli import main
from lnexp.config import Run
from lnexp.report.collect import collect
from lnexp.track.describe import named
from lnexp.track.workspace import Board, report, view_name, workspace


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_outputs.write_demo(tmp_path_factory.mktemp("golden") / "outputs")


@pytest.fixture(scope="module")
def board(demo: Path) -> Board:
    return describe(collect(demo))


def _panels(spec: Any) -> Iterator[dict[str, Any]]:
    if isinstance(spec, dict):
        if "viewType" in spec:
            yield spec
        for value in spec.values():
            yield from _panels(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from _panels(value)


def test_dry_run_prints_both_specs(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", str(demo), "--wandb", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert set(json.loads(text)) == {"workspace", "report"}
    same("wandb.json", text)


def test_a_damaged_run_is_named(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = next(demo.glob("pre_ln-*")) / "scores.json"
    file.write_text("[")
    assert main(["dashboard", str(demo), "--wandb", "--dry-run"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"lnexp dashboard: left out: {file}: ")


@pytest.mark.parametrize("make", [workspace, report])
def test_every_metric_shown_is_one_that_runs_send(board: Board, make: Any) -> None:
    row = {"updates": 1, "epoch": 1, "wall_s": 1.0, "lr": 1.0, "loss_bits": 1.0, "bleu": 1.0, "gnorm": 1.0}
    probe = {"split": "probe", "updates": 1, "grad": {"decoder.layers.5.fc2": 1.0, "encoder.layers.0.fc1": 1.0}}
    sent = {name for split in ("train", "valid") for name in named({"split": split, **row})} | set(named(probe))
    lines = [p["config"] for p in _panels(make(board)) if p["viewType"] == "Run History Line Plot"]
    for config in lines:
        assert {config["xAxis"], *config["metrics"]} <= sent
        assert config["metrics"] or any(re.fullmatch(config["metricRegex"], name) for name in sent)
    shown = {(c["xAxis"], m) for c in lines for m in c["metrics"]}
    assert {(x, m) for x in ("updates", "wall_s") for m in ("valid/bleu", "valid/loss_bits")} <= shown
    assert ("updates", "lr") in shown and sum("metricRegex" in c for c in lines) == 2


def test_runs_are_the_sweeps_grouped_by_model_warmup_and_rate(board: Board) -> None:
    (runs,) = workspace(board)["section"]["runSets"]
    keys = [key["name"].replace(".value", "", 1) for key in runs["grouping"]]
    assert keys[:3] == ["model.norm", "schedule.warmup_updates", "optim.lr"]
    for key in keys:  # each is a field of a run's config
        part: Any = Run()
        for name in key.split("."):
            part = getattr(part, name)
    (where,) = runs["filters"]["filters"]
    assert where["key"] == {"section": "run", "name": "group"} and where["value"] == ["demo"]


def test_a_run_that_diverged_is_marked_and_the_paper_stands_beside(board: Board) -> None:
    assert [name.startswith("post_ln-warmup0-") for name in board.diverged] == [True]
    for spec in (workspace(board), report(board)):
        text = json.dumps(spec)
        assert "gradient norm not finite at update 851" in text and "in the paper" in text
        assert f'"{board.diverged[0]}": "#d62728"' in text
    assert "None." in json.dumps(workspace(replace(board, diverged=(), told="")))


def test_a_panel_is_named_once_and_a_view_by_its_sweep(board: Board) -> None:
    for spec in (workspace(board), report(board)):
        names = [panel["__id__"] for panel in _panels(spec)]
        assert len(set(names)) == len(names)
    other = replace(board, title="another")
    assert view_name(board, "workspace") == view_name(board, "workspace") != view_name(other, "workspace")
    assert re.fullmatch(r"nw-[a-z0-9]{11}-v", view_name(board, "workspace"))


@pytest.mark.parametrize("flags", [["--dry-run"], ["--wandb", "--watch"]])
def test_flags_that_do_not_go_together(demo: Path, capsys: pytest.CaptureFixture[str], flags: list[str]) -> None:
    assert main(["dashboard", str(demo), *flags]) == 2
    assert "--dry-run goes with --wandb, --watch with neither" in capsys.readouterr().err


def test_runs_of_two_projects_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for project in ("one", "two"):
        run = fake_outputs.run("pre", 0, 1)
        run.track.project = project
        fake_outputs.write_run(tmp_path / "s" / f"{project}-0", run)
    assert main(["dashboard", str(tmp_path / "s"), "--wandb", "--dry-run"]) == 2
    assert "found one, two" in capsys.readouterr().err


def test_wandb_workspaces_reads_them_back(board: Board) -> None:
    """W&B's own package, where it is installed: what it makes of the spec has every panel, by its own classes."""
    pytest.importorskip("wandb_workspaces")
    from wandb_workspaces.reports.v2 import internal as reports
    from wandb_workspaces.workspaces import Workspace, internal

    spec = workspace(board)
    view = internal.View(
        entity="e", project="p", display_name="t", name="nw-1-v", id="1",
        spec=internal.WorkspaceViewspec.model_validate(spec),
    )  # fmt: skip
    back = Workspace._from_model(view)
    kinds = [[type(panel).__name__ for panel in section.panels] for section in back.sections]
    assert kinds == [["LinePlot"] * 4, ["LinePlot"] * 3, ["LinePlot"] * 2,
                     ["BarPlot", "MarkdownPanel", "RunComparer"], ["MarkdownPanel"]]  # fmt: skip
    # Nothing of ours is left out, and what it would add are its defaults.
    assert json.loads(view.spec.model_dump_json(by_alias=True, exclude_none=True)) == spec
    page = reports.Spec.model_validate(report(board))
    dumped = page.model_dump_json(by_alias=True, exclude_none=True).replace(',"inlineComments":[]', "")
    assert json.loads(dumped) == report(board)
    assert not any(isinstance(block, reports.UnknownBlock | dict) for block in page.blocks)
