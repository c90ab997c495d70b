"""The simplified Transformer of Section 3.3, and what is measured on it at initialisation.

Single head with W^Q = W^K = 0, so attention is the mean over the n positions times W^V; W^V, W^1, W^2 are d x d from
N(0, 1/d) (Xavier, square), biases 0, LN without scale and bias; the input positions are independent from N(0, I_d).
Every tensor begins with a dimension of independent networks ("draws"), so that many small ones run as one.

The loss: L_i = <r_i, x_Final,i> with random signs r_i, drawn for each position, so that every derivative is 1 or -1:
"bounded", as Theorem 1 asks, and unlike between positions, as labels are. L~ is the mean of L_i over the positions. The
second loss is what people train with: cross-entropy of random labels under a random linear read-out, N(0, 1/d).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

NORMS = ("post", "pre")
VOCABULARY = 2048
"""Words of the read-out: many beside the positions, so that two of these seldom have the same label."""


@dataclass(frozen=True)
class Weights:
    """One layer's matrices, each (draws, d, d); they act on rows: x W."""

    v: Tensor
    w1: Tensor
    w2: Tensor


@dataclass(frozen=True)
class Trace:
    """One layer's hidden states, each (draws, n, d), by the names of Table 1."""

    attention: Tensor
    """x^{post,1}, x^{pre,2}"""
    middle: Tensor
    """x^{post,2}, x^{pre,3}"""
    normed: Tensor
    """x^{post,3}, x^{pre,4}"""
    ffn: Tensor
    """x^{post,4}, x^{pre,5}"""
    output: Tensor
    """x^{post,5}, x^{pre}_{l+1}: LN of the last layer's is x_Final in both."""


def layer_norm(x: Tensor) -> Tensor:
    """LN of the last dimension with gamma = 1, beta = 0 and nothing added to the variance, as in the paper."""
    return F.layer_norm(x, x.shape[-1:], eps=0.0)


def draw(d: int, depth: int, draws: int, generator: torch.Generator) -> list[Weights]:
    """Draw the matrices of `depth` layers."""

    def matrix() -> Tensor:
        return torch.randn(draws, d, d, generator=generator) * d**-0.5

    return [Weights(matrix(), matrix(), matrix()) for _ in range(depth)]


def forward(norm: str, x: Tensor, layers: Sequence[Weights], ffn_backward: bool = True) -> list[Trace]:
    """Run x, (draws, n, d), through Post-LN ("post") or Pre-LN ("pre") layers.

    With ffn_backward=False the values are the same, and gradients pass an FFN by its residual path alone.
    """
    traces = []
    for w in layers:
        attention = (x if norm == "post" else layer_norm(x)).mean(dim=1, keepdim=True) @ w.v
        middle = x + attention
        normed = layer_norm(middle)
        ffn = torch.relu((normed if ffn_backward else normed.detach()) @ w.w1) @ w.w2
        output = (normed if norm == "post" else middle) + ffn
        traces.append(Trace(attention.expand_as(x), middle, normed, ffn, output))
        x = layer_norm(output) if norm == "post" else output
    return traces


Loss = Callable[[Tensor], Tensor]


def signs(shape: torch.Size, generator: torch.Generator) -> Loss:
    """Give L~ of random signs, added up over the draws."""
    r = torch.randint(0, 2, shape, generator=generator) * 2.0 - 1.0
    return lambda final: (r * final).sum() / shape[1]


def cross_entropy(shape: torch.Size, generator: torch.Generator) -> Loss:
    """Give the mean cross-entropy of random labels, added up over the draws."""
    draws, n, d = shape
    readout = torch.randn(draws, d, VOCABULARY, generator=generator) * d**-0.5
    labels = torch.randint(0, VOCABULARY, (draws * n,), generator=generator)
    return lambda final: F.cross_entropy((final @ readout).flatten(0, 1), labels, reduction="sum") / n


