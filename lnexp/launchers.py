"""What Hydra's launcher means for a run: how many run at a time, a run's threads and GPU, what has to be installed.

In: the launcher part of Hydra's config, read as a plain tree; Hydra itself stays in launch.py. A launcher that is not
known here (a plugin of yours) is taken for one that runs jobs one by one in this process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from lnexp.errors import UserError

# Read by the numeric libraries when they are loaded.
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# The class of a launcher -> the extra of ours that brings its plugin.
_EXTRAS = {"SlurmLauncher": "slurm", "LocalLauncher": "slurm", "RayLauncher": "ray"}


def cores() -> int:
    """Count the CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def kind(launcher: Any) -> str:
    """Give the class: BasicLauncher, JoblibLauncher, submitit's SlurmLauncher and LocalLauncher, RayLauncher."""
    return str(launcher.get("_target_", "")).rpartition(".")[2]


def outside(launcher: Any) -> bool:
    """Tell whether jobs may start on other machines, in another folder, with another environment."""
    return kind(launcher) in _EXTRAS


def check(launcher: Any, name: str, multirun: bool) -> None:
    """Raise UserError where the launcher chosen as `name` cannot start anything from here."""
    extra = _EXTRAS.get(kind(launcher))
    if extra is None:
        return
    setting = f"hydra/launcher={name}"
    if not multirun:
        raise UserError(f"{setting}: launches sweeps alone; add -m (one value a setting makes a sweep of one run)")
    plugin = launcher["_target_"].rpartition(".")[0].rpartition(".")[0]
    if not (_there(plugin) and _there("ray" if extra == "ray" else "submitit")):
        raise UserError(
            f"{setting}: needs packages that are not here; `make {extra}`, or see requirements-{extra}.lock"
        )
    if kind(launcher) == "SlurmLauncher" and not shutil.which("sbatch"):
        raise UserError(f"{setting}: no sbatch here; start it on a machine from which Slurm jobs can be sent")


def _there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def at_once(launcher: Any, jobs: int) -> int:
    """Give how many of a sweep's jobs run side by side."""
    which = kind(launcher)
    most = 1
    if which == "LocalLauncher":
        most = jobs  # it starts them all
    elif which == "SlurmLauncher":
        most = launcher.array_parallelism
    elif which == "RayLauncher":
        here = launcher.ray.init.get("address") is None and "RAY_ADDRESS" not in os.environ
        most = int((launcher.ray.init.get("num_cpus") or cores()) / _each(launcher)) if here else jobs
    else:
        most = int(launcher.get("n_jobs", 1))
        if most == 0:
            raise UserError("hydra.launcher.n_jobs=0: need >= 1, or -1 for all cores")
        most = most if most > 0 else cores()
    return max(1, min(most, jobs))


def _each(ray: Any) -> float:
    return float(ray.ray.remote.get("num_cpus") or 1)


def threads(launcher: Any) -> int:
    """Give the threads of a job that asks for none itself: what the launcher keeps free for it."""
    which = kind(launcher)
    if which == "RayLauncher":
        return max(1, int(_each(launcher)))
    if which in _EXTRAS:
        return int(launcher.get("cpus_per_task") or (cores() if which == "SlurmLauncher" else 1))
    return max(1, cores() // at_once(launcher, sys.maxsize))


def settle(launcher: Any, number: int, count: int, cuda: bool) -> None:
    """Tell a worker process, before torch is loaded there, its threads and (of several GPUs) which one is its own.

    A worker that has trained before keeps what it has: the numeric libraries have read it.
    """
    which = kind(launcher)
    alone = which not in _EXTRAS and at_once(launcher, sys.maxsize) == 1
    if alone or "torch" in sys.modules:
        return
    os.environ.update(dict.fromkeys(_THREADS, str(count)))
    # Slurm and Ray hand out GPUs themselves.
    if cuda and which in ("JoblibLauncher", "LocalLauncher") and not _held and (found := gpus()):
        os.environ["CUDA_VISIBLE_DEVICES"] = _claim(found, number % len(found))


# The lock of this worker's GPU; the system frees it with the process.
_held: list[TextIO] = []


def _claim(found: list[str], first: int) -> str:
    """Give the GPU at `first`, or the next one that no other worker has; where all are taken they are shared.

    By the job's number alone, a sweep that goes on after some of its runs could send all others to one GPU.
    """
    for gpu in found[first:] + found[:first]:
        file = open(Path(tempfile.gettempdir()) / f"lnexp-{os.getuid()}-gpu-{gpu}", "w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
        else:
            _held.append(file)
            return gpu
    return found[first]


def await_slurm() -> None:
    """Stay, once the run has saved at Slurm's SIGTERM, for what it announces; a job that leaves counts as completed.

    Preempted jobs are killed and queued again at the end of their grace time, those of scancel killed for good within
    KillWait (30 s by default). What lives on much longer asks submitit to queue it again.
    """
    time.sleep(600)
    for number in (signal.SIGUSR2, signal.SIGUSR1):
        if callable(signal.getsignal(number)):
            signal.raise_signal(number)


def gpus() -> list[str]:
    """Name the GPUs that this process may use, without torch, which could not be told afterwards."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is not None:
        return [name.strip() for name in allowed.split(",") if name.strip()]
    if not shutil.which("nvidia-smi"):
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    return [str(n) for n in range(sum(line.startswith("GPU ") for line in listed.splitlines()))]
