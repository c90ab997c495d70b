"""From a command line to runs: Hydra composes, every job is checked before the first one starts, then Hydra launches.

In: the arguments after the verb. Out: `Job`s (for show, prepare, status) or trained run folders.
Hydra ends here: what leaves this module are dataclasses.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lnexp import launchers, parent, rundir
from lnexp.check import check, check_bound
from lnexp.config import Decode, Run, load, run_id
from lnexp.data.prepare import fingerprint
from lnexp.errors import UserError
from lnexp.launchers import cores
from lnexp.reference import CONF, NAMES, in_our_words, no_such_setting, options
from lnexp.scale import scaled_lr, scaled_updates

# conf/hydra/launcher/*.yaml have the names of the plugins' own and are checked by their types, as it should be.
warnings.filterwarnings("ignore", message=r"\s*'hydra/launcher/\w+' is validated against ConfigStore schema")
# Hydra's own, already spoken for: conf/config.yaml makes them of the run's id.
_FOLDER_SETTINGS = ("hydra.run.", "hydra.sweep.", "hydra.job.chdir")


@dataclass(frozen=True)
class Job:
    """One run that a command line asks for."""

    run: Run
    id: str
    overrides: list[str]

    @property
    def folder(self) -> Path:
        return Path(self.run.paths.outputs) / self.run.sweep_name / f"{self.run.run_name}-{self.id}"


def register() -> None:
    """Tell Hydra our schema and resolvers; needed in every process that composes, and again after fairseq's import.

    fairseq puts a "config" of its own into Hydra's store, which would then be taken for the schema of conf/config.yaml.
    """
    ConfigStore.instance().repo.pop("config.yaml", None)
    ConfigStore.instance().store(name="schema", node=Run)
    OmegaConf.register_new_resolver("run_id", _resolve_id, replace=True)
    for name, scaled in (("scaled_updates", scaled_updates), ("scaled_lr", scaled_lr)):
        OmegaConf.register_new_resolver(name, lambda n, *, _root_, f=scaled: f(n, _root_.scale), replace=True)
    OmegaConf.register_new_resolver("cores", lambda most: min(cores(), int(most)), replace=True)


def _resolve_id(*, _root_: DictConfig) -> str:
    run = to_run(_root_)
    return run_id(run, fingerprint(run.data))


def to_run(config: DictConfig) -> Run:
    """Turn Hydra's tree into our dataclasses."""
    ours = OmegaConf.masked_copy(config, [f.name for f in fields(Run)])
    return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Run), ours))  # type: ignore[return-value]


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
        raise UserError(in_our_words(cause)) from None


def _parse(words: list[str]) -> list[Override]:
    """Read the command line; raise UserError for what Hydra would misread, or take and pass over."""
    parsed = []
    for word in words:
        try:
            override = OverridesParser.create().parse_override(word)
        except HydraException:
            rule = "need name=value with every bracket and quote closed"
            raise UserError(f"{word}: {rule}; a value with = or ~ in it as 'name=\"value\"'") from None
        name, group = str(override.key_or_group), (CONF / override.key_or_group).is_dir()
        single = isinstance(override.value(), str | dict) or override.is_sweep_override() or override.is_delete()
        if not name or (group and not single):
            what = f"one option: {options(name)}" if name else "name=value"
            raise UserError(f"{word}: need {what}")
        if name.startswith(_FOLDER_SETTINGS):
            raise UserError(f"{word}: a run's folder is made of paths.outputs, sweep_name and run_name; set these")
        # "+name=value" tells Hydra to take any name; nothing here would ever read it.
        adds = override.is_add() or override.is_force_add()
        if adds and not (group or name.startswith("hydra")) and name not in NAMES:
            raise UserError(no_such_setting(name))
        parsed.append(override)
    return parsed


@dataclass(frozen=True)
class Plan:
    """What a command line asks for: its runs, and how Hydra will launch them."""

    jobs: list[Job]
    multirun: bool
    side_by_side: int
    """Jobs at a time."""
    here: bool
    """Whether all of them run on this machine and in this environment."""
    arguments: list[str]
    """What Hydra is to be given: the words of the command line, and what a job on another machine cannot find out."""


def plan(arguments: list[str], bound: bool = True) -> Plan:
    """Compose and check every run that `arguments` (Hydra's own syntax, -m included) ask for.

    Without `bound` a run need not say when it stops; preparing its data does not depend on that.
    """
    multirun = any(a in ("-m", "--multirun") for a in arguments)
    words = [a for a in arguments if a not in ("-m", "--multirun")]
    flag = next((a for a in words if a.startswith("-")), None)
    if flag:
        raise UserError(f"{flag}: no such option here; settings are written name=value, a sweep takes -m")
    with _composing():
        parsed = _parse(words)
        swept = [str(o.input_line) for o in parsed if o.is_sweep_override()]
        fixed = [str(o.input_line) for o in parsed if not o.is_sweep_override()]
        hydra = hydra_compose("config", fixed, return_hydra_config=True).hydra
        multirun = multirun or (hydra.mode is not None and hydra.mode.name == "MULTIRUN")
        if swept and not multirun:
            raise UserError(f"{swept[0]}: several values need -m (lnexp train -m ...)")
        if bound:
            launchers.check(hydra.launcher, hydra.runtime.choices["hydra/launcher"], multirun)
        if not multirun:
            return Plan([_job(fixed, bound)], False, 1, True, arguments)
        params = [f"{k}={v}" for k, v in (hydra.sweeper.get("params") or {}).items()]
        found = [_job(combination, bound) for combination in _combinations(params + words)]
        twice = next((job.folder for i, job in enumerate(found) if job.folder in {j.folder for j in found[:i]}), None)
        if twice:
            raise UserError(f"{twice}: this sweep asks for the same run twice; name each value once")
        here = not launchers.outside(hydra.launcher)
        told = arguments if here else [*arguments, *_absolute(found[0].run)]
        return Plan(found, True, launchers.at_once(hydra.launcher, len(found)), here, told)


