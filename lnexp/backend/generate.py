"""Beam search over a prepared split: the one code that makes translations, in training and in `lnexp eval` alike."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from fairseq.sequence_generator import SequenceGenerator

from lnexp.config import Decode


@torch.inference_mode()
def translate(
    model: Any,
    task: Any,
    split: str,
    decode: Decode,
    device: torch.device,
    check: Callable[[], None],
    rank: int,
    size: int,
) -> dict[int, str]:
    """Give the best hypothesis of source sentences of `split`, by their place, as subword tokens.

    `check` is called at each step of the decoder; what it raises ends the decoding. Of `size` processes each takes
    every size-th batch.
    """
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
    hypotheses: dict[int, str] = {}
    # On the first layer: the generator calls the decoder's forward itself, past any hook of the decoder.
    hook = model.decoder.layers[0].register_forward_pre_hook(lambda *_: check())
    try:
        for batch in itertools.islice(batches, rank, None, size):
            if device.type == "cuda":
                batch = move_to_cuda(batch)
            for index, found in zip(batch["id"].tolist(), generator.generate([model], batch), strict=True):
                hypotheses[index] = task.target_dictionary.string(found[0]["tokens"].int().cpu())
    finally:
        hook.remove()
    return hypotheses
