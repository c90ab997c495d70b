"""Results in, groups out: runs that differ in nothing but the seed, in a fixed order, and the factors that vary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lnexp import config as configs
from lnexp.report.collect import DAMAGED, NEUTRAL, STATES, Flat, Result, nested
from lnexp.rundir import ENDED

ALWAYS = ("model.norm", "schedule.warmup_updates")
# The factors people sweep stand first; the others follow by name.
_PRECISION = "devices.precision"
_ORDER = (*ALWAYS, "optim.name", "optim.lr", "schedule.name", "data.name")
# A schedule's own settings, and the two ways to say how long a run is (linear decay needs updates): named only where
# the schedule's name does not tell them.
_OF_SCHEDULE = ("schedule.hold_updates", "schedule.drop_epoch", "schedule.drop_factor", "schedule.after_drop",
                "schedule.total_updates", "max_updates", "max_epochs")  # fmt: skip


@dataclass
class Group:
    """Runs of one configuration, over seeds."""

    flat: Flat
    runs: list[Result] = field(default_factory=list)
    """One of each seed that is known."""
    twins: list[Result] = field(default_factory=list)
    """Further runs of the same configuration and seed, which are no further sample: in no number."""

    @property
    def config(self) -> dict[str, Any]:
        """Nested, without what only names or places a run."""
        return nested(self.flat)

    @property
    def scale(self) -> tuple[float, float] | None:
        """(updates, lr): what its settings are of the paper's, which is no setting. None where none has begun."""
        found = next((run.flat for run in self.runs if run.flat), None)
        return (found["scale.updates"], found["scale.lr"]) if found else None

    @property
    def states(self) -> dict[str, int]:
        found = [r.state for r in self.runs]
        return {state: found.count(state) for state in STATES if state in found}

    @property
    def seeds(self) -> list[int]:
        return sorted({r.seed for r in self.runs if r.seed is not None})


def identity(flat: Flat) -> Flat:
    """Keep what makes a configuration: neither the seed nor what only names, places or speeds up a run."""
    outside = configs._NOT_IDENTITY
    return {k: v for k, v in flat.items() if k != "seed" and k not in outside and k.split(".")[0] not in outside}


def group(results: Iterable[Result]) -> list[Group]:
    """Gather runs that differ in the seed alone; a seed counts once. A missing run joins its overrides' group."""
    groups: dict[str, Group] = {}
    by_overrides: dict[tuple[str, ...], str] = {}
    begun: list[Result] = []
    late: list[Result] = []
    for result in results:
        (begun if result.flat else late).append(result)
    ran = {result.flat[_PRECISION]: precision(result) for result in begun if result.env}
    for result in begun:
        flat = identity(result.flat)
        flat[_PRECISION] = precision(result) if result.env else ran.get(flat[_PRECISION], flat[_PRECISION])
        key = repr(sorted(flat.items()))
        groups.setdefault(key, Group(flat)).runs.append(result)
        if result.overrides:
            by_overrides[_without_seed(result.overrides)] = key
    shared = _shared([g.flat for g in groups.values()])
    everywhere = set.intersection(*(set(r.overrides) for r in begun)) if begun else set()
    for result in late:
        asked = _without_seed(result.overrides)
        # Without overrides nothing says that two missing runs are alike, so each stands alone.
        key = by_overrides.setdefault(asked, repr(asked)) if asked else result.name
        if key not in groups:
            groups[key] = Group(_guess(asked, everywhere, shared))
        groups[key].runs.append(result)
    for g in groups.values():
        g.runs, g.twins = _once(g.runs)
    order = factors([g.flat for g in groups.values()])
    return sorted(groups.values(), key=lambda g: [_sortable(g.flat.get(k)) for k in order])


def left_out(results: Sequence[Result]) -> list[str]:
    """Give a line for each run that is in no number: damaged, or the twin of another."""
    lines = [str(result.reason) for result in results if result.state == DAMAGED]
    for g in group(results):
        names = {run.seed: run.folder for run in g.runs}
        lines += [f"{twin.folder}: the configuration and seed of {names[twin.seed]} once more" for twin in g.twins
                  if twin.state != DAMAGED]  # fmt: skip
    return lines


def precision(result: Result) -> Any:
    """Give the precision that a run was computed in, whether asked for by name or found by "auto"."""
    return result.env.get("precision") or result.flat[_PRECISION]


def _once(runs: Sequence[Result]) -> tuple[list[Result], list[Result]]:
    """Split into one run a seed and its twins. One that has ended stands; of two the first by name, whatever came of
    them: the better one would be a choice by outcome."""
    ranked = sorted(runs, key=lambda r: (r.state not in ENDED, str(r.folder)))
    first = {run.seed: run for run in reversed(ranked) if isinstance(run.seed, int)}
    stands = [not isinstance(run.seed, int) or first[run.seed] is run for run in runs]
    pairs = list(zip(runs, stands, strict=True))
    return [run for run, stays in pairs if stays], [run for run, stays in pairs if not stays]


def _without_seed(overrides: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(o for o in overrides if not o.lstrip("+").startswith("seed=")))


def _shared(flats: Sequence[Flat]) -> Flat:
    """Keep what all of these agree on."""
    first, rest = (flats[0], flats[1:]) if flats else ({}, [])
    return {k: v for k, v in first.items() if all(f.get(k) == v for f in rest)}


def _guess(overrides: Sequence[str], everywhere: set[str], shared: Flat) -> Flat:
    """Tell the configuration of a run that has none yet from its overrides.

    What they say outright is taken. What the begun runs share is added only if nothing is left that could change
    it: an override such as size=tiny that they do not all have sets fields that cannot be known from here.
    """
    flat: Flat = {}
    clear = bool(overrides)
    for override in overrides:
        name, _, text = override.lstrip("+").partition("=")
        if name == "model" and re.fullmatch("(post|pre)_ln", text):
            flat["model.norm"] = text[:-3]
        elif name in NEUTRAL:
            try:
                flat[name] = int(text) if re.fullmatch(r"-?\d+", text) else float(text)
            except ValueError:
                flat[name] = text
        else:
            clear = clear and override in everywhere
    return identity({**shared, **flat} if clear else flat)


def _sortable(value: Any) -> tuple[int, float, str]:
    # post before pre, small numbers before large, text by letter, unknown last.
    if value is None:
        return (2, 0.0, "")
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))


def factors(flats: Sequence[Flat]) -> list[str]:
    """Name the factors: model and warm-up always, then every key that takes more than one value, in a fixed order."""
    values: dict[str, set[str]] = {}
    for flat in flats:
        for key, value in flat.items():
            values.setdefault(key, set()).add(repr(value))
    varying = {k for k, seen in values.items() if len(seen) > 1}
    if "schedule.name" in varying:
        varying -= {k for k in _OF_SCHEDULE if _tells(flats, "schedule.name", k)}
    return [k for k in _ORDER if k in varying or k in ALWAYS] + sorted(varying - set(_ORDER))


def _tells(flats: Sequence[Flat], one: str, other: str) -> bool:
    """Say whether the value of `one` fixes that of `other` in all of these."""
    seen: dict[str, Any] = {}
    return all(seen.setdefault(repr(f.get(one)), f.get(other)) == f.get(other) for f in flats)
