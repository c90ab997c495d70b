"""`lnexp dashboard PATH --wandb` with a server on loopback: both views arrive, and again they replace themselves."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / "golden"))

import fake_outputs
from fakes.wandb_server import FakeWandb, Recorded

from lnexp.board import describe
from lnexp.cli import main
from lnexp.report.collect import collect
from lnexp.track import client
from lnexp.track.workspace import workspace


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    return fake_outputs.write_demo(tmp_path / "outputs")


def test_workspace_and_report_are_saved_once(demo: Path, server: FakeWandb, capsys: pytest.CaptureFixture[str]) -> None:
    server.runs["x"] = Recorded("x", "lnexp")
    for _ in range(2):
        assert main(["dashboard", str(demo), "--wandb"]) == 0
        first, second = capsys.readouterr().out.splitlines()
        assert first.startswith(f"{server.url}/me/lnexp?nw=")
        assert second == f"{server.url}/me/lnexp/reports/Warm-up-ablation%3A-demo--view1"
    assert [view["type"] for view in server.views] == ["project-view", "runs"]
    assert {view["displayName"] for view in server.views} == {"Warm-up ablation: demo"}
    assert server.views[0]["spec"] == workspace(describe(collect(demo)))
    projects = [block["metadata"]["runSets"][0]["project"] for block in server.views[1]["spec"]["blocks"]
                if block["type"] == "panel-grid"]  # fmt: skip
    assert len(projects) == 3
    assert all(project == {"name": "lnexp", "entityName": "me", "id": "17"} for project in projects)


def test_a_dry_run_asks_nobody(
    demo: Path, server: FakeWandb, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_API_KEY")
    assert main(["dashboard", str(demo), "--wandb", "--dry-run"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"workspace", "report"} and not server.queries


def test_no_key_no_project_no_server(
    demo: Path, server: FakeWandb, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    def said(code: int) -> str:
        assert main(["dashboard", str(demo), "--wandb"]) == code
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert "no project me/lnexp in W&B; send the runs first: lnexp sync" in said(2)
    server.runs["x"] = Recorded("x", "lnexp")
    server.refused = {"LnexpSaveView"}
    assert said(1).startswith("W&B: input: LnexpSaveView") and not server.views
    server.die()
    monkeypatch.setattr(client, "ASK_S", 1)
    assert said(1).startswith(f"W&B: {server.url} does not answer (")
    monkeypatch.delenv("WANDB_API_KEY")
    client.forget(wandb)  # it remembers the key
    assert said(2) == "lnexp dashboard: no W&B key; `wandb login`, or set WANDB_API_KEY"
