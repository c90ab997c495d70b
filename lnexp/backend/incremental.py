"""fairseq's Transformer as a decoder works: the encoder once, then one token a step from cached keys and values.

In: the model that model.py builds, and a type. Out: logits, step by step, as search.py asks for them.
The weights are read from the model once, q, k and v of a layer as one matrix, so a model that trains on needs a new
`Weights`. Of dropout there is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

_CHUNK = 16
"""Steps for which the cache has room when it grows."""


class _Affine(NamedTuple):
    weight: Tensor
    bias: Tensor


class _Attention(NamedTuple):
    norm: _Affine
    inward: _Affine
    """Of the queries, keys and values in that order; in cross attention of the queries alone. Queries come scaled."""
    outward: _Affine


class _FeedForward(NamedTuple):
    norm: _Affine
    inner: _Affine
    outer: _Affine


class Weights:
    """A model's parameters in the form and type that the steps use."""

    def __init__(self, model: Any, dtype: torch.dtype = torch.float32) -> None:
        encoder, decoder = model.encoder, model.decoder
        self.dtype = dtype
        self.heads: int = decoder.layers[0].self_attn.num_heads
        self.pre_norm: bool = decoder.layers[0].normalize_before
        self.pad: int = encoder.padding_idx
        self.scale: float = decoder.embed_scale
        self.source, self.target = self._cast(encoder.embed_tokens.weight), self._cast(decoder.embed_tokens.weight)
        self.output = self._cast(decoder.output_projection.weight)
        self.source_positions = self._cast(encoder.embed_positions.weights)
        self.positions = self._cast(decoder.embed_positions.weights)
        self.encoder = [(self._self_attention(layer), self._feed_forward(layer)) for layer in encoder.layers]
        self.decoder = [
            (self._self_attention(layer), self._cross_attention(layer), self._feed_forward(layer))
            for layer in decoder.layers
        ]
        self.memory = self._join(
            [p for layer in decoder.layers for p in (layer.encoder_attn.k_proj, layer.encoder_attn.v_proj)]
        )
        """From the encoder's output to the keys and values of all layers: [layers * 2 * d, d]."""
        self.encoder_norm, self.decoder_norm = (
            stack.layer_norm and self._affine(stack.layer_norm) for stack in (encoder, decoder)
        )

    def _cast(self, x: Tensor) -> Tensor:
        return x.detach().to(self.dtype)

    def _affine(self, module: Any, scale: float = 1.0) -> _Affine:
        return _Affine(self._cast(module.weight * scale), self._cast(module.bias * scale))

    def _join(self, modules: list[Any], first: float = 1.0) -> _Affine:
        """Put matrices of the same input one below the other; the first is scaled."""
        parts = [self._affine(module, 1.0 if i else first) for i, module in enumerate(modules)]
        return _Affine(torch.cat([p.weight for p in parts]), torch.cat([p.bias for p in parts]))

    def _self_attention(self, layer: Any) -> _Attention:
        part = layer.self_attn
        inward = self._join([part.q_proj, part.k_proj, part.v_proj], part.head_dim**-0.5)
        return _Attention(self._affine(layer.self_attn_layer_norm), inward, self._affine(part.out_proj))

    def _cross_attention(self, layer: Any) -> _Attention:
        part = layer.encoder_attn
        inward = self._affine(part.q_proj, part.head_dim**-0.5)
        return _Attention(self._affine(layer.encoder_attn_layer_norm), inward, self._affine(part.out_proj))

    def _feed_forward(self, layer: Any) -> _FeedForward:
        return _FeedForward(self._affine(layer.final_layer_norm), self._affine(layer.fc1), self._affine(layer.fc2))

    def residual(self, x: Tensor, norm: _Affine, part: Callable[[Tensor], Tensor]) -> Tensor:
        """Give x + part(LN(x)) in Pre-LN, LN(x + part(x)) in Post-LN."""
        if self.pre_norm:
            return part(self.normalized(x, norm)).add_(x)
        return self.normalized(part(x).add_(x), norm)

    def normalized(self, x: Tensor, norm: _Affine) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias)  # statistics in fp32 whatever x is

    def feed(self, x: Tensor, part: _FeedForward) -> Tensor:
        return F.linear(F.linear(x, *part.inner).relu_(), *part.outer)

    def split(self, x: Tensor) -> Tensor:
        """[B, T, n * d] -> [n, B, heads, T, d / heads], a view."""
        width = self.target.size(1)
        return x.view(*x.shape[:2], -1, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)


def _hide(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """Give what to add to attention scores: minus infinity where `hidden`."""
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, -math.inf)


def _merge(x: Tensor) -> Tensor:
    """[B, heads, T, d / heads] -> [B, T, d]."""
    return x.transpose(1, 2).flatten(2)


