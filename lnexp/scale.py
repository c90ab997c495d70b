"""The paper's counts and rates at another scale: what conf/experiment and conf/sweep write as ${scaled_updates:4000}.

In: a number as the paper prints it, and the scale asked for (conf/scale). Out: the number to train with.
"""

from __future__ import annotations

from lnexp.config import Scale


def scaled_updates(count: float, scale: Scale) -> int:
    """Give a count of updates at this scale; 0 (no warm-up) stays 0."""
    return round(count / scale.updates)


def scaled_lr(rate: float, scale: Scale) -> float:
    """Give a peak learning rate at this scale, to six digits: 7e-4 times 3 is 0.0021."""
    return float(f"{rate * scale.lr:.6g}")
