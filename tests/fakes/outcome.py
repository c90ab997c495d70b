"""What a run came to, as far as it may not depend on interruptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from lnexp import rundir


def outcome(folder: Path) -> dict[str, Any]:
    """Give state, rows, scores, weights and moments of a run folder, without what a clock says."""
    state = torch.load(folder / "checkpoints" / "last.pt", weights_only=True)
    moments = state["optimizer"]["torch"]["state"]
    return {
        "status": {k: v for k, v in (rundir.read_status(folder) or {}).items() if k != "wall_s"},
        "rows": [{k: v for k, v in row.items() if k not in ("wall_s", "tokens_per_s")} for row in rundir.rows(folder)],
        "scores": rundir.read_json(folder / "scores.json"),
        "model": {name: tensor.numpy().tobytes() for name, tensor in state["model"].items()},
        "optimizer": {(i, k): v.numpy().tobytes() for i, m in moments.items() for k, v in m.items() if k != "step"},
        "batches": state["batches"],
    }
