"""Section 3.3's lemmas and Theorem 1 as statements: predicted, measured on the simplified network, tolerance, holds.

Predicted values come from the paper ("paper") or from closed forms for infinite width that follow from it ("closed
form", meanfield.py), never from a measurement. All are scaled so that one prediction serves every layer. "Behind l
layers" is the paper's x_l with the input as x_0. Lemma 5 (reverse Markov) is mathematics and is not measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import Tensor

from lnexp import meanfield, theory
from lnexp.statement import Claim, Statement, exactly, standard_error

DEPTHS = (6, 8, 10, 12, 14)
POSITIONS = 8
DRAWS = {128: 800, 256: 400, 512: 200}
"""Networks by width: a norm's relative spread is some 1.3/sqrt(d), so each width ends with the same standard error."""
_AT_ONCE = 2**18  # numbers in one matrix of a batch of networks: 16 of width 128, one of 512
_EPSILONS = (0.1, 0.25)
_CLOSED = "closed form"
_SAMPLED = 0.02  # at the ends of bounds that deep layers reach: what sampling alone may add
NOTES = (
    f"Networks of Section 3.3 at initialisation: {DEPTHS[-1]} layers (L = those in front of the loss), n = {POSITIONS} "
    f"positions, {', '.join(f'{n} draws at d={d}' for d, n in DRAWS.items())}. One value: mean ± standard error over "
    "draws; several: the lowest and the highest, each judged by itself.",
    "L in dL is the mean over positions of a loss with derivatives 1 or -1, their signs drawn for each position; "
    "cross-entropy is that of random labels under a random linear read-out. ‖.‖ of a gradient is its Frobenius norm, "
    "of a Jacobian its spectral norm; gradients are root mean squares over draws.",
    "Closed form: the same network at infinite width (lnexp/meanfield.py). Lemma 2's bounds are its ends, positions "
    "with nothing in common and positions that are equal.",
    "Appendix F, an estimate: it takes √(2/3), the factor of LN's Jacobian, for a whole layer. That is the measured "
    "ratio where the FFN's branch is left out of the backward pass (from l = 3 on, where positions have become alike). "
    "With it, the branch that makes the squared norm 3/2 in the forward pass makes the squared gradient 3/2 in the "
    "backward pass, which cancels the 2/3, and attention cancels its LN likewise: in this network the gradient of W² "
    "is about the same in all layers of Post-LN.",
)


