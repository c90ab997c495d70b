"""Beam search over a prepared split: the one code that makes translations, in training and in `lnexp eval` alike."""

from __future__ import annotations

from typing import Any

import torch
from fairseq.sequence_generator import SequenceGenerator

from lnexp.config import Decode


@torch.inference_mode()
def translate(model: Any, task: Any, split: str, decode: Decode, device: torch.device) -> list[str]:
    """Give the best hypothesis of every source sentence of `split`, as BPE tokens, in corpus order."""
    from fairseq.utils import move_to_cuda

    generator = SequenceGenerator(
        [model],
        task.target_dictionary,
        beam_size=decode.beam,
        max_len_a=decode.max_len_a,
        max_len_b=decode.max_len_b,
        len_penalty=decode.lenpen,
    )
    dataset = task.dataset(split)
    # Without the cache: it is kept by data set and would hand back the batches of validation, whatever is asked for.
    batches = task.get_batch_iterator(
        dataset, max_tokens=decode.max_tokens, ignore_invalid_inputs=False, disable_iterator_cache=True
    ).next_epoch_itr(shuffle=False)
    hypotheses = [""] * len(dataset)
    for batch in batches:
        if device.type == "cuda":
            batch = move_to_cuda(batch)
        for index, found in zip(batch["id"].tolist(), generator.generate([model], batch), strict=True):
            hypotheses[index] = task.target_dictionary.string(found[0]["tokens"].int().cpu())
    return hypotheses
