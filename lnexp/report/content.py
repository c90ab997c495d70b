"""Results in; all that the dashboard shows out, as plain data without a non-finite number."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lnexp.report import probes, table, verdicts, wording
from lnexp.report.collect import NOT_BEGUN, Flat, Result, Score
from lnexp.report.costs import grid
from lnexp.report.curves import columns, layer_names, layers, thinning
from lnexp.report.group import Group, factors, group, identity
from lnexp.report.judge import FAILS, HOLDS, OPEN, Paired, judge
from lnexp.report.look import looks
from lnexp.report.samples import choose, translations
from lnexp.report.status import CUT, certain
from lnexp.rundir import AVERAGED

Measured = Mapping[Path, Sequence[probes.Row]]
"""Run folder -> the rows of its probe.json."""
_MARKS = {HOLDS: "holds", FAILS: "fails", OPEN: "open"}
"""Verdict -> its mark, a class of the style sheet."""


def data(results: Sequence[Result], paired: Paired | None = None) -> dict[str, Any]:
    """Give the page's data: groups of runs, their curves, tables, translations and configurations.

    `paired` tests a difference over sentences (judge.py). Raises UserError where the runs' scores do not compare; a run
    whose probe.json cannot be read becomes damaged.
    """
    measured = probes.forgiving(results)
    groups = group(results)
    flats = [g.flat for g in groups]
    varying = factors(flats)
    ordered = [(index, run) for index, g in enumerate(groups) for run in g.runs]
    configs = [_config(run) for _, run in ordered]
    common = _common([c for c in configs if c])
    content = table.build(results)
    costs = grid(content["rows"])
    sample = choose(results)
    thin = thinning(results)
    names = layer_names(results)
    runs = []
    for (index, run), config in zip(ordered, configs, strict=True):
        entry = _run(index, run, config, common) | columns(run, thin)
        if sample:
            entry["translations"] = translations(run, sample)
        if names:
            entry["probe"] = layers(run, names, len(results))
        runs.append(entry)
    return {
        "table": _lean(content),
        "claims": _claims(judge(results, paired)),
        "costs": costs and {"headers": costs.headers, "rows": costs.rows, "notes": costs.notes},
        "summary": _summary(groups, measured) or table.summary(results),
        "factors": [{"key": k, "label": wording.factor(k)} for k in varying],
        "groups": [_group(g, varying) | {"look": vars(look)} for g, look in zip(groups, looks(flats), strict=True)],
        "runs": runs,
        "config": common,
        "samples": sample and {k: v for k, v in vars(sample).items() if k != "at"},
        "layers": names,
        "probed": _probed(groups, measured, varying),
        "thinned": thin,
    }


def _claims(found: verdicts.Verdicts) -> dict[str, Any] | None:
    """Give the table of verdicts as `lnexp table` has it, with the mark and the reason of each; None without any."""
    shown = verdicts.grid(found)
    if shown is None:
        return None
    return {
        "title": shown.title,
        "headers": shown.headers,
        "rows": shown.rows,
        "notes": shown.notes,
        "right": sorted(shown.right),
        "marks": [_MARKS[v["verdict"]] for v in found],
        "how": [v["how"] for v in found],
    }


def _probed(groups: Sequence[Group], measured: Measured, varying: Sequence[str]) -> dict[str, Any] | None:
    """Give what `lnexp probe` measured, and which configurations differ in nothing but their depth: a family."""
    if not measured:
        return None
    rows = [[row for run in g.runs for row in measured.get(run.folder, [])] for g in groups]
    names = [key for key in varying if key not in probes.DEPTHS.values()]
    keys = [repr(sorted(probes.but_depth(g.flat).items())) for g in groups]
    families = {key: probes.but_depth(g.flat) for key, g in zip(keys, groups, strict=True)}
    return probes.lines(rows) | {
        "families": [
            {"name": wording.config_name(flat, names), "look": vars(look)}
            for flat, look in zip(families.values(), looks(list(families.values())), strict=True)
        ],
        "places": [
            {"family": list(families).index(key), **probes.depths(g.flat)} for key, g in zip(keys, groups, strict=True)
        ],
    }


def _summary(groups: Sequence[Group], measured: Measured) -> str:
    """Say what a sweep is that was only probed; nothing where a run has begun or none was probed."""
    runs = [run for g in groups for run in g.runs]
    if not measured or any(run.state not in NOT_BEGUN for run in runs):
        return ""
    known = sum(any(run.folder in measured for run in g.runs) for g in groups)
    return f"Nothing was trained here: {known} of {len(groups)} models were probed as training would start."


def _lean(content: dict[str, Any]) -> dict[str, Any]:
    """Drop what the page shows in another form: raw factor values, folder names, single values."""
    drop = ("factors", "runs", "seeds", "costs")
    rows = [{k: v for k, v in row.items() if k not in drop} for row in content["rows"]]
    return {**content, "rows": rows}


def _group(one: Group, varying: list[str]) -> dict[str, Any]:
    return {
        "id": hashlib.sha256(repr(sorted(one.flat.items())).encode()).hexdigest()[:8],
        "name": wording.config_name(one.flat, varying),
        "levels": [wording.level(k, one.flat.get(k)) for k in varying],
    }


def _run(index: int, run: Result, config: dict[str, str], common: dict[str, str]) -> dict[str, Any]:
    run = certain(run)
    cut = run.state == CUT
    tokens = run.flat.get("tokens_per_update")
    return {
        "name": wording.plain(run.name, 120),
        "group": index,
        "seed": run.seed if isinstance(run.seed, int) else None,
        "state": run.state,
        "stands": f"{CUT} at update {run.updates}" if cut else wording.state(run),
        "reason": "its process is gone; the same command goes on" if cut else wording.plain(run.reason or "", 400),
        "updates": run.updates,
        "tokens_per_update": tokens if isinstance(tokens, int) and tokens > 0 else None,
        "wall": wording.duration(run.wall_s) if run.wall_s else wording.NOTHING,
        "scores": [[s.split, _measure(s), round(s.value, 2), wording.plain(s.decode, 60)] for s in run.scores],
        "config": {k: v for k, v in config.items() if common.get(k) != v},
    }


def _measure(score: Score) -> str:
    """Name what a score is: a mean of checkpoints is another number than the best one."""
    mean = score.checkpoint.startswith(AVERAGED)
    return f"{score.metric}, {wording.plain(score.checkpoint, 40)}" if mean else score.metric


def _config(run: Result) -> dict[str, str]:
    """Give the whole identity of a run, the seed with it, as text."""
    flat: Flat = {**identity(run.flat), "seed": run.seed} if run.flat else {}
    return {k: wording.level("", v) if v != "" else "" for k, v in sorted(flat.items())}


def _common(configs: Sequence[dict[str, str]]) -> dict[str, str]:
    """Keep what every run has alike, so that 1,000 runs do not carry it 1,000 times."""
    first, rest = (configs[0], configs[1:]) if configs else ({}, [])
    return {k: v for k, v in first.items() if all(c.get(k) == v for c in rest)}
