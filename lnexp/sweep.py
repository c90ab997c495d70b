"""`lnexp train`: check every run first, launch what is not done, end with a line a state.

Hydra's sweeper and launcher do the launching; what each run came to is read from its folder, whatever ran it.
"""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import Any

from lnexp import launch, launchers, rundir
from lnexp.backend.room import check_room
from lnexp.config import Run
from lnexp.console import say, watch
from lnexp.data.prepare import Prepared, prepare
from lnexp.launch import Plan
from lnexp.report.live import held
from lnexp.rundir import ENDED, read_status
from lnexp.takeover import again


def run_all(arguments: list[str]) -> int:
    """Train what `arguments` ask for; exit code 1 where a run failed. UserError where a single run could not work."""
    plan = launch.plan(arguments)
    sweep = plan.jobs[0].folder.parent
    rundir.check_writable(sweep)
    todo = [job.run for job in plan.jobs if not _over(job)]
    if not todo:
        if plan.multirun:
            _record_wanted(plan.jobs, arguments)
        for job in plan.jobs:
            say(f"{job.folder.name}: {state(job)} already, nothing to train")
        return _end(plan) if any(state(job) == "failed" for job in plan.jobs) else 0
    if plan.multirun:
        here = f" on {launch.cores()} cores" if plan.here else ""
        say(f"{sweep}: {len(plan.jobs)} runs, {len(plan.jobs) - len(todo)} of them ended, "
            f"{plan.side_by_side} at a time{here}")  # fmt: skip
    _get_ready(plan, todo)
    if plan.multirun:
        _record_wanted(plan.jobs, arguments)
    launch.user_errors.clear()
    total = sum(job.run.max_updates for job in plan.jobs)
    if plan.multirun:
        with watch([job.folder for job in plan.jobs], total, sweep.name):
            launch.hydra_main(plan.arguments, launch.hydra_job)
    else:
        launch.hydra_main(plan.arguments, launch.hydra_job)
    if launch.user_errors and not plan.multirun:
        raise launch.user_errors[0]
    return _end(plan)


def _get_ready(plan: Plan, todo: list[Run]) -> None:
    """Prepare the data of all runs; UserError for one that cannot work, before anything of the sweep is written.

    Once, here: no two jobs wait for one another.
    """
    asking = [run for run in todo if run.devices.device != "cpu"] if plan.here else []
    if asking:  # torch takes a second to load
        from lnexp.backend.devices import check_devices

        gpus = 1 if plan.side_by_side > 1 and launchers.gpus() else None
        for run in asking:
            check_devices(run, gpus)
    different = {str(run.data): run for run in todo}
    prepared = dict(zip(different, prepare_all(list(different.values())), strict=True))
    for run in todo:
        check_room(run, prepared[str(run.data)])


def _record_wanted(wanted: list[launch.Job], arguments: list[str]) -> None:
    """Add the runs of a sweep to its sweep.json, so that `lnexp status` knows what is missing, and the command."""
    first = wanted[0].folder.parent
    first.mkdir(parents=True, exist_ok=True)
    path = first / "sweep.json"
    before: dict[str, Any] = rundir.read_json(path) if path.exists() else {}
    known = {entry["folder"]: entry for entry in before.get("wanted", ())}
    commands = dict.fromkeys([*before.get("commands", ()), shlex.join(["lnexp", "train", *arguments])])
    known |= {job.folder.name: {"folder": job.folder.name, "overrides": job.overrides} for job in wanted}
    rundir.write_json(path, {"sweep": first.name, "commands": list(commands), "wanted": list(known.values())})


def prepare_all(runs: list[Run]) -> list[Prepared]:
    """Prepare each different corpus that the runs train on, on all cores."""
    different = {str(run.data): run for run in runs}.values()
    return [prepare(run.data, Path(run.paths.cache).expanduser(), say, launch.cores()) for run in different]


def state(job: launch.Job) -> str:
    """Give a job's state; "missing" where nothing has begun, "cut" where its process was killed."""
    status = read_status(job.folder)
    if status and status["state"] == "running" and not held(job.folder):
        return "cut"
    return str(status["state"]) if status else "missing"


def _over(job: launch.Job) -> bool:
    found = state(job)
    return found in ENDED or (found == "failed" and not again(job.run, job.folder))


def _end(plan: Plan) -> int:
    """Say what became of the runs."""
    states = [state(job) for job in plan.jobs]
    for job, found in zip(plan.jobs, states, strict=True):
        if found != "done":
            plain = "by another process" if found == "running" else "the same command begins or goes on with it"
            reason = (read_status(job.folder) or {}).get("reason") or plain
            mend = "; retry=failed tries it again" if found == "failed" else ""
            say(f"{job.folder}: {found}: {reason}{mend}")
    counts = ", ".join(f"{n} {name}" for name, n in Counter(states).items())
    folder = plan.jobs[0].folder if len(plan.jobs) == 1 else plan.jobs[0].folder.parent
    say(f"{folder}: {counts}")
    return 0 if all(s in ENDED for s in states) else 1
