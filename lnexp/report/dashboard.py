"""Results in, one self-contained dashboard.html out: it opens from file://, without network or server.

The page is a fixed template; all that changes is one block of JSON, which the page shows as text only.
A run folder's words therefore never meet HTML or JavaScript on the way.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from lnexp import rundir
from lnexp.errors import UserError
from lnexp.report import table, wording
from lnexp.report.collect import Flat, Result, collect, find
from lnexp.report.costs import grid
from lnexp.report.group import factors, group, identity

# Which columns of metrics.jsonl the page gets; a chart more is a name more here and a line in the template's CHARTS.
COLUMNS = {
    "train": ("updates", "epoch", "wall_s", "loss_bits", "lr", "gnorm"),
    "valid": ("updates", "epoch", "wall_s", "loss_bits", "bleu"),
}


def write(path: Path | str, outputs: Path | str = "outputs") -> Path:
    """Write dashboard.html into PATH and give the file. A damaged run is shown as damaged."""
    folder = find(path, outputs)
    file = folder / "dashboard.html"
    text = page(data([r.forgive() for r in collect(folder, strict=False)]))
    try:
        rundir.write_text(file, text)
    except OSError as error:
        raise UserError(f"{file}: cannot be written ({error.strerror})") from None
    return file


def data(results: Sequence[Result]) -> dict[str, Any]:
    """Give all that the page shows, as plain data without a non-finite number."""
    groups = group(results)
    varying = factors([g.flat for g in groups])
    ordered = [(index, run) for index, g in enumerate(groups) for run in g.runs]
    configs = [_config(run) for _, run in ordered]
    common = _common([c for c in configs if c])
    content = table.build(results)
    costs = grid(content["rows"])
    return {
        "table": _lean(content),
        "costs": costs and {"headers": costs.headers, "rows": costs.rows, "notes": costs.notes},
        "summary": table.summary(results),
        "factors": [{"key": k, "label": wording.factor(k)} for k in varying],
        "groups": [
            {
                "name": wording.config_name(g.flat, varying),
                "levels": [wording.level(k, g.flat.get(k)) for k in varying],
                "norm": g.flat.get("model.norm"),
                "warmup": g.flat.get("schedule.warmup_updates"),
            }
            for g in groups
        ],
        "runs": [_run(i, r, c, common) for (i, r), c in zip(ordered, configs, strict=True)],
        "config": common,
    }


def _lean(content: dict[str, Any]) -> dict[str, Any]:
    """Drop what the page shows in another form: raw factor values, folder names, single values."""
    drop = ("factors", "runs", "seeds", "costs")
    return {**content, "rows": [{k: v for k, v in row.items() if k not in drop} for row in content["rows"]]}


def _run(index: int, run: Result, config: dict[str, str], common: dict[str, str]) -> dict[str, Any]:
    return {
        "name": wording.plain(run.name, 120),
        "group": index,
        "seed": run.seed if isinstance(run.seed, int) else None,
        "state": run.state,
        "stands": wording.state(run),
        "reason": wording.plain(run.reason or "", 400),
        "updates": run.updates,
        "wall": wording.duration(run.wall_s) if run.wall_s else wording.NOTHING,
        "config": {k: v for k, v in config.items() if common.get(k) != v},
        **{split: _columns(run, split, names) for split, names in COLUMNS.items()},
    }


def _columns(run: Result, split: str, names: Sequence[str]) -> dict[str, list[float | None]]:
    rows = [row for row in run.rows if row.get("split") == split]
    return {name: [_number(row.get(name)) for row in rows] for name in names}


def _number(value: Any) -> float | None:
    """Keep six digits of a finite number; all else is a gap in the curve."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.6g}")


def _config(run: Result) -> dict[str, str]:
    """Give the whole identity of a run, the seed with it, as text."""
    flat: Flat = {**identity(run.flat), "seed": run.seed} if run.flat else {}
    return {k: wording.level("", v) if v != "" else "" for k, v in sorted(flat.items())}


def _common(configs: Sequence[dict[str, str]]) -> dict[str, str]:
    """Keep what every run has alike, so that 1,000 runs do not carry it 1,000 times."""
    first, rest = (configs[0], configs[1:]) if configs else ({}, [])
    return {k: v for k, v in first.items() if all(c.get(k) == v for c in rest)}


def block(content: dict[str, Any]) -> str:
    """Give JSON that may stand inside a script element: nothing in it can end the element or open another."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def page(content: dict[str, Any]) -> str:
    """Give the whole page."""
    here = resources.files("lnexp.report")
    parts = {
        "uplot.css": (here / "vendor" / "uPlot.min.css").read_text(encoding="utf-8"),
        "uplot.js": (here / "vendor" / "uPlot.iife.min.js").read_text(encoding="utf-8"),
        "uplot.licence": (here / "vendor" / "LICENSE").read_text(encoding="utf-8"),
        "data.json": block(content),
    }
    template = (here / "dashboard.html").read_text(encoding="utf-8")
    # One pass: what is put in is never itself searched for places.
    return re.sub(r"/\*\{([a-z.]+)\}\*/", lambda match: parts[match[1]], template)
