"""`lnexp probe`: measure runs at initialisation or from a checkpoint; probe.json in each run folder, a short table.

probe.json is a list of rows {"at", "updates", "seed", "module", "quantity", "value", "setting"}, one a line. Rows of
other seeds, checkpoints and of the initialisation stay; what was measured with the same setting is not done again.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from lnexp import launch, rundir
from lnexp.config import Run, freeze, load
from lnexp.console import progress_bar
from lnexp.data.prepare import Prepared, prepare
from lnexp.errors import UserError
from lnexp.evaluate import trained_on
from lnexp.report.collect import find
from lnexp.report.probes import FILE, Row, read

Say = Callable[[str], None]
CHECKPOINTS = ("best", "last")
SHORT = ("fc1", "fc2")
"""Of the matrices, those that a printed table shows: the paper's W1 and W2 of Figure 3."""
_LAYER = re.compile(r"(\w+)\.layers\.(\d+)\.(.+)")


@dataclass(frozen=True)
class Choice:
    """What of a run is measured and what is printed; UserError where there is no such thing."""

    checkpoint: str
    """best, last, or none = the initialisation."""
    quantity: str

    def __post_init__(self) -> None:
        from lnexp.probe import QUANTITIES

        if self.checkpoint not in ("none", *CHECKPOINTS):
            raise UserError(f"--checkpoint {self.checkpoint}: need one of {', '.join(CHECKPOINTS)}")
        if self.quantity not in QUANTITIES:
            raise UserError(f"--quantity {self.quantity}: need one of {', '.join(QUANTITIES)}")


Asked = list[tuple[Run, Path]]


def asked(arguments: list[str], choice: Choice, outputs: str) -> tuple[Asked, Choice]:
    """Give the runs that a command line means: by settings, or a run folder and probe.* alone."""
    if not arguments and choice.checkpoint != "none":
        raise UserError(f"--checkpoint {choice.checkpoint}: of which run? Name its folder, or give its settings")
    if not arguments or arguments[0].startswith("-") or "=" in arguments[0]:
        return [(job.run, job.folder) for job in launch.plan(arguments, bound=False).jobs], choice
    folder, settings = find(arguments[0], outputs), arguments[1:]
    if not (folder / "config.yaml").exists():
        raise UserError(f"{arguments[0]}: a sweep; name one run folder of it, or settings as for train")
    if other := next((word for word in settings if not word.startswith("probe.")), None):
        raise UserError(f"{other}: a run folder has its settings; only probe.name=value can be added")
    if fixed := next((word for word in settings if word.startswith(("probe.seeds=", "probe.init="))), None):
        raise UserError(f"{fixed}: a trained model has its seed and its initialisation")
    run = load(folder / "config.yaml")
    own = [f"probe.{name}={value}" for name, value in vars(run.probe).items()]
    jobs = launch.plan([*own, *settings], bound=False).jobs
    if choice.checkpoint == "none":
        choice = replace(choice, checkpoint="best")
    return [(replace(run, probe=jobs[0].run.probe), folder)], choice


def survey(runs: Asked, choice: Choice, threads: int, say: Say) -> None:
    """Measure each run in its folder and print what was found; UserError for what a person can mend."""
    brief = len(runs) > 1
    for run, folder in runs:
        data = prepare(run.data, Path(run.paths.cache).expanduser(), say, threads)
        rows = probe(run, folder, data, choice.checkpoint, run.devices.threads or threads, say)
        print(table(rows, choice.quantity, brief), end="", flush=True)
    if brief:
        say(f"shown: the last layer of each stack; {FILE} in each run folder has all, `lnexp dashboard` draws them")


