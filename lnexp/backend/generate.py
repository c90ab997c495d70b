"""Translation of a prepared split by beam search: the one code for it, in training and in `lnexp eval` alike."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from lnexp.backend.incremental import Decoder, Weights
from lnexp.backend.search import Rules, search
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

    `check` is called at each step of the decoder, from any thread; what it raises ends the decoding. Of `size`
    processes each takes every size-th batch. A model whose logits are not numbers says nothing.
    """
    dictionary = task.target_dictionary
    weights = Weights(model, torch.bfloat16 if decode.precision == "bf16" else torch.float32)
    # Without the cache: it is kept by data set and would hand back the batches of validation, whatever is asked for.
    batches = task.get_batch_iterator(
        task.dataset(split), max_tokens=decode.max_tokens, ignore_invalid_inputs=False, disable_iterator_cache=True
    ).next_epoch_itr(shuffle=False)
    threads = torch.get_num_threads() if device.type == "cpu" else 1
    beam = min(decode.beam, len(dictionary) - 1)
    halt = threading.Event()

    def parts() -> Iterator[tuple[list[int], Tensor, int]]:
        """Give sentences, tokens and length limit of each batch, cut into as many parts as there are threads."""
        for batch in itertools.islice(batches, rank, None, size):
            source = batch["net_input"]["src_tokens"]
            limit = length_limit(decode, source.size(1), model.max_decoder_positions())
            for ids, part in zip(batch["id"].chunk(threads), source.chunk(threads), strict=True):
                longest = int(part.ne(dictionary.pad()).sum(1).max())
                yield ids.tolist(), part[:, -longest:].to(device), limit

    def go_on() -> None:
        if halt.is_set():
            raise RuntimeError("another thread has stopped")
        check()

    @torch.inference_mode()  # it holds for a thread
    def work(part: tuple[list[int], Tensor, int]) -> dict[int, str]:
        ids, source, max_len = part
        rules = Rules(beam, max_len, decode.lenpen, dictionary.eos(), dictionary.pad())
        found = search(Decoder(weights, source), len(source), rules, device, go_on)
        return {i: dictionary.string(best[0].tokens if best else []) for i, best in zip(ids, found, strict=True)}

    hypotheses: dict[int, str] = {}
    for done in map(work, parts()) if threads == 1 else _side_by_side(work, parts(), threads, halt):
        hypotheses.update(done)
    return hypotheses


def length_limit(decode: Decode, longest: int, positions: int) -> int:
    """Give the most tokens that the translations of a batch may have before their end: fairseq's rule.

    longest: source tokens of the longest sentence, its end counted; positions: of the decoder. One token may always
    be written, where fairseq fails.
    """
    return max(1, min(int(decode.max_len_a * longest + decode.max_len_b), positions - 1))


def _side_by_side(
    work: Callable[[Any], Any], parts: Iterable[Any], threads: int, halt: threading.Event
) -> Iterator[Any]:
    """Do the parts on threads of which each has one core.

    The steps of a decoder are many small products, and two cores do two of them sooner than they share one.
    `halt` is set when the caller or a part stops, so that nobody waits for the others.
    """
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            try:
                yield from [future.result() for future in [pool.submit(work, part) for part in parts]]
            except BaseException:
                halt.set()
                raise
    finally:
        torch.set_num_threads(threads)
