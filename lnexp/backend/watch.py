"""What hooks see in a fairseq Transformer, and a watch that looks on while one trains.

The names of its attentions, their scores, which of its rows are no padding: what lnexp.probe, which knows no fairseq,
asks for. Hooks sit on fairseq's own modules; the fast pass does not call them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from fairseq import utils
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn
from torch.nn import functional as F

from lnexp.backend.flat import Flat
from lnexp.probe import Activations, matrices, norms, ratios


class Watch:
    """Measures a run while it trains, and leaves no trace in it: of the update itself its gradient and its size, of
    the parameters after it the activations of one small batch of valid."""

    TOKENS = 256
    """Of that batch, at least one sentence."""

    def __init__(self, every: int, model: Any, flat: Flat, task: Any) -> None:
        self._every, self._model, self._flat = every, model, flat
        self._attentions = attentions(model)
        self._before: Tensor | None = None
        pairs = task.dataset("valid")
        longest = np.maximum.accumulate(np.maximum(pairs.src.sizes, pairs.tgt.sizes))
        count = max(1, int((longest * np.arange(1, len(longest) + 1) <= self.TOKENS).sum()))
        sample = pairs.collater(np.arange(count))
        self._sample = utils.move_to_cuda(sample) if flat.grad.is_cuda else sample
        self._real = real_rows(self._sample, task.target_dictionary.pad())

    def before(self, update: int) -> None:
        """Keep the parameters, where this update is one to measure."""
        self._before = None if update % self._every else self._flat.values.detach().clone()

    @torch.no_grad()
    def after(self, norm: float) -> dict[str, dict[str, float]] | None:
        """Give the row of the update just done, None where it was none to measure. norm: the gradient's, unclipped."""
        if self._before is None:
            return None
        named = matrices(self._model.named_parameters())
        own = float(torch.linalg.vector_norm(self._flat.grad))
        grads = {name: p.grad for name, p in named.items() if p.grad is not None}
        old = {name: self._flat.block([p], self._before) for name, p in named.items() if p.grad is not None}
        seen, training = Activations(), self._model.training
        self._model.eval()
        with seen.watching(self._model, self._real, self._attentions, scores):
            self._model(**self._sample["net_input"])
        self._model.train(training)
        self._before, found = None, seen.values()
        parts = {
            "grad": norms(grads, norm / own if own else 1.0),
            "update_ratio": ratios(old, named),
            "hidden": found["hidden_norm"],
            "entropy": found["attention_entropy"],
        }
        # Six digits: a row of a 6-6 model has some 250 numbers.
        return {part: {name: float(f"{v:.6g}") for name, v in values.items()} for part, values in parts.items()}


def real_rows(sample: dict[str, Any], pad: int) -> dict[str, Tensor]:
    """Say for each stack which of its inputs, length x sentences, are no padding."""
    inputs = sample["net_input"]
    return {"encoder": inputs["src_tokens"].ne(pad).t(), "decoder": inputs["prev_output_tokens"].ne(pad).t()}


def attentions(model: nn.Module) -> dict[str, nn.Module]:
    """Name the attentions of a model."""
    return {name: m for name, m in model.named_modules() if isinstance(m, MultiheadAttention)}


def scores(attention: Any, args: tuple[Any, ...], call: dict[str, Any]) -> Tensor:
    """Give Q K^T / sqrt(d_k) with what is hidden at -inf: sentences x heads x queries x keys."""

    def heads(x: Tensor, layer: Any) -> Tensor:  # length x sentences x d -> sentences x heads x length x d_k
        return F.linear(x, layer.weight, layer.bias).unflatten(-1, (attention.num_heads, -1)).permute(1, 2, 0, 3)

    query, key = heads(call["query"], attention.q_proj), heads(call["key"], attention.k_proj)
    found = query @ key.transpose(2, 3) * query.size(-1) ** -0.5
    if (mask := call.get("attn_mask")) is not None:
        found = found + mask
    if (padding := call.get("key_padding_mask")) is not None:
        found = found.masked_fill(padding.bool()[:, None, None], -torch.inf)
    return found
