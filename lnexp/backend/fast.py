"""The forward pass of fairseq's Transformer, Post-LN and Pre-LN, by fewer and faster steps than its own modules take.

The parameters are those of the fairseq model, by their own names; what is computed is the same up to rounding (and
the draw of dropout). Tokens are rows of one matrix throughout: query, key and value are one product, bias and ReLU
belong to their product, dropout and residual are one step. `dtype` float32 is devices.precision=fp32_fast, a half type
that of bf16 and fp16: activations and products in that type; LayerNorm's statistics, softmax, the loss and the
parameters with their gradients in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lnexp.backend.attention import Sizes, attention, hide
from lnexp.backend.dropout import Dropout
from lnexp.backend.flat import Flat
from lnexp.backend.linear import Linear, filled
from lnexp.backend.norm import norm


class FastTransformer:
    """A view of `model` that computes in `dtype`; owns a copy of its values in a half type, and no parameter."""

    def __init__(self, model: Any, flat: Flat, dtype: torch.dtype) -> None:
        self.model, self.dtype, self._flat = model, dtype, flat
        self._values = flat.values.detach()
        self._copied = dtype != self._values.dtype
        if self._copied:
            self._values = torch.empty_like(self._values, dtype=dtype)
            flat.half = torch.zeros_like(self._values)
        self._version = -1

        def linear(*layers: Any) -> Linear:
            return Linear(layers, flat, self._values)

        self.encoder = [_Layer(layer, linear) for layer in model.encoder.layers]
        self.decoder = [_Layer(layer, linear) for layer in model.decoder.layers]
        self.output = linear(model.decoder.output_projection)
        self._heads = model.encoder.layers[0].self_attn.num_heads

    def refresh(self) -> None:
        """Copy the values again where they have changed since the last time."""
        version = self._flat.version()
        if self._copied and version != self._version:
            self._values.copy_(self._flat.values.detach())
            self._version = version

    def features(self, source: Tensor, target: Tensor) -> Tensor:
        """Give what the output matrix is applied to, (sentences * length) x d_model, with filling after them.

        source: sentences x length, padded on the left; target: sentences x length, padded on the right, moved by one.
        """
        self.refresh()
        drop = Dropout(source.device)
        hidden, mask = self.encode(source, drop)
        model = self.model.decoder
        x = self._embed(model, target, drop)
        (batch, keys), queries = source.shape, target.size(1)
        own, cross = Sizes(batch, queries, queries, self._heads), Sizes(batch, queries, keys, self._heads)
        for layer in self.decoder:
            x = layer.self_attention(x, own, None, drop, causal=True)
            x = layer.cross_attention(x, hidden, cross, mask, drop)
            x = layer.feed_forward(x, drop)
        return x if model.layer_norm is None else norm(x, model.layer_norm)

    def encode(self, source: Tensor, drop: Dropout) -> tuple[Tensor, Tensor | None]:
        """Give the encoder's output, rows x d_model, and the mask that hides padding."""
        model, (batch, length) = self.model.encoder, source.shape
        x = self._embed(model, source, drop)
        mask, sizes = hide(source.eq(model.padding_idx), x.dtype), Sizes(batch, length, length, self._heads)
        for layer in self.encoder:
            x = layer.self_attention(x, sizes, mask, drop)
            x = layer.feed_forward(x, drop)
        return x if model.layer_norm is None else norm(x, model.layer_norm), mask

    def _embed(self, stack: Any, tokens: Tensor, drop: Dropout) -> Tensor:
        weight, positions, scale = stack.embed_tokens.weight, stack.embed_positions(tokens), stack.embed_scale
        if tokens.device.type == "cpu":
            x = _Embedded.apply(weight, tokens, positions, scale)
        else:
            x = torch.add(positions, F.embedding(tokens, weight, stack.padding_idx), alpha=scale)
        return drop(filled(x.flatten(0, 1).to(self.dtype)), self._p(stack))

    def _p(self, stack: Any) -> float:
        return stack.dropout_module.p if stack.training else 0.0


class _Embedded(torch.autograd.Function):
    """Scaled embeddings and positions; the gradient goes to the rows of the tokens that were there, not through a
    matrix of the whole vocabulary. Padding gets none by itself: nothing looks at it. Not for CUDA, where such sums
    differ from one time to the next."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, tokens: Tensor, positions: Tensor, scale: float) -> Tensor:
        ctx.weight, ctx.tokens, ctx.scale = weight, tokens.flatten(), scale
        return torch.add(positions, F.embedding(tokens, weight), alpha=scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, ...]:
        ctx.weight.grad.index_add_(0, ctx.tokens, grad.flatten(0, 1), alpha=ctx.scale)
        return None, None, None, None


class _Layer:
    """One layer of either stack; where normalization stands is the fairseq layer's `normalize_before`."""

    def __init__(self, layer: Any, linear: Callable[..., Linear]) -> None:
        self.layer, own = layer, layer.self_attn
        self.own, self.own_out = linear(own.q_proj, own.k_proj, own.v_proj), linear(own.out_proj)
        self.inner, self.outer = linear(layer.fc1), linear(layer.fc2)
        if cross := getattr(layer, "encoder_attn", None):
            self.cross, self.cross_out = linear(cross.q_proj), linear(cross.out_proj)
            self.memory = linear(cross.k_proj, cross.v_proj)

    def self_attention(
        self, x: Tensor, sizes: Sizes, mask: Tensor | None, drop: Dropout, causal: bool = False
    ) -> Tensor:
        own, ln = self.layer.self_attn, self.layer.self_attn_layer_norm
        rows = self.own(self._before(x, ln))
        seen = attention(rows, None, sizes, mask, drop, self._p(own.dropout_module), causal)
        return self._after(x, self.own_out(seen), ln, drop)

    def cross_attention(self, x: Tensor, hidden: Tensor, sizes: Sizes, mask: Tensor | None, drop: Dropout) -> Tensor:
        cross, ln = self.layer.encoder_attn, self.layer.encoder_attn_layer_norm
        query, memory = self.cross(self._before(x, ln)), self.memory(hidden)
        seen = attention(query, memory, sizes, mask, drop, self._p(cross.dropout_module))
        return self._after(x, self.cross_out(seen), ln, drop)

    def feed_forward(self, x: Tensor, drop: Dropout) -> Tensor:
        ln = self.layer.final_layer_norm
        inner = self.inner(self._before(x, ln), relu=True)
        inner = drop(inner, self._p(self.layer.activation_dropout_module))
        return self._after(x, self.outer(inner), ln, drop)

    def _before(self, x: Tensor, ln: Any) -> Tensor:
        return norm(x, ln) if self.layer.normalize_before else x

    def _after(self, residual: Tensor, x: Tensor, ln: Any, drop: Dropout) -> Tensor:
        x = drop.add(residual, x, self._p(self.layer.dropout_module))
        return x if self.layer.normalize_before else norm(x, ln)

    def _p(self, module: Any) -> float:
        return module.p if self.layer.training else 0.0
