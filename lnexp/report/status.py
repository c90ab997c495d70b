"""How a sweep stands: a line a run, done or not, with its last row. Never stops at a damaged file."""

from __future__ import annotations

from pathlib import Path

from lnexp.report import wording
from lnexp.report.collect import MISSING, Result, collect, find
from lnexp.report.group import Group


def status(path: Path | str, outputs: Path | str = "outputs") -> str:
    """Give one line a run (state, updates, last validation, wall-clock), then the counts."""
    folder = find(path, outputs)
    results = [r.forgive() for r in collect(folder, strict=False)]
    headers = ["state", "updates", "valid loss", "valid BLEU", "wall-clock", "run"]
    lines = [headers, *([*_cells(r), wording.plain(r.name, 100)] for r in results)]
    width = [max(len(line[i]) for line in lines) for i in range(len(headers) - 1)]
    text = []
    for line in lines:
        cells = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, width, strict=False))]
        text.append("  ".join([*cells, line[-1]]))
    for result in results:
        if result.reason and result.state not in ("done", MISSING):
            text.append(f"  {wording.plain(result.name, 100)}: {wording.plain(result.reason, 300)}")
    counts = ", ".join(f"{n} {state}" for state, n in Group({}, results).states.items())
    word = "wanted" if (folder / "sweep.json").is_file() else "found"
    return "\n".join([*text, f"{wording.plain(folder.name, 60)}: {len(results)} {word}: {counts}"]) + "\n"


def _cells(result: Result) -> list[str]:
    loss, bleu = result.series("valid", "loss_bits"), result.series("valid", "bleu")
    last = result.rows[-1] if result.rows else {}
    running = result.state == "running"  # status.json is then as old as the last checkpoint
    updates = max(result.updates, last.get("updates", 0)) if running else result.updates
    wall_s = last.get("wall_s", result.wall_s) if running else result.wall_s
    bound = result.config.get("max_updates") or 0
    return [
        result.state,
        f"{updates}/{bound}" if bound and result.state not in ("done", MISSING) else str(updates or wording.NOTHING),
        f"{loss[-1][1]:.3f}" if loss else wording.NOTHING,
        f"{bleu[-1][1]:.2f}" if bleu else wording.NOTHING,
        wording.duration(wall_s) if isinstance(wall_s, int | float) and wall_s else wording.NOTHING,
    ]
