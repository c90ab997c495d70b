"""The paper's comparisons as data: which runs, what must come out, and the margin with its reason.

In: the nested config of a run. Out: whether a side of a comparison speaks about it; report/judge.py does the judging.
`paper.CLAIMS` are the results of single runs, these are what the paper concludes from two of them (or, where it calls
one run a failure, from one). Orderings alone carry over to another corpus, so no BLEU of the paper is a bound here.

certainty as in paper.py. Figures' curves have no printed numbers: a comparison is of what the text says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from lnexp import paper

FAR, CLOSE, ZERO, FAILED = 5.0, 2.0, 3.0, 10.0
"""In BLEU; why, stands with each kind."""
LEARNED = 5.0
"""In BLEU: a B below it has not learned to translate, and how far A is from it says nothing (as report/summary.py)."""


@dataclass(frozen=True)
class Kind:
    """What B - A must be (or A alone, where there is no B): between `low` and `high`, both allowed."""

    words: str
    low: float
    high: float
    why: str
    metric: str = "BLEU"


# Bounds where the paper prints no number are ours, and say so by their reason.
_NOISE = "seeds and the choice of a test set move BLEU by about one"
KINDS = {
    "far below": Kind("A << B", FAR, inf, f"{_NOISE}; the smallest gap that the paper calls a failure is 23"),
    "below": Kind("A <= B", 0.0, inf, "an ordering without a size"),
    "close": Kind("A ~ B", -CLOSE, CLOSE, f"{_NOISE}, and the paper rounds both to about 34"),
    "not far below": Kind("not A << B", -inf, FAR, "the margin of A << B, turned round: the paper prints no number"),
    "near zero": Kind("A ~ 0", -inf, ZERO, "2.77 is what the paper prints for a run that has come to nothing"),
    "fails": Kind("A fails", -inf, FAILED, "8.45 is what the paper prints for the failure, about 34 for the success"),
    "higher": Kind("A >= B", -inf, 0.0, "an ordering without a size", "valid loss"),
}


@dataclass(frozen=True)
class Runs:
    """The runs on one side, in the paper's own counts and rates; what is left empty is not asked."""

    norm: str = "post"
    optim: str = "adam"
    warmup: int | None = 0
    """0 = none, n = exactly n (on another corpus at no scale of the paper's: any), None = any above zero."""
    lr: tuple[float, ...] = ()
    schedules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """One conclusion of the paper and the runs that decide it."""

    id: str
    locus: str
    statement: str
    short: str
    """For a sentence: "SGD without warm-up stays near zero"."""
    certainty: str
    kind: str
    a: Runs
    b: Runs | None = None
    apart: tuple[str, ...] = ("schedule.warmup_updates",)
    """Settings in which the two sides may differ; all others must be alike, but for the seed."""
    best: bool = False
    """Of several pairs the best configuration of either side, as the paper compares two optimizers at their best."""
    transfers: bool = True
    """False: bound to the paper's own update counts or rates, says nothing about runs that have not those."""


_FIG2, _FIG4, _FIG6 = "Section 3.2, Figure 2", "Section 4, Figure 4", "Appendix H, Figure 6"
_LOW, _HIGH, _EITHER = (5e-4,), (1e-3,), (5e-4, 1e-3)
_SCHEDULE = ("schedule.name", "schedule.warmup_updates", "schedule.hold_updates", "schedule.drop_epoch",
             "schedule.drop_factor", "schedule.after_drop", "schedule.total_updates")  # fmt: skip
# Linear decay needs its end in updates where the others end after an epoch.
_LENGTH = ("max_updates", "max_epochs")
_READINGS = ("inverse_sqrt", "flat_inverse_sqrt")

