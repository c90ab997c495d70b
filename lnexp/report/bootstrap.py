"""How surely means over seeds differ: Welch's t interval, and the bootstrap over seeds. Standard library only.

In: one or two samples, a number a seed. Out: intervals of the difference, and the resamples it was counted over.
Seeds of the two sides are not paired: a seed fixes initialisation and batch order, but configurations that differ in
the warm-up or the model soon have nothing else in common, and unpaired intervals do not lean on it if they have.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement, product
from operator import itemgetter

from lnexp.report.interval import Sample, t_quantile

MOST_EXACT = 5
"""Seeds a side up to which every resample is counted: 5 to the 5th a side, in 126 kinds."""
DRAWS = 2_000
"""Resamples beyond that; a share counted over so many is off by 1% (one standard error) at most."""


def welch(a: Sample, b: Sample, level: float = 0.95) -> tuple[float, float] | None:
    """Give the interval of mean(b) - mean(a) for unequal variances (Welch, 1947); None where a side has one seed."""
    if a.sd is None or b.sd is None:
        return None
    parts = [sample.sd**2 / sample.n for sample in (a, b) if sample.sd is not None]
    middle, variance = b.mean - a.mean, math.fsum(parts)
    if not variance:
        return middle, middle
    # Welch-Satterthwaite; never below the smaller side's n - 1, but for rounding.
    df = max(1.0, variance**2 / math.fsum(p**2 / (s.n - 1) for p, s in zip(parts, (a, b), strict=True)))
    half = t_quantile(df, level) * math.sqrt(variance)
    return middle - half, middle + half


@dataclass(frozen=True)
class Resamples:
    """What seeds drawn anew, with replacement, would have given: a mean, or a difference of two."""

    values: tuple[tuple[float, float], ...]
    """Value and its share of the resamples; values ascend, shares add up to 1."""
    count: int
    """Resamples that were counted; all there are, if `exact`."""
    exact: bool

    def share(self, low: float, high: float) -> float:
        """Give the share of resamples from `low` to `high`, both included."""
        return math.fsum(share for value, share in self.values if low <= value <= high)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Give the percentile interval: the least values that (1 - level)/2 and (1 + level)/2 do not lie above."""
        return self._quantile((1 - level) / 2), self._quantile((1 + level) / 2)

    def _quantile(self, q: float) -> float:
        below = 0.0
        for value, share in self.values:
            below += share
            if below >= q - 1e-12:
                return value
        return self.values[-1][0]


def resample(a: Sample, b: Sample | None = None) -> Resamples:
    """Draw seeds anew on each side: the mean of `a`, or mean(b) - mean(a).

    Up to MOST_EXACT seeds a side every resample is counted (3 and 3 seeds: 27 times 27 = 729, of 10 times 10 kinds);
    above, DRAWS of them are drawn, the same ones each time.
    """
    sides = [side for side in (a, b) if side is not None]
    shares: Counter[float] = Counter()
    if max(side.n for side in sides) > MOST_EXACT:
        drawn = zip(*(_drawn_means(side.values, stream) for stream, side in enumerate(sides)), strict=True)
        shares.update(map(_difference, drawn))
        return _resamples(shares, DRAWS, False)
    for means in product(*(_all_means(side.values) for side in sides)):
        shares[_difference([mean for mean, _ in means])] += math.prod(times for _, times in means)
    return _resamples(shares, math.prod(side.n**side.n for side in sides), True)


def _resamples(shares: Counter[float], count: int, exact: bool) -> Resamples:
    return Resamples(tuple(sorted((value, times / count) for value, times in shares.items())), count, exact)


@lru_cache(maxsize=64)
def _draws(n: int, stream: int) -> tuple[Callable[[Sequence[float]], Sequence[float]], ...]:
    """Give DRAWS ways to draw n of n; two streams, so that two samples of a size are not drawn alike."""
    draw = random.Random(stream)
    return tuple(itemgetter(*draw.choices(range(n), k=n)) for _ in range(DRAWS))


@lru_cache(maxsize=1024)
def _drawn_means(values: tuple[float, ...], stream: int) -> tuple[float, ...]:
    n = len(values)
    return tuple(math.fsum(take(values)) / n for take in _draws(n, stream))


def _all_means(values: Sequence[float]) -> list[tuple[float, int]]:
    """Give the mean of every multiset of n of the n values, and in how many orders it can be drawn."""
    n = len(values)
    found = []
    for chosen in combinations_with_replacement(range(n), n):
        orders = math.factorial(n)
        for times in Counter(chosen).values():
            orders //= math.factorial(times)
        found.append((math.fsum(values[i] for i in chosen) / n, orders))
    return found


def _difference(means: Sequence[float]) -> float:
    return means[0] if len(means) == 1 else means[1] - means[0]
