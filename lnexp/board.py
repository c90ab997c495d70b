"""`lnexp dashboard PATH --wandb`: what the run folders hold becomes a W&B workspace and report."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from lnexp.errors import UserError
from lnexp.report import markup, table, wording
from lnexp.report.collect import NOT_BEGUN, Result, collect
from lnexp.report.group import factors, group
from lnexp.report.markup import Grid
from lnexp.results import name_left_out
from lnexp.track.workspace import Board, report, workspace


def show(path: Path | str, outputs: Path | str, flags: set[str]) -> int:
    """Save workspace and report of the sweep at PATH in W&B and print where; 0, or 1 where there is no server or a
    run is damaged, which is named. With --dry-run print both specs as JSON, which asks no server and needs no key.
    UserError for other flags."""
    if "--wandb" not in flags or "--watch" in flags:
        raise UserError(f"{' '.join(sorted(flags))}: --dry-run goes with --wandb, --watch with neither")
    results = collect(path, outputs=outputs)
    board = describe(results)
    if "--dry-run" in flags:
        specs = {"workspace": workspace(board), "report": report(board)}
        print(json.dumps(specs, indent=2, ensure_ascii=False))
        return name_left_out("dashboard", results)
    from lnexp.track.publish import publish

    try:
        print(*publish(board, results[0].folder), sep="\n")
    except ConnectionError as error:
        print(f"W&B: {error}", file=sys.stderr)
        return 1
    return name_left_out("dashboard", results)


def describe(results: Sequence[Result]) -> Board:
    """Give what the pages are made of. UserError where the runs lie in several W&B projects."""
    begun = [r for r in results if r.config]
    tracked = {(r.config["track"]["entity"] or "", r.config["track"]["project"]) for r in begun}
    if len(tracked) != 1:
        names = ", ".join(sorted("/".join(filter(None, t)) for t in tracked)) or "no run has begun"
        raise UserError(f"need the runs of one W&B project, found {names}; name one sweep")
    entity, project = tracked.pop()
    diverged = [r for r in begun if r.state == "diverged"]
    title = ", ".join(sorted({wording.plain(r.folder.parent.name, 60) for r in results}))
    return Board(
        title=f"Warm-up ablation: {title}",
        entity=entity,
        project=project,
        groups=sorted({r.config["sweep_name"] for r in begun if r.config.get("sweep_name")}),
        factors=factors([g.flat for g in group(results) if g.runs[0].state not in NOT_BEGUN]),
        table=table.render(results, "md"),
        diverged=[_id(r) for r in diverged],
        told=markup.markdown(Grid("", ["run", "why"], [[r.name, wording.plain(str(r.reason), 300)] for r in diverged])),
    )


def _id(result: Result) -> str:
    """Give the run's W&B id, or its name where it was never tracked."""
    with suppress(OSError):
        return (result.folder / "wandb" / "run-id").read_text(encoding="utf-8").strip()
    return result.name