def _absolute(run: Run) -> list[str]:
    """Give the folders of a run as settings that mean the same in any working folder and environment."""
    paths = {"outputs": run.paths.outputs, "cache": run.paths.cache}
    quoted = {name: str(Path(path).expanduser().absolute()).replace("'", "\\'") for name, path in paths.items()}
    return [f"paths.{name}='{path}'" for name, path in quoted.items()]


def _combinations(words: list[str]) -> list[list[str]]:
    """Expand a sweep as Hydra's basic sweeper does; a later word for the same key takes the place of an earlier."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

    batches = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(words), None)
    return [list(job) for batch in batches for job in batch]


def _job(overrides: list[str], bound: bool) -> Job:
    run = to_run(hydra_compose("config", overrides))
    check(run)
    job = Job(run, run_id(run, fingerprint(run.data)), overrides)
    if bound:
        check_bound(run)
    return job


def hydra_main(arguments: list[str], task: Any) -> None:
    """Hand over to Hydra: one job, or its sweeper and launcher. One line where the launcher itself breaks down."""
    import hydra

    from lnexp.console import say

    register()
    GlobalHydra.instance().clear()
    parent.announce()
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # Ray would leave out lines that look alike
    argv, full = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = [argv[0], *sorted(arguments, key=lambda word: word not in ("-m", "--multirun"))]  # Hydra wants it first
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come here as they are, in place of a traceback and an exit
    try:
        with parent.passing_on():
            hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")(task)()
    except HydraException as error:
        raise UserError(in_our_words(error)) from None
    except Exception as error:
        # A job's own errors never come here (see hydra_job): a worker was killed, a cluster refused.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        say(f"the launcher lost a job: {type(error).__name__}: {lines[-1] if lines else 'no reason given'}")
    finally:
        sys.argv = argv
        if full is None:
            del os.environ["HYDRA_FULL_ERROR"]


def hydra_job(config: DictConfig) -> float:
    """Train one composed run where Hydra says; the objective (best validation loss, bits) goes to the sweeper.

    Nothing is raised for a run that failed: its status.json says so, and the sweep goes on.
    """
    from hydra.core.hydra_config import HydraConfig

    from lnexp.console import say
    from lnexp.signals import Interrupted
    from lnexp.train import train

    hydra = HydraConfig.get()
    launcher = hydra.launcher
    alone = hydra.mode is not None and hydra.mode.name == "RUN"
    outside = not alone and launchers.outside(launcher)
    run = to_run(config)
    folder = Path(hydra.runtime.output_dir)
    threads = run.devices.threads or (cores() if alone else launchers.threads(launcher))
    joblib = not alone and launchers.kind(launcher) == "JoblibLauncher"
    if not alone:
        launchers.settle(launcher, hydra.job.num, threads, run.devices.device != "cpu")
    if joblib:
        parent.watch()
        if parent.stopped():
            return float("nan")
    try:
        if outside:
            os.chdir(hydra.runtime.cwd)  # a worker of Ray starts elsewhere, and data.train may be relative
        train(run, run_id(run, fingerprint(run.data)), folder, threads, say, bar=alone)
    except Interrupted:
        say(f"{folder.name}: interrupted; the same command goes on from here")
        if parent.gone():
            os._exit(1)  # not to the next job: the worker would take it from the queue
        if joblib:
            parent.stop()
        elif not outside:  # elsewhere the other jobs are none of this one's business
            raise KeyboardInterrupt from None
        if launchers.kind(launcher) == "SlurmLauncher":
            launchers.await_slurm()
    except UserError as error:
        if not alone:  # a single run's fault ends the command: the cli says it
            say(f"{folder.name}: {error}")
        user_errors.append(error)
    except Exception as error:
        say(f"{folder.name}: failed: {type(error).__name__}: {error}")
    finally:
        register()  # the next job of a sweep is composed in this process
    with suppress(UserError):
        losses = [row["loss_bits"] for row in rundir.rows(folder) if row["split"] == "valid"]
        return min(losses, default=float("nan"))
    return float("nan")


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
    several = next((o.input_line for o in _parse(overrides) if o.is_sweep_override()), None)
    if several:
        raise UserError(f"{several}: eval takes one decoding at a time")
    groups = [o for o in overrides if o.startswith("decode=")]
    with _composing():
        # Single values change the run's own decoding, unless a group is named to start from.
        own = [] if groups else [f"decode.{k}={v}" for k, v in vars(run.decode).items()]
        composed = to_run(hydra_compose("config", own + overrides))
    check(replace(run, decode=composed.decode))
    return run, composed.decode