COMPARISONS = (
    Comparison(
        "none-far-below-warmup", _FIG2,
        "Post-LN without warm-up ends far below Post-LN with it: 8.45 BLEU against around 34",
        "Post-LN without warm-up ends far below Post-LN with it", "verified", "far below",
        Runs(schedules=(*_READINGS, "linear")), Runs(warmup=4000),
        ("schedule.warmup_updates", "schedule.name", "schedule.hold_updates"),
    ),
    Comparison(
        "none-far-below-500", _FIG2,
        "Post-LN without warm-up ends far below T = 500 at lr_max 5e-4: 8.45 BLEU (lr_max not stated) against 31.16",
        "no warm-up ends far below T = 500 at the lower rate", "verified", "far below",
        Runs(lr=_LOW, schedules=_READINGS[:1]), Runs(warmup=500, lr=_LOW), transfers=False,
    ),
    Comparison(
        "500-below-4000", _FIG2,
        "Post-LN with T = 500 ends no higher than with T = 4000 at lr_max 5e-4: 31.16 BLEU against around 34",
        "T = 500 ends no higher than T = 4000 at the lower rate", "verified", "below",
        Runs(warmup=500, lr=_LOW), Runs(warmup=4000, lr=_LOW), transfers=False,
    ),
    Comparison(
        "500-collapses", _FIG2,
        "Post-LN with T = 500 collapses at lr_max 1e-3: 2.77 BLEU against 31.16 at 5e-4",
        "T = 500 collapses at the higher rate", "verified", "far below",
        Runs(warmup=500, lr=_HIGH), Runs(warmup=500, lr=_LOW), ("optim.lr",), transfers=False,
    ),
    Comparison(
        "reading-literal", _FIG2,
        "Post-LN without warm-up fails (8.45 BLEU), if T = 1 is read as lr_max/sqrt(t)",
        "no warm-up, read as lr_max/sqrt(t), fails", "verified", "fails",
        Runs(lr=_EITHER, schedules=_READINGS[:1]), transfers=False,
    ),
    Comparison(
        "reading-flat", _FIG2,
        "Post-LN without warm-up fails (8.45 BLEU), if T = 1 is read as lr_max until update 4,000",
        "no warm-up, read as lr_max until update 4,000, fails", "verified", "fails",
        Runs(lr=_EITHER, schedules=_READINGS[1:]), transfers=False,
    ),
    Comparison(
        "sgd-none-near-zero", _FIG2,
        "Post-LN by SGD without warm-up: BLEU just above zero in 15 epochs",
        "SGD without warm-up stays near zero", "verified", "near zero",
        Runs(optim="sgd"),
    ),
    Comparison(
        "sgd-far-below-adam", _FIG2,
        "Post-LN by SGD ends far below Adam even with warm-up (no number printed)",
        "SGD with warm-up ends far below Adam", "verified", "far below",
        Runs(optim="sgd", warmup=4000), Runs(warmup=4000), ("optim.name", "optim.lr"), best=True,
    ),
    Comparison(
        "constant-better-than-large", _FIG6,
        "Post-LN without warm-up has a lower validation loss at a constant 1e-4 than at a large rate",
        "a small constant rate beats a large one without warm-up", "read", "higher",
        Runs(lr=_EITHER, schedules=("constant", *_READINGS)), Runs(lr=(1e-4,), schedules=("constant",)),
        (*_SCHEDULE, "optim.lr"), transfers=False,
    ),
    Comparison(
        "constant-worse-than-best", _FIG6,
        "Post-LN at a constant 1e-4 without warm-up has a higher validation loss than the best with warm-up",
        "a small constant rate is worse than the best with warm-up", "read", "higher",
        Runs(lr=(1e-4,), schedules=("constant",)), Runs(warmup=4000, lr=_EITHER),
        (*_SCHEDULE, "optim.lr"), best=True, transfers=False,
    ),
    Comparison(
        "pre-close-to-post", _FIG4,
        "Pre-LN without warm-up ends about where Post-LN with it does: about 34 BLEU",
        "Pre-LN without warm-up ends about where Post-LN with it does", "verified", "close",
        Runs("pre"), Runs(warmup=4000), ("model.norm", *_SCHEDULE, *_LENGTH),
    ),
    Comparison(
        "radam-trains-post", _FIG4,
        "RAdam trains Post-LN without warm-up well: not far below Adam with it (no number printed)",
        "RAdam trains Post-LN without warm-up", "read", "not far below",
        Runs(optim="radam"), Runs(warmup=4000), ("optim.name", *_SCHEDULE, *_LENGTH),
    ),
    Comparison(
        "radam-adam-pre", _FIG4,
        "Pre-LN without warm-up: little difference between RAdam and Adam (no number printed)",
        "RAdam makes little difference to Pre-LN", "read", "close",
        Runs("pre", "radam"), Runs("pre"), ("optim.name", *_SCHEDULE, *_LENGTH),
    ),
)  # fmt: skip


def speaks_of(runs: Runs, comparison: Comparison, config: Mapping[str, Any]) -> bool:
    """Say whether a run is one of these. Raises nothing: half a config is no run of the paper's."""
    standing = paper.standing(config)
    warmup = standing.warmup
    if warmup is None or (paper.IWSLT, runs.norm, runs.optim) != (standing.corpus, standing.norm, standing.optim):
        return False
    if not standing.exact and not comparison.transfers:
        return False
    if runs.schedules and standing.schedule not in runs.schedules:
        return False
    if runs.lr and not any(standing.has_lr(rate) for rate in runs.lr):
        return False
    if runs.warmup == 0 or warmup <= 1:  # the paper's "T = 1" is its word for none
        return runs.warmup == 0 and warmup <= 1
    return runs.warmup is None or not standing.exact or standing.has_warmup(runs.warmup)
