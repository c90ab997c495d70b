"""All parameters of a model in one block of memory, and all gradients in another.

An optimizer's step, the norm of the gradient, its scaling and its deletion are then one operation each, whatever the
number of matrices; and the projections of an attention lie next to each other, so that they can be one product.
The model keeps its parameters by name: they become views.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Flat:
    """`values` (a Parameter with its `grad`) is what the optimizer sees; `order` names what lies in it."""

    def __init__(self, model: nn.Module) -> None:
        named = list(_ordered(model))
        self.order = [name for name, _ in named]
        self.parameters = [p for _, p in named]
        first = self.parameters[0]
        total = sum(p.numel() for p in self.parameters)
        self.values = nn.Parameter(first.new_empty(total))
        self.values.grad = self.grad = torch.zeros_like(self.values)
        self.half: Tensor | None = None
        """What the products of one pass write as gradients, where they compute in a half type."""
        self.steps = 0
        """Of the optimizer; its fused kernels leave torch's own count of changes as it was."""
        self._places: dict[int, int] = {}
        place = 0
        with torch.no_grad():
            for p in self.parameters:
                self._places[id(p)] = place
                self.values[place : place + p.numel()] = p.flatten()
                place += p.numel()
        for p in self.parameters:
            p.data, p.grad = self.block([p], self.values.data), self.block([p], self.grad)

    def block(self, parameters: Sequence[Tensor], values: Tensor) -> Tensor:
        """Give the place of neighbours in `values`, laid out as this is, as one tensor of all their rows."""
        places = [self._places[id(p)] for p in parameters]
        ends = [place + p.numel() for place, p in zip(places, parameters, strict=True)]
        assert places[1:] == ends[:-1], "not neighbours"
        rows = sum(p.size(0) for p in parameters)
        return values[places[0] : ends[-1]].view(rows, *parameters[0].shape[1:])

    def collect(self) -> None:
        """Add what a backward pass left in the half type to the gradients."""
        if self.half is not None:
            self.grad.add_(self.half)

    def version(self) -> int:
        """Give a number that is another one whenever a parameter may have changed."""
        return self.steps + self.values._version + sum(p._version for p in self.parameters)


def _ordered(model: Any) -> Iterator[tuple[str, nn.Parameter]]:
    """Give each trained parameter once, with its name; query, key and value of an attention side by side."""
    seen: set[int] = set()
    for name, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if hasattr(module, "q_proj"):
            own = {f"{part}_proj.{kind}": getattr(getattr(module, f"{part}_proj"), kind)
                   for kind in ("weight", "bias") for part in "qkv"}  # fmt: skip
        for key, p in own.items():
            if p is not None and p.requires_grad and id(p) not in seen:
                seen.add(id(p))
                yield f"{name}.{key}", p
