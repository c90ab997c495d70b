"""The table of a sweep: a row a configuration, ours beside the paper's words, and what every number is.

In: results (collect). Out: the content as plain data, made once (`build`), and below it what the paper concludes from
such runs, judged (judge.py); the dashboard and forms.py, for Markdown, CSV, LaTeX and JSON, only write it down. A BLEU
never leaves here without metric, split, signature and n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lnexp import paper, rundir
from lnexp.errors import UserError
from lnexp.report import forms, verdicts, wording
from lnexp.report.collect import Result, collect, find
from lnexp.report.column import Column, averaged, check_data, column
from lnexp.report.costs import costs
from lnexp.report.group import Group, factors, group
from lnexp.report.interval import Sample
from lnexp.report.judge import Paired, best_valid_loss, config, judge
from lnexp.report.pace import pace, why_none
from lnexp.report.status import status as status
from lnexp.report.summary import summary as summary

SUFFIX = {"md": ".md", "csv": ".csv", "latex": ".tex", "json": ".json"}


def write(
    path: Path | str, fmt: str = "md", outputs: Path | str = "outputs", paired: Paired | None = None
) -> list[Path]:
    """Write table.{md,csv,tex,json} into PATH and give the file; for CSV the verdicts are a second one."""
    folder = find(path, outputs)
    files = []
    for name, text in _texts(collect(folder), fmt, paired).items():
        files.append(folder / name)
        try:
            rundir.write_text(files[-1], text)
        except OSError as error:
            raise UserError(f"{files[-1]}: cannot be written ({error.strerror})") from None
    return files


def render(results: Sequence[Result], fmt: str = "md", paired: Paired | None = None) -> str:
    """Give the table as text in one of the formats of SUFFIX; of CSV the rows alone."""
    return next(iter(_texts(results, fmt, paired).values()))


def _texts(results: Sequence[Result], fmt: str, paired: Paired | None) -> dict[str, str]:
    if fmt not in SUFFIX:
        raise UserError(f"--format {fmt}: need one of {', '.join(SUFFIX)}")
    table = build(results) | below(results, paired)
    if not table["pace"] and (why := why_none(results)):
        table["notes"].append(why)
    name = f"table{SUFFIX[fmt]}"
    if fmt == "csv":
        found = table["claims"]
        return {name: forms.csv(table)} | ({"table.claims.csv": verdicts.comma_separated(found)} if found else {})
    return {name: {"md": forms.markdown, "latex": forms.latex, "json": forms.json_text}[fmt](table)}


def below(results: Sequence[Result], paired: Paired | None = None) -> dict[str, Any]:
    """Give what stands below the rows: the paper's claims with verdicts, how fast, and what the paper leaves open."""
    groups = group(results)
    return {
        "claims": judge(results, paired),
        "pace": pace(results),
        "open": verdicts.open_points([config(g, groups) for g in groups]),
    }


def build(results: Sequence[Result]) -> dict[str, Any]:
    """Give the rows as plain data. Raises UserError where numbers do not compare."""
    groups = group(results)
    varying = factors([g.flat for g in groups])
    data = check_data(results)
    scores, mean = column(results), averaged(results)
    table: dict[str, Any] = {
        "name": ", ".join(sorted({wording.plain(r.folder.parent.name, 60) for r in results})),
        "factors": varying,
        "states": {s: n for s, n in Group({}, list(results)).states.items()},
        "metric": _identity(scores),
        "data": scores.data if scores else data,
        "rows": [_row(g, config(g, groups), varying, scores) for g in groups],
        "notes": _notes(groups, scores),
    }
    if mean:  # beside the single checkpoint's, under a name of its own
        table["averaged"] = _identity(mean)
        table["notes"].insert(1, f"{mean.checkpoint} checkpoints: {_named(mean)}.")
        for row, one in zip(table["rows"], groups, strict=True):
            row["averaged"] = _numbers(_sample([mean.values.get(str(run.folder)) for run in one.runs]))
    return table


def _identity(scores: Column | None) -> dict[str, Any] | None:
    if scores is None:
        return None
    names = ("metric", "split", "signature", "n_sentences", "data", "decode", "checkpoint")
    return {name: getattr(scores, name) for name in names}