def examine(
    step: Callable[[int], None] = lambda d: None, draws: dict[int, int] = DRAWS, seed: int = 1
) -> list[Statement]:
    """Measure every statement at the widths of `draws` (width: networks); `step` hears the width of each batch done."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # matrices meet eight rows at a time: a second thread doubles the work and saves no time
    try:
        return _examine(step, draws, torch.Generator().manual_seed(seed))
    finally:
        torch.set_num_threads(threads)


def _examine(step: Callable[[int], None], draws: dict[int, int], generator: torch.Generator) -> list[Statement]:
    found: list[Statement] = []
    last: dict[int, dict[str, Tensor]] = {}
    for d, networks in draws.items():
        parts = []
        for batch in _batches(d, networks):
            parts.append(theory.measure(d, DEPTHS, POSITIONS, batch, generator))
            step(d)
        m = last[d] = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        found += [*_plain(d, generator), *_hidden(d, m), *_bounded(d, m, generator)]
        found += [*_last_by_depth(d, m), *_bound(d, m), *_lower(d, m)]
        if d // 2 in last:
            found += _by_width(d, last[d // 2], m)
    return found


def steps(draws: dict[int, int] = DRAWS) -> int:
    """Give how often `step` will be called; each batch takes about the same time."""
    return sum(len(_batches(d, networks)) for d, networks in draws.items())


def _batches(d: int, networks: int) -> list[int]:
    size = max(1, _AT_ONCE // d**2)
    return [min(size, networks - done) for done in range(0, networks, size)]


def _plain(d: int, generator: torch.Generator) -> Iterator[Statement]:
    """Lemmas 1 and 3, which need no network."""
    lemma1 = exactly("E‖ReLU(X)‖² / (s² d)", "Lemma 1", "1/2", 0.5, 0.01)
    for s in (1, 3):
        x = torch.relu(s * torch.randn(5000, d, generator=generator))
        yield from lemma1.each(d, (theory.square(x) / (s * s * d))[:, None], "s", (s,))
    x = torch.randn(4, d, generator=generator, dtype=torch.float64) * torch.tensor([[0.1], [1.0], [3.0], [30.0]])
    automatic, closed = theory.jacobian_norms(x)
    off = float((automatic / closed - 1).abs().max())
    lemma3 = Claim("‖J_LN(x)‖ by autograd, √d/‖y‖: relative difference", "Lemma 3", "0", 0, 1e-6)
    yield lemma3.of(d, "four lengths of x", off, 0.0, len(x))


def _hidden(d: int, m: dict[str, Tensor]) -> Iterator[Statement]:
    """Lemma 2, and what each sub-layer adds."""
    unit = Claim("‖LN(x)‖² / d: largest distance from 1", "Section 3.3", "0", 0, 1e-5)
    for norm in theory.NORMS:
        yield unit.of(d, f"{norm.title()}-LN", float(m[f"{norm}.normed"].max()), 0.0, len(m[f"{norm}.normed"]))
    proof, depth = "Lemma 2, proof", torch.arange(1, DEPTHS[-1] + 1)
    added = (m["pre.output"] - m["pre.middle"]).mean(dim=1)
    post, pre = (
        torch.tensor([x.middle for x in meanfield.layers(norm, DEPTHS[-1], POSITIONS)]) for norm in theory.NORMS
    )
    by_layer = (
        (exactly("E‖x^{post,5}‖² / d", "Lemma 2, Post", "3/2", 1.5, 0.02), m["post.output"]),
        (exactly("FFN: E‖x^{post,4}‖² / d", proof, "1/2", 0.5, 0.03), m["post.ffn"]),
        (Claim("E‖x^{post,2}‖² / d", proof, "1 to 2", 1, 2, _SAMPLED), m["post.middle"]),
        (exactly("E‖x^{post,2}‖² over the closed form", proof, "1", 1, 0.03, _CLOSED), m["post.middle"] / post),
        (Claim("(E‖x^{pre}‖² / d − 1) / l, behind l layers", "Lemma 2, Pre", "1/2 to 3/2", 0.5, 1.5),
         (m["pre.output"] - 1) / depth),
        (exactly("FFN adds E‖x^{pre,5}‖² / d", proof, "1/2", 0.5, 0.03), m["pre.ffn"]),
        (Claim("attention adds E‖x^{pre,2}‖² / d", proof, "0 to 1", 0, 1, _SAMPLED), m["pre.attention"]),
        (exactly("E‖x^{pre,3}‖² over the closed form", proof, "1", 1, 0.03, _CLOSED), m["pre.middle"] / pre),
    )  # fmt: skip
    for claim, values in by_layer:
        yield from claim.each(d, values)
    whole = exactly("E‖x^{pre}‖² behind the FFN less that before it, over d", proof, "1/2", 0.5, 0.03)
    yield whole.of(d, "mean over l", float(added.mean()), float(standard_error(added)), len(added))


def _bounded(d: int, m: dict[str, Tensor], generator: torch.Generator) -> Iterator[Statement]:
    """Definition 1: how often Z exceeds (1 + eps) EZ. Only the Gaussian's delta is proved; it serves as the measure."""
    gaussian = theory.square(torch.randn(20000, d, generator=generator))[:, None]
    at = f"L = {DEPTHS[-1]}"
    for symbol, where, z in (
        ("‖Y‖², Y Gaussian", "", gaussian),
        ("‖x^{post,5}‖²", at, m["post.positions"]),
        ("‖x^{pre}‖²", at, m["pre.positions"]),
    ):
        limits = [(eps, math.exp(-d * eps * eps / 8), f"≤ exp(−d {eps}²/8)", "Definition 1") for eps in _EPSILONS]
        if where and d == 512:  # the paper's width; it found this in its real model
            limits.append((0.1, 0.125, "≤ 0.125", "Section 3.4"))
        for eps, delta, words, locus in limits:
            share = (z > (1 + eps) * z.mean()).float().mean(dim=1)
            claim = Claim(f"{symbol}: share above (1 + {eps}) of the mean", locus, words, 0, delta)
            yield claim.of(d, where, float(share.mean()), float(standard_error(share)), len(z))