def gradient_norms(loss: Loss, traces: Sequence[Trace], layers: Sequence[Weights], only_last: bool = False) -> Tensor:
    """Give ||dL~/dW^{2,l}||_F^2 of a network that ends with the last of `traces`, (draws, layers)."""
    matrices = [w.w2 for w in (layers[len(traces) - 1 : len(traces)] if only_last else layers[: len(traces)])]
    gradients = torch.autograd.grad(loss(layer_norm(traces[-1].output)), matrices, retain_graph=True)
    return torch.stack([square(g.flatten(1)) for g in gradients], dim=1)


def square(x: Tensor) -> Tensor:
    """||x||^2 of the last dimension."""
    return x.detach().square().sum(dim=-1)


def jacobian_norms(x: Tensor) -> tuple[Tensor, Tensor]:
    """Give the spectral norm of LN's Jacobian at each row of x by automatic differentiation, and sqrt(d)/||y||.

    y is x without its mean: Lemma 3's closed form, of which its O(sqrt(d)/||x||) is the leading order.
    """
    jacobians = torch.stack([torch.func.jacrev(layer_norm)(row) for row in x])
    centred = x - x.mean(dim=-1, keepdim=True)
    return torch.linalg.matrix_norm(jacobians, 2), x.shape[-1] ** 0.5 / centred.norm(dim=-1)


def measure(d: int, depths: Sequence[int], n: int, draws: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Measure `draws` networks of width d, each as Post-LN and as Pre-LN with the same matrices.

    A network of max(depths) layers holds those of fewer: the loss is put behind layer L for each L of depths.

    Returns by name, "post." or "pre." first:
    "attention", "middle", "ffn", "output": squared norms over d, mean over positions (draws, layers)
    "normed": of LN's output the largest distance of that from 1 (draws, layers)
    "positions": squared norms over d of the last output (draws, n)
    "factor": sqrt(d)/||y|| of the output, mean over positions (draws, layers)
    "last", "last_ce": ||dL~/dW^{2,L}||_F^2 behind each depth L (draws, depths), over d^2/n; of cross-entropy over d/n
    "gradient": ||dL~/dW^{2,l}||_F^2 over d^2/n in the deepest network (draws, layers), and of Post-LN "gradient_skip",
    where the FFN's branch is left out of the backward pass
    """
    layers = draw(d, max(depths), draws, generator)
    for w in layers:
        w.w2.requires_grad_()
    x = torch.randn(draws, n, d, generator=generator)
    losses = {"last": signs(x.shape, generator), "last_ce": cross_entropy(x.shape, generator)}
    units = {"last": n / d**2, "last_ce": n / d}
    found: dict[str, Tensor] = {}
    for norm in NORMS:
        traces = forward(norm, x, layers)
        for name in ("attention", "middle", "ffn", "output"):
            found[f"{norm}.{name}"] = _by_layer(traces, partial(_mean_square, name=name))
        found[f"{norm}.normed"] = _by_layer(traces, lambda t: (square(t.normed) / d - 1).abs().amax(dim=1))
        found[f"{norm}.factor"] = _by_layer(traces, _ln_factor)
        found[f"{norm}.positions"] = square(traces[-1].output) / d
        for name, loss in losses.items():
            last = [gradient_norms(loss, traces[:depth], layers, only_last=True) for depth in depths]
            found[f"{norm}.{name}"] = torch.cat(last, dim=1) * units[name]
        found[f"{norm}.gradient"] = gradient_norms(losses["last"], traces, layers) * units["last"]
    skip = forward("post", x, layers, ffn_backward=False)
    found["post.gradient_skip"] = gradient_norms(losses["last"], skip, layers) * units["last"]
    return found


def _by_layer(traces: Sequence[Trace], value: Callable[[Trace], Tensor]) -> Tensor:
    return torch.stack([value(trace) for trace in traces], dim=1)


def _mean_square(trace: Trace, name: str) -> Tensor:
    states: Tensor = getattr(trace, name)
    return square(states).mean(dim=1) / states.shape[-1]


def _ln_factor(trace: Trace) -> Tensor:
    x = trace.output.detach()
    return (x.shape[-1] ** 0.5 / (x - x.mean(dim=-1, keepdim=True)).norm(dim=-1)).mean(dim=1)
