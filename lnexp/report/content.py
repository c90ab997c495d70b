"""Results in; all that the dashboard shows out, as plain data without a non-finite number."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from lnexp.report import table, wording
from lnexp.report.collect import Flat, Result
from lnexp.report.costs import grid
from lnexp.report.curves import columns, layer_names, layers, thinning
from lnexp.report.group import Group, factors, group, identity
from lnexp.report.samples import choose, translations
from lnexp.report.status import CUT, certain


def data(results: Sequence[Result]) -> dict[str, Any]:
    """Give the page's data: groups of runs, their curves, tables, translations and configurations."""
    groups = group(results)
    varying = factors([g.flat for g in groups])
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
        "costs": costs and {"headers": costs.headers, "rows": costs.rows, "notes": costs.notes},
        "summary": table.summary(results),
        "factors": [{"key": k, "label": wording.factor(k)} for k in varying],
        "groups": [_group(g, varying) for g in groups],
        "runs": runs,
        "config": common,
        "samples": sample and {k: v for k, v in vars(sample).items() if k != "at"},
        "layers": names,
        "thinned": thin,
    }


def _lean(content: dict[str, Any]) -> dict[str, Any]:
    """Drop what the page shows in another form: raw factor values, folder names, single values."""
    drop = ("factors", "runs", "seeds", "costs")
    return {**content, "rows": [{k: v for k, v in row.items() if k not in drop} for row in content["rows"]]}


def _group(one: Group, varying: list[str]) -> dict[str, Any]:
    return {
        "id": hashlib.sha256(repr(sorted(one.flat.items())).encode()).hexdigest()[:8],
        "name": wording.config_name(one.flat, varying),
        "levels": [wording.level(k, one.flat.get(k)) for k in varying],
        "norm": one.flat.get("model.norm"),
        "warmup": one.flat.get("schedule.warmup_updates"),
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
        "scores": [[s.split, s.metric, round(s.value, 2), wording.plain(s.decode, 60)] for s in run.scores],
        "config": {k: v for k, v in config.items() if common.get(k) != v},
    }


def _config(run: Result) -> dict[str, str]:
    """Give the whole identity of a run, the seed with it, as text."""
    flat: Flat = {**identity(run.flat), "seed": run.seed} if run.flat else {}
    return {k: wording.level("", v) if v != "" else "" for k, v in sorted(flat.items())}


def _common(configs: Sequence[dict[str, str]]) -> dict[str, str]:
    """Keep what every run has alike, so that 1,000 runs do not carry it 1,000 times."""
    first, rest = (configs[0], configs[1:]) if configs else ({}, [])
    return {k: v for k, v in first.items() if all(c.get(k) == v for c in rest)}
