"""A W&B workspace and report for warm-up ablations: what a sweep is called and varies in, their specs out as dicts.

The words and values of the format are those that W&B's own wandb-workspaces 0.4.13 writes and reads back (its
`Workspace._to_model` and `Report._to_model`); whether W&B's pages draw it well has not been seen, for want of a server.
Nothing here is random, so a spec can be compared with a stored one, and pushed again it replaces itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

ALWAYS = ("model.norm", "schedule.warmup_updates", "optim.lr")
"""What runs are grouped by, whatever varies: model x warm-up x peak rate."""
_SCORE = "final/test_sacrebleu"
_DIVERGED = "#d62728"
_FLOW = {"snapToColumns": True, "columnsPerPage": 3, "rowsPerPage": 2, "gutterWidth": 16, "boxWidth": 460,
         "boxHeight": 300}  # fmt: skip

Spec = dict[str, Any]


@dataclass(frozen=True)
class Board:
    """What a sweep's pages are made of."""

    title: str
    entity: str
    project: str
    groups: Sequence[str]
    """W&B groups, which are sweep names; none = every run of the project."""
    factors: Sequence[str]
    """Config fields that vary."""
    table: str
    """The results beside the paper's, in Markdown."""
    diverged: Sequence[str] = ()
    """W&B ids of the runs that diverged."""
    told: str = ""
    """Which these are and why, in Markdown."""
    project_id: str = ""
    """W&B's number of the project; needed where a report is saved."""


def workspace(board: Board) -> Spec:
    """Give the spec of the saved workspace, as upsertView takes it (type project-view)."""
    sections = [
        _section("BLEU and validation loss", _quality()),
        _section("Learning rate and gradient norm", _course()),
        _section("Gradient norms by layer (probe)", _layers()),
        _section("Results beside the paper's", [_scores(), _markdown("results", board.table), _comparer()]),
        _section("Diverged runs", [_markdown("diverged", _told(board))]),
    ]
    bank = {"state": 1, "settings": _bank_settings(), "sections": sections}
    return {
        "section": {
            "panelBankConfig": bank,
            "panelBankSectionConfig": _loose([]) | {"pinned": False},
            "customRunColors": dict.fromkeys(board.diverged, _DIVERGED),
            "name": "",
            "runSets": [_runs(board)],
            "settings": _panel_settings("updates") | {"maxRuns": 100, "shouldAutoGeneratePanels": False},
            "openRunSet": 0,
            "openViz": True,
        },
        "vizExpanded": False,
        "libraryExpanded": True,
    }


def report(board: Board) -> Spec:
    """Give the spec of the report, as upsertView takes it (type runs)."""
    blocks = [
        _paragraph(""),
        _heading("Results beside the paper's"),
        {"type": "markdown-block", "children": [{"text": ""}], "content": board.table},
        _heading("BLEU and validation loss"),
        _grid(board, _quality()),
        _heading("Learning rate and gradient norm"),
        _grid(board, _course()),
        _heading("Gradient norms by layer"),
        _grid(board, _layers()),
        _heading("Diverged runs"),
        {"type": "markdown-block", "children": [{"text": ""}], "content": _told(board)},
        _paragraph(""),
    ]
    return {
        "version": 5, "panelSettings": {}, "blocks": blocks, "width": "fluid", "authors": [], "discussionThreads": [],
    }  # fmt: skip


def view_name(board: Board, kind: str) -> str:
    """Name the view: the same for the same sweep, in the form that W&B gives a workspace's."""
    number = _id(f"{kind} {board.title}")
    return f"nw-{number}-v" if kind == "workspace" else number


def _quality() -> list[Spec]:
    bleu = {"yAxisMin": 0.0}
    loss = {"ignoreOutliers": True}  # a run that breaks down would flatten all others
    return [
        _line("valid BLEU over updates", "updates", ["valid/bleu"], "updates", "sacreBLEU", bleu),
        _line("valid loss over updates", "updates", ["valid/loss_bits"], "updates", "bits a token", loss),
        _line("valid BLEU over wall-clock", "wall_s", ["valid/bleu"], "seconds", "sacreBLEU", bleu),
        _line("valid loss over wall-clock", "wall_s", ["valid/loss_bits"], "seconds", "bits a token", loss),
    ]


def _course() -> list[Spec]:
    return [
        _line("learning rate", "updates", ["lr"], "updates", "learning rate", {}),
        _line("gradient norm before clipping", "updates", ["gnorm"], "updates", "norm", {"yLogScale": True}),
        _line("training loss", "updates", ["train/loss_bits"], "updates", "bits a token", {"ignoreOutliers": True}),
    ]


def _layers() -> list[Spec]:
    return [
        _line(
            f"gradient norm by matrix, {stack}", "updates", [], "updates", "norm",
            {"yLogScale": True, "metricRegex": rf"probe/grad/{stack}\..*", "useMetricRegex": True},
        )
        for stack in ("encoder", "decoder")
    ]  # fmt: skip


def _line(title: str, x: str, metrics: list[str], x_title: str, y_title: str, more: Spec) -> Spec:
    """Give a line plot: groups of runs as mean and standard deviation over seeds, nothing smoothed."""
    config = {
        "chartTitle": title, "xAxis": x, "metrics": metrics, "xAxisTitle": x_title, "yAxisTitle": y_title,
        "groupAgg": "mean", "groupArea": "stddev", "smoothingType": "none", **more,
    }  # fmt: skip
    return _panel("Run History Line Plot", title, config)


