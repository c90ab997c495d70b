"""How a run is called and described in W&B: rows, config and ids in, plain dicts in W&B's words out; no wandb here."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lnexp.config import Run
from lnexp.rundir import Row

BY_SPLIT = ("loss_bits", "nll_bits", "bleu", "tokens_per_s")
"""Row fields that each split has of its own: valid/bleu, train/loss_bits. The others stand alone: lr, gnorm."""


def named(row: Row) -> dict[str, Any]:
    """Give a row in W&B's names: "valid/bleu" for what each split has, "lr" for the rest, "gnorm/<part>" for parts."""
    metrics: dict[str, Any] = {}
    for field, value in row.items():
        name = f"{row['split']}/{field}" if field in BY_SPLIT else field
        if isinstance(value, dict):
            metrics.update({f"{name}/{part}": number for part, number in value.items()})
        elif field != "split" and value is not None:
            metrics[name] = value
    return metrics


def options(run: Run, run_id: str, folder: Path, env: dict[str, Any]) -> dict[str, Any]:
    """Give what names and describes the W&B run: plain nested values, no paths of this machine."""
    config = asdict(run)
    del config["paths"]
    for name in ("local", "train", "valid", "test", "codes"):
        config["data"][name] = Path(config["data"][name] or "").name
    config["ablation"] = f"{run.model.norm}-w{run.schedule.warmup_updates}"
    config["run_id"] = run_id
    config["env"] = json.loads(json.dumps(env, default=str))
    return {
        "id": _wandb_id(run_id, folder),
        "name": f"{run.run_name}-{run_id}",
        "group": run.sweep_name,
        "project": run.track.project,
        "entity": run.track.entity,
        "tags": list(run.track.tags),
        "config": config,
        "dir": str(folder),
    }


def _wandb_id(run_id: str, folder: Path) -> str:
    """Give the run folder's W&B id: the same at each resume, another for a run made anew here or elsewhere.

    run_id alone is the same for everyone who repeats an experiment; in a shared project their rows would be mixed.
    """
    path = folder / "wandb" / "run-id"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{run_id}-{secrets.token_hex(4)}\n", encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()
