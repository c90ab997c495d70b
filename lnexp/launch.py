"""From a command line to runs: Hydra composes, every job is checked before the first one starts, then Hydra launches.

In: the arguments after the verb. Out: `Job`s (for show, prepare, status) or trained run folders.
Hydra ends here: what leaves this module are dataclasses.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lnexp import rundir
from lnexp.config import Decode, Run, check, load, run_id
from lnexp.data.corpora import source_digest
from lnexp.errors import UserError

# Beside the package in a checkout, inside it once installed from a wheel.
_INSIDE = Path(__file__).parent / "conf"
CONF = _INSIDE if _INSIDE.is_dir() else Path(__file__).parent.parent / "conf"


@dataclass(frozen=True)
class Job:
    """One run that a command line asks for."""

    run: Run
    id: str
    overrides: list[str]

    @property
    def folder(self) -> Path:
        return Path(self.run.paths.outputs) / self.run.sweep_name / f"{self.run.run_name}-{self.id}"


def cores() -> int:
    """Count the CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def register() -> None:
    """Tell Hydra our schema and resolvers; needed once in every process that composes."""
    ConfigStore.instance().store(name="schema", node=Run)
    OmegaConf.register_new_resolver("run_id", _resolve_id, replace=True)
    OmegaConf.register_new_resolver("cores", lambda most: min(cores(), int(most)), replace=True)


def _resolve_id(*, _root_: DictConfig) -> str:
    run = to_run(_root_)
    return run_id(run, source_digest(run.data))


def to_run(config: DictConfig) -> Run:
    """Turn Hydra's tree into our dataclasses."""
    ours = OmegaConf.masked_copy(config, [f.name for f in fields(Run)])
    return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Run), ours))  # type: ignore[return-value]


