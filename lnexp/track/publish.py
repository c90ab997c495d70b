"""Save a sweep's workspace and report in W&B; saved again they take the place of the old ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lnexp.errors import UserError
from lnexp.track import client, workspace
from lnexp.track.workspace import Board

# The queries of wandb-workspaces 0.4.13, but for their names.
_PROJECT = """query LnexpProject($projectName: String!, $entityName: String!) {
  project(name: $projectName, entityName: $entityName) { internalId }
}"""
_VIEWS = """query LnexpViews($entityName: String, $name: String, $viewType: String, $viewName: String) {
  project(name: $name, entityName: $entityName) {
    allViews(viewType: $viewType, viewName: $viewName) { edges { node { id name } } }
  }
}"""
_SAVE = """mutation LnexpSaveView($id: ID, $entityName: String, $projectName: String, $type: String, $name: String,
  $displayName: String, $description: String, $spec: String) {
  upsertView(input: {id: $id, entityName: $entityName, projectName: $projectName, name: $name,
    displayName: $displayName, description: $description, type: $type, spec: $spec, createdUsing: WANDB_SDK}) {
    view { id name } inserted
  }
}"""


def publish(board: Board, scratch: Path) -> list[str]:
    """Save both and give their addresses. UserError without a key or project; ConnectionError without a server."""
    wandb, api = client.connect(scratch)
    return client.within(wandb, client.CALL_S, lambda: _publish(api, board))


def _publish(api: Any, board: Board) -> list[str]:
    board = replace(board, entity=board.entity or client.entity(api))
    try:
        project = client.ask(api, _PROJECT, {"projectName": board.project, "entityName": board.entity}).get("project")
        if not project:
            raise UserError(f"no project {board.entity}/{board.project} in W&B; send the runs first: lnexp sync")
        board = replace(board, project_id=str(project["internalId"]))
        view = _save(api, board, "workspace", "project-view", workspace.workspace(board))
        page = _save(api, board, "report", "runs", workspace.report(board))
    except UserError:
        raise
    except Exception as error:
        raise ConnectionError(client.line(error)) from None
    place = f"{api._service_api.app_url.rstrip('/')}/{board.entity}/{board.project}"
    number = view["name"].removeprefix("nw-").removesuffix("-v")
    title = quote(board.title.replace(" ", "-"))
    return [f"{place}?nw={number}", f"{place}/reports/{title}--{page['id'].rstrip('=')}"]


def _save(api: Any, board: Board, kind: str, type_: str, spec: dict[str, Any]) -> dict[str, Any]:
    name = workspace.view_name(board, kind)
    place = {"entityName": board.entity, "name": board.project, "viewType": type_, "viewName": name}
    found = (client.ask(api, _VIEWS, place).get("project") or {}).get("allViews", {}).get("edges", [])
    old = [edge["node"]["id"] for edge in found if edge["node"]["name"] == name]
    variables = {
        "entityName": board.entity, "projectName": board.project, "type": type_, "name": name,
        "displayName": board.title, "description": "made by lnexp dashboard --wandb", "spec": json.dumps(spec),
    }  # fmt: skip
    return client.ask(api, _SAVE, variables | ({"id": old[0]} if old else {}))["upsertView"]["view"]
