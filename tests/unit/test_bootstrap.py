"""Intervals and resamples over seeds: against scipy, closed forms and plain enumeration."""

from __future__ import annotations

import itertools
import math

import pytest

from lnexp.report.bootstrap import DRAWS, resample, welch
from lnexp.report.interval import Sample, t_quantile

FIXTURES = [
    ((31.2, 30.7, 29.9), (33.4, 33.1, 34.2)),
    ((0.8, 0.1, 0.0), (33.9, 33.1, 34.4)),
    ((8.1, 8.3), (8.2, 12.9, 10.0, 7.5)),
    ((4.31, 4.28, 4.35, 4.30, 4.33, 4.29, 4.40), (4.18, 4.22, 4.15)),
]


@pytest.mark.parametrize(("a", "b"), FIXTURES)
def test_welch_against_scipy(a: tuple[float, ...], b: tuple[float, ...]) -> None:
    stats = pytest.importorskip("scipy.stats")
    for level in (0.9, 0.95):
        theirs = stats.ttest_ind(b, a, equal_var=False).confidence_interval(level)
        ours = welch(Sample(a), Sample(b), level)
        assert ours == pytest.approx((theirs.low, theirs.high), rel=1e-8)


def test_welch_by_hand() -> None:
    """Means 2 and 5, variances 1 and 4 over 3 and 3: se^2 = 5/3, df = (5/3)^2 / ((1/3)^2/2 + (4/3)^2/2) = 50/17."""
    low, high = welch(Sample((1.0, 2.0, 3.0)), Sample((3.0, 5.0, 7.0))) or (0.0, 0.0)
    half = t_quantile(50 / 17) * math.sqrt(5 / 3)
    assert (low, high) == pytest.approx((3 - half, 3 + half), rel=1e-12)
    assert t_quantile(2) > t_quantile(50 / 17) > t_quantile(3)


def test_welch_at_its_edges() -> None:
    assert welch(Sample((1.0,)), Sample((3.0, 5.0))) is None
    assert welch(Sample((0.0, 0.0)), Sample((2.0, 2.0))) == (2.0, 2.0)
    low, high = welch(Sample((0.0, 0.0)), Sample((2.0, 4.0))) or (0.0, 0.0)  # one side without spread: its df is 1
    assert (low, high) == pytest.approx((3 - t_quantile(1), 3 + t_quantile(1)), rel=1e-9)


@pytest.mark.parametrize("df", [1, 1.3, 1.9, 2.5, 3.99, 17.2, 250.5])
def test_student_t_of_a_fraction_against_scipy(df: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    assert t_quantile(df) == pytest.approx(stats.t.ppf(0.975, df), rel=2e-9)
    assert t_quantile(df, 0.9) == pytest.approx(stats.t.ppf(0.95, df), rel=2e-9)


@pytest.mark.parametrize(("a", "b"), FIXTURES[:3])
def test_every_resample_is_counted_once(a: tuple[float, ...], b: tuple[float, ...]) -> None:
    plain = [
        math.fsum(y) / len(b) - math.fsum(x) / len(a)
        for x in itertools.product(a, repeat=len(a))
        for y in itertools.product(b, repeat=len(b))
    ]
    found = resample(Sample(a), Sample(b))
    assert found.exact and found.count == len(plain)
    assert math.fsum(share for _, share in found.values) == pytest.approx(1)
    for bound in (0.0, 2.5, 5.0, 33.0):
        assert found.share(bound, math.inf) == pytest.approx(sum(v >= bound for v in plain) / len(plain))
    plain.sort()
    low, high = found.interval()
    assert (low, high) == (plain[math.ceil(0.025 * len(plain)) - 1], plain[math.ceil(0.975 * len(plain)) - 1])


@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_mean_of_zeros_and_ones_is_binomial(n: int) -> None:
    found = resample(Sample((1.0, *[0.0] * (n - 1))))
    for k in range(n + 1):
        exact = math.comb(n, k) * (1 / n) ** k * (1 - 1 / n) ** (n - k)
        assert found.share(k / n - 1e-9, k / n + 1e-9) == pytest.approx(exact)


def test_many_seeds_are_drawn_and_agree_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    numpy = pytest.importorskip("numpy")
    a = (30.1, 31.4, 29.8, 30.9, 31.7, 30.2, 30.6, 31.1)
    b = (31.0, 32.2, 30.9, 31.9, 31.5, 32.8, 31.2, 31.6)
    found = resample(Sample(a), Sample(b))
    assert not found.exact and found.count == DRAWS

    def difference(x: object, y: object, axis: int) -> object:
        return numpy.mean(y, axis=axis) - numpy.mean(x, axis=axis)

    theirs = stats.bootstrap((a, b), difference, n_resamples=100_000, method="percentile", vectorized=True,
                             rng=numpy.random.default_rng(3))  # fmt: skip
    ends = theirs.confidence_interval
    assert found.interval() == pytest.approx((ends.low, ends.high), abs=0.05)
    share = float(numpy.mean(theirs.bootstrap_distribution >= 1.0))
    assert found.share(1.0, math.inf) == pytest.approx(share, abs=3 * math.sqrt(share * (1 - share) / DRAWS))
    assert resample(Sample(a), Sample(b)) == found


def test_two_samples_of_the_same_values_are_not_drawn_alike() -> None:
    values = tuple(float(v) for v in range(7))
    assert 0.4 < resample(Sample(values), Sample(values)).share(1e-9, math.inf) < 0.6
