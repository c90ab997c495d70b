"""Linear layers by the fast matrix products of the device, in the type that computes.

A `Linear` is one or several of the model's layers that share an input, as one product: query, key and value. Weights
come in the type of the activations, and so do the gradients of a pass where it is a half type: Flat adds them to the
parameters' own, in float32, all in one step. On a CPU with AVX-512 products go through oneDNN: MKL takes its AVX2 path
on AMD.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lnexp.backend.flat import Flat

ONEDNN = torch.backends.mkldnn.is_available() and "AVX512" in torch.backends.cpu.get_cpu_capability()
"""Whether products go through oneDNN's linear layer, which has bias and ReLU in it."""


def wide(x: Tensor) -> torch.dtype:
    """Give the type for sums over x: float32 where x is of a half type."""
    return torch.promote_types(x.dtype, torch.float32)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None, relu: bool = False) -> Tensor:
    """Give x W^T + b, through a ReLU where asked for. x: rows x in, weight: out x in, bias: out."""
    if ONEDNN and x.device.type == "cpu" and x.dtype in (torch.float32, torch.bfloat16):
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "relu" if relu else "none", [], "")
    out = F.linear(x, weight, bias)
    return out.relu_() if relu else out


def filled(x: Tensor) -> Tensor:
    """Give x (rows x width) with zero rows after its own, up to one of few numbers of rows, on a CPU.

    oneDNN makes code for each shape it meets, in milliseconds, and keeps half a megabyte of it. At most 16 rows or 3%
    are added; as no row looks at another but in attention, they end where they began.
    """
    rows = x.size(0)
    filling = -rows % max(16, 1 << max(rows.bit_length() - 6, 0)) if x.device.type == "cpu" else 0
    return F.pad(x, (0, 0, 0, filling)) if filling else x


class Linear:
    """`values` holds the weights in the type that computes, laid out as `flat`. Called once a pass."""

    def __init__(self, layers: Sequence[Any], flat: Flat, values: Tensor) -> None:
        weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers]
        self.weight, self.weight_grad = flat.block(weights, values), flat.block(weights, flat.grad)
        self.weight_half = None if flat.half is None else flat.block(weights, flat.half)
        self.bias: Tensor | None = None
        if biases[0] is not None:
            self.bias, self.bias_grad = flat.block(biases, values), flat.block(biases, flat.grad)
            self.bias_half = None if flat.half is None else flat.block(biases, flat.half)

    def __call__(self, x: Tensor, relu: bool = False) -> Tensor:
        """x: rows x in; gives rows x out of all layers, side by side."""
        return _Linear.apply(x, self, relu)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Linear, relu: bool) -> Tensor:
        out = product(x, layer.weight, layer.bias, relu)
        ctx.save_for_backward(x, *([out] if relu else []))
        ctx.layer = layer
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        x, *out = ctx.saved_tensors
        layer = ctx.layer
        if out:
            grad = torch.ops.aten.threshold_backward(grad, out[0], 0)
        if layer.weight_half is None:
            layer.weight_grad.addmm_(grad.t(), x)
        else:
            torch.mm(grad.t(), x, out=layer.weight_half)
        if layer.bias is not None and layer.bias_half is None:
            layer.bias_grad.add_(grad.sum(0))
        elif layer.bias is not None:
            torch.sum(grad, 0, out=layer.bias_half)
        return product(grad, layer.weight.t()), None, None
