"""Output matrix and label-smoothed cross entropy in one step, with its gradient made on the way forwards.

The loss is the one of loss.py. Both ends of a batch's logits lie here, so they are made once, turned into their own
gradient in place, block by block while they are in the processor's cache, and gone when the step is over. At most
`_LOGITS` of them exist at a time, whatever the batch and the vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lnexp.backend.linear import Linear, filled, product, wide

_LOGITS = 1 << 26
"""Logits in memory at a time: 256 MiB in float32."""
_CACHED = 1 << 20
"""Logits that are turned into probabilities at a time: 4 MiB in float32."""


def output_loss(features: Tensor, output: Linear, target: Tensor, eps: float, pad: int) -> tuple[Tensor, Tensor]:
    """Give (loss, nll), sums in nats over the tokens that are not padding.

    features: rows x d_model; output: d_model to the vocabulary, without bias; target: of the first rows. Only the
    loss carries a gradient.
    """
    return _OutputLoss.apply(features, target, output, eps, pad)


class _OutputLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, target: Tensor, output: Linear, eps: float, pad: int
    ) -> tuple[Tensor, Tensor]:
        ctx.rows, total = None, len(features)
        if features.device.type == "cpu":  # elsewhere the number of rows would have to be waited for
            ctx.rows = target.ne(pad).nonzero().squeeze(1)
            features = filled(features.index_select(0, ctx.rows))
            target = F.pad(target.index_select(0, ctx.rows), (0, len(features) - len(ctx.rows)), value=pad)
        training, weight = ctx.needs_input_grad[0], output.weight
        loss, nll = (features.new_zeros((), dtype=wide(features)) for _ in range(2))
        dx = torch.empty_like(features) if training else None
        dw = torch.zeros_like(weight, dtype=output.weight_grad.dtype) if training else None
        step = max(1, _LOGITS // weight.size(0))
        for part in (slice(a, a + step) for a in range(0, len(target), step)):
            logits = product(features[part], weight)
            for sums, more in zip((loss, nll), _loss(logits, target[part], eps, pad, training), strict=True):
                sums += more
            if dx is not None and dw is not None:
                dx[part] = product(logits, weight.t())
                if dw.dtype == logits.dtype:
                    dw.addmm_(logits.t(), features[part])
                else:
                    dw.add_(logits.t() @ features[part])
        ctx.mark_non_differentiable(nll)
        ctx.save_for_backward(dx, dw)
        ctx.output, ctx.total = output, total
        return loss, nll

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Any, ...]:
        dx, dw = ctx.saved_tensors
        dx = dx * grad.to(dx.dtype)
        if ctx.rows is not None:
            dx = dx.new_zeros(ctx.total, dx.size(1)).index_copy_(0, ctx.rows, dx[: len(ctx.rows)])
        ctx.output.weight_grad.add_(dw * grad)
        return dx, None, None, None, None


def _loss(logits: Tensor, target: Tensor, eps: float, pad: int, training: bool) -> tuple[Tensor, Tensor]:
    """Give the two sums; in training the logits become their gradient."""
    vocabulary = logits.size(1)
    eps_i = eps / (vocabulary - 1)
    loss, nll = (logits.new_zeros((), dtype=wide(logits)) for _ in range(2))
    step = max(1, _CACHED // vocabulary)
    for part in (slice(a, a + step) for a in range(0, len(target), step)):
        z, hit = logits[part].to(wide(logits)), target[part].unsqueeze(1)
        keep = hit.ne(pad)
        right, total = z.gather(1, hit), z.sum(1, keepdim=True)
        top = z.amax(1, keepdim=True)
        z = z.sub_(top).exp_()
        mass = z.sum(1, keepdim=True)
        lse = mass.log() + top
        miss = lse - right
        nll += (miss * keep).sum()
        loss += (((1 - eps - eps_i) * miss + eps_i * (vocabulary * lse - total)) * keep).sum()
        if training:
            z.mul_(mass.reciprocal_()).sub_(eps_i)
            z.scatter_add_(1, hit, z.new_full((), eps + eps_i - 1).expand(hit.shape)).mul_(keep)
            logits[part] = z
    return loss, nll
