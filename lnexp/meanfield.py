"""The simplified network of Section 3.3 at infinite width, in closed form: hidden norms and gradients by layer.

In: the placement of layer normalization, depth, positions. Out: one `Layer` each, in units of the width d. The paper
bounds what hangs on how alike the positions are; here that is followed exactly, by the arc-cosine kernels of Cho and
Saul (2009), so that a measurement has a number to be held against and not only an order of growth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    """One layer; q is E||x||^2 / d of a position, rho the cosine of two positions."""

    attention: float
    """What attention adds: E||(1/n) sum_j x_j||^2 / d, of LN(x_j) in Pre-LN."""
    middle: float
    """q behind the attention's residual: x^{post,2}, x^{pre,3}."""
    output: float
    """q at the layer's end: x^{post,5}, x^{pre}_{l+1}."""
    gradient: float = math.nan
    """sqrt(E||dL~/dW^{2,l}||_F^2) sqrt(n)/d, where dL_i/dx_i has norm sqrt(d) and is independent between positions."""


def relu_kernel(rho: float) -> float:
    """E[ReLU(u) ReLU(v)] of standard Gaussians with correlation rho; 1/2 at rho = 1 (Lemma 1)."""
    rho = min(rho, 1.0)
    return (math.sqrt(1 - rho * rho) + (math.pi - math.acos(rho)) * rho) / (2 * math.pi)


def step_kernel(rho: float) -> float:
    """P(u > 0, v > 0) of standard Gaussians with correlation rho; 1/2 at rho = 1."""
    return (math.pi - math.acos(min(rho, 1.0))) / (2 * math.pi)


def layers(norm: str, depth: int, n: int, ffn_backward: bool = True) -> list[Layer]:
    """Give the layers l = 1..depth of a network that reads n independent standard Gaussian positions.

    `norm` is "post" or "pre". With ffn_backward=False the gradient passes the FFN by its residual path alone.
    """
    found, alike = [], []
    q, rho = 1.0, 0.0
    for _ in range(depth):
        attention = (1 + (n - 1) * rho) / n
        before = 1.0 if norm == "post" else q
        middle = before + attention
        rho = (before * rho + attention) / middle
        base = 1.0 if norm == "post" else middle  # Post-LN normalises here, before the FFN
        q = base + 0.5
        alike.append((before, rho))
        found.append(Layer(attention, middle, q))
        rho = (base * rho + relu_kernel(rho)) / q
    return _with_gradients(norm, found, alike, n, ffn_backward)


def _with_gradients(
    norm: str, forward: list[Layer], alike: list[tuple[float, float]], n: int, ffn_backward: bool
) -> list[Layer]:
    """Follow E<g_i, g_i>/d (own) and E<g_i, g_j>/d (other) of the positions' gradients, from the last layer down."""
    found = []
    own, other = 1 / forward[-1].output, 0.0  # behind the last LN: Post-LN's own, Pre-LN's final one
    for index, layer in reversed(list(enumerate(forward))):
        before, rho = alike[index]
        if norm == "post" and index + 1 < len(forward):
            own, other = own / layer.output, other / layer.output
        gradient = math.sqrt(0.5 * own + (n - 1) * relu_kernel(rho) * other)
        found.append(Layer(layer.attention, layer.middle, layer.output, gradient))
        scale = 1.0 if norm == "post" else layer.middle  # Pre-LN's branch begins with the LN of x^{pre,3}
        if ffn_backward:
            own, other = own * (1 + 0.5 / scale), other * (1 + step_kernel(rho) / scale)
        if norm == "post":
            own, other = own / layer.middle, other / layer.middle
        shared = (own + (n - 1) * other) / n / (1.0 if norm == "post" else before)
        own, other = own + shared, other + shared
    return found[::-1]
