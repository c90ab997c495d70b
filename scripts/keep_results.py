"""Copy of a sweep what is small and what an audit of its numbers needs, and make its tables and figures from the copy.

  scripts/keep_results.py SWEEP results/NAME [--partial]
In: a sweep folder, all of whose runs have ended (--partial: whatever is there). Out: results/NAME, a sweep folder
without checkpoints, on which status, table, figure and dashboard work. Done twice it is the same. Paths of the machine
are shortened: ~ for the home directory, .../NAME for any other.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from lnexp import rundir
from lnexp.errors import UserError
from lnexp.files import write_text
from lnexp.paired import Tester
from lnexp.report import figure, live, table
from lnexp.report.collect import Result, collect, find
from lnexp.report.status import certain

KEPT = ("config.yaml", "env.json", "status.json", "scores.json", "timing.json", "probe.json", "metrics.jsonl",
        "train.log", "hyp.test*.txt")  # fmt: skip
MOST = 64_000
"""Bytes: a longer train.log stays where it is."""
# A slash that begins a path, with what follows; not one within a word, a number or an address.
_ABSOLUTE = re.compile(r"(?<![\w.~:/+-])/(?:[\w.@+-]+/)*([\w.@+-]+)")
_ENTITY = re.compile(r"(^  entity: |track\.entity=)[^\s\"']+", re.M)


def main(arguments: Sequence[str]) -> int:
    """Keep one sweep; 2 and one line where something is wrong."""
    names = [a for a in arguments if a != "--partial"]
    try:
        if len(names) != 2 or any(name.startswith("-") for name in names):
            raise UserError("need a sweep folder and where to keep it: keep_results.py SWEEP results/NAME [--partial]")
        print(keep(find(names[0]), Path(names[1]), partial="--partial" in arguments))
    except UserError as error:
        print(f"keep_results: {error}", file=sys.stderr)
        return 2
    return 0


def keep(sweep: Path, target: Path, partial: bool = False) -> str:
    """Copy, draw and write; give a line that says what is there now. UserError where the sweep cannot be kept."""
    runs = [certain(result) for result in collect(sweep, strict=False)]
    _check(sweep, target, runs, partial)
    begun = [run.folder for run in runs if run.config]
    try:
        for file in [sweep / "sweep.json", *(f for run in begun for name in KEPT for f in sorted(run.glob(name)))]:
            if file.is_file() and (file.name != "train.log" or file.stat().st_size <= MOST):
                copy = target / file.relative_to(sweep)
                copy.parent.mkdir(parents=True, exist_ok=True)
                if file.name == "metrics.jsonl" or file.name.startswith("hyp."):
                    shutil.copyfile(file, copy)  # numbers, words: no path in them, and no byte may change
                else:
                    write_text(copy, anonymous(file.read_text(encoding="utf-8", errors="replace")))
        for form in table.SUFFIX:
            table.write(target, form, paired=Tester())
        figure.write(target)
    except OSError as error:
        raise UserError(f"{error.filename or target}: cannot be written ({error.strerror})") from None
    commits = Counter(str(run.env.get("commit")) for run in runs if run.env)
    size = live.size(sum(file.stat().st_size for file in target.rglob("*") if file.is_file()))
    return f"{target}: {len(begun)} runs, {size}, of commit " + ", ".join(f"{c} ({n} runs)" for c, n in commits.items())


def _check(sweep: Path, target: Path, runs: Sequence[Result], partial: bool) -> None:
    states = Counter(run.state for run in runs if run.state not in rundir.ENDED)
    if states and not partial:
        counts = ", ".join(f"{n} {state}" for state, n in states.items())
        raise UserError(f"{sweep}: {counts}: train on until all have ended, or keep what is there with --partial")
    if not (sweep / "sweep.json").is_file():
        raise UserError(f"{sweep}: no sweep.json, which holds the command; name a sweep that `lnexp train` made")
    if target.resolve().is_relative_to(sweep.resolve()):
        raise UserError(f"{target}: lies in the sweep itself; name a folder below results/")
    strange = next((f for f in target.iterdir() if f.is_dir() and not (sweep / f.name).is_dir()), None) \
        if target.is_dir() else None  # fmt: skip
    if strange:
        raise UserError(f"{strange}: is not a run of {sweep}; delete it or name another folder")


def anonymous(text: str) -> str:
    """Take the machine's paths and the W&B account out."""
    home = re.compile(rf"{re.escape(str(Path.home()))}(?=[/\s\"':,]|$)")
    text = home.sub("~", text) if Path.home() != Path("/") else text
    return _ENTITY.sub(r"\1null", _ABSOLUTE.sub(r".../\1", text))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
