"""Which runs are compared for speed: results in, pairs of a Post-LN and a Pre-LN configuration out, seed by seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

from lnexp.claims import LEARNED
from lnexp.report import wording
from lnexp.report.collect import Flat, Result
from lnexp.report.group import ALWAYS, Group, factors, group
from lnexp.rundir import ENDED

_SCHEDULE = "schedule.name"
_HOW_LONG = ("max_updates", "max_epochs", "patience", "validate_every", "updates_per_epoch")

MOST = 8
"""Pairs that a table or a figure shows, the paper's first; the data has them all."""


@dataclass(frozen=True)
class Pair:
    """A Post-LN and a Pre-LN configuration alike but for the model, the schedule and how long they train."""

    settings: str
    """What tells it from other pairs: "lr_max 5e-4", or nothing."""
    names: tuple[str, str]
    """Of Post-LN and of Pre-LN: "Post-LN, warm-up 364"."""
    post: Group
    pre: Group

    @property
    def is_papers(self) -> bool:
        """Say whether it is the pair that the paper compares: by Adam, Post-LN with warm-up, Pre-LN without."""
        return self.post.flat.get("optim.name") == "adam" and _warmed(self.post) and not _warmed(self.pre)

    @property
    def axis(self) -> str:
        """What is compared: "checkpoint" where both are validated equally often, else "updates"."""
        return "checkpoint" if _interval(self.post.flat) == _interval(self.pre.flat) else "updates"

    @property
    def partners(self) -> list[tuple[Result, Result]]:
        """Runs of Post-LN (done) and Pre-LN (done or diverged) by seed; in the order of their seeds if none agrees.

        None where Post-LN has learned nothing on the mean: seeds are not chosen by what came of them.
        """
        posts = _by_seed([] if _at_chance(self.post) else [run for run in self.post.runs if run.state == "done"])
        pres = _by_seed([run for run in self.pre.runs if run.state in ENDED])
        if not set(posts) & set(pres):
            return list(zip(chain(*posts.values()), chain(*pres.values()), strict=False))
        return [two for seed in posts for two in zip(posts[seed], pres.get(seed, []), strict=False)]

    @property
    def left_out(self) -> list[str]:
        """Name the runs without a partner, and why: "Post-LN seed 2: diverged at update 900"."""
        used = {id(run) for two in self.partners for run in two}
        sides = (("post", self.post, _at_chance(self.post)), ("pre", self.pre, None))
        return [
            f"{wording.MODELS[norm]} {_why(run, chance)}"
            for norm, side, chance in sides
            for run in side.runs
            if id(run) not in used
        ]


def pairs(results: Sequence[Result]) -> list[Pair]:
    """Find every pair, the paper's first.

    Both share all settings (optimizer, lr_max, data, size, batch, precision, decoding, ...) but model, schedule and
    how long and how often; the paper's two have different schedules. A Post-LN without warm-up is paired only where
    none with warm-up shares its settings (RAdam in the paper): where it does not learn, its last loss is no target.
    """
    cells: dict[str, tuple[list[Group], list[Group]]] = {}
    for one in group(results):
        if (norm := one.flat.get("model.norm")) in wording.MODELS:
            posts, pres = cells.setdefault(repr([*sorted(_shared(one.flat).items()), one.scale]), ([], []))
            (posts if norm == "post" else pres).append(one)
    both = [([g for g in posts if _warmed(g)] or posts, pres) for posts, pres in cells.values() if posts and pres]
    apart = [k for k in factors([_shared(posts[0].flat) for posts, _ in both]) if not _own(k)]
    found = []
    for sides in both:
        keys = [_telling(side) for side in sides]
        for post, pre in product(*sides):
            same = post.flat.get(_SCHEDULE) == pre.flat.get(_SCHEDULE)
            more = [] if same else [_SCHEDULE]
            names = (_name(post, keys[0] + more), _name(pre, keys[1] + more))
            found.append(Pair(wording.config_name(post.flat, apart), names, post, pre))
    return sorted(found, key=lambda pair: not pair.is_papers)


def _telling(side: Sequence[Group]) -> list[str]:
    """Name the settings that tell groups of one model apart; of a schedule its name, where that is enough."""
    every = factors([one.flat for one in side])
    short = [key for key in every if key in (*ALWAYS, _SCHEDULE)]
    return short if len({_name(one, short) for one in side}) == len(side) else every


def _name(one: Group, keys: Sequence[str]) -> str:
    return wording.config_name(one.flat, list(dict.fromkeys(keys)))


def _shared(flat: Flat) -> Flat:
    return {k: v for k, v in flat.items() if not _own(k)}


def _own(key: str) -> bool:
    """Say whether the two of a pair may differ in this setting."""
    return key.split(".")[0] in ("model", "schedule", *_HOW_LONG)


def _warmed(one: Group) -> bool:
    return (one.flat.get("schedule.warmup_updates") or 0) > 1  # the paper's "T = 1" is its word for none


def _interval(flat: Flat) -> Any:
    return flat.get("validate_every") or flat.get("updates_per_epoch")  # 0: a pass over the data that both share


def _by_seed(runs: Sequence[Result]) -> dict[Any, list[Result]]:
    found: dict[Any, list[Result]] = {}
    for run in sorted(runs, key=lambda run: (run.seed or 0, run.name)):
        found.setdefault(run.seed, []).append(run)
    return found


def _at_chance(post: Group) -> str | None:
    """Say so where Post-LN has not learned to translate: to be where it ends is no speed."""
    series = [run.series("valid", "bleu") for run in post.runs if run.state == "done"]
    best = [max(finite) for its in series if (finite := [bleu for _, bleu in its if math.isfinite(bleu)])]
    if not best or (mean := math.fsum(best) / len(best)) >= LEARNED:
        return None
    return f"Post-LN has learned nothing (best valid sacreBLEU {mean:.2f} on the mean, need {LEARNED:g})"


def _why(run: Result, chance: str | None) -> str:
    seed = f"seed {run.seed}" if run.seed is not None else wording.plain(run.name, 60)
    return f"{seed}: {chance or 'no partner' if run.state == 'done' else wording.state(run)}"
