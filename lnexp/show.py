"""`lnexp show`: what a command line means, before anything is started."""

from __future__ import annotations

from pathlib import Path

from lnexp.config import Run, freeze
from lnexp.data.prepare import find
from lnexp.launch import Job, Plan
from lnexp.schedule import describe as formula
from lnexp.schedule import lr

# The updates at which the paper's own readings of its schedules differ (one IWSLT14 epoch is about 1,100 updates).
KEY_UPDATES = (1, 500, 1100, 4000, 7700, 16500)


def describe(plan: Plan) -> str:
    """Give the resolved config and the figures behind it; a sweep's runs are listed below the first one's config."""
    first = plan.jobs[0]
    text = freeze(first.run) + "\n" + _figures(first) + "\n" + _data(first.run)
    if plan.multirun:
        text += f"\nsweep: {len(plan.jobs)} runs, {plan.side_by_side} at a time; the config above is the first one's\n"
        width = max(len(job.folder.name) for job in plan.jobs)
        text += "".join(f"  {job.folder.name.ljust(width)}  {' '.join(job.overrides)}\n" for job in plan.jobs)
    return text


def _figures(job: Job) -> str:
    run = job.run

    def rate(update: int) -> float:
        return lr(run.schedule, run.optim.lr, update, run.updates_per_epoch)

    lines = {
        "run id": job.id,
        "folder": str(job.folder),
        "norm": f"{run.model.norm}-LN in encoder and decoder, "
        + ("final LayerNorm on both stacks" if run.model.norm == "pre" else "no final LayerNorm"),
        "tokens per update": f"{run.tokens_per_update:,}" + (f" in {run.passes} passes" if run.passes > 1 else ""),
        "schedule": f"{run.schedule.name}: {formula(run.schedule)}, lr_max = {run.optim.lr:g}",
        "lr at update": ", ".join(f"{t:,}: {rate(t):.3g}" for t in _key_updates(run)),
        "stops after": _bounds(run),
    }
    if run.schedule.name == "step_drop" and not run.updates_per_epoch:
        lines["lr at update"] += f" (before epoch {run.schedule.drop_epoch})"
    if run.max_updates and run.schedule.warmup_updates >= run.max_updates:
        most = lr(run.schedule, run.optim.lr, run.max_updates)
        lines["note"] = f"the run ends within its warm-up: the rate reaches {most:.3g}"
    if run.expected:
        lines["paper"] = run.expected
    return _columns(lines)


def _data(run: Run) -> str:
    """What is known of the data: its manifest where it is prepared, else how to get it."""
    prepared = find(run.data, Path(run.paths.cache).expanduser())
    name = f"{run.data.name} {run.data.src}-{run.data.tgt}"
    if prepared is None:
        return f"data: {name} is not prepared yet; training does it, or `lnexp prepare` with the same data settings\n"
    from lnexp.data.manifest import describe, notes

    lines = {"data": f"{name} {prepared.fingerprint} in {prepared.folder}", **describe(prepared.manifest)}
    lines["sha256"] = ", ".join(f"{part} {digest}" for part, digest in prepared.content.items())
    return _columns(lines) + "".join(f"note: {line}\n" for line in notes(prepared.manifest))


def _columns(lines: dict[str, str]) -> str:
    width = max(map(len, lines))
    return "".join(f"{name.ljust(width)}  {value}\n" for name, value in lines.items())


def _key_updates(run: Run) -> list[int]:
    end = run.max_updates or run.max_epochs * run.updates_per_epoch
    keys = (round(t / run.scale.updates) for t in KEY_UPDATES)
    chosen = {t for t in (1, *keys, run.schedule.warmup_updates) if t >= 1 and (not end or t <= end)}
    return sorted(chosen | ({end} if end else set()))


def _bounds(run: Run) -> str:
    words = {"max_updates": "updates", "max_epochs": "epochs", "max_wall_s": "seconds of training",
             "patience": "validations without a better loss"}  # fmt: skip
    found = ", or ".join(f"{getattr(run, name):,} {word}" for name, word in words.items() if getattr(run, name))
    found += f" of {run.updates_per_epoch:,} updates" if run.max_epochs and run.updates_per_epoch else ""
    return found or "nothing yet: training needs max_updates, max_epochs, max_wall_s or patience"
