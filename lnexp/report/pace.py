"""How fast: when Pre-LN has what Post-LN ends with (Section 4: its 9th checkpoint against Post-LN's 15th).

In: results. Out: plain data, and the table that shows it. A checkpoint is a validation, counted from 1; nothing is
interpolated between two of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lnexp import paper
from lnexp.report import wording
from lnexp.report.collect import Result
from lnexp.report.column import check_data
from lnexp.report.interval import Sample
from lnexp.report.markup import Grid
from lnexp.report.pace_pairs import MOST, Pair, pairs
from lnexp.rundir import ENDED

METRICS = {"loss_bits": "valid loss", "bleu": "valid sacreBLEU"}
"""What is reached: label-smoothed validation loss in bits a token, sacreBLEU of the validation set."""
_BETTER = {"loss_bits": -1, "bleu": 1}
TARGETS = ("last", "best")
ALONG = ("checkpoint", "updates", "epoch", "wall_s")
CLAIM = "fig4.faster"
PAPERS = (9, 15)  # the checkpoints of Pre-LN and of Post-LN in that claim's statement


@dataclass(frozen=True)
class Validation:
    """One validation of a run: its number, where it stands, and its value of one metric (nan where it has none)."""

    checkpoint: int
    updates: int
    epoch: float
    wall_s: float
    value: float


def pace(results: Sequence[Result]) -> dict[str, Any] | None:
    """Say for every pair when Post-LN and Pre-LN reach what Post-LN has; None where no pair has ended runs.

    For each metric and each seed that both have: the target is Post-LN's own value at its last validation ("last"),
    and the best of all its validations ("best"). A model reaches it at its first validation whose value is at or
    beyond the target; Post-LN, too, may do so before its last validation. Where that is: checkpoint (the number of
    that validation), updates, epoch, wall_s (training, validation and decoding, without start-up). The ratio is
    Pre-LN's over Post-LN's, seed by seed; mean, sd and half of the 95% Student t interval are over seeds.
    `reached` of `n` seeds get there; those that never do have no ratio and no part in Pre-LN's means. `sooner` counts
    the seeds where Pre-LN is there at a lower checkpoint, or fewer updates where `axis` says so: where the two are not
    validated equally often, whose checkpoints do not compare. `post_then` is the mirrored question, what Post-LN has
    at that checkpoint of Pre-LN (or at its latest validation up to those updates); `course` asks it at every
    checkpoint of Pre-LN. `left_out` names the runs that are not compared, a Post-LN at chance among them,
    `without_target` counts the seeds whose last value of Post-LN is not finite. Raises
    UserError where runs are of different data.
    """
    check_data(results)
    found = [_pair(pair) for pair in pairs(results)]
    if not any(entry["n"] for pair in found for entry in pair["reach"]):
        return None
    return {"signature": signature(results), "pairs": found}


def why_none(results: Sequence[Result]) -> str | None:
    """Say why runs that could be compared are not, None where there is no pair whose runs have all ended."""
    ended = [p for p in pairs(results) if all(r.state in ENDED for r in (*p.post.runs, *p.pre.runs))]
    names = [f"{_title({'settings': p.settings, 'post': p.names[0], 'pre': p.names[1]})} ({'; '.join(p.left_out)})"
             for p in ended[:MOST]]  # fmt: skip
    return f"How fast is not said: no run of Post-LN gives a target in {', '.join(names)}." if names else None


def signature(results: Sequence[Result]) -> str | None:
    """Give sacreBLEU's signature of the validation scores, None where there is none or more than one."""
    found = {s.signature for r in results for s in r.scores if (s.split, s.metric) == ("valid", "sacrebleu")}
    return found.pop() if len(found) == 1 else None


def validations(run: Result, metric: str) -> list[Validation]:
    """Give a run's validations in order. One that a resumed run made again counts once, as it stands last."""
    fields = [dict(run.series("valid", name)) for name in ("epoch", "wall_s", metric)]
    at = sorted({updates for updates, _ in run.series("valid", "updates")})
    return [Validation(k, u, *(field.get(u, math.nan) for field in fields)) for k, u in enumerate(at, start=1)]


def target(points: Sequence[Validation], metric: str, kind: str) -> float | None:
    """Give the last value, or the best finite one; None where the last is not finite."""
    if not points or not math.isfinite(points[-1].value):
        return None
    sign, finite = _BETTER[metric], [point.value for point in points if math.isfinite(point.value)]
    return finite[-1] if kind == "last" else max(finite, key=lambda value: sign * value)


def arrival(points: Sequence[Validation], metric: str, goal: float) -> Validation | None:
    """Give the first validation at or beyond the goal; a value that is no number never is."""
    sign, finite = _BETTER[metric], (point for point in points if math.isfinite(point.value))
    return next((point for point in finite if sign * point.value >= sign * goal), None)