def _row(group: Group, its: dict[str, Any], varying: list[str], scores: Column | None) -> dict[str, Any]:
    bleu = _sample([scores.values.get(str(r.folder)) for r in group.runs] if scores else [])
    expected = next((r.config["expected"] for r in group.runs if r.config.get("expected")), "")
    claim = paper.claim_for(its)
    begun = [r for r in group.runs if r.updates]
    wall_s = round(math.fsum(r.wall_s for r in begun) / len(begun), 3) if begun else None
    return {
        "name": wording.config_name(group.flat, varying),
        "factors": {key: _json_value(group.flat.get(key)) for key in varying},
        "bleu": _numbers(bleu),
        "valid_loss_bits": _numbers(_sample([best_valid_loss(r) for r in group.runs])),
        "state": wording.states(group),
        "states": group.states,
        "seeds": group.seeds,
        "updates": sorted({r.updates for r in begun}),
        "wall_s": wall_s,
        "wall": wording.NOTHING if wall_s is None else wording.duration(wall_s),
        "paper": {
            "words": paper.words(its) if claim or not expected else wording.plain(str(expected), 160),
            "claim": claim.id if claim else None,
            "locus": claim.locus if claim else None,
            "certainty": claim.certainty if claim else None,
            "difference": paper.difference(its, bleu.mean if bleu else None),
        },
        "costs": costs(group.runs),
        "runs": [r.name for r in group.runs],
    }


def _json_value(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _sample(values: Sequence[float | None]) -> Sample | None:
    known = tuple(v for v in values if v is not None)
    return Sample(known) if known else None


def _numbers(sample: Sample | None) -> dict[str, Any] | None:
    if sample is None:
        return None
    rounded = {k: None if (v := getattr(sample, k)) is None else round(v, 4) for k in ("mean", "sd", "half_width")}
    return {**rounded, "n": sample.n, "values": list(sample.values), "text": wording.sample(sample)}


def _notes(groups: list[Group], scores: Column | None) -> list[str]:
    """Say what the numbers are, and what the paper's words are not."""
    notes = []
    if scores:
        notes.append(
            f"{_named(scores)}; {wording.plain(scores.checkpoint, 200)} checkpoint. "
            "± is half of the 95% Student t interval of the mean over n seeds, sd their standard deviation; one seed "
            "has neither."
        )
    else:
        notes.append("No run is scored yet.")
    notes.append("valid loss: label-smoothed cross-entropy, bits per token, the lowest of each run.")
    ran = {str(r.env["precision"]) for g in groups for r in g.runs if r.env.get("precision")}
    if len(ran) == 1:  # several stand in the rows
        notes.append(f"Computed in {wording.plain(ran.pop(), 40)}.")
    claims = [claim for g in groups if (claim := paper.claim_for(config(g, groups)))]
    if claims:
        notes.append(f"The paper: {paper.TITLE}; {'; '.join(sorted({c.locus for c in claims}, reverse=True))}.")
    configs = [config(g, groups) for g in groups if g.config.get("data")]
    notes += _scales(groups)
    away = sorted({paper.corpus_name(c) for c in configs if not paper.on_paper_corpus(c)})
    if away:
        corpora = ", ".join(wording.plain(name, 60) for name in away)
        notes.append(f"The paper's words are its results on IWSLT14 De-En at its own size, not a target for {corpora}.")
    elif configs:
        notes.append("The paper names neither its BLEU tool nor the split of its BLEU.")
        shared = [d for d in paper.departures(configs[0]) if all(d in paper.departures(c) for c in configs)]
        if shared:
            notes.append(f"Other than in the paper (its value in brackets): {', '.join(shared)}.")
    return notes


def _scales(groups: list[Group]) -> list[str]:
    """Say at which scale of the paper's settings the runs are; of several, which rows, for none stands for another."""
    varying = factors([g.flat for g in groups])
    rows: dict[tuple[float, float], list[str]] = {}
    for g in groups:
        if g.config.get("data"):
            run = paper.standing(config(g, groups))
            rows.setdefault((run.per_update, run.per_lr), []).append(wording.config_name(g.flat, varying))
    words = {
        (updates, lr): f"its counts of updates divided by {wording.number(updates)}, its peak rates times "
        f"{wording.number(lr)}."
        for updates, lr in sorted(rows)
    }
    if len(words) > 1:
        several = "Runs of several scales of the paper's settings; claims and how fast compare runs of one scale alone."
        return [several, *(f"{', '.join(rows[scale])}: {said}" for scale, said in words.items())]
    return [f"At a scale of the paper's settings: {said}" for scale, said in words.items() if scale != (1.0, 1.0)]


def _named(scores: Column) -> str:
    split, signature, data, decode = (
        wording.plain(getattr(scores, k), 200) for k in ("split", "signature", "data", "decode")
    )
    count = wording.count(scores.n_sentences)
    return f"{split} sacreBLEU: {signature}; {count} sentences; data {data}; decode {decode}"
