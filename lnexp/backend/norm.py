"""LayerNorm with float32 parameters on activations of any type, with sums that do not lose their small terms.

torch's own backward pass on a CPU adds up the gradients of gain and bias in the type of the activations: in bfloat16,
over the rows of a batch, that is off by several percent. Here both are torch's sums, rounded once, at their end.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def norm(x: Tensor, layer: Any) -> Tensor:
    """Normalise each row of x (rows x width) and scale it by `layer`, a torch.nn.LayerNorm."""
    if x.dtype == layer.weight.dtype:
        return F.layer_norm(x, layer.normalized_shape, layer.weight, layer.bias, layer.eps)
    if x.device.type == "cpu":
        return _Norm.apply(x, layer.weight, layer.bias, layer.eps)
    return F.layer_norm(x, layer.normalized_shape, layer.weight.to(x.dtype), layer.bias.to(x.dtype), layer.eps)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        out, mean, rstd = torch.native_layer_norm(x, weight.shape, weight, bias, eps)
        ctx.save_for_backward(x, mean, rstd, weight, bias)
        ctx.eps = eps
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, mean, rstd, weight, bias = ctx.saved_tensors
        only_x = [True, False, False]
        dx = torch.ops.aten.native_layer_norm_backward(grad, x, weight.shape, mean, rstd, weight, bias, only_x)[0]
        scaled = torch.native_layer_norm(x, weight.shape, None, None, ctx.eps)[0].mul_(grad)
        return dx, scaled.sum(0).to(weight.dtype), grad.sum(0).to(weight.dtype), None
