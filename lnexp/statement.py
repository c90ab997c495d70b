"""A statement that can be measured, as data: what is predicted and by whom, what was measured, and whether it holds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Statement:
    """One claim at one width, and at one layer, depth or setting `at`."""

    name: str
    locus: str
    source: str
    """Where the prediction is from: "paper" or "closed form"."""
    predicted: str
    """As a formula, in the units of `name`."""
    at: str
    d: int
    low: float
    high: float
    measured: float
    error: float
    """Standard error of `measured` over the draws."""
    draws: int
    tolerance: float = 0.0
    """Relative, of `low` and `high`: sampling error and finite width."""
    judged: bool = True
    """False: an estimate of the paper that is shown beside the truth, not a claim that could fail."""

    @property
    def holds(self) -> bool:
        return self.low * (1 - self.tolerance) <= self.measured <= self.high * (1 + self.tolerance)

    def row(self) -> dict[str, Any]:
        """Give plain data, "holds" with it."""
        return {**asdict(self), "holds": self.holds}


@dataclass(frozen=True)
class Claim:
    """What all statements of one name share."""

    name: str
    locus: str
    predicted: str
    low: float
    high: float
    tolerance: float = 0.0
    source: str = "paper"
    judged: bool = True

    def of(self, d: int, at: str, measured: float, error: float, draws: int) -> Statement:
        return Statement(self.name, self.locus, self.source, self.predicted, at, d, self.low, self.high,
                         measured, error, draws, self.tolerance, self.judged)  # fmt: skip

    def each(self, d: int, values: Tensor, index: str = "l", at: tuple[int, ...] | None = None) -> Iterator[Statement]:
        """Give a statement for each column of values, (draws, columns): its mean."""
        names = at or range(1, values.shape[1] + 1)
        mean, error = values.mean(0).tolist(), standard_error(values).tolist()
        for column, m, e in zip(names, mean, error, strict=True):
            yield self.of(d, f"{index} = {column}", m, e, len(values))

    def ratio(self, d: int, at: str, top: Tensor, bottom: Tensor | None = None, expected: float = 1.0) -> Statement:
        """State the ratio of two root mean squares over its expected value, given the squares by draw; bottom None = 1.

        Squares of the same draws stand in the same order, and what is common to both leaves the error.
        """
        share, mean = top / top.mean(), float(top.mean())
        error = standard_error(share)
        if bottom is not None:
            other, mean = bottom / bottom.mean(), mean / float(bottom.mean())
            paired = len(top) == len(bottom)
            error = standard_error(share - other) if paired else error.hypot(standard_error(other))
        value = math.sqrt(mean) / expected
        return self.of(d, at, value, value * float(error) / 2, len(top))


def standard_error(values: Tensor) -> Tensor:
    """Give that of the mean over draws, the first dimension."""
    return values.std(0) / math.sqrt(len(values))


def exactly(name: str, locus: str, predicted: str, value: float, tolerance: float, source: str = "paper") -> Claim:
    """Give a claim of one value instead of bounds."""
    return Claim(name, locus, predicted, value, value, tolerance, source)
