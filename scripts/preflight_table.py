"""What `lnexp doctor --run` would have said of runs that have ended, beside what became of them, as Markdown.

In: run or sweep folders. A run counts as failed where it diverged or its test sacreBLEU is below FAILED_BLEU.
  python scripts/preflight_table.py outputs/demo
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from lnexp import preflight
from lnexp.config import Run, load
from lnexp.data.prepare import prepare
from lnexp.report.collect import Result, collect
from lnexp.schedule import Schedule

FAILED_BLEU = 5.0
THREADS = 1


def bleu(result: Result) -> float:
    found = [s.value for s in result.scores if (s.split, s.metric, s.checkpoint) == ("test", "sacrebleu", "best")]
    return found[0] if found else 0.0


def same(run: Run) -> str:
    """What the measure depends on: runs that differ in their warm-up alone share it."""
    return str(replace(run, schedule=Schedule(), run_name="", sweep_name="", paths=Run().paths, track=Run().track))


def main(folders: list[str]) -> None:
    known: dict[str, preflight.Flight] = {}
    counts = {"right": 0, "false alarm": 0, "miss": 0}
    print("| run | precision | seed | reach | expected | test sacreBLEU | state | |\n|---|---|---|---|---|---|---|---|")
    for result in (r for folder in folders for r in collect(Path(folder)) if r.state in ("done", "diverged")):
        run = load(result.folder / "config.yaml")
        if (key := same(run)) not in known:
            known[key] = preflight.fly(run, prepare(run.data, Path(run.paths.cache).expanduser()), THREADS)
        alarm = not preflight.verdict(run, known[key])[0]
        failed = result.state == "diverged" or bleu(result) < FAILED_BLEU
        verdict = "right" if alarm == failed else "false alarm" if alarm else "miss"
        counts[verdict] += 1
        name = f"{run.model.norm} w{run.schedule.warmup_updates} lr {run.optim.lr:g}"
        print(f"| {name} | {run.devices.precision} | {run.seed} | {known[key].reach:.2g} "
              f"| {'fails' if alarm else 'learns'} | {bleu(result):.2f} | {result.state} | {verdict} |",
              flush=True)  # fmt: skip
    print(f"\n{sum(counts.values())} runs: " + ", ".join(f"{n} {name}" for name, n in counts.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