def first_line(error: BaseException) -> str:
    """Give the part of a Hydra or OmegaConf message that a person needs."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    key = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("full_key:")), "")
    text = lines[0] if lines else type(error).__name__
    return f"{key}: {text}" if key and key not in text else text


@contextmanager
def _composing() -> Iterator[None]:
    """Open conf/ for composition; whatever Hydra refuses becomes one line."""
    register()
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
            yield
    except (HydraException, OmegaConfBaseException) as error:
        cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
        raise UserError(f"{_known_groups(first_line(cause))} (see `lnexp show --help`)") from None


def _known_groups(line: str) -> str:
    """Hydra names a missing file "Could not find 'model/x'": say what there is instead."""
    if "Could not find '" in line:
        group = line.split("'")[1].partition("/")[0]
        options = sorted(p.stem for p in (CONF / group).glob("*.yaml"))
        if options:
            return f"{line.split(chr(39))[1].replace('/', '=')}: no such option; {group} is one of {', '.join(options)}"
    return line


@dataclass(frozen=True)
class Plan:
    """What a command line asks for: its runs, and how Hydra will launch them."""

    jobs: list[Job]
    multirun: bool
    side_by_side: int
    """Jobs at a time."""


def plan(arguments: list[str]) -> Plan:
    """Compose and check every run that `arguments` (Hydra's own syntax, -m included) ask for."""
    multirun = any(a in ("-m", "--multirun") for a in arguments)
    words = [a for a in arguments if a not in ("-m", "--multirun")]
    flag = next((a for a in words if a.startswith("-")), None)
    if flag:
        raise UserError(f"{flag}: no such option here; settings are written name=value, a sweep takes -m")
    with _composing():
        parsed = OverridesParser.create().parse_overrides(words)
        swept = [str(o.input_line) for o in parsed if o.is_sweep_override()]
        fixed = [str(o.input_line) for o in parsed if not o.is_sweep_override()]
        hydra = hydra_compose("config", fixed, return_hydra_config=True).hydra
        multirun = multirun or (hydra.mode is not None and hydra.mode.name == "MULTIRUN")
        if swept and not multirun:
            raise UserError(f"{swept[0]}: several values need -m (lnexp train -m ...)")
        if not multirun:
            return Plan([_job(fixed)], False, 1)
        params = [f"{k}={v}" for k, v in (hydra.sweeper.get("params") or {}).items()]
        found = [_job(combination) for combination in _combinations(params + words)]
        at_once = int(hydra.launcher.get("n_jobs") or 1)
        return Plan(found, True, min(at_once if at_once > 0 else cores(), len(found)))


def _combinations(words: list[str]) -> list[list[str]]:
    """Expand a sweep as Hydra's basic sweeper does; a later word for the same key takes the place of an earlier."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

    batches = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(words), None)
    return [list(job) for batch in batches for job in batch]


def _job(overrides: list[str]) -> Job:
    run = to_run(hydra_compose("config", overrides))
    check(run)
    return Job(run, run_id(run, source_digest(run.data)), overrides)


def check_writable(folder: Path) -> None:
    """Raise UserError where run folders cannot be made."""
    probe = folder / f".write-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"paths.outputs: {folder} cannot be written ({error.strerror}); set paths.outputs=DIR"
        ) from None


def record_wanted(wanted: list[Job]) -> None:
    """Add the runs of a sweep to its sweep.json, so that `lnexp status` knows what is missing."""
    first = wanted[0].folder.parent
    path = first / "sweep.json"
    known: dict[str, Any] = {}
    if path.exists():
        known = {entry["folder"]: entry for entry in rundir.read_json(path)["wanted"]}
    known |= {job.folder.name: {"folder": job.folder.name, "overrides": job.overrides} for job in wanted}
    rundir.write_json(path, {"sweep": first.name, "wanted": list(known.values())})


def hydra_main(arguments: list[str], task: Any) -> None:
    """Hand over to Hydra: one job, or its sweeper and launcher."""
    import hydra

    register()
    GlobalHydra.instance().clear()
    argv = sys.argv
    sys.argv = [argv[0], *arguments]
    try:
        hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")(task)()
    finally:
        sys.argv = argv


def hydra_job(config: DictConfig) -> float:
    """Train one composed run where Hydra says; the objective (best validation loss, bits) goes to the sweeper.

    Nothing is raised for a run that failed: its status.json says so, and the sweep goes on.
    """
    from hydra.core.hydra_config import HydraConfig

    from lnexp.console import say
    from lnexp.train import train

    hydra = HydraConfig.get()
    at_once = int(hydra.launcher.get("n_jobs") or 1)
    at_once = at_once if at_once > 0 else cores()
    run = to_run(config)
    folder = Path(hydra.runtime.output_dir)
    threads = run.devices.threads or max(1, cores() // at_once)
    try:
        train(run, run_id(run, source_digest(run.data)), folder, threads, say, bar=hydra.mode.name == "RUN")
    except UserError as error:
        say(f"{folder.name}: failed: {error}")
        user_errors.append(error)
    except Exception as error:
        say(f"{folder.name}: failed: {type(error).__name__}: {error}")
    losses = [row["loss_bits"] for row in rundir.rows(folder) if row["split"] == "valid"]
    return min(losses, default=float("nan"))


# What a single run's user did wrong, for the cli to end with: Hydra would turn a raised error into a traceback.
user_errors: list[UserError] = []


def decode_of(folder: Path, overrides: list[str]) -> tuple[Run, Decode | None]:
    """Give a run folder's config, and the decoding that `overrides` (decode=..., decode.beam=...) ask for instead."""
    run = load(folder / "config.yaml")
    other = next((o for o in overrides if not o.startswith(("decode=", "decode."))), None)
    if other:
        raise UserError(f"{other}: eval takes decode=... and decode.name=value only")
    if not overrides:
        return run, None
    groups = [o for o in overrides if o.startswith("decode=")]
    with _composing():
        # Single values change the run's own decoding, unless a group is named to start from.
        own = [] if groups else [f"decode.{k}={v}" for k, v in vars(run.decode).items()]
        composed = to_run(hydra_compose("config", own + overrides))
    check(composed)
    return run, composed.decode
