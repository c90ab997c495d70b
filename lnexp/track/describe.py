"""How a run is called and described in W&B: rows, config and ids in, plain dicts in W&B's words out; no wandb here."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lnexp.config import Run
from lnexp.rundir import AVERAGED, Row

BY_SPLIT = ("loss_bits", "nll_bits", "bleu", "tokens_per_s")
"""Row fields that each split has of its own: valid/bleu, train/loss_bits. The others stand alone: lr, gnorm."""
PROBE = "probe"
"""The split of rows whose parts are all its own: probe/grad/decoder.layers.5.fc2."""
_NOT_A_NUMBER = ("nan", "inf", "-inf")


def named(row: Row) -> dict[str, Any]:
    """Give a row in W&B's names: "valid/bleu" for what each split has, "lr" for the rest, "gnorm/<part>" for parts."""
    metrics: dict[str, Any] = {}
    for field, value in row.items():
        if field == "split" or value is None:
            continue
        own = field in BY_SPLIT or (row["split"] == PROBE and isinstance(value, Mapping))
        metrics.update(_flat(f"{row['split']}/{field}" if own else field, value))
    return metrics


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for part, inner in value.items():
            yield from _flat(f"{name}/{part}", inner)
    else:  # metrics.jsonl spells non-finite numbers as words
        yield name, float(value) if isinstance(value, str) and value in _NOT_A_NUMBER else value


def ablation(run: Run) -> str:
    """Give what the comparison is about in one flat word, to group and colour by: "post-w4000-lr0.001-adam"."""
    return f"{run.model.norm}-w{run.schedule.warmup_updates}-lr{run.optim.lr:g}-{run.optim.name}"


def options(run: Run, run_id: str, folder: Path, env: dict[str, Any]) -> dict[str, Any]:
    """Give what names and describes the W&B run: plain nested values, no paths of this machine."""
    config = asdict(run)
    del config["paths"]
    for name in ("local", "train", "valid", "test", "codes"):
        config["data"][name] = Path(config["data"][name] or "").name
    config["ablation"] = ablation(run)
    config["run_id"] = run_id
    config["env"] = json.loads(json.dumps({k: v for k, v in env.items() if k != "data_folder"}, default=str))
    return {
        "id": wandb_id(run_id, folder),
        "name": f"{run.run_name}-{run_id}",
        "group": run.sweep_name,
        "project": run.track.project,
        "entity": run.track.entity,
        "tags": list(run.track.tags),
        "config": config,
        "dir": str(folder),
    }


def summary(state: str, scores: list[dict[str, Any]], more: Mapping[str, Any]) -> dict[str, Any]:
    """Give what stands beside a finished run: its state, each final score with what makes it one, and `more`."""
    found: dict[str, Any] = {"state": state}
    for score in scores:
        checkpoint = str(score.get("checkpoint", ""))
        which = f"_{checkpoint.replace(' ', '_')}" if checkpoint.startswith(AVERAGED) else ""
        name = f"final/{score['split']}_{score['metric']}{which}"
        found[name] = score["value"]
        found[name + "_signature"] = score["signature"]
        found[name + "_sentences"] = score["n_sentences"]
    return found | dict(more)


def wandb_id(run_id: str, folder: Path) -> str:
    """Give the run folder's W&B id: the same at each resume, another for a run made anew here or elsewhere.

    run_id alone is the same for everyone who repeats an experiment; in a shared project their rows would be mixed.
    """
    path = folder / "wandb" / "run-id"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{run_id}-{secrets.token_hex(4)}\n", encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()
