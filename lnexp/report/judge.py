"""The paper's comparisons held against results: holds, does not hold, or cannot be said, and how surely.

In: results, and who tests a difference over test sentences (lnexp/paired.py; left out, none is tested). Out: plain
data, a verdict a pair of configurations. B - A of the means over seeds decides, and its 95% interval says whether it
does: an interval on both sides of a bound decides nothing. One seed has no interval, and the verdict says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lnexp.claims import COMPARISONS, KINDS, LEARNED, Comparison, Kind, Runs, speaks_of
from lnexp.report import wording
from lnexp.report.bootstrap import resample, welch
from lnexp.report.collect import Result
from lnexp.report.column import Column, column
from lnexp.report.group import ALWAYS, Group, factors, group
from lnexp.report.interval import Sample
from lnexp.rundir import ENDED

HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be said"

Paired = Callable[[Sequence[Result], Sequence[Result], Column], Mapping[str, Any] | str]
"""Runs of A, runs of B, their scores -> {"p", "signature"}, or why there is none."""


def judge(results: Sequence[Result], paired: Paired | None = None) -> list[dict[str, Any]]:
    """Give a verdict for each pair of configurations that one of the paper's comparisons is about.

    Raises UserError where the runs' scores do not compare.
    """
    groups = group(results)
    scores = column(results)
    configs = [config(g, groups) for g in groups]
    varying = factors([g.flat for g in groups])
    samples = {metric: {id(g): _sample(g, metric, scores) for g in groups} for metric in ("BLEU", "valid loss")}
    found = []
    for comparison in COMPARISONS:
        kind = KINDS[comparison.kind]
        values = samples[kind.metric]

        def side(runs: Runs, about: Comparison = comparison) -> list[Group]:
            return [g for g, its in zip(groups, configs, strict=True) if speaks_of(runs, about, its)]

        pairs: list[tuple[Group, Group | None]] = [(a, None) for a in side(comparison.a)]
        if comparison.b:
            others = side(comparison.b)
            pairs = [(a, b) for a, _ in pairs for b in others if _alike(a, b, comparison.apart)]
        if comparison.best:
            pairs = _best(pairs, values, kind.metric)
        for a, b in pairs:
            found.append(_verdict(comparison, a, b, varying, values))
            if paired and b and scores and kind.metric == "BLEU" and values[id(a)] and values[id(b)]:
                found[-1]["sentences"] = paired(a.runs, b.runs, scores)
    return found


def config(one: Group, groups: Sequence[Group]) -> dict[str, Any]:
    """Give a group's config with its scale, which a group leaves out; a run that has not begun has its sweep's."""
    begun = [run for each in (one, *groups) for run in each.runs if run.config]
    return {**one.config, "scale": begun[0].config.get("scale")} if begun else one.config


def best_valid_loss(result: Result) -> float | None:
    """Give the lowest finite validation loss of a run, in bits per token."""
    finite = [loss for _, loss in result.series("valid", "loss_bits") if math.isfinite(loss)]
    return min(finite, default=None)


def _sample(one: Group, metric: str, scores: Column | None) -> Sample | None:
    if metric == "BLEU":
        known = [scores.values.get(str(run.folder)) for run in one.runs] if scores else []
    else:
        known = [best_valid_loss(run) for run in one.runs if run.state in ENDED]
    values = tuple(value for value in known if value is not None)
    return Sample(values) if values else None


def _alike(a: Group, b: Group, apart: Sequence[str]) -> bool:
    if a is b or (a.scale and b.scale and a.scale != b.scale):
        return False
    return all(a.flat.get(k) == b.flat.get(k) for k in a.flat.keys() | b.flat.keys() if k not in apart)


def _best(
    pairs: list[tuple[Group, Group | None]], values: Mapping[int, Sample | None], metric: str
) -> list[tuple[Group, Group | None]]:
    """Keep the pair of the best A and its best B; what is not scored comes last."""

    def rank(one: Group | None) -> float:
        sample = values[id(one)] if one else None
        return -math.inf if sample is None else sample.mean if metric == "BLEU" else -sample.mean

    return [max(pairs, key=lambda pair: (rank(pair[0]), rank(pair[1])))] if pairs else []


def _verdict(
    comparison: Comparison, a: Group, b: Group | None, varying: list[str], values: Mapping[int, Sample | None]
) -> dict[str, Any]:
    kind = KINDS[comparison.kind]
    one, other = values[id(a)], values[id(b)] if b else None
    # The others (where a decay ends, how long a run is) follow from these, or are the same in all that is compared.
    telling = [k for k in varying if k in (*ALWAYS, "schedule.name") or k.split(".")[0] in ("optim", "size", "data")]
    shown = [k for k in telling if b and a.flat.get(k) != b.flat.get(k)]
    entry: dict[str, Any] = {
        "claim": comparison.id,
        "locus": comparison.locus,
        "certainty": comparison.certainty,
        "statement": comparison.statement,
        "short": comparison.short,
        "kind": comparison.kind,
        "reads": kind.words,
        "metric": kind.metric,
        "needs": [_bound(kind.low), _bound(kind.high)],
        "why": kind.why,
        "at": wording.config_name(a.flat, [k for k in telling if k not in shown]),
        "a": _side(a, shown, one),
        "b": _side(b, shown, other) if b else None,
        "sentences": None,
    }
    gaps = [f"{name}: {wording.states(g)}" for name, g, its in (("A", a, one), ("B", b, other)) if g and its is None]
    if gaps or one is None:
        nothing = {"difference": None, "interval": None, "seeds": None}
        return entry | nothing | {"verdict": OPEN, "how": f"no {_metric(kind)} ({'; '.join(gaps)})"}
    entry |= _measured(kind, one, other)
    if b and other and (why := _not_learned(kind, b, other)):
        entry |= {"verdict": OPEN, "how": f"B has not learned to translate: {why}"}
    return entry


def _not_learned(kind: Kind, b: Group, values: Sample) -> str | None:
    """Say so where the side that a comparison is with came to nothing itself: nothing follows from it then."""
    if kind.metric == "BLEU" and values.mean < LEARNED:
        return f"{values.mean:.2f} BLEU, need {LEARNED:g}"
    return "all of its runs diverged" if set(b.states) == {"diverged"} else None


def _measured(kind: Kind, a: Sample, b: Sample | None) -> dict[str, Any]:
    """Judge one mean, or the difference of two, with its interval over seeds."""
    middle = b.mean - a.mean if b else a.mean
    alone = None if a.half_width is None else (a.mean - a.half_width, a.mean + a.half_width)
    interval = welch(a, b) if b else alone
    inside = kind.low <= middle <= kind.high
    seeds = None
    if interval is None:
        verdict, how = HOLDS if inside else FAILS, "one seed: no interval"
    else:
        low, high = interval
        drawn = resample(a, b)
        seeds = {
            "share": round(drawn.share(kind.low, kind.high), 4), "resamples": drawn.count, "exact": drawn.exact,
            "interval": [round(value, 4) for value in drawn.interval()],
        }  # fmt: skip
        if kind.low <= low and high <= kind.high:
            verdict, how = HOLDS, "the 95% interval lies within the bounds"
        elif high < kind.low or low > kind.high:
            verdict, how = FAILS, "the 95% interval lies outside the bounds"
        else:
            verdict = OPEN
            how = f"the mean lies {'within' if inside else 'outside'} the bounds, the 95% interval on both sides of one"
    return {
        "difference": round(middle, 4),
        "interval": [round(value, 4) for value in interval] if interval else None,
        "seeds": seeds,
        "verdict": verdict,
        "how": how,
    }


def _side(one: Group, shown: list[str], sample: Sample | None) -> dict[str, Any]:
    rounded = {k: None if sample is None or (v := getattr(sample, k)) is None else round(v, 4)
               for k in ("mean", "sd", "half_width")}  # fmt: skip
    name = wording.config_name(one.flat, shown)
    return {"name": name, **rounded, "n": sample.n if sample else 0, "state": wording.states(one)}


def _metric(kind: Kind) -> str:
    return "score" if kind.metric == "BLEU" else kind.metric


def _bound(value: float) -> float | None:
    return value if math.isfinite(value) else None