def encode(weights: Weights, source: Tensor) -> Tensor:
    """Give the encoder's output, [B, S, d]; source: tokens [B, S], padded on the left. What padding gives is noise."""
    kept = source.ne(weights.pad)
    position = kept.cumsum(1) * kept + weights.pad
    x = F.embedding(source, weights.source).mul_(weights.scale) + weights.source_positions[position]
    hidden = _hide(~kept, weights.dtype)[:, None, None, :]

    def attend(x: Tensor, part: _Attention) -> Tensor:
        q, k, v = weights.split(F.linear(x, *part.inward))
        return F.linear(_weigh(q, k, v, hidden), *part.outward)

    for attention, feed_forward in weights.encoder:
        x = weights.residual(x, attention.norm, lambda y, part=attention: attend(y, part))  # type: ignore[misc]
        x = weights.residual(x, feed_forward.norm, lambda y, part=feed_forward: weights.feed(y, part))  # type: ignore[misc]
    return weights.normalized(x, weights.encoder_norm) if weights.encoder_norm else x


class Decoder:
    """The steps of one batch: a Stepper of search.py.

    A sentence's hypotheses are the query positions of one attention over all that the sentence has cached, so its
    encoder output is stored once. Nor is the cache of self-attention ever reordered: each step adds the keys and
    values of its W tokens, and a mask says which of the entries each hypothesis descends from.
    """

    def __init__(self, weights: Weights, source: Tensor) -> None:
        self._weights = weights
        memory = weights.split(F.linear(encode(weights, source), *weights.memory))
        self._memory = memory.contiguous()  # [layers * 2, B, heads, S, d / heads]
        padded = source.eq(weights.pad)
        self._padded = _hide(padded, weights.dtype)[:, None, None, :]  # [B, 1, 1, S]
        self._cache = self._memory.new_empty(*memory.shape[:3], 0, memory.size(-1))
        self._steps, self._used = 0, 0
        self._strange = self._cache.new_empty(source.size(0), 1, 0)
        """[B, W, used]: minus infinity where a hypothesis does not descend from an entry, else 0."""

    def keep(self, rows: Tensor) -> None:
        """Go on with these sentences alone."""
        self._memory = self._memory.index_select(1, rows)
        self._padded = self._padded.index_select(0, rows)
        self._cache = self._cache[:, :, :, : self._used].index_select(1, rows)
        self._strange = self._strange.index_select(0, rows)

    def step(self, tokens: Tensor, parents: Tensor) -> Tensor:
        """Give the logits [B, W, V] of what follows `tokens` [B, W]; `parents` as in search.Stepper."""
        weights, width = self._weights, tokens.size(1)
        own = torch.full((width, width), -math.inf, dtype=weights.dtype, device=tokens.device).fill_diagonal_(0)
        descent = self._strange.gather(1, parents.unsqueeze(-1).expand(-1, -1, self._used))
        self._strange = torch.cat([descent, own.expand(tokens.size(0), -1, -1)], 2)
        self._grow(width)
        strange = self._strange.unsqueeze(1)
        x = F.embedding(tokens, weights.target).mul_(weights.scale)
        x += weights.positions[weights.pad + 1 + self._steps]
        for layer, (attention, cross, feed_forward) in enumerate(weights.decoder):
            memory, cache = self._memory[2 * layer : 2 * layer + 2], self._cache[2 * layer : 2 * layer + 2]

            def attend(y: Tensor, part: _Attention = attention, cache: Tensor = cache) -> Tensor:
                q, *_ = new = weights.split(F.linear(y, *part.inward))
                cache[:, :, :, self._used : self._used + width] = new[1:]
                k, v = cache[:, :, :, : self._used + width]
                return F.linear(_weigh(q, k, v, strange), *part.outward)

            def look(y: Tensor, part: _Attention = cross, memory: Tensor = memory) -> Tensor:
                (q,) = weights.split(F.linear(y, *part.inward))
                return F.linear(_weigh(q, memory[0], memory[1], self._padded), *part.outward)

            x = weights.residual(x, attention.norm, attend)
            x = weights.residual(x, cross.norm, look)
            x = weights.residual(x, feed_forward.norm, lambda y, part=feed_forward: weights.feed(y, part))  # type: ignore[misc]
        self._steps += 1
        self._used += width
        if weights.decoder_norm:
            x = weights.normalized(x, weights.decoder_norm)
        return F.linear(x, weights.output, None)

    def _grow(self, width: int) -> None:
        """Make room for a step."""
        if self._used + width > self._cache.size(3):
            shape = list(self._cache.shape)
            shape[3] = self._used + _CHUNK * width
            grown = self._cache.new_empty(shape)
            grown[:, :, :, : self._used] = self._cache[:, :, :, : self._used]
            self._cache = grown


def _weigh(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
    """Attend: q [B, heads, W, d / heads], k and v [B, heads, T, d / heads], hidden to be added -> [B, W, d].

    Rows this short take torch's fused attention longer on a CPU.
    """
    return _merge((q @ k.transpose(-1, -2)).add_(hidden).softmax(-1) @ v)
