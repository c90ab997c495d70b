"""What Section 3 of the paper speaks of, measured in a model: plain torch hooks on any module, nothing of fairseq.

In: a model and some batches, each a loss to call and the rows that are no padding. Out: {quantity: {module: value}}.
Nothing is left behind: no hook, no gradient, no random number drawn; only `step`, where given, moves parameters.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

QUANTITIES = {
    "grad_norm_of_mean": "Frobenius norm of the gradient's mean over batches (Figure 3), nats a token",
    "grad_mean_of_norms": "mean over batches of the gradient's Frobenius norm, nats a token",
    "hidden_norm": "root of the mean squared norm of what goes into a LayerNorm (Lemma 2: its square over d)",
    "ln_jacobian": "mean of sqrt(d) / |y|, y the centred input of a LayerNorm: the norm of its Jacobian (Lemma 3)",
    "attention_entropy": "entropy of attention over that of uniform attention: 1 = uniform, 0 = one key",
    "update_ratio": "Frobenius norm of one update over that of the matrix",
}
"""What is measured -> its meaning."""

Values = dict[str, dict[str, float]]
"""{quantity: {module: value}}"""
Scores = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Tensor]
"""Of an attention module and its call: scores before the softmax, sentences x heads x queries x keys, -inf = hidden."""


@dataclass(frozen=True)
class Batch:
    """One batch of a model's input."""

    loss: Callable[[], Tensor]
    """Runs the model; gives the mean loss a token, nats."""
    real: Mapping[str, Tensor] = field(default_factory=dict)
    """Stack, the first word of a module's name -> which rows are no padding, length x sentences. Absent = all are."""


def matrices(named: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """Keep the matrices of named parameters, under their module's name: decoder.layers.5.fc2."""
    return {name.removesuffix(".weight"): p for name, p in named if p.dim() >= 2}


def norms(tensors: Mapping[str, Tensor], scale: float = 1.0) -> dict[str, float]:
    """Give the Frobenius norm of each, times `scale`."""
    found = torch.stack(torch._foreach_norm(list(tensors.values()))) * scale
    return dict(zip(tensors, found.tolist(), strict=True))


def ratios(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> dict[str, float]:
    """Give |after - before| / |before| of each matrix; one that was zero has none."""
    size = norms(before)
    moved = norms({name: after[name].detach() - old for name, old in before.items()})
    return {name: moved[name] / size[name] for name in before if size[name]}


class Activations:
    """Sums over the rows that pass through LayerNorms and attentions while it watches."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], Tensor] = {}
        self._counts: dict[tuple[str, str], Tensor] = {}

    @contextmanager
    def watching(self, model: nn.Module, real: Mapping[str, Tensor], attentions: Mapping[str, nn.Module],
                 scores: Scores) -> Iterator[None]:  # fmt: skip
        """Watch every LayerNorm of `model`, and the `attentions` by name."""

        def rows(name: str) -> Tensor | None:
            return real.get(name.partition(".")[0])

        with ExitStack() as hooks:
            for name, module in model.named_modules():
                if isinstance(module, nn.LayerNorm):
                    hook = module.register_forward_pre_hook(lambda _, args, n=name: self._norm(n, args[0], rows(n)))
                    hooks.callback(hook.remove)
            for name, module in attentions.items():
                call = lambda m, args, more, n=name: self._attention(n, scores(m, args, more), rows(n))  # noqa: E731
                hooks.callback(module.register_forward_pre_hook(call, with_kwargs=True).remove)
            yield

    @torch.no_grad()
    def _norm(self, name: str, x: Tensor, real: Tensor | None) -> None:
        """x: length x sentences x d."""
        squares = x.square().sum(-1)
        centred = (squares - x.size(-1) * x.mean(-1).square()).clamp(min=0).sqrt()
        keep = torch.ones_like(squares, dtype=torch.bool) if real is None else real
        self._add("hidden_norm", name, squares[keep].sum(), keep.sum())
        self._add("ln_jacobian", name, (math.sqrt(x.size(-1)) / centred[keep]).sum(), keep.sum())

    @torch.no_grad()
    def _attention(self, name: str, scores: Tensor, real: Tensor | None) -> None:
        log = scores.log_softmax(-1)
        entropy = -(log.exp() * log.masked_fill(log == -torch.inf, 0)).sum(-1)
        most = (scores > -torch.inf).sum(-1).to(entropy.dtype).log()
        keep = torch.ones_like(most) if real is None else real.t()[:, None].to(most.dtype)
        self._add("attention_entropy", name, (entropy * keep).sum(), (most * keep).sum())

    def _add(self, quantity: str, name: str, total: Tensor, count: Tensor) -> None:
        key = quantity, name
        self._sums[key] = self._sums.get(key, 0) + total
        self._counts[key] = self._counts.get(key, 0) + count

    def values(self) -> Values:
        """Give the means over all rows seen."""
        found: Values = defaultdict(dict)
        for (quantity, name), total in self._sums.items():
            mean = float(total) / max(float(self._counts[quantity, name]), 1e-30)
            found[quantity][name] = math.sqrt(mean) if quantity == "hidden_norm" else mean
        return dict(found)


def measure(
    model: nn.Module,
    batches: Sequence[Batch],
    attentions: Mapping[str, nn.Module],
    scores: Scores,
    step: Callable[[dict[str, Tensor]], None] | None = None,
) -> Values:
    """Measure all of QUANTITIES; `step` takes the mean gradient by parameter and does the update that is measured."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    means = {name: torch.zeros_like(p) for name, p in named.items()}
    of_norms: dict[str, float] = defaultdict(float)
    seen = Activations()
    for batch in batches:
        with seen.watching(model, batch.real, attentions, scores):
            loss = batch.loss()
        found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        grads = {name: g for name, g in zip(named, found, strict=True) if g is not None}
        for name, grad in grads.items():
            means[name].add_(grad, alpha=1 / len(batches))
        for name, value in norms(matrices(grads.items())).items():
            of_norms[name] += value / len(batches)
    values = {
        "grad_norm_of_mean": norms(matrices(means.items())),
        "grad_mean_of_norms": dict(of_norms),
        **seen.values(),
    }
    if step:
        before = {name: p.detach().clone() for name, p in matrices(named.items()).items()}
        step(means)
        values["update_ratio"] = ratios(before, matrices(named.items()))
    return values