def _last_by_depth(d: int, m: dict[str, Tensor]) -> Iterator[Statement]:
    """Theorem 1: the last FFN's W^2 in networks of L layers."""
    unit, locus = "‖dL/dW^{2,L}‖ √n/d", "Theorem 1"
    flat = exactly(f"{unit}, Post", locus, "1/√3", 1 / math.sqrt(3), 0.05, _CLOSED)
    fall = exactly(f"{unit} over the closed form's, Pre", locus, "1", 1, 0.05, _CLOSED)
    slope = Claim(f"c in {unit} = 1/√(2(1 + cL)), Pre", locus, "1/2 to 3/2", 0.5, 1.5)
    for column, depth in enumerate(DEPTHS):
        at, pre = f"L = {depth}", m["pre.last"][:, column]
        yield flat.ratio(d, at, m["post.last"][:, column])
        yield fall.ratio(d, at, pre, expected=_last("pre", depth))
        mean, error = float(pre.mean()), float(standard_error(pre))
        yield slope.of(d, at, (1 / (2 * mean) - 1) / depth, error / (2 * mean**2 * depth), len(pre))
    name = f"‖dL/dW^{{2,L}}‖ at L = {DEPTHS[-1]} over L = {DEPTHS[0]}"
    less = _last("pre", DEPTHS[-1]) / _last("pre", DEPTHS[0])
    for key, loss in (("last", "signs"), ("last_ce", "cross-entropy")):
        for claim, squares in (
            (exactly(f"{name}, Post", locus, "1", 1, 0.10), m[f"post.{key}"]),
            (exactly(f"{name}, Pre", locus, f"{less:.3f}", less, 0.05, _CLOSED), m[f"pre.{key}"]),
        ):
            yield claim.ratio(d, loss, squares[:, -1], squares[:, 0])


def _last(norm: str, depth: int) -> float:
    return meanfield.layers(norm, depth, POSITIONS)[-1].gradient


def _bound(d: int, m: dict[str, Tensor]) -> Iterator[Statement]:
    """Theorem 1's bound, with its proof's constants: ReLU(.)^2 <= 2 ln(100 d), |dL_i/dx| <= 1, LN's Jacobian."""
    eps = _EPSILONS[-1]
    surely = 0.99 - math.exp(-d * eps * eps / 8) - eps / (0.9 + eps)
    words = f"≥ 0.99 − exp(−d {eps}²/8) − {eps}/(0.9 + {eps})"
    for norm in theory.NORMS:
        q = meanfield.layers(norm, DEPTHS[-1], POSITIONS)[-1].output
        within = (m[f"{norm}.last"][:, -1] / POSITIONS <= 2 * math.log(100 * d) / q).float()
        name = f"draws with ‖dL/dW^{{2,L}}‖ ≤ d √(2 ln(100 d) d/E‖x‖²), {norm.title()}"
        claim = Claim(name, "Theorem 1", words, surely, 1.0)
        yield claim.of(d, f"L = {DEPTHS[-1]}", float(within.mean()), float(standard_error(within)), len(within))


def _by_width(d: int, narrow: dict[str, Tensor], wide: dict[str, Tensor]) -> Iterator[Statement]:
    """Theorem 1's growth with d; its bound allows a factor √(ln d) more."""
    for norm in theory.NORMS:
        claim = exactly(f"‖dL/dW^{{2,L}}‖ at d over d/2, {norm.title()}", "Theorem 1", "2", 2, 0.05, _CLOSED)
        for column in (0, -1):
            above, below = 4 * wide[f"{norm}.last"][:, column], narrow[f"{norm}.last"][:, column]  # both were over d^2
            yield claim.ratio(d, f"L = {DEPTHS[column]}", above, below)


def _lower(d: int, m: dict[str, Tensor]) -> Iterator[Statement]:
    """Appendix F: the layers below the last one, in the deepest network."""
    locus, words, root = "Appendix F", "√(2/3)", math.sqrt(2 / 3)
    ratio = "‖dL/dW^{2,l}‖ over that of l + 1"
    yield from exactly("√d/‖y‖ of the LN behind x^{post,5}", locus, words, root, 0.02).each(d, m["post.factor"])
    skip = exactly(f"{ratio}, Post, FFN's Jacobian counted as 1", locus, words, root, 0.05)
    for layer, (below, above) in _steps(m["post.gradient_skip"]):
        if layer >= 3:  # before, positions are not alike yet and attention's backward pass outweighs its LN
            yield skip.ratio(d, f"l = {layer}", below, above)
    estimate = Claim(f"{ratio}, Post", locus, words, root, root, 0.05, judged=False)
    for layer, (below, above) in _steps(m["post.gradient"]):
        yield estimate.ratio(d, f"l = {layer}", below, above)
    for norm in theory.NORMS:
        truth = exactly(f"{ratio}, over the closed form's, {norm.title()}", locus, "1", 1, 0.05, _CLOSED)
        closed = meanfield.layers(norm, DEPTHS[-1], POSITIONS)
        for layer, (below, above) in _steps(m[f"{norm}.gradient"]):
            yield truth.ratio(d, f"l = {layer}", below, above, closed[layer - 1].gradient / closed[layer].gradient)


def _steps(squares: Tensor) -> Iterator[tuple[int, tuple[Tensor, Tensor]]]:
    """Give l and the squares of layers l and l + 1 for each l but the last, counted from 1."""
    yield from enumerate(pairwise(squares.unbind(dim=1)), start=1)
