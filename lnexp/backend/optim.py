"""Our schedules and torch's optimizers, registered with fairseq's Trainer under one name each.

fairseq's inverse_sqrt divides by the warm-up, its `fixed` shrinks every epoch and it has no RAdam; here the rate of
each update comes from lnexp.schedule alone and the optimizers are torch.optim's own (fused where it has that).
"""

from __future__ import annotations

from typing import Any

import torch
from fairseq.optim import FairseqOptimizer
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from torch import Tensor

from lnexp.backend import NonFinite
from lnexp.backend.flat import Flat
from lnexp.backend.group import Group
from lnexp.errors import UserError
from lnexp.schedule import Schedule, lr

NAME = "lnexp"


class Overflow(Exception):
    """A gradient left the range of float16: the update is to be done again, with the smaller scale that is set now."""


class LossScale:
    """What the loss is multiplied by, so that no gradient in float16 is lost at either end of its range.

    Halved where the gradient overflows, doubled after 2,000 updates without that (Micikevicius et al., 2018). The loss
    is a sum over tokens, hence 1 to begin with. In other types it stays 1.
    """

    LOW, HIGH, PATIENCE = 2.0**-14, 2.0**15, 2000

    def __init__(self, moves: bool) -> None:
        self.moves, self.value, self.good = moves, 1.0, 0

    def overflow(self) -> None:
        """Lower the scale and raise Overflow; nothing where that cannot help."""
        if self.moves and self.value > self.LOW:
            self.value, self.good = self.value / 2, 0
            raise Overflow

    def passed(self) -> None:
        """Count an update without overflow."""
        self.good += self.moves
        if self.good >= self.PATIENCE:
            self.value, self.good = min(2 * self.value, self.HIGH), 0


class TorchOptimizer(FairseqOptimizer):
    """adam (AdamW: decoupled decay, as fairseq's Adam), radam or sgd (vanilla) from torch.optim, on a flat model."""

    def __init__(self, cfg: Any, flat: Flat, scale: LossScale) -> None:
        super().__init__(cfg)
        self.scale = scale
        self.last_norm = torch.zeros(())
        self.group = Group()
        self._flat = flat
        self._optimizer: torch.optim.Optimizer
        common = {"lr": cfg.lr[0], "weight_decay": cfg.weight_decay}
        moments = {"betas": tuple(cfg.betas), "eps": cfg.eps}
        if cfg.name == "adam":
            self._optimizer = torch.optim.AdamW([flat.values], **common, **moments, fused=True)
        elif cfg.name == "radam":
            self._optimizer = torch.optim.RAdam([flat.values], **common, **moments, decoupled_weight_decay=True)
        else:
            self._optimizer = torch.optim.SGD([flat.values], **common, fused=True)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        return {}

    def step(self, closure: Any = None, scale: float = 1.0, groups: Any = None) -> None:
        self._optimizer.step()
        self._flat.steps += 1

    def zero_grad(self) -> None:
        self._flat.grad.zero_()

    def all_reduce_grads(self, module: Any) -> None:
        """Add up the gradients of the run's processes."""
        self.group.add_up([self._flat.grad])

    def backward(self, loss: Tensor) -> None:
        (loss * self.scale.value).backward()
        self._flat.collect()

    def multiply_grads(self, c: Any) -> None:
        self._flat.grad.mul_(c / self.scale.value)

    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Any = None) -> Tensor:
        """Give the gradient's norm before clipping.

        Raises Overflow in float16; else NonFinite itself: the FloatingPointError of fairseq's Trainer runs the update
        again under hooks that no longer work with torch of today.
        """
        norm = torch.linalg.vector_norm(self._flat.grad)
        if not torch.isfinite(norm):
            self.scale.overflow()
            raise NonFinite(f"gradient norm is {norm.item()}")
        if max_norm > 0:
            torch.nn.utils.clip_grads_with_norm_([self._flat.values], max_norm, norm)
        self.last_norm = norm
        self.scale.passed()
        return norm

    def state_dict(self) -> dict[str, Any]:
        scale = [self.scale.value, self.scale.good]
        return {"order": self._flat.order, "scale": scale, "torch": self._optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any], optimizer_overrides: Any = None) -> None:
        if state.get("order") != self._flat.order:
            raise UserError("the checkpoint is of another version of lnexp: delete the run folder to train it anew")
        self.scale.value, self.scale.good = state["scale"]
        self._optimizer.load_state_dict(state["torch"])


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
