"""Before a long run: does its peak learning rate need a warm-up? Some real updates at that rate without one tell.

Adam's first updates move each weight by about the rate, whatever its gradient, and near the output of Post-LN gradients
are large at every depth (Theorem 1): what all positions have in common is learned at once, layer normalization scales
it up, and hidden states become the same at every position. No gradient then reaches the layers below that could tell
positions apart, and the run stays at word frequencies. So: the gradient of the first encoder layer's W2 over that of
the last decoder layer's, after UPDATES updates.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from lnexp.config import Probe, Run
from lnexp.data.prepare import Prepared
from lnexp.schedule import Schedule

UPDATES = 20
LEAST_REACH = 0.008
"""Below this a model is taken not to come back. On size=demo, Post-LN, seeds 1 to 3, the measure is 0.0005 to 0.0064 at
rates of 1.5e-3 and 2e-3, and 0.0097 to 0.064 at 7e-4 and 1e-3; docs/probe.md has the runs it was held against."""


@dataclass(frozen=True)
class Flight:
    """What the updates without warm-up came to."""

    first_bits: float
    """Training loss of the first update, bits a token."""
    last_bits: float
    first_gradient: float
    """Norm of the gradient of the last decoder layer's W2 at the first update."""
    first_ratio: float
    """Size of that update over the size of the matrix."""
    reach: float
    """Gradient norm of the first encoder layer's W2 over that of the last decoder layer's; 0 where the loss broke."""
    seconds: float

    @property
    def stalls(self) -> bool:
        """Whether training without warm-up is expected to fail."""
        return not self.reach >= LEAST_REACH


def fly(run: Run, data: Prepared, threads: int, step: Callable[[], object] = lambda: None) -> Flight:
    """Do the first updates of `run` at its peak rate without warm-up, in its own precision, with its own batches.

    `step` is called after each of the UPDATES.
    """
    from lnexp.backend import NonFinite, open_session

    bare = replace(run, schedule=Schedule("constant"), probe=Probe(every=1), devices=replace(run.devices, processes=1))
    began, bits, probes = time.monotonic(), [], []
    session = open_session(bare, data, threads)
    stream = session.updates_stream()
    try:
        for _ in range(UPDATES):
            bits.append(next(stream)["loss_bits"])
            probes.append(session.probed or {})
            step()
    except NonFinite:
        bits.append(float("inf"))
    finally:
        session.close()
    low, high = "encoder.layers.0.fc2", f"decoder.layers.{run.size.decoder_layers - 1}.fc2"
    seconds = time.monotonic() - began
    if not probes:
        return Flight(bits[0], bits[0], float("inf"), float("inf"), 0.0, seconds)
    first, last = probes[0], probes[-1]
    reach = last["grad"][low] / last["grad"][high] if len(probes) == UPDATES and last["grad"][high] else 0.0
    return Flight(bits[0], bits[-1], first["grad"][high], first["update_ratio"][high], reach, seconds)


def verdict(run: Run, found: Flight) -> tuple[bool, str]:
    """Say with the numbers whether the run may start as it is: a peak rate that stalls needs a warm-up."""
    warmup = run.schedule.warmup_updates
    if found.reach:
        end = f"{found.reach:.2g} of the last decoder layer's gradient reaches the first encoder layer"
    else:
        end = "the gradient that reaches the first encoder layer is none or not finite"
    text = (
        f"{UPDATES} updates at the peak rate {run.optim.lr:g} without warm-up ({found.seconds:.0f} s): loss "
        f"{found.first_bits:.2f} to {found.last_bits:.2f} bits, the first one moved the last W2 by "
        f"{found.first_ratio:.1%} (gradient norm {found.first_gradient:.2g}); after them {end}"
    )
    if not found.stalls:
        return True, f"{text} (need {LEAST_REACH:g}): it learns without one"
    if warmup:
        return True, f"{text} (need {LEAST_REACH:g}): it needs its warm-up of {warmup:,} updates"
    return False, f"{text} (need {LEAST_REACH:g}): expect it to fail; set schedule.warmup_updates, or a lower optim.lr"