def _scores() -> Spec:
    config = {
        "chartTitle": "test sacreBLEU", "metrics": [_SCORE], "vertical": False, "groupBy": "ablation.value",
        "groupAgg": "mean", "groupArea": "stddev", "aggregate": True,
    }  # fmt: skip
    return _panel("Bar Chart", "test sacreBLEU", config)


def _comparer() -> Spec:
    return _panel("Run Comparer", "configs", {"diffOnly": "split"})


def _markdown(name: str, text: str) -> Spec:
    return _panel("Markdown Panel", name, {"value": text})


def _told(board: Board) -> str:
    return f"Tagged `diverged`; red where runs are not grouped.\n\n{board.told}" if board.diverged else "None."


def _panel(kind: str, name: str, config: Spec) -> Spec:
    return {"__id__": _id(name), "layout": {"x": 0, "y": 0, "w": 8, "h": 6}, "viewType": kind, "config": config}


def _section(name: str, panels: list[Spec]) -> Spec:
    return {
        "__id__": _id(name), "name": name, "isOpen": True, "type": "flow", "flowConfig": _FLOW, "sorted": 0,
        "localPanelSettings": _panel_settings("updates"), "panels": panels, "pinned": False,
    }  # fmt: skip


def _loose(panels: list[Spec]) -> Spec:
    return {
        "name": "Report Panels", "isOpen": False, "panels": panels, "type": "grid", "flowConfig": _FLOW, "sorted": 0,
        "localPanelSettings": _panel_settings("updates"),
    }  # fmt: skip


def _panel_settings(x: str) -> Spec:
    return {
        "smoothingWeight": 0, "smoothingType": "none", "xAxis": x, "ignoreOutliers": False,
        "useRunsTableGroupingInPanels": True, "smoothingActive": False, "xAxisActive": True,
    }  # fmt: skip


def _bank_settings() -> Spec:
    return {"autoOrganizePrefix": 2, "showEmptySections": False, "sortAlphabetically": False}


def _runs(board: Board) -> Spec:
    """Give the set of runs: the sweep's, grouped by what varies, with the columns that tell how each ended."""
    keys = [*ALWAYS, *(key for key in board.factors if key not in ALWAYS)]
    columns = ["run:displayName", "config:ablation.value", "summary:state", f"summary:{_SCORE}"]
    where = {"key": {"section": "run", "name": "group"}, "op": "IN", "value": list(board.groups), "disabled": False}
    return {
        "id": _id(f"runs {board.title}"),
        "runFeed": {
            "version": 2, "columnVisible": dict.fromkeys(columns, True), "columnPinned": dict.fromkeys(columns, True),
            "columnWidths": {}, "columnOrder": columns, "pageSize": 50, "onlyShowSelected": False,
        },
        "enabled": True,
        "name": board.title,
        "search": {"query": ""},
        "filters": {"filterFormat": "filterV2", "filters": [where] if board.groups else []},
        "grouping": [{"section": "config", "name": _config_key(key)} for key in keys],
        "sort": {"keys": [{"key": {"section": "run", "name": "createdAt"}, "ascending": True}]},
        "selections": {"root": 1, "bounds": [], "tree": []},
        "expandedRowAddresses": [],
    }  # fmt: skip


def _config_key(field_name: str) -> str:
    """Name a config field as W&B stores it: the first part has a value, which has the others."""
    first, *rest = field_name.split(".")
    return ".".join([first, "value", *rest])


def _grid(board: Board, panels: list[Spec]) -> Spec:
    """Give a block of panels, two in a row of 24 columns."""
    placed = [panel | {"layout": {"x": 12 * (i % 2), "y": 8 * (i // 2), "w": 12, "h": 8}}
              for i, panel in enumerate(panels)]  # fmt: skip
    project: Spec = {"name": board.project, "entityName": board.entity}
    runs = _runs(board) | {"project": project | ({"id": board.project_id} if board.project_id else {})}
    hidden = {
        "name": "Hidden Panels", "isOpen": False, "type": "flow", "flowConfig": _FLOW, "sorted": 0,
        "localPanelSettings": _panel_settings("updates"), "panels": [],
    }  # fmt: skip
    metadata = {
        "openViz": True, "openRunSet": 0, "name": "unused-name", "runSets": [runs], "hideRunSets": False,
        "panels": {"views": {"0": {"name": "Panels", "defaults": [], "config": []}}, "tabs": ["0"]},
        "panelBankConfig": {"state": 0, "settings": _bank_settings(), "sections": [hidden]},
        "panelBankSectionConfig": _loose(placed), "customRunColors": dict.fromkeys(board.diverged, _DIVERGED),
    }  # fmt: skip
    return {"type": "panel-grid", "children": [{"text": ""}], "metadata": metadata}


def _heading(text: str) -> Spec:
    return {"type": "heading", "children": [{"text": text}], "level": 2}


def _paragraph(text: str) -> Spec:
    return {"type": "paragraph", "children": [{"text": text}]}


def _id(name: str) -> str:
    """Give eleven letters and digits, always the same for a name."""
    return hashlib.sha256(name.encode()).hexdigest()[:11]
