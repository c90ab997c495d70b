"""The tracker of one run: rows, sample translations and final scores go in, a W&B run comes out, or nothing does.

The run folder is the truth; W&B is a view of it that may fail at any time without training noticing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from lnexp.config import Run
from lnexp.rundir import Row
from lnexp.track import client
from lnexp.track.describe import options


class Sink:
    """The tracker that tracks nothing; what the others have in common. `where` says where the record lies."""

    where: str | None = None

    def log(self, row: Row) -> None:
        """Take note of a row of metrics that has just been written to metrics.jsonl."""

    def samples(self, triples: list[tuple[str, str, str]]) -> None:
        """Take (source, reference, hypothesis) of some sentences."""

    def finish(self, state: str, scores: list[dict[str, Any]], more: dict[str, Any] | None = None) -> None:
        """Close with the run's final state, the entries of scores.json and `more`; later calls do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is None:
            self.finish("done", [])
        else:
            self.finish("failed" if issubclass(kind, Exception) else "interrupted", [])


def open_sink(run: Run, run_id: str, folder: Path, env: dict[str, Any], say: Callable[[str], None]) -> Sink:
    """Start the tracker that run.track asks for; `say` gets a line where it cannot be had, on the caller's thread."""
    if run.track.mode == "none":
        return Sink()
    wish = os.environ.get("WANDB_MODE", "")
    if wish == "disabled":
        return Sink()
    from lnexp.track.live import WandbSink

    client.quiet(folder)
    try:
        import wandb

        online = run.track.mode != "offline" and wish not in ("offline", "dryrun")
        if online and not client.has_key(wandb.setup().settings):
            online = False
            if run.track.mode == "online":
                say("W&B: track.mode=online needs a key (`wandb login`, or WANDB_API_KEY); recording offline")
        return WandbSink(wandb, options(run, run_id, folder, env), online, say)
    except Exception as error:
        say(f"W&B: not tracked ({client.line(error)}); everything is in {folder / 'metrics.jsonl'}")
        return Sink()
