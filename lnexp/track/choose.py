"""Which tracker a run gets: W&B online, W&B offline, or none; whatever stands in the way, training goes on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lnexp.config import Run
from lnexp.track import client
from lnexp.track.describe import options
from lnexp.track.sink import Sink


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
