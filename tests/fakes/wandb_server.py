"""A W&B server on loopback that keeps what wandb 0.31 sends: enough of its private protocol for one client's runs.

It shows what the client sends, not what W&B would make of it. Unknown queries get an `errors` body, which wandb
tolerates where it can do without. `down()` and `up()` make it answer 503, `die()` closes the port.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "local-" + "k" * 40


@dataclass
class Recorded:
    """One run as the server knows it."""

    id: str
    project: str
    name: str = ""
    group: str = ""
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    lines: dict[int, dict[str, Any]] = field(default_factory=dict)
    """History by offset: a line that is sent again after an error takes its old place."""
    summary: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    exit_code: int | None = None
    resumes: int = 0

    @property
    def history(self) -> list[dict[str, Any]]:
        return [self.lines[at] for at in sorted(self.lines)]

    @property
    def state(self) -> str:
        return {None: "running", 0: "finished"}.get(self.exit_code, "failed")


class FakeWandb:
    """The server; use it as a context manager, give `url` and KEY to wandb."""

    def __init__(self) -> None:
        self.runs: dict[str, Recorded] = {}
        self.views: list[dict[str, Any]] = []
        """Saved workspaces and reports."""
        self.queries: list[str] = []
        self.refused: set[str] = set()
        """Names of queries that are to get an `errors` body."""
        self.refuse_rows = 0
        """A status above 0 answers every row with it."""
        self.delay_s = 0.0
        """How long each answer takes."""
        self._lock = threading.RLock()
        self._down = False
        fake = self

        class Handler(_Handler):
            server_of_runs = fake

        self._http = _Quiet(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def __enter__(self) -> FakeWandb:
        return self

    def __exit__(self, *_: object) -> None:
        self.die()

    @property
    def projects(self) -> set[str]:
        return {run.project for run in self.runs.values()}

    def down(self) -> None:
        self._down = True

    def up(self) -> None:
        self._down = False

    def die(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, method: str, path: str, auth: str | None, body: bytes) -> tuple[int, Any]:
        """Give status and JSON answer for one request."""
        time.sleep(self.delay_s)
        if self._down:
            return 503, {"error": "down"}
        with self._lock:
            if method == "PUT":  # what createRunFiles below asked for: /upload/<run>/<file>
                _, _, run, name = path.split("/", 3)
                self.runs[run].files[name] = body
                return 200, {}
            if path.endswith("/file_stream"):
                if self.refuse_rows:
                    return self.refuse_rows, {"error": "refused"}
                return self._stream(path.split("/")[-2], json.loads(body))
            if path == "/graphql":
                if auth is None or base64.b64decode(auth.split()[1]).decode().removeprefix("api:") != KEY:
                    return 401, {"errors": [{"message": "user is not logged in"}]}
                return self._query(json.loads(body))
            return 404, {}

    def _stream(self, run: str, body: dict[str, Any]) -> tuple[int, Any]:
        recorded = self.runs[run]
        for name, chunk in body.get("files", {}).items():
            lines = [json.loads(line) for line in chunk["content"]] if name.endswith((".jsonl", "summary.json")) else []
            if name == "wandb-history.jsonl":
                recorded.lines |= {chunk["offset"] + i: line for i, line in enumerate(lines)}
            elif name == "wandb-summary.json" and lines:
                recorded.summary = lines[-1]
        if body.get("complete"):
            recorded.exit_code = body.get("exitcode", 0)
        return 200, {"exitcode": None, "limits": {}}

    def _query(self, body: dict[str, Any]) -> tuple[int, Any]:
        query, variables = body["query"], body.get("variables") or {}
        name = query.split("(")[0].split("{")[0].split()[-1]
        self.queries.append(name)
        known = {
            "Viewer": self._viewer,
            "UpsertBucket": self._upsert,
            "RunResumeStatus": self._resume,
            "CreateRunFiles": self._files,
            "ServerFeaturesQuery": lambda _: {"serverInfo": {"features": []}},
            "ArtifactType": lambda _: {"project": {"artifact": {"artifactType": {"name": "run_table"}}}},
            "CreateArtifact": self._artifact,
            "LnexpViewer": self._viewer,
            "LnexpRun": self._known,
            "LnexpProject": lambda v: {"project": {"internalId": "17"} if v["projectName"] in self.projects else None},
            "LnexpSaveView": self._view,
            "LnexpViews": self._views,
        }
        if name not in known or name in self.refused:
            return 200, {"data": None, "errors": [{"message": f"unknown query {name}", "path": [name]}]}
        return 200, {"data": known[name](variables)}

    def _viewer(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"viewer": {"id": "u1", "entity": "me", "username": "me", "flags": "{}", "teams": {"edges": []}}}

    def _upsert(self, v: dict[str, Any]) -> dict[str, Any]:
        fresh = v["name"] not in self.runs
        run = self.runs.setdefault(v["name"], Recorded(v["name"], v.get("project") or "uncategorized"))
        # The later upserts of a run leave most of it out.
        run.name = v.get("displayName") or run.name
        run.group = v.get("groupName") or run.group
        run.tags = v.get("tags") if v.get("tags") is not None else run.tags
        if v.get("config"):
            run.config = {key: item["value"] for key, item in json.loads(v["config"]).items()}
        project = {"id": "p1", "name": run.project, "entity": {"id": "e1", "name": "me"}}
        bucket = {"id": run.id, "name": run.id, "displayName": run.name, "description": "", "config": "{}",
                  "sweepName": None, "project": project, "historyLineCount": len(run.lines)}  # fmt: skip
        return {"upsertBucket": {"bucket": bucket, "inserted": fresh}}

    def _resume(self, v: dict[str, Any]) -> dict[str, Any]:
        run = self.runs.get(v["name"])
        if run is None:
            return {"model": {"id": "p1", "name": v["project"], "entity": {"id": "e1", "name": "me"}, "bucket": None}}
        run.resumes += 1
        run.exit_code = None
        # wandbConfig.t tells wandb that the run had begun; without it the steps start at 0 again.
        bucket = {"id": run.id, "name": run.id, "displayName": run.name, "summaryMetrics": json.dumps(run.summary),
                  "historyLineCount": len(run.lines), "eventsLineCount": 0, "logLineCount": 0,
                  "historyTail": json.dumps([json.dumps(line) for line in run.history[-1:]]), "eventsTail": "[]",
                  "config": json.dumps({k: {"value": item} for k, item in run.config.items()}), "tags": run.tags,
                  "wandbConfig": '{"t": 1}'}  # fmt: skip
        return {"model": {"id": "p1", "name": run.project, "entity": {"id": "e1", "name": "me"}, "bucket": bucket}}

    def _known(self, v: dict[str, Any]) -> dict[str, Any]:
        run = self.runs.get(v["run"])
        if run is None or (v["entity"], v["project"]) != ("me", run.project):
            return {"project": None}
        summary = json.dumps(run.summary)
        return {"project": {"run": {"historyLineCount": len(run.lines), "state": run.state, "summaryMetrics": summary}}}

    def _view(self, v: dict[str, Any]) -> dict[str, Any]:
        view = {key: v.get(key) for key in ("name", "displayName", "type", "description", "projectName")}
        view["spec"] = json.loads(v["spec"])
        fresh = not v.get("id")
        at = len(self.views) if fresh else int(v["id"].removeprefix("view"))
        self.views[at : at + 1] = [view]
        return {"upsertView": {"view": {"id": f"view{at}", "name": v["name"]}, "inserted": fresh}}

    def _views(self, v: dict[str, Any]) -> dict[str, Any]:
        found = [
            {"node": {"id": f"view{at}", "name": view["name"], "displayName": view["displayName"]}}
            for at, view in enumerate(self.views)
            if (view["type"], view["name"]) == (v["viewType"], v["viewName"])
        ]
        return {"project": {"allViews": {"edges": found}}}

    def _files(self, v: dict[str, Any]) -> dict[str, Any]:
        run = v.get("run") or v.get("runName")
        files = [{"name": name, "uploadUrl": f"{self.url}/upload/{run}/{name}"} for name in v["files"]]
        return {"createRunFiles": {"runID": run, "uploadHeaders": [], "files": files}}

    def _artifact(self, _: dict[str, Any]) -> dict[str, Any]:
        sequence = {"id": "s1", "latestArtifact": {"id": "a1", "versionIndex": 0}}
        return {"createArtifact": {"artifact": {"id": "a1", "state": "COMMITTED", "artifactSequence": sequence}}}


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A client that goes away in mid-request is no news."""


class _Handler(BaseHTTPRequestHandler):
    server_of_runs: FakeWandb
    protocol_version = "HTTP/1.1"

    def _do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            status, reply = self.server_of_runs.answer(self.command, self.path, self.headers["Authorization"], body)
        except Exception as error:
            status, reply = 500, {"error": repr(error)}
            self.server_of_runs.queries.append(f"{self.path}: {error!r}")
        raw = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    do_GET = do_POST = do_PUT = _do

    def log_message(self, *_: object) -> None:
        """Stay silent."""
