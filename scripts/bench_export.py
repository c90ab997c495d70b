"""A run's parameters as a checkpoint that stock fairseq reads (fairseq-generate --path FILE).

fairseq's own parser fills in every setting that it has, from the words of `stock_arguments`; the parameters keep their
names, as ours is fairseq's Transformer. The file holds an argparse.Namespace, so that fairseq's torch.load wants
TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_side import stock_arguments

if TYPE_CHECKING:
    from lnexp.config import Run


def export(run: Run, model: dict[str, Any], data: Path, path: Path) -> None:
    """Write the parameters `model` (a state_dict) of `run`, trained on the prepared folder `data`, to `path`."""
    import torch
    from fairseq import options

    arguments = options.parse_args_and_arch(
        options.get_training_parser(), input_args=stock_arguments(run, data, 1, path.parent)
    )
    history = {"criterion_name": "CrossEntropyCriterion", "optimizer_name": "FairseqAdam", "lr_scheduler_state": {},
               "num_updates": 1}  # fmt: skip
    state = {"args": arguments, "model": model, "optimizer_history": [history],
             "extra_state": {"train_iterator": {"epoch": 1}}}  # fmt: skip
    torch.save(state, path)
