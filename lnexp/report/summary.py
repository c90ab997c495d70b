"""How to read the table, in two sentences computed from its own numbers.

Of Post-LN and Pre-LN with and without warm-up: what the warm-up is worth to each. Of other sweeps: which of the paper's
claims hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lnexp.claims import CLOSE, FAR
from lnexp.report import verdicts
from lnexp.report.collect import Result
from lnexp.report.column import Column, column
from lnexp.report.group import ALWAYS, Group, factors, group
from lnexp.report.interval import Sample
from lnexp.report.judge import judge
from lnexp.report.wording import MODELS, states

# In BLEU. The paper's Post-LN loses 25 without warm-up; seeds and the choice of a test set move BLEU by about one.
NEEDS, DOES_WITHOUT = FAR, CLOSE


@dataclass
class _Pair:
    """One model with and without warm-up, all else equal; either may be missing or without a score."""

    norm: str
    without: Group | None
    with_it: Group | None
    loss: float | None
    """What the model loses without warm-up; None where one of the two has no score."""
    text: str
    best: float = 0.0
    """The better of its two mean scores."""


def summary(results: Sequence[Result]) -> str:
    """Give two sentences at most: what each model loses without warm-up, or how the paper's claims fare."""
    scores = column(results)
    groups = group(results)
    pairs = [_pair(norm, groups, scores) for norm in ("post", "pre")]
    gaps = [gap for pair in pairs for gap in _gaps(pair)]
    if gaps:
        judged = judge(results)
        if not _about_warmup(groups, bool(judged)):
            return verdicts.sentence(judged) if judged else "None of the paper's comparisons is among these runs."
    measured = [p for p in pairs if p.loss is not None]
    metric = f"{scores.split} sacreBLEU" if scores else "test sacreBLEU"
    first = (
        f"Without warm-up {'; '.join(_says(p, metric if p is measured[0] else '') for p in measured)}."
        if measured
        else ""
    )
    if gaps:
        second = f"Not all four can be compared: {'; '.join(gaps)}."
        return f"{first} {second}".strip()
    if max(p.best for p in pairs) < NEEDS:
        return f"{first} None of them has learned to translate yet, so nothing follows about the warm-up."
    return f"{first} {_judge(*(p.loss or 0.0 for p in pairs))}"


def _about_warmup(groups: list[Group], judged: bool) -> bool:
    """Say whether the runs were meant for the four, of which some are missing: nothing else differs between them."""
    norms = {g.flat.get("model.norm") for g in groups}
    only_these = set(factors([g.flat for g in groups])) <= {*ALWAYS, "devices.precision"}
    return only_these and (norms >= set(MODELS) or not judged)


def _pair(norm: str, groups: list[Group], scores: Column | None) -> _Pair:
    """Find the pair; of several settings the one where the model with warm-up is best, as the paper compares."""
    mine = [g for g in groups if g.flat.get("model.norm") == norm]
    candidates = []
    for without in (g for g in mine if g.flat.get("schedule.warmup_updates") == 0):
        for with_it in (g for g in mine if g.flat.get("schedule.warmup_updates")):
            if _rest(without) == _rest(with_it):
                candidates.append((_score(with_it, scores), without, with_it))
    if not candidates:
        none = next((g for g in mine if g.flat.get("schedule.warmup_updates") == 0), None)
        some = next((g for g in mine if g.flat.get("schedule.warmup_updates")), None)
        return _Pair(norm, none, some, None, "")
    _, without, with_it = max(candidates, key=lambda c: c[0].mean if c[0] else -1.0)
    low, high = _score(without, scores), _score(with_it, scores)
    if low is None or high is None:
        return _Pair(norm, without, with_it, None, "")
    loss = round(round(high.mean, 2) - round(low.mean, 2), 1)
    seeds = f"{min(low.n, high.n)} seeds each" if min(low.n, high.n) > 1 else "one seed"
    warmup = with_it.flat["schedule.warmup_updates"]
    detail = f"{low.mean:.2f} against {high.mean:.2f} with {warmup} updates of it, {seeds}"
    return _Pair(norm, without, with_it, loss, detail, max(low.mean, high.mean))


def _rest(group: Group) -> dict[str, object]:
    return {k: v for k, v in group.flat.items() if k != "schedule.warmup_updates"}


def _score(group: Group, scores: Column | None) -> Sample | None:
    values = [scores.values[str(r.folder)] for r in group.runs if str(r.folder) in scores.values] if scores else []
    return Sample(tuple(values)) if values else None


def _says(pair: _Pair, metric: str) -> str:
    assert pair.loss is not None
    verb = "loses" if pair.loss >= 0 else "gains"
    return " ".join(f"{MODELS[pair.norm]} {verb} {abs(pair.loss):.1f} {metric} ({pair.text})".split())


def _gaps(pair: _Pair) -> list[str]:
    """Name what keeps a pair from being compared."""
    gaps = []
    for runs, words in ((pair.without, "without warm-up"), (pair.with_it, "with warm-up")):
        if runs is None:
            gaps.append(f"{MODELS[pair.norm]} {words} is not among them")
        elif pair.loss is None and (set(runs.states) != {"done"} or not any(r.scores for r in runs.runs)):
            why = "not scored" if set(runs.states) == {"done"} else states(runs)
            verb = "" if why.startswith(("diverged", "failed")) else "is "
            gaps.append(f"{MODELS[pair.norm]} {words} {verb}{why}")
    if pair.loss is None and not gaps:
        gaps.append(f"{MODELS[pair.norm]} with and without warm-up differ in more than the warm-up")
    return gaps


def _judge(post: float, pre: float) -> str:
    post_needs, pre_free = post >= NEEDS, pre <= DOES_WITHOUT
    if post <= DOES_WITHOUT and pre_free:
        return "This is not the paper's picture: here neither model needs the warm-up."
    if post_needs and pre_free:
        return "This is the paper's picture: Post-LN needs the warm-up, Pre-LN does without it."
    if post_needs:
        return f"Post-LN needs the warm-up, as in the paper, but here Pre-LN {_degree(pre)} it too."
    if pre_free:
        return f"This is not the paper's picture: here Post-LN {_degree(post)} the warm-up, and Pre-LN does without it."
    return f"This is not the paper's picture: here Post-LN {_degree(post)} the warm-up, and Pre-LN {_degree(pre)} it."


def _degree(loss: float) -> str:
    if loss >= NEEDS:
        return "needs"
    return "does without" if loss <= DOES_WITHOUT else "gains a little from"
