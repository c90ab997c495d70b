"""Multi-head attention between its projections: softmax(Q K^T / sqrt(d_k)) V, forwards and backwards.

On a CPU it is batched products with a backward pass of its own: torch's fused kernel is made for long sequences, and
its backward pass takes several times as long on sentences. On CUDA it is that kernel. Rows are tokens, sentence by
sentence, as they leave the projections: parts (query, key, value), then heads, then d_k side by side; rows after the
last sentence's are filling, in and out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lnexp.backend.dropout import Dropout
from lnexp.backend.linear import wide


@dataclass(frozen=True)
class Sizes:
    """Of one attention: sentences of as many queries and keys each, and heads."""

    batch: int
    queries: int
    keys: int
    heads: int


def hide(padding: Tensor, dtype: torch.dtype) -> Tensor | None:
    """Give the mask by which no query sees a key where `padding` (batch x keys) is true; None where all are seen."""
    if padding.device.type == "cpu":
        padding = F.pad(padding, (0, -padding.size(1) % _STEP), value=True)
        if not padding.any():
            return None
    return padding.new_zeros(padding.shape, dtype=dtype).masked_fill_(padding, -torch.inf)[:, None, None]


def attention(
    query: Tensor, others: Tensor | None, sizes: Sizes, mask: Tensor | None, drop: Dropout, p: float,
    causal: bool = False,
) -> Tensor:  # fmt: skip
    """Give one row of heads * d_k a query, and filling up to the rows of `query`.

    query: rows x (3 * heads * d_k) in self-attention, where others is None; else rows x (heads * d_k), and others
    holds key and value, rows x (2 * heads * d_k). mask: of `hide`. causal: instead of a mask, no query sees a later
    key. p: dropout on the attention weights.
    """
    if query.device.type == "cpu":
        if causal:
            mask = _later(sizes.keys + -sizes.keys % _STEP, query.dtype)
        return _Attention.apply(query, others, sizes, mask, drop, p)
    parts = [(query, 3, sizes.queries)] if others is None else [(query, 1, sizes.queries), (others, 2, sizes.keys)]
    q, k, v = (x.transpose(1, 2) for rows, n, length in parts for x in _views(rows, n, length, sizes).unbind(2))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p, is_causal=causal)
    out = out.transpose(1, 2).flatten(0, 1).flatten(1)
    return F.pad(out, (0, 0, 0, query.size(0) - out.size(0)))


def _views(rows: Tensor, parts: int, length: int, sizes: Sizes) -> Tensor:
    return rows[: sizes.batch * length].view(sizes.batch, length, parts, sizes.heads, -1)


_STEP = 8
"""On a CPU lengths go up in such steps: oneDNN makes code for each shape it meets, and keeps half a megabyte of it."""


@lru_cache(maxsize=64)
def _later(length: int, dtype: torch.dtype) -> Tensor:
    return torch.full((length, length), -torch.inf, dtype=dtype).triu_(1)


def _split(rows: Tensor, parts: int, length: int, sizes: Sizes) -> Tensor:
    """Give parts x (batch * heads) x length in steps x d_k, contiguous: what batched products want."""
    views = _views(rows, parts, length, sizes).permute(2, 0, 3, 1, 4)
    if filling := -length % _STEP:
        views = F.pad(views, (0, 0, 0, filling))
    return views.flatten(1, 2).contiguous()


def _join(parts: list[Tensor], length: int, sizes: Sizes, rows: int) -> Tensor:
    """Undo `_split`; with filling up to `rows`."""
    out = parts[0].new_empty(rows, len(parts) * sizes.heads * parts[0].size(2))
    views = _views(out, len(parts), length, sizes)
    for i, part in enumerate(parts):
        views[:, :, i] = part.view(sizes.batch, sizes.heads, *part.shape[1:])[:, :, :length].transpose(1, 2)
    out[sizes.batch * length :] = 0
    return out


# torch's own softmax takes one row after the other: with the few keys of a sentence, twice as long as these.
def _softmax(scores: Tensor) -> Tensor:
    """Overwrites scores that are not of a half type."""
    weights = scores.to(wide(scores))
    weights.sub_(weights.amax(-1, keepdim=True)).exp_()
    return weights.div_(weights.sum(-1, keepdim=True)).to(scores.dtype)


def _softmax_gradient(grad: Tensor, weights: Tensor) -> Tensor:
    g, w = grad.to(wide(grad)), weights.to(wide(grad))
    return (g - (g * w).sum(-1, keepdim=True)).mul_(w).to(grad.dtype)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, others: Tensor | None, sizes: Sizes, mask: Tensor | None, drop: Dropout, p: float
    ) -> Tensor:
        if others is None:
            q, k, v = _split(query, 3, sizes.queries, sizes)
        else:
            q, (k, v) = _split(query, 1, sizes.queries, sizes)[0], _split(others, 2, sizes.keys, sizes)
        scores = torch.bmm(q, k.transpose(1, 2)).mul_(q.size(-1) ** -0.5)
        if mask is not None:
            scores.view(sizes.batch, sizes.heads, *scores.shape[1:]).add_(mask)
        weights = used = _softmax(scores)
        ctx.drop = None
        if p:
            kept, scale = drop.mask(weights.numel(), p)
            ctx.drop = kept.view(weights.shape).to(weights.dtype), scale
            used = (weights * ctx.drop[0]).mul_(scale)
        ctx.save_for_backward(q, k, v, weights, used)
        ctx.sizes, ctx.rows = sizes, (query.size(0), None if others is None else others.size(0))
        return _join([torch.bmm(used, v)], sizes.queries, sizes, query.size(0))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        q, k, v, weights, used = ctx.saved_tensors
        sizes, (rows, others) = ctx.sizes, ctx.rows
        grad = _split(grad, 1, sizes.queries, sizes)[0]
        dv = torch.bmm(used.transpose(1, 2), grad)
        dweights = torch.bmm(grad, v.transpose(1, 2))
        if ctx.drop:
            dweights.mul_(ctx.drop[0]).mul_(ctx.drop[1])
        dscores = _softmax_gradient(dweights, weights).mul_(q.size(-1) ** -0.5)
        dq, dk = torch.bmm(dscores, k), torch.bmm(dscores.transpose(1, 2), q)
        if others is None:
            return _join([dq, dk, dv], sizes.queries, sizes, rows), *[None] * 5
        return _join([dq], sizes.queries, sizes, rows), _join([dk, dv], sizes.keys, sizes, others), *[None] * 4
