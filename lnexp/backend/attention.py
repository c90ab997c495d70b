"""Multi-head attention between its projections: softmax(Q K^T / sqrt(d_k)) V, forwards and backwards.

On a CPU it is batched products with a backward pass of its own: torch's fused kernel is made for long sequences, and
its backward pass takes several times as long on sentences. On CUDA it is that kernel. Rows are tokens, sentence by
sentence, as they leave the projections: parts (query, key, value), then heads, then d_k side by side.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lnexp.backend.dropout import Dropout
from lnexp.backend.linear import wide


def attention(
    query: Tensor, others: Tensor | None, batch: int, heads: int, mask: Tensor | None, drop: Dropout, p: float,
    causal: bool = False,
) -> Tensor:  # fmt: skip
    """Give one row of heads * d_k a query.

    query: rows x (3 * heads * d_k) in self-attention, where others is None; else rows x (heads * d_k), and others
    holds key and value, rows x (2 * heads * d_k). mask: added to the scores, broadcast to batch x heads x queries x
    keys. causal: instead of a mask, no query sees a later key. p: dropout on the attention weights.
    """
    if query.device.type == "cpu":
        if causal:
            length = query.size(0) // batch
            mask = query.new_full((length, length), -torch.inf).triu_(1)
        return _Attention.apply(query, others, batch, heads, mask, drop, p)
    parts = [(query, 3)] if others is None else [(query, 1), (others, 2)]
    q, k, v = (x.transpose(1, 2) for rows, count in parts for x in _views(rows, batch, heads, count).unbind(2))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p, is_causal=causal)
    return out.transpose(1, 2).flatten(0, 1).flatten(1)


def _views(rows: Tensor, batch: int, heads: int, parts: int) -> Tensor:
    return rows.view(batch, rows.size(0) // batch, parts, heads, -1)


def _split(rows: Tensor, batch: int, heads: int, parts: int) -> Tensor:
    """Give parts x (batch * heads) x length x d_k, contiguous: what batched products want."""
    return _views(rows, batch, heads, parts).permute(2, 0, 3, 1, 4).flatten(1, 2).contiguous()


def _join(parts: list[Tensor], batch: int, heads: int) -> Tensor:
    """Undo `_split`."""
    length, d_k = parts[0].shape[1:]
    rows = parts[0].new_empty(batch, length, len(parts), heads, d_k)
    for i, part in enumerate(parts):
        rows[:, :, i] = part.view(batch, heads, length, d_k).transpose(1, 2)
    return rows.view(batch * length, -1)


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
        ctx: Any, query: Tensor, others: Tensor | None, batch: int, heads: int, mask: Tensor | None,
        drop: Dropout, p: float,
    ) -> Tensor:  # fmt: skip
        if others is None:
            q, k, v = _split(query, batch, heads, 3)
        else:
            q, (k, v) = _split(query, batch, heads, 1)[0], _split(others, batch, heads, 2)
        scores = torch.bmm(q, k.transpose(1, 2)).mul_(q.size(-1) ** -0.5)
        if mask is not None:
            scores.view(batch, heads, *scores.shape[1:]).add_(mask)
        weights = used = _softmax(scores)
        ctx.drop = None
        if p:
            kept, scale = drop.mask(weights.numel(), p)
            ctx.drop = kept.view(weights.shape).to(weights.dtype), scale
            used = (weights * ctx.drop[0]).mul_(scale)
        ctx.save_for_backward(q, k, v, weights, used)
        ctx.shape, ctx.own = (batch, heads), others is None
        return _join([torch.bmm(used, v)], batch, heads)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        q, k, v, weights, used = ctx.saved_tensors
        batch, heads = ctx.shape
        grad = _split(grad, batch, heads, 1)[0]
        dv = torch.bmm(used.transpose(1, 2), grad)
        dweights = torch.bmm(grad, v.transpose(1, 2))
        if ctx.drop:
            dweights.mul_(ctx.drop[0]).mul_(ctx.drop[1])
        dscores = _softmax_gradient(dweights, weights).mul_(q.size(-1) ** -0.5)
        dq, dk = torch.bmm(dscores, k), torch.bmm(dscores.transpose(1, 2), q)
        if ctx.own:
            return _join([dq, dk, dv], batch, heads), *[None] * 6
        return _join([dq], batch, heads), _join([dk, dv], batch, heads), *[None] * 5
