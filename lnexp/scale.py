"""The paper's counts and rates at another scale: what conf/experiment and conf/sweep write as ${scaled_updates:4000}.

In: a number as the paper prints it, and the scale asked for (conf/scale). Out: the number to train with.
"""

from __future__ import annotations

from math import inf

from lnexp.config import Scale
from lnexp.errors import UserError


def check(scale: Scale) -> None:
    """Raise UserError for a scale that nothing can be scaled by."""
    for name in ("updates", "lr"):
        if not 0 < getattr(scale, name) < inf:
            rule = "need a finite number > 0 (1 = as the paper has it)"
            raise UserError(f"scale.{name}={getattr(scale, name)}: {rule}")


def scaled_updates(count: float, scale: Scale) -> int:
    """Give a count of updates at this scale, one at least; 0 (no warm-up) stays 0."""
    check(scale)
    return max(round(count / scale.updates), 1) if count else 0


def scaled_lr(rate: float, scale: Scale) -> float:
    """Give a peak learning rate at this scale, to six digits: 7e-4 times 3 is 0.0021."""
    check(scale)
    return float(f"{rate * scale.lr:.6g}")
