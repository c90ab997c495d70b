"""Learning rates against closed forms written out here, and against the paper's own figures."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from math import isclose

import pytest

from lnexp.schedule import NAMES, Schedule, describe, lr

PEAK = 5e-4
WARMUPS = (0, 1, 500, 4000)
HOLD, TOTAL, DROP_EPOCH, PER_EPOCH = 4000, 50_000, 3, 2500
LAST_FULL = 5000  # two epochs of 2,500 updates


def schedule(name: str, warmup: int, **more: object) -> Schedule:
    fields: dict = {
        "flat_inverse_sqrt": {"hold_updates": HOLD},
        "step_drop": {"drop_epoch": DROP_EPOCH, "drop_factor": 0.1},
        "linear": {"total_updates": TOTAL},
    }.get(name, {})
    return Schedule(name, warmup, **(fields | more))


def rate(s: Schedule, update: int) -> float:
    return lr(s, PEAK, update, PER_EPOCH)


CLOSED_FORM = {
    "constant": lambda T, t: 1.0,
    "inverse_sqrt": lambda T, t: T**0.5 / t**0.5 if T else t**-0.5,
    "flat_inverse_sqrt": lambda T, t: 1.0 if t <= HOLD else (t / HOLD) ** -0.5,
    "step_drop": lambda T, t: 1.0 if t <= LAST_FULL else 0.1,
    "linear": lambda T, t: 1 - (t - T) / (TOTAL - T) if t < TOTAL else 0.0,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("warmup", WARMUPS)
def test_closed_form(name: str, warmup: int) -> None:
    for t in sorted({0, 1, warmup - 1, warmup, warmup + 1, 10 * warmup, 100_000}):
        if t < (0 if warmup else 1):  # updates count from 1; 0 means something on a ramp only
            continue
        share = t / warmup if t <= warmup else CLOSED_FORM[name](warmup, t)
        assert isclose(rate(schedule(name, warmup), t), PEAK * share, rel_tol=1e-12, abs_tol=1e-18), t


def test_the_list_of_names_is_whole() -> None:
    assert set(NAMES) == set(CLOSED_FORM)
    with pytest.raises(ValueError, match="cosine"):
        lr(Schedule("cosine"), PEAK, 1)


# What each reading of the paper gives for lr_max = 5e-4, in the digits one would print.
@pytest.mark.parametrize(
    ("warmup", "printed"),
    [
        (1, "5e-4 2.2e-5 1.5e-5 7.9e-6 5.7e-6 3.9e-6"),
        (500, "1e-6 5e-4 3.4e-4 1.8e-4 1.3e-4 8.7e-5"),
        (4000, "1.3e-7 6.3e-5 1.4e-4 5e-4 3.6e-4 2.5e-4"),
    ],
)
def test_paper_table(warmup: int, printed: str) -> None:
    for update, text in zip((1, 500, 1100, 4000, 7700, 16500), printed.split(), strict=True):
        half_a_digit = 0.5 * 10.0 ** Decimal(text).as_tuple().exponent
        found = rate(schedule("inverse_sqrt", warmup), update)
        assert abs(found - float(text)) <= half_a_digit * (1 + 1e-9), (update, found)


def test_flat_reading_has_the_tail_of_a_warmup_of_4000() -> None:
    flat, warm = schedule("flat_inverse_sqrt", 0), schedule("inverse_sqrt", 4000)
    assert all(rate(flat, t) == rate(warm, t) for t in range(4000, 40_000))
    assert all(rate(flat, t) == PEAK > rate(warm, t) for t in range(1, 4000))


@pytest.mark.parametrize("name", [n for n in NAMES if n != "linear"])  # its slope is 1 / (total - T)
def test_no_warmup_and_warmup_1_are_one_schedule(name: str) -> None:
    without, one = schedule(name, 0), schedule(name, 1)
    assert all(rate(without, t) == rate(one, t) for t in (1, 2, 500, 4000, 40_000))


@pytest.mark.parametrize("warmup", [0, 200])
def test_linear_is_zero_from_the_last_update_on_and_not_before(warmup: int) -> None:
    s = schedule("linear", warmup, total_updates=900)
    assert rate(s, 899) > 0
    assert [rate(s, t) for t in (900, 901, 9000)] == [0.0, 0.0, 0.0]


def test_linear_held_has_the_tail_of_linear_with_warmup() -> None:
    held = schedule("linear", 0, hold_updates=200, total_updates=900)
    warm = schedule("linear", 200, total_updates=900)
    assert all(rate(held, t) == PEAK for t in range(1, 201))
    assert all(rate(held, t) == rate(warm, t) < PEAK for t in range(201, 1000))


@pytest.mark.parametrize(("epoch", "per_epoch"), [(1, 700), (2, 1), (8, 1100)])
def test_step_drop_drops_once_and_at_the_first_update_of_its_epoch(epoch: int, per_epoch: int) -> None:
    s = Schedule("step_drop", drop_epoch=epoch, drop_factor=0.1)
    rates = [PEAK] + [lr(s, PEAK, t, per_epoch) for t in range(1, 20 * per_epoch + 1)]
    assert [t for t, (a, b) in enumerate(pairwise(rates), 1) if a != b] == [(epoch - 1) * per_epoch + 1]
    assert rates[-1] == PEAK * 0.1


def test_step_drop_then_inverse_sqrt_goes_on_from_the_dropped_rate() -> None:
    s = schedule("step_drop", 0, after_drop="inverse_sqrt")
    assert rate(s, LAST_FULL) == PEAK
    assert isclose(rate(s, LAST_FULL + 1), 0.1 * PEAK, rel_tol=1e-3)
    assert isclose(rate(s, 4 * LAST_FULL), 0.05 * PEAK)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("warmup", WARMUPS)
def test_the_ramp_rises_and_nothing_rises_after_it(name: str, warmup: int) -> None:
    s = schedule(name, warmup)
    ramp = [rate(s, t) for t in range(0 if warmup else 1, warmup + 1)]
    assert all(a < b for a, b in pairwise(ramp))
    tail = [rate(s, t) for t in range(max(warmup, 1), 20_000)]
    assert all(a >= b for a, b in pairwise(tail)) and max(tail) <= PEAK


@pytest.mark.parametrize(
    ("s", "text"),
    [
        (Schedule("constant"), "no warm-up; lr_max"),
        (Schedule("inverse_sqrt"), "no warm-up; lr_max * sqrt(1/t)"),
        (Schedule("inverse_sqrt", 500), "lr_max * t/500 for t <= 500, then lr_max * sqrt(500/t)"),
        (schedule("flat_inverse_sqrt", 0), "no warm-up; lr_max until t = 4000, then lr_max * sqrt(4000/t)"),
        (Schedule("flat_inverse_sqrt", 500), "lr_max * t/500 for t <= 500, then lr_max * sqrt(500/t)"),
        (schedule("step_drop", 0), "no warm-up; lr_max, times 0.1 from epoch 3 on"),
        (
            schedule("step_drop", 0, after_drop="inverse_sqrt"),
            "no warm-up; lr_max, times 0.1 from epoch 3 on, then * sqrt(t_drop/t)",
        ),
        (
            Schedule("linear", 200, total_updates=900),
            "lr_max * t/200 for t <= 200, then lr_max * (900 - t)/700",
        ),
        (
            Schedule("linear", 0, hold_updates=200, total_updates=900),
            "no warm-up; lr_max until t = 200, then lr_max * (900 - t)/700",
        ),
    ],
)
def test_describe(s: Schedule, text: str) -> None:
    assert describe(s) == text