def _pair(pair: Pair) -> dict[str, Any]:
    partners = pair.partners
    return {
        "settings": pair.settings,
        "post": pair.names[0],
        "pre": pair.names[1],
        "paper": _papers(pair),
        "axis": pair.axis,
        "by_seed": all(post.seed == pre.seed for post, pre in partners),
        "left_out": pair.left_out,
        "reach": [measure(pair, metric, kind) for metric in METRICS for kind in TARGETS],
        "course": {metric: _course(partners, pair.axis, metric) for metric in METRICS},
    }


def _papers(pair: Pair) -> dict[str, Any] | None:
    """Give the paper's claim about this pair; away from the paper's corpora with the name of its corpus."""
    if not pair.is_papers:
        return None
    home = paper.on_paper_corpus(pair.pre.config)
    name = "wmt.pre" if home and pair.pre.flat.get("data.name") == paper.WMT else CLAIM
    claim = next(claim for claim in paper.CLAIMS if claim.id == name)
    ratio = round(PAPERS[0] / PAPERS[1], 2) if name == CLAIM else None
    of = "{}th of {}".format(*PAPERS) + ("" if home else f", {paper.CORPUS_NAMES[claim.corpus]}")
    said = {key: getattr(claim, key) for key in ("locus", "certainty", "statement")}
    return {"claim": name, **said, "ratio": ratio, "words": f"{ratio:.2f} ({of})" if ratio else claim.short}


def measure(pair: Pair, metric: str, kind: str) -> dict[str, Any]:
    """Give one entry of `pace`: a pair, a metric and one of TARGETS."""
    axis, partners = pair.axis, pair.partners
    along = [a for a in ALONG if a != "checkpoint" or axis == a]
    seeds: list[dict[str, Any]] = []
    for post, pre in partners:
        mine, its = validations(post, metric), validations(pre, metric)
        goal = target(mine, metric, kind)
        first = None if goal is None else arrival(mine, metric, goal)
        if goal is None or first is None:
            continue
        there = arrival(its, metric, goal)
        seeds.append({
            "seed": post.seed if post.seed == pre.seed else [post.seed, pre.seed],
            "target": goal,
            "post": _place(first),
            "pre": _place(there) if there else None,
            "ratio": {a: _over(getattr(there, a), getattr(first, a)) for a in along} if there else None,
            "post_then": _then(mine, there, axis) if there else None,
        })  # fmt: skip
    reached = [seed for seed in seeds if seed["pre"]]
    return {
        "metric": metric,
        "target": kind,
        "n": len(seeds),
        "without_target": len(partners) - len(seeds),
        "reached": len(reached),
        "sooner": sum(seed["pre"][axis] < seed["post"][axis] for seed in reached),
        "value": _numbers([seed["target"] for seed in seeds]),
        "post": {a: _numbers([seed["post"][a] for seed in seeds]) for a in ALONG},
        "pre": {a: _numbers([seed["pre"][a] for seed in reached]) for a in ALONG},
        "ratio": {a: _numbers([seed["ratio"][a] for seed in reached]) for a in along},
        "post_then": _numbers([seed["post_then"] for seed in reached]),
        "seeds": seeds,
    }


def _place(point: Validation) -> dict[str, float | None]:
    return {a: value if math.isfinite(value := getattr(point, a)) else None for a in ALONG}


def _over(pre: float, post: float) -> float | None:
    return round(pre / post, 4) if post and math.isfinite(pre / post) else None


def _then(points: Sequence[Validation], at: Validation, axis: str) -> float | None:
    """Give Post-LN's value at that checkpoint of Pre-LN, or at its latest validation up to those updates."""
    if axis == "checkpoint":
        values = [point.value for point in points if point.checkpoint == at.checkpoint]
    else:
        values = [point.value for point in points if point.updates <= at.updates]
    return values[-1] if values and math.isfinite(values[-1]) else None


def _course(partners: Sequence[tuple[Result, Result]], axis: str, metric: str) -> list[dict[str, Any]]:
    found: dict[int, list[tuple[int, float, float]]] = {}
    for post, pre in partners:
        mine = validations(post, metric)
        for at in validations(pre, metric):
            then = _then(mine, at, axis)
            if then is not None and math.isfinite(at.value):
                found.setdefault(at.checkpoint, []).append((at.updates, at.value, then))
    course = []
    for checkpoint, its in sorted(found.items()):
        updates, pre_values, post_values = (round(math.fsum(each) / len(its), 4) for each in zip(*its, strict=True))
        course.append({"checkpoint": checkpoint, "updates": updates, "pre": pre_values, "post": post_values,
                       "n": len(its)})  # fmt: skip
    return course


