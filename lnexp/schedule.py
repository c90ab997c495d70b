"""Learning rate as a pure function of the update, in closed form.

In: a Schedule, the peak learning rate, the update about to be taken (1-based). Out: its learning rate.
Written apart from any trainer so that the formulas of the paper can be read, tested and printed alone.

T = warmup_updates, t = update. While t <= T every schedule is eq. (1) of the paper, lr = lr_max * t / T.
T = 0 means no warm-up: the first update already runs at the schedule's full rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

NAMES = ("constant", "inverse_sqrt", "flat_inverse_sqrt", "step_drop", "linear")


@dataclass
class Schedule:
    name: str = "constant"
    """constant, inverse_sqrt, flat_inverse_sqrt, step_drop or linear."""
    warmup_updates: int = 0
    """T, updates of linear warm-up (paper, eq. 1). 0 = none."""
    hold_updates: int = 0
    """flat_inverse_sqrt, linear: the rate stays at its peak until this update, then decays; with or without warm-up it
    is then the same from here on."""
    drop_epoch: int = 0
    """step_drop: the epoch (1-based) at whose first update the rate is multiplied by drop_factor."""
    drop_factor: float = 1.0
    """step_drop: the factor, once. (fairseq's `fixed` with force-anneal would shrink at every epoch after it.)"""
    after_drop: str = "constant"
    """step_drop: "constant", or "inverse_sqrt" from the drop on (the paper's WMT14 Pre-LN recipe)."""
    total_updates: int = 0
    """linear: the update at which the rate reaches zero."""


def lr(schedule: Schedule, lr_max: float, update: int, updates_per_epoch: int = 0) -> float:
    """Give the learning rate of `update` (1-based). `updates_per_epoch` is read by step_drop alone."""
    warmup = schedule.warmup_updates
    if update <= warmup:
        return lr_max * update / warmup
    if schedule.name == "constant":
        return lr_max
    if schedule.name == "inverse_sqrt":
        # Without warm-up this is the paper's "T = 1" taken by the letter: lr_max / sqrt(t), a rate that
        # has fallen 30-fold after one IWSLT14 epoch of 1,100 updates.
        return lr_max * sqrt(max(warmup, 1) / update)
    knee = max(schedule.hold_updates, warmup)
    if update <= knee:
        return lr_max
    if schedule.name == "flat_inverse_sqrt":
        # The other reading: same tail as with warm-up, the ramp replaced by its end value.
        return lr_max * sqrt(max(knee, 1) / update)
    if schedule.name == "step_drop":
        last_full = (schedule.drop_epoch - 1) * updates_per_epoch
        if not updates_per_epoch or update <= last_full:
            return lr_max
        dropped = lr_max * schedule.drop_factor
        return dropped * sqrt(max(last_full, 1) / update) if schedule.after_drop == "inverse_sqrt" else dropped
    if schedule.name == "linear":
        return lr_max * max(schedule.total_updates - update, 0) / (schedule.total_updates - knee)
    raise ValueError(f"unknown schedule {schedule.name!r}")


def describe(schedule: Schedule) -> str:
    """Give the formula in one line, as reports print it."""
    warmup = schedule.warmup_updates
    knee = max(schedule.hold_updates, warmup)
    ramp = f"lr_max * t/{warmup} for t <= {warmup}, then " if warmup else "no warm-up; "
    flat = f"lr_max until t = {knee}, then " if schedule.hold_updates > warmup else ""
    tails = {
        "constant": "lr_max",
        "inverse_sqrt": f"lr_max * sqrt({max(warmup, 1)}/t)",
        "flat_inverse_sqrt": f"{flat}lr_max * sqrt({max(knee, 1)}/t)",
        "step_drop": f"lr_max, times {schedule.drop_factor:g} from epoch {schedule.drop_epoch} on"
        + (", then * sqrt(t_drop/t)" if schedule.after_drop == "inverse_sqrt" else ""),
        "linear": f"{flat}lr_max * ({schedule.total_updates} - t)/{schedule.total_updates - knee}",
    }
    return ramp + tails[schedule.name]
