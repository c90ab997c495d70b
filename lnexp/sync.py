"""`lnexp sync PATH`: the W&B server gets what it lacks of each run, from the run folders alone.

In: a sweep or run folder. Out: a line a run, and on the server the run as it stands in metrics.jsonl, scores.json,
env.json and config.yaml, whatever became of wandb's own files. Done twice, the second time sends nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from lnexp import rundir, timing
from lnexp.config import Run, load
from lnexp.errors import UserError
from lnexp.evaluate import label
from lnexp.guard import lock
from lnexp.report.collect import NOT_BEGUN, collect
from lnexp.track.resend import Recorded, Server

SAMPLES = 20
"""As many translations as training sends."""


def sync(path: Path | str, outputs: Path | str, say: Callable[[str], None]) -> int:
    """Send every run at PATH; 0, or 1 where a run could not be sent. UserError without a key."""
    runs = [r.folder for r in collect(path, strict=False, outputs=outputs) if r.state not in NOT_BEGUN]
    if not runs:
        say("no run has begun")
        return 0
    try:
        server = Server(runs[0])
    except ConnectionError as error:
        say(f"W&B: {error}")
        return 1
    return max([_one(folder, server, say) for folder in runs])


def _one(folder: Path, server: Server, say: Callable[[str], None]) -> int:
    try:
        with lock(folder):  # not beside a training, which sends its rows itself
            say(f"{folder.name}: {server.send(recorded(folder))}")
    except UserError as error:
        say(f"{folder.name}: not sent: {error}")
        return 1
    except Exception as error:
        say(f"{folder.name}: not sent: {' '.join(str(error).split())[:200] or type(error).__name__}")
        return 1
    return 0


def recorded(folder: Path) -> Recorded:
    """Read a run folder; UserError where a file of it cannot be read. A run that was cut counts as interrupted."""
    run = load(folder / "config.yaml")
    env, scores, costs = (_json(folder / name) for name in ("env.json", "scores.json", timing.FILE))
    status = rundir.read_status(folder) or {}
    state = status.get("state", "interrupted")
    own = label(run.decode)
    return Recorded(
        run=run,
        run_id=folder.name.rpartition("-")[2],
        folder=folder,
        env=env or {},
        state="interrupted" if state == "running" else state,
        scores=[s for s in scores or [] if s.get("decode", own) == own],
        more=(timing.flat(costs) if costs else {}) | ({"reason": status["reason"]} if status.get("reason") else {}),
        samples=samples(folder, run, env or {}),
    )


def samples(folder: Path, run: Run, env: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Give the first test sentences with their translations; source and reference where prepared data is at hand."""
    hypotheses = list(_lines(folder / "hyp.test.txt"))
    data = Path(env.get("data_folder") or folder).expanduser()  # kept results have ~ in place of a home
    sides = [list(_lines(data / f"test.raw.{language}")) for language in (run.data.src, run.data.tgt)]
    source, reference = (side if len(side) == len(hypotheses) else [""] * len(hypotheses) for side in sides)
    return list(zip(source, reference, hypotheses, strict=True))


def _lines(path: Path) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8", newline="\n") as file:
        yield from (line.rstrip("\n") for line in islice(file, SAMPLES))


def _json(path: Path) -> Any:
    return rundir.read_json(path) if path.exists() else None
