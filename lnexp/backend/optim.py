"""Our schedules and torch's optimizers, registered with fairseq's Trainer under one name each.

fairseq's inverse_sqrt divides by the warm-up, its `fixed` shrinks every epoch and it has no RAdam; here the rate of
each update comes from lnexp.schedule alone and the optimizers are torch.optim's own (fused where it has that).
"""

from __future__ import annotations

from typing import Any

import torch
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from torch import Tensor

from lnexp.backend import NonFinite
from lnexp.backend.group import Group
from lnexp.schedule import Schedule, lr

NAME = "lnexp"


@register_optimizer(NAME)
class TorchOptimizer(FairseqOptimizer):
    """adam (AdamW: decoupled decay, as fairseq's Adam), radam or sgd (vanilla) from torch.optim."""

    def __init__(self, cfg: Any, params: list[torch.nn.Parameter]) -> None:
        super().__init__(cfg)
        self.last_norm = torch.zeros(())
        self.group = Group()
        self._optimizer: torch.optim.Optimizer
        common = {"lr": cfg.lr[0], "weight_decay": cfg.weight_decay}
        moments = {"betas": tuple(cfg.betas), "eps": cfg.eps}
        if cfg.name == "adam":
            self._optimizer = torch.optim.AdamW(params, **common, **moments, fused=True)
        elif cfg.name == "radam":
            self._optimizer = torch.optim.RAdam(params, **common, **moments, decoupled_weight_decay=True, foreach=True)
        else:
            self._optimizer = torch.optim.SGD(params, **common, fused=True)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        return {}

    def all_reduce_grads(self, module: Any) -> None:
        """Add up the gradients of the run's processes."""
        self.group.add_up([p.grad for p in self.params if p.grad is not None])

    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Any = None) -> Tensor:
        """Give the gradient's norm before clipping; one foreach pass instead of a call per matrix.

        Raises NonFinite itself: the FloatingPointError of fairseq's Trainer runs the update again under hooks that
        no longer work with torch of today.
        """
        grads = [p.grad for p in self.params if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads, foreach=True)
        if not torch.isfinite(norm):
            raise NonFinite(f"gradient norm is {norm.item()}")
        if max_norm > 0:
            torch.nn.utils.clip_grads_with_norm_(self.params, max_norm, norm, foreach=True)
        self.last_norm = norm
        return norm


@register_lr_scheduler(NAME)
class ScheduleScheduler(FairseqLRScheduler):
    """Sets the rate of the coming update; fairseq calls it with the number of updates already done."""

    def __init__(self, cfg: Any, optimizer: FairseqOptimizer) -> None:
        self.cfg, self.optimizer, self.best = cfg, optimizer, None
        self.schedule = Schedule(**cfg.schedule)
        self.step_update(0)

    def step_update(self, num_updates: int) -> float:
        rate = lr(self.schedule, self.cfg.lr_max, num_updates + 1, self.cfg.updates_per_epoch)
        self.optimizer.set_lr(rate)
        return rate
