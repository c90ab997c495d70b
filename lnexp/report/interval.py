"""Numbers over seeds in; mean, standard deviation and the 95% Student t interval out. Standard library only."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """Finite numbers, one a seed."""

    values: tuple[float, ...]

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        return math.fsum(self.values) / self.n

    @property
    def sd(self) -> float | None:
        """Standard deviation over n - 1; None for one value."""
        if self.n < 2:
            return None
        return math.sqrt(math.fsum((v - self.mean) ** 2 for v in self.values) / (self.n - 1))

    @property
    def half_width(self) -> float | None:
        """Half of the 95% Student t interval of the mean; None for one value."""
        return None if self.sd is None else t_quantile(self.n - 1) * self.sd / math.sqrt(self.n)


def t_quantile(df: int, level: float = 0.95) -> float:
    """Give the two-sided Student t quantile: t_quantile(2) = 4.303. Exact closed form for whole df, inverted."""
    low, high = 0.0, math.pi / 2
    for _ in range(80):  # halves the angle's bracket to the last bit
        middle = (low + high) / 2
        low, high = (middle, high) if _t_within(middle, df) < level else (low, middle)
    return math.sqrt(df) * math.tan((low + high) / 2)


def _t_within(angle: float, df: int) -> float:
    """P(|T| <= sqrt(df) tan(angle)) for Student's T (Abramowitz & Stegun 26.7.3 and 26.7.4)."""
    cosine, total, term = math.cos(angle), 0.0, 1.0
    if df % 2 == 0:
        for k in range(df // 2):
            term *= (2 * k - 1) / (2 * k) * cosine**2 if k else 1.0
            total += term
        return math.sin(angle) * total
    for k in range((df - 1) // 2):
        term *= 2 * k / (2 * k + 1) * cosine**2 if k else cosine
        total += term
    return 2 / math.pi * (angle + math.sin(angle) * total)
