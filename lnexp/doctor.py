"""`lnexp doctor`: is this machine ready, and if not, what to do. Each check is a line; a fault carries its mend.

With --run it is a run that is examined: will it need the warm-up that it has or lacks?
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from lnexp.console import quiet


def examine() -> int:
    """Print a line a check; 1 where something that training needs is broken."""
    quiet()
    broken = 0
    for name, check in CHECKS.items():
        try:
            good, text = check()
        except Exception as error:
            good, text = False, f"{type(error).__name__}: {error}; reinstall with `make venv`"
        print(f"{'ok  ' if good else 'BAD '} {name.ljust(8)} {text}", flush=True)
        broken += not good
    return 1 if broken else 0


def examine_runs(arguments: list[str]) -> int:
    """Say of each run that is asked for whether its peak rate needs a warm-up; 1 where one needs it and has none."""
    from lnexp import preflight
    from lnexp.console import progress_bar, say
    from lnexp.data.prepare import prepare
    from lnexp.launch import cores, plan

    quiet()
    broken = 0
    for job in plan(arguments, bound=False).jobs:
        run = job.run
        data = prepare(run.data, Path(run.paths.cache).expanduser(), say, cores())
        with progress_bar(preflight.UPDATES, 0, True) as bar:
            if bar.disable:
                print(f"{job.folder.name}: {preflight.UPDATES} updates to try", file=sys.stderr, flush=True)
            found = preflight.fly(run, data, run.devices.threads or cores(), bar.update)
        good, text = preflight.verdict(run, found)
        print(f"{'ok  ' if good else 'BAD '} {job.folder.name}: {text}", flush=True)
        broken += not good
    return 1 if broken else 0


def _python() -> tuple[bool, str]:
    good = sys.version_info >= (3, 11)
    return good, sys.version.split()[0] + ("" if good else ": need 3.11 or later; make the venv with one")


def _packages() -> tuple[bool, str]:
    names = ("torch", "ve-fairseq", "hydra-core", "omegaconf", "sacrebleu", "wandb", "numpy")
    return True, ", ".join(f"{name} {version(name)}" for name in names)


def _fairseq() -> tuple[bool, str]:
    importlib.import_module("lnexp.backend.session")
    return True, "imports, and our model, loss and schedules with it"


def _devices() -> tuple[bool, str]:
    import torch

    from lnexp.launch import cores

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return True, f"{cores()} CPU cores; " + (", ".join(gpus) or "no CUDA device (devices=cpu)")


def _disk() -> tuple[bool, str]:
    from lnexp.launch import plan
    from lnexp.rundir import check_writable

    outputs = Path(plan([], bound=False).jobs[0].run.paths.outputs)
    free = shutil.disk_usage(check_writable(outputs)).free / 2**30
    return free > 2, f"{free:.0f} GiB free for {outputs}/" + ("" if free > 2 else ": need 2; set paths.outputs=DIR")


def _wandb() -> tuple[bool, str]:
    import netrc

    key = bool(os.environ.get("WANDB_API_KEY"))
    with contextlib.suppress(OSError, netrc.NetrcParseError):
        key = key or bool(netrc.netrc().hosts)
    return True, "a key is configured: runs are logged online" if key else (
        "no key: runs are recorded offline; `wandb login` for online, track=none for none"
    )


CHECKS: dict[str, Callable[[], tuple[bool, str]]] = {
    "python": _python,
    "packages": _packages,
    "fairseq": _fairseq,
    "devices": _devices,
    "disk": _disk,
    "wandb": _wandb,
}
