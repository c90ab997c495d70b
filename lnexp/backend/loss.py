"""Label-smoothed cross entropy that makes the log-probabilities of no token twice.

fairseq's loss, with eps' = eps / (V - 1):  (1 - eps - eps') * (-log p_y) + eps' * sum_v (-log p_v).
Both terms follow from the logits z by one log-sum-exp:  -log p_v = lse - z_v.  The gradient is then
softmax(z) - eps' - (1 - eps - eps') * onehot(y), so backward needs one softmax and no stored log-probabilities.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from fairseq.criterions import FairseqCriterion
from fairseq.logging import metrics
from torch import Tensor

from lnexp.backend.fast import FastTransformer
from lnexp.backend.output import output_loss


class _SmoothedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, eps: float, pad: int) -> tuple[Tensor, Tensor]:
        vocabulary = logits.size(-1)
        eps_i = eps / (vocabulary - 1)
        keep = target.ne(pad)
        lse = torch.logsumexp(logits, dim=-1)
        nll = lse - logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        loss = (1 - eps - eps_i) * nll
        if eps:
            loss = loss + eps_i * (vocabulary * lse - logits.sum(-1))
        ctx.save_for_backward(logits, target, keep, lse)
        ctx.eps, ctx.eps_i = eps, eps_i
        ctx.mark_non_differentiable(nll)
        return (loss * keep).sum(), (nll * keep).sum()

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        logits, target, keep, lse = ctx.saved_tensors
        grad = (logits - lse.unsqueeze(-1)).exp_()
        if ctx.eps_i:
            grad.sub_(ctx.eps_i)
        hit = target.unsqueeze(-1)
        grad.scatter_add_(-1, hit, grad.new_full((), ctx.eps + ctx.eps_i - 1).expand(hit.shape))
        grad.mul_((keep * grad_loss).unsqueeze(-1))
        return grad, None, None, None


def smoothed_loss(logits: Tensor, target: Tensor, eps: float, pad: int) -> tuple[Tensor, Tensor]:
    """Give (loss, nll), sums in nats over the tokens that are not padding.

    logits: tokens x vocabulary; target: tokens. Only the loss carries a gradient.
    """
    return _SmoothedLoss.apply(logits, target, eps, pad)


class LabelSmoothedLoss(FairseqCriterion):
    """fairseq's `label_smoothed_cross_entropy`: same value, same gradient, from the logits at once.

    The model is its own forward pass, or `fast` is, a view of it.
    """

    def __init__(self, task: Any, eps: float, fast: FastTransformer | None = None) -> None:
        super().__init__(task)
        self.eps, self.fast = eps, fast

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        target = sample["target"]
        if self.fast:
            batch = sample["net_input"]
            features = self.fast.features(batch["src_tokens"], batch["prev_output_tokens"])
            loss, nll = output_loss(features, self.fast.output, target.view(-1), self.eps, self.padding_idx)
        else:
            logits = model(**sample["net_input"])[0]
            logits = logits.view(-1, logits.size(-1)).float()
            loss, nll = smoothed_loss(logits, target.view(-1), self.eps, self.padding_idx)
        tokens = sample["ntokens"]
        sums = {
            "loss": loss.data,
            "nll_loss": nll.data,
            "ntokens": tokens,
            "nsentences": target.size(0),
            "sample_size": tokens,
        }
        return loss, tokens, sums

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Turn sums in nats into means in bits a token, unrounded."""
        tokens = sum(log["ntokens"] for log in logging_outputs)
        for name in ("loss", "nll_loss"):
            total = sum(log[name] for log in logging_outputs)
            metrics.log_scalar(name, total / tokens / math.log(2), tokens, round=None)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True