def _numbers(values: Sequence[float | None]) -> dict[str, Any] | None:
    known = tuple(value for value in values if value is not None)
    if not known:
        return None
    sample = Sample(known)
    rounded = {k: None if (v := getattr(sample, k)) is None else round(v, 4) for k in ("mean", "sd", "half_width")}
    return {**rounded, "n": sample.n, "text": wording.sample(sample)}


def grid(pace: dict[str, Any]) -> Grid:
    """Give the table of at most MOST pairs: a row a pair, a metric and a target, or one for both where they agree."""
    headers = ["how fast", "until Post-LN's", "Post-LN, checkpoint", "Pre-LN, checkpoint", "updates", "epochs",
               "wall-clock", "Pre/Post", "reached", "sooner", "Post-LN then", "in the paper"]  # fmt: skip
    rows = []
    for pair in pace["pairs"][:MOST]:
        for last, best in zip(pair["reach"][::2], pair["reach"][1::2], strict=True):
            same = last["seeds"] == best["seeds"]
            shown = [("last and best", last)] if same else [("last", last), ("best", best)]
            rows += [_cells(pair, which, entry) for which, entry in shown if entry["n"]]
    title = "How fast: when Post-LN has what it ends with, and when Pre-LN has it."
    return Grid(title, headers, rows, _notes(pace), set(range(2, len(headers) - 1)))


def _cells(pair: dict[str, Any], which: str, entry: dict[str, Any]) -> list[str]:
    sides, n = (entry["post"], entry["pre"]), entry["n"]
    ratio, then, claim = entry["ratio"][pair["axis"]], entry["post_then"], pair["paper"]
    unit = " bits" if entry["metric"] == "loss_bits" else ""
    return [
        _title(pair),
        f"{which} {METRICS[entry['metric']]}, {entry['value']['text']}{unit} (n={n})",
        *(_mean(side["checkpoint"], "{:.1f}".format) for side in sides),
        " / ".join(_mean(side["updates"], "{:,.0f}".format) for side in sides),
        " / ".join(_mean(side["epoch"], "{:.1f}".format) for side in sides),
        " / ".join(_mean(side["wall_s"], wording.duration) for side in sides),
        (ratio["text"] if ratio else wording.NOTHING) + (" (updates)" if ratio and pair["axis"] == "updates" else ""),
        f"{entry['reached']} of {n}",
        f"{entry['sooner']} of {n}",
        then["text"] if then else wording.NOTHING,
        claim["words"] if claim and entry["target"] == "last" else wording.NOTHING,
    ]


def _title(pair: dict[str, Any]) -> str:
    return ": ".join(filter(None, [pair["settings"], f"{pair['post']}; {pair['pre']}"]))


def _mean(numbers: dict[str, Any] | None, write: Callable[[float], str]) -> str:
    return write(numbers["mean"]) if numbers else wording.NOTHING


def _notes(pace: dict[str, Any]) -> list[str]:
    notes = [
        "checkpoint: the first validation at or beyond the target, counted from 1, nothing interpolated. The target is "
        "Post-LN's own of the same seed. a / b: Post-LN / Pre-LN, means over seeds.",
        "Pre/Post: the mean over seeds of the ratio of checkpoints, ± half of its 95% Student t interval. reached, "
        "sooner: in so many of n seeds Pre-LN has the target at all, and at a lower checkpoint than Post-LN. Where not "
        "all reach it, Pre-LN's means and the ratio are of those that do, and flatter it. Post-LN then: what Post-LN "
        "has at the checkpoint where Pre-LN gets there.",
        "wall-clock: training, validation and decoding, without start-up; it means little where the machine did other "
        "work, so that the ratio is of checkpoints.",
    ]
    if pace["signature"]:
        notes.append(f"valid sacreBLEU: {wording.plain(pace['signature'], 100)}.")
    if any(pair["axis"] == "updates" for pair in pace["pairs"]):
        notes.append("(updates): the two are not validated equally often, so the ratio is of updates.")
    for pair in pace["pairs"][:MOST]:
        why = list(pair["left_out"])
        lost = max(entry["without_target"] for entry in pair["reach"])
        why += [f"{lost} whose last value of Post-LN is not a number"] if lost else []
        if not pair["by_seed"]:
            notes.append(f"{_title(pair)}: no seed is common to both, so they are paired in their order.")
        if why:
            notes.append(f"Not compared of {_title(pair)}: {'; '.join(why)}.")
    if (more := len(pace["pairs"]) - MOST) > 0:
        notes.append(f"{more} more pairs are not shown; --format json has them.")
    said = {f"{p['statement']} ({p['locus']}; {p['certainty']})" for pair in pace["pairs"] if (p := pair["paper"])}
    return notes + [f"The paper: {words}." for words in sorted(said)]
