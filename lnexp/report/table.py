"""The table of a sweep: a row a configuration, ours beside the paper's words, and what every number is.

In: results (collect). Out: Markdown, CSV, LaTeX or JSON. `build` makes the content once, as plain data; the
formats and the dashboard only write it down. A BLEU never leaves here without metric, split, signature and n.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lnexp import paper, rundir
from lnexp.errors import UserError
from lnexp.report import markup, wording
from lnexp.report.collect import Result, collect, find
from lnexp.report.column import Column, check_data, column
from lnexp.report.costs import costs, grid
from lnexp.report.group import Group, factors, group
from lnexp.report.interval import Sample
from lnexp.report.markup import Grid
from lnexp.report.status import status as status
from lnexp.report.summary import summary as summary

SUFFIX = {"md": ".md", "csv": ".csv", "latex": ".tex", "json": ".json"}


def write(path: Path | str, fmt: str = "md", outputs: Path | str = "outputs") -> Path:
    """Write table.{md,csv,tex,json} into PATH and give the file."""
    folder = find(path, outputs)
    text = render(collect(folder), fmt)
    file = folder / f"table{SUFFIX[fmt]}"
    try:
        rundir.write_text(file, text)
    except OSError as error:
        raise UserError(f"{file}: cannot be written ({error.strerror})") from None
    return file


def render(results: Sequence[Result], fmt: str = "md") -> str:
    """Give the table as text in one of the formats of SUFFIX."""
    if fmt not in SUFFIX:
        raise UserError(f"--format {fmt}: need one of {', '.join(SUFFIX)}")
    writers: dict[str, Callable[[dict[str, Any]], str]] = {
        "md": lambda t: "\n".join(map(markup.markdown, filter(None, (_grid(t), grid(t["rows"]))))),
        "latex": lambda t: markup.latex(_grid(t)),
        "csv": _csv,
        "json": lambda t: json.dumps(t, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
    }
    return writers[fmt](build(results))


def build(results: Sequence[Result]) -> dict[str, Any]:
    """Give the table as plain data. Raises UserError where numbers do not compare."""
    groups = group(results)
    varying = factors([g.flat for g in groups])
    data = check_data(results)
    scores = column(results)
    return {
        "name": ", ".join(sorted({wording.plain(r.folder.parent.name, 60) for r in results})),
        "factors": varying,
        "states": {s: n for s, n in Group({}, list(results)).states.items()},
        "metric": _identity(scores),
        "data": scores.data if scores else data,
        "rows": [_row(g, varying, scores) for g in groups],
        "notes": _notes(groups, scores),
    }


def _identity(scores: Column | None) -> dict[str, Any] | None:
    if scores is None:
        return None
    names = ("metric", "split", "signature", "n_sentences", "data", "decode", "checkpoint")
    return {name: getattr(scores, name) for name in names}


def _row(group: Group, varying: list[str], scores: Column | None) -> dict[str, Any]:
    bleu = _sample([scores.values.get(str(r.folder)) for r in group.runs] if scores else [])
    expected = next((r.config["expected"] for r in group.runs if r.config.get("expected")), "")
    claim = paper.claim_for(group.config)
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
            "words": paper.words(group.config) if claim or not expected else wording.plain(str(expected), 160),
            "claim": claim.id if claim else None,
            "locus": claim.locus if claim else None,
            "certainty": claim.certainty if claim else None,
            "difference": paper.difference(group.config, bleu.mean if bleu else None),
        },
        "costs": costs(group.runs),
        "runs": [r.name for r in group.runs],
    }


def _json_value(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def best_valid_loss(result: Result) -> float | None:
    """Give the lowest finite validation loss of a run, in bits per token."""
    finite = [loss for _, loss in result.series("valid", "loss_bits") if math.isfinite(loss)]
    return min(finite, default=None)


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
        split, signature, data, decode, checkpoint = (
            wording.plain(getattr(scores, k), 200) for k in ("split", "signature", "data", "decode", "checkpoint")
        )
        notes.append(
            f"{split} sacreBLEU: {signature}; {wording.count(scores.n_sentences)} sentences; data {data}; "
            f"decode {decode}; {checkpoint} checkpoint. "
            "± is half of the 95% Student t interval of the mean over n seeds; one seed has none."
        )
    else:
        notes.append("No run is scored yet.")
    notes.append("valid loss: label-smoothed cross-entropy, bits per token, the lowest of each run.")
    ran = {str(r.env["precision"]) for g in groups for r in g.runs if r.env.get("precision")}
    if len(ran) == 1:  # several stand in the rows
        notes.append(f"Computed in {wording.plain(ran.pop(), 40)}.")
    claims = [claim for g in groups if (claim := paper.claim_for(g.config))]
    if claims:
        notes.append(f"The paper: {paper.TITLE}; {'; '.join(sorted({c.locus for c in claims}, reverse=True))}.")
    configs = [g.config for g in groups if g.config.get("data")]
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


def _grid(table: dict[str, Any]) -> Grid:
    split = table["metric"]["split"] if table["metric"] else "test"
    compared = any(row["paper"]["difference"] is not None for row in table["rows"])
    headers = [wording.factor(k) for k in table["factors"]]
    first = len(headers)
    headers += [f"{split} sacreBLEU", "valid loss, bits", "state", "updates", "wall-clock"]
    headers += ["ours − paper"] if compared else []
    rows = []
    for row in table["rows"]:
        cells = [wording.level(k, v) for k, v in row["factors"].items()]
        bleu, loss = row["bleu"], row["valid_loss_bits"]
        cells += [
            f"{bleu['text']} (n={bleu['n']})" if bleu else wording.NOTHING,
            loss["text"] if loss else wording.NOTHING,
        ]
        cells += [row["state"], _span(row["updates"]), row["wall"]]
        if compared:
            gap = row["paper"]["difference"]
            cells.append(wording.NOTHING if gap is None else f"{gap:+.2f}")
        rows.append([*cells, row["paper"]["words"]])
    states = ", ".join(f"{n} {state}" for state, n in table["states"].items())
    title = f"{table['name']}: {len(rows)} configurations, {sum(table['states'].values())} runs ({states})."
    right = {first, first + 1, first + 3, first + 4} | ({first + 5} if compared else set())
    return Grid(title, [*headers, "in the paper"], rows, table["notes"], right)


def _span(values: list[int]) -> str:
    if not values:
        return wording.NOTHING
    return str(values[0]) if len(values) == 1 else f"{values[0]}–{values[-1]}"


def _csv(table: dict[str, Any]) -> str:
    """Numbers unrounded and bare of units, and the identity of the metric in every row."""
    metric = table["metric"] or {}
    identity = ("metric", "split", "signature", "n_sentences", "data", "decode", "checkpoint")
    statistics = ("mean", "half_width", "sd", "n")
    headers = [*table["factors"], *(f"bleu_{s}" for s in statistics), *identity,
               *(f"valid_loss_bits_{s}" for s in statistics), "state", "updates_min", "updates_max", "wall_s",
               "paper", "paper_locus", "paper_certainty", "difference"]  # fmt: skip
    rows = []
    for row in table["rows"]:
        bleu, loss, words = row["bleu"] or {}, row["valid_loss_bits"] or {}, row["paper"]
        cells = [_cell(v) for v in row["factors"].values()]
        cells += [bleu.get(s) for s in statistics] + [metric.get(i) if bleu else None for i in identity]
        cells += [loss.get(s) for s in statistics] + [row["state"], *(row["updates"][:1] or [None])]
        cells += [*(row["updates"][-1:] or [None]), row["wall_s"]]
        cells += [words["words"], words["locus"], words["certainty"], words["difference"]]
        rows.append(cells)
    return markup.comma_separated(headers, rows)


def _cell(value: Any) -> Any:
    return wording.plain(str(value), 200) if isinstance(value, str | list) else value