def probe(run: Run, folder: Path, data: Prepared, checkpoint: str, threads: int, say: Say) -> list[Row]:
    """Measure one run; give the rows of what was asked for. Its probe.json may hold others."""
    found = read(folder / FILE)
    setting = describe(run)
    state: dict[str, Any] = {}
    if checkpoint in CHECKPOINTS:
        from lnexp.backend import checkpoint as checkpoints

        state = checkpoints.read(folder / "checkpoints" / f"{checkpoint}.pt", trained_on(run, data))
        seeds, at, updates = [run.seed], "checkpoint", int(state["updates"])
    else:
        seeds, at, updates = list(range(run.seed, run.seed + run.probe.seeds)), "init", 0
    mine = {"at": at, "updates": updates, "setting": setting}
    done = {row["seed"] for row in found if mine.items() <= row.items()}
    todo = [seed for seed in seeds if seed not in done]
    say(f"{folder}: {at}{f' at update {updates}' if updates else ''}, {setting}: "
        + (f"{len(todo)} of {len(seeds)} seeds to measure" if todo else "measured already"))  # fmt: skip
    if todo:
        from lnexp.backend import open_prober

        prober = open_prober(run, data, threads)
    with progress_bar(len(seeds), len(seeds) - len(todo), True, "seed") as bar:
        for seed in todo:
            values = prober.at_checkpoint(state, _per_epoch(folder)) if state else prober.at_init(seed)
            place = {"at": at, "updates": updates, "seed": seed}
            found = [row for row in found if not place.items() <= row.items()]
            found += [{**place, "module": module, "quantity": quantity, "value": float(f"{value:.7g}"),
                       "setting": setting}
                      for quantity, by_module in values.items() for module, value in by_module.items()]  # fmt: skip
            _claim(run, folder)
            write(folder / FILE, found)
            bar.update()
    return [row for row in found if mine.items() <= row.items() and row["seed"] in seeds]


def describe(run: Run) -> str:
    """Say in few words how a run is measured: what decides a value besides the model and its seed."""
    probe = run.probe
    kind = "of Gaussian inputs" if probe.inputs == "gaussian" else "of training data"
    init = "" if probe.init == "fairseq" else f", {probe.init} init"
    smoothing = f"label smoothing {run.optim.label_smoothing:g}"
    return f"{probe.batches} batches of {probe.tokens or run.tokens_per_update} tokens {kind}, {smoothing}{init}"


def _claim(run: Run, folder: Path) -> None:
    """Make the run folder of a model that has not been trained; a trained one's config stays as it is."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "status.json").exists():
            rundir.write_text(folder / "config.yaml", freeze(run))
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror}); set paths.outputs=DIR") from None


def _per_epoch(folder: Path) -> int:
    env = rundir.read_json(folder / "env.json") if (folder / "env.json").exists() else {}
    return int(env.get("updates_per_epoch", 0))


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write whole or not at all, a row a line; non-finite numbers as strings."""
    lines = ",\n".join(json.dumps(rundir.finite(row), allow_nan=False) for row in rows)
    try:
        rundir.write_text(path, f"[\n{lines}\n]\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from None


def table(rows: Sequence[Row], quantity: str, brief: bool = False) -> str:
    """Give mean and standard deviation over seeds: a line a layer, a column a module; brief = each stack's last."""
    cells: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    for row in rows:
        if row["quantity"] == quantity and (found := _LAYER.fullmatch(row["module"])):
            cells[found[1], int(found[2]), found[3]].append(float(row["value"]))
    names = list(dict.fromkeys(name for *_, name in cells))
    names = [name for name in names if name in SHORT] or names
    last = {stack: max(layer for s, layer, _ in cells if s == stack) for stack, *_ in cells}
    seeds = len({row["seed"] for row in rows})
    lines = [[f"{quantity}, {seeds} seed{'s (sd)' if seeds > 1 else ''}", *names]]
    for stack, layer in dict.fromkeys((stack, layer) for stack, layer, _ in cells):
        if not brief or layer == last[stack]:
            values = [cells.get((stack, layer, name), []) for name in names]
            lines.append([f"  {stack} layer {layer + 1} of {last[stack] + 1}", *map(_cell, values)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() + "\n" for line in lines)


def _cell(values: Sequence[float]) -> str:
    if not values:
        return ""
    spread = f" ({stdev(values):.2g})" if len(values) > 1 and all(map(math.isfinite, values)) else ""
    return f"{fmean(values):.4g}{spread}"
