"""The guard of a column: numbers of different data, metric, split, checkpoint or decoding never stand together.

In: results with their scores. Out: one comparable number a run and the identity that all of them share; the best
checkpoints make one column, means of several checkpoints another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lnexp.errors import UserError
from lnexp.report.collect import Result, Score
from lnexp.rundir import AVERAGED


@dataclass(frozen=True)
class Column:
    """Comparable scores, and the one identity they share."""

    metric: str
    split: str
    checkpoint: str
    decode: str
    signature: str
    data: str
    n_sentences: int
    values: dict[str, float]
    """Run folder (as text) -> value."""


def column(results: Sequence[Result], metric: str = "sacrebleu", decode: str | None = None) -> Column | None:
    """Pick one comparable score a run: test where there is one, the best checkpoint, one way of decoding.

    None where no single checkpoint is scored. Raises UserError naming two runs whose numbers may not be compared.
    """
    scored = _narrow(_narrow(_of(results, metric), "split", "test"), "checkpoint", "best")
    found = _compared(_narrow(scored, "decode", decode), metric)
    return found if found and not found.checkpoint.startswith(AVERAGED) else None


def averaged(results: Sequence[Result], metric: str = "sacrebleu", decode: str | None = None) -> Column | None:
    """Pick one comparable score a run likewise, of a mean of checkpoints (`average=N`), the same N in all.

    None where there is none; a run that has none is left out. UserError as for `column`.
    """
    means = [(r, [s for s in scores if s.checkpoint.startswith(AVERAGED)]) for r, scores in _of(results, metric)]
    scored = [(r, scores) for r, scores in means if scores]
    for name, first in (("split", "test"), ("checkpoint", None), ("decode", decode)):
        scored = _narrow(scored, name, first)
    return _compared(scored, metric)


_Scored = list[tuple[Result, list[Score]]]


def _of(results: Sequence[Result], metric: str) -> _Scored:
    scored = [(r, [s for s in r.scores if s.metric == metric]) for r in results]
    return [(r, scores) for r, scores in scored if scores]


def _compared(scored: _Scored, metric: str) -> Column | None:
    """Take the one score that is left of each run; all must be of the same data, signature and number of sentences."""
    if not scored:
        return None
    picked = [(r, scores[-1]) for r, scores in scored]  # evaluated twice: the last stands
    one, reference = picked[0]
    for other, score in picked:
        for name in ("data", "signature", "n_sentences"):
            if getattr(score, name) != getattr(reference, name):
                _refuse(one, reference, other, score, name)
    values = {str(r.folder): s.value for r, s in picked if math.isfinite(s.value)}
    return Column(metric, reference.split, reference.checkpoint, reference.decode, reference.signature, reference.data,
                  reference.n_sentences, values)  # fmt: skip


def _narrow(scored: _Scored, name: str, first: str | None) -> _Scored:
    """Keep the scores with one value of a field: `first` where any run has it, else one that all share.

    Else one of those that are done: a run cut short does not say what is compared.
    """
    offers = [{getattr(s, name): None for s in scores} for _, scores in scored]  # ordered, as written
    if not offers:
        return []
    done = [o for (r, _), o in zip(scored, offers, strict=True) if r.state == "done"] or offers
    shared = (v for among in (offers, done) for v in among[0] if all(v in o for o in among))
    want = first if first and any(first in o for o in offers) else next(shared, next(iter(done[0])))
    kept = []
    for result, scores in scored:
        fitting = [s for s in scores if getattr(s, name) == want]
        if fitting:
            kept.append((result, fitting))
        elif result.state == "done":  # a run cut short has perhaps no such score: its cell stays empty
            one, its = next((r, s) for r, ss in scored for s in ss if getattr(s, name) == want)
            _refuse(one, its, result, scores[0], name)
    return kept


def _refuse(one: Result, its: Score, other: Result, score: Score, name: str) -> None:
    here, there = getattr(its, name), getattr(score, name)
    word = {"data": "data fingerprint", "n_sentences": "number of sentences"}.get(name, name)
    command = "lnexp eval"
    if name == "checkpoint" and any(each.startswith(AVERAGED) for each in (here, there)):
        word, command = "averaging", "lnexp eval RUN [--average N]"
    raise UserError(
        f"{one.name} and {other.name} cannot stand in one column: {word} {here!r} against {there!r}; "
        f"give one of the folders, or score both alike with `{command}`"
    )


def check_data(results: Sequence[Result]) -> str | None:
    """Give the one data fingerprint of all begun runs; UserError where there are two (their losses do not compare)."""
    seen = [(r, r.env["data_fingerprint"]) for r in results if r.env.get("data_fingerprint")]
    for result, fingerprint in seen[1:]:
        if fingerprint != seen[0][1]:
            raise UserError(
                f"{seen[0][0].name} and {result.name} cannot stand in one column: data fingerprint "
                f"{seen[0][1]!r} against {fingerprint!r}; give one of the folders"
            )
    return str(seen[0][1]) if seen else None
