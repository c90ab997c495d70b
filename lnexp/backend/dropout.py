"""Dropout whose masks cost a fraction of torch's on a CPU, where one generator hands out the numbers one by one.

A mask takes 16 random bits an element, from numpy's SFC64, four elements a 64-bit draw. An element stays with
probability 1 - k / 65,536, k = round(65,536 p), and what stays is scaled by the exact inverse of that: the expectation
is kept, and p is off by less than 1e-5. On a CUDA device torch's own kernel is fast, and used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

_STEPS = 1 << 16
_ONE = 0x3F80  # 1.0 as the bits of a bfloat16


class Dropout:
    """The masks of one forward pass, in the order in which they are asked for.

    They follow from torch's random state at the time this is made, which the trainer seeds for every pass.
    """

    def __init__(self, device: torch.device) -> None:
        self._draw: Any = None
        if device.type == "cpu":
            seed = int(torch.randint(2**62, ()).item())
            self._draw = np.random.SFC64(seed).random_raw

    def mask(self, size: int, p: float) -> tuple[Tensor, float]:
        """Give `size` zeros and ones in bfloat16, and the factor that keeps the expectation. CPU alone."""
        bits = torch.from_numpy(self._draw(-(-size // 4)).view(np.int16))[:size]
        dropped = round(p * _STEPS)
        # In place and in int16: the comparison leaves 0 and 1, times the bits of 1.0.
        return bits.ge_(dropped - _STEPS // 2).mul_(_ONE).view(torch.bfloat16), _STEPS / (_STEPS - dropped)

    def __call__(self, x: Tensor, p: float) -> Tensor:
        """Drop elements of x (any shape, any floating dtype) with probability p."""
        if not p:
            return x
        if self._draw is None:
            return F.dropout(x, p)
        return _Dropped.apply(x, *self.mask(x.numel(), p))

    def add(self, residual: Tensor, x: Tensor, p: float) -> Tensor:
        """Give residual + dropout(x), in one pass over them."""
        if not p:
            return residual + x
        if self._draw is None:
            return residual + F.dropout(x, p)
        return _AddDropped.apply(residual, x, *self.mask(x.numel(), p))


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.mask, ctx.scale = mask.view(x.shape), scale
        return (x * ctx.mask.to(x.dtype)).mul_(scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return (grad * ctx.mask.to(grad.dtype)).mul_(ctx.scale), None, None


class _AddDropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, residual: Tensor, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.mask, ctx.scale = mask.view(x.shape), scale
        return torch.addcmul(residual, x, ctx.mask.to(x.dtype), value=scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        return grad, (grad * ctx.mask.to(grad.dtype)).mul_(ctx.scale), None, None
