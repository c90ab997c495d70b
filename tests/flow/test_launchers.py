"""Hydra's launchers: the same numbers from each, what a job is told, what is said where a launcher is not there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from lnexp import launch, launchers, rundir
from lnexp.cli import main

# Two runs of seconds.
SHORT = ["data=toy_copy", "size=tiny", "schedule=constant", "decode=greedy", "track=none", "devices.threads=1",
         "tokens_per_update=500", "max_updates=12", "validate_every=6", "log_every=3", "optim.lr=1e-3",
         "model=post_ln,pre_ln"]  # fmt: skip
JOBLIB = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
SUBMITIT = ["hydra/launcher=submitit_local"]
RAY = ["hydra/launcher=ray", "hydra.launcher.ray.init.num_cpus=2", "hydra.launcher.ray.init.address=local"]
OUTSIDE = ["submitit_slurm", "submitit_local", "ray"]

needs_slurm = [
    pytest.mark.slurm,
    pytest.mark.skipif(not find_spec("submitit"), reason="lnexp[slurm] is not installed: make test-slurm"),
]
needs_ray = [
    pytest.mark.ray,
    pytest.mark.skipif(not find_spec("ray"), reason="lnexp[ray] is not installed: make test-ray"),
]


def results(words: list[str]) -> dict[str, tuple[list[dict[str, Any]], str]]:
    """Give rows (without what a clock says) and scores of each run of a sweep."""
    folders = [job.folder for job in launch.plan(["-m", *words], bound=False).jobs]
    clocks = ("wall_s", "tokens_per_s")
    return {
        folder.name: (
            [{k: v for k, v in row.items() if k not in clocks} for row in rundir.rows(folder)],
            (folder / "scores.json").read_text(),
        )
        for folder in folders
    }


def train(*words: str) -> subprocess.Popen[str]:
    """Start a sweep in a process of its own: Ray and loky keep state in theirs."""
    command = [sys.executable, "-m", "lnexp", "train", "-m", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until(true: Callable[[], Any], seconds: float = 120) -> Any:
    """Wait for something and give it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := true():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s")


def running(folder: Path, updates: int) -> int | None:
    """Give the process that trains in a folder once it has done so many updates."""
    status = rundir.read_status(folder)
    if not status or status["updates"] < updates:
        return None
    return int(json.loads((folder / ".lock").read_text())["pid"])


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(JOBLIB, id="joblib"),
        pytest.param(SUBMITIT, id="submitit", marks=needs_slurm),
        pytest.param(RAY, id="ray", marks=needs_ray),
    ],
)
def test_every_launcher_gives_the_numbers_of_the_basic_one(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "-m", *SHORT, "sweep_name=basic"]) == 0
    process = train(*SHORT, *words, "sweep_name=other")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    assert out.endswith("/other: 2 done\n")
    assert results([*SHORT, "sweep_name=other"]) == results([*SHORT, "sweep_name=basic"])
    capfd.readouterr()
    assert main(["status", "other"]) == 0
    assert "other: 2 wanted: 2 done" in capfd.readouterr().out


@pytest.mark.parametrize("words", [pytest.param(SUBMITIT, marks=needs_slurm)], ids=["submitit"])
def test_a_preempted_job_saves_and_is_queued_again(words: list[str]) -> None:
    """submitit's signal in mid-training: the job begins anew where it was, and the command waits for it."""
    longer = [*SHORT, "model=pre_ln", "max_updates=150", "validate_every=75"]
    assert main(["train", "-m", *longer, "sweep_name=basic"]) == 0
    process = train(*longer, *words, "sweep_name=cut")
    folder = launch.plan(["-m", *longer, "sweep_name=cut"]).jobs[0].folder
    os.kill(until(lambda: running(folder, 9)), signal.SIGUSR2)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    log = "".join(path.read_text() for path in folder.parent.glob(".submitit/*/*.out"))
    assert "Requeued job" in log and "goes on from update" in log
    assert results([*longer, "sweep_name=cut"]) == results([*longer, "sweep_name=basic"])


@pytest.mark.parametrize("words", [pytest.param(RAY, marks=needs_ray)], ids=["ray"])
def test_a_killed_task_of_ray_is_tried_again(words: list[str]) -> None:
    longer = [*SHORT, "model=pre_ln", "max_updates=150", "validate_every=10"]
    process = train(*longer, *words, "sweep_name=cut")
    folder = launch.plan(["-m", *longer, "sweep_name=cut"]).jobs[0].folder
    os.kill(until(lambda: running(folder, 12)), signal.SIGKILL)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    assert "goes on from update" in out + err and out.endswith("1 done\n")


def test_a_killed_worker_is_one_line() -> None:
    longer = [*SHORT, "max_updates=2000"]
    process = train(*longer, *JOBLIB, "sweep_name=cut")
    folder = launch.plan(["-m", *longer, "sweep_name=cut"]).jobs[0].folder
    os.kill(until(lambda: running(folder, 3)), signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "the launcher lost a job: TerminatedWorkerError" in out and "Traceback" not in out + err


@pytest.mark.parametrize("launcher", OUTSIDE)
def test_a_launcher_that_is_not_installed_says_how_to_get_it(
    launcher: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(launchers, "_there", lambda module: False)
    assert main(["train", "-m", *SHORT, f"hydra/launcher={launcher}"]) == 2
    out, err = capsys.readouterr()
    target = "ray" if launcher == "ray" else "slurm"
    assert out == "" and err.count("\n") == 1
    assert f"hydra/launcher={launcher}: needs packages that are not here; `make {target}`" in err
    assert main(["show", "-m", *SHORT, f"hydra/launcher={launcher}"]) == 0
    assert not (tmp_path / "outputs").exists()


def test_without_slurm_its_launcher_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launchers, "_there", lambda module: True)
    monkeypatch.setattr(launchers.shutil, "which", lambda name: None)
    assert main(["train", "-m", *SHORT, "hydra/launcher=submitit_slurm"]) == 2
    assert "no sbatch here" in capsys.readouterr().err


@pytest.mark.parametrize("launcher", OUTSIDE)
def test_a_single_run_does_not_pass_over_the_launcher(launcher: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *SHORT[:-1], "model=pre_ln", f"hydra/launcher={launcher}"]) == 2
    assert "add -m" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "at_once", "threads"),
    [
        ([], 1, 6),
        (["hydra/launcher=joblib", "hydra.launcher.n_jobs=3"], 3, 2),
        (["hydra/launcher=joblib", "hydra.launcher.n_jobs=-1"], 4, 1),
        (["hydra/launcher=submitit_local"], 4, 1),
        (["hydra/launcher=submitit_local", "hydra.launcher.cpus_per_task=3"], 4, 3),
        (["hydra/launcher=submitit_slurm"], 4, 4),
        (["hydra/launcher=submitit_slurm", "hydra.launcher.array_parallelism=2"], 2, 4),
        (["hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=null"], 4, 6),
        (["hydra/launcher=ray", "hydra.launcher.ray.remote.num_cpus=2"], 3, 2),
        (["hydra/launcher=ray", "hydra.launcher.ray.init.address=auto"], 4, 1),
        (["hydra/launcher=ray", "hydra.launcher.ray.remote.num_cpus=0.5"], 4, 1),
    ],
    ids=str,
)
def test_jobs_at_a_time_and_their_threads(
    words: list[str], at_once: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "cores", lambda: 6)
    assert launch.plan(["-m", *SHORT, "seed=1,2", *words], bound=False).side_by_side == at_once
    with launch._composing():
        found = launch.hydra_compose("config", words, return_hydra_config=True).hydra.launcher
    assert launchers.threads(found) == threads


@pytest.mark.parametrize("launcher", ["basic", "joblib", *OUTSIDE])
def test_a_sweep_of_the_paper_takes_any_launcher(launcher: str) -> None:
    assert len(launch.plan(["sweep=demo", f"hydra/launcher={launcher}"], bound=False).jobs) == 4


def test_jobs_outside_are_told_where_the_folders_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LNEXP_OUTPUTS", "it's a = folder, $HOME")
    words = ["-m", *SHORT]
    assert launch.plan(words, bound=False).arguments == words
    told = launch.plan([*words, "hydra/launcher=ray"], bound=False).arguments
    monkeypatch.delenv("LNEXP_OUTPUTS")
    monkeypatch.chdir("/")
    run = launch.plan(told, bound=False).jobs[0].run
    assert run.paths.outputs == str(tmp_path / "it's a = folder, $HOME")
    assert run.paths.cache == str(tmp_path / "cache")


NAMES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES")


def see(run: Any, run_id: str, folder: Path, threads: int, *_: Any, **__: Any) -> str:
    """Write down what a job finds in its environment, in place of training."""
    seen = {name: os.environ.get(name) for name in NAMES}
    rundir.write_json(folder / "seen.json", seen | {"threads": threads, "process": os.getpid()})
    time.sleep(1)
    return "done"


def seeing_job(config: DictConfig) -> float:
    import lnexp.train

    lnexp.train.train = see
    return launch.hydra_job(config)


def seen(*words: str) -> list[dict[str, Any]]:
    """Give what the jobs of a joblib sweep of two at a time saw; its parent has no torch, as on the command line."""
    arguments = ["-m", *[w for w in SHORT if "threads" not in w], *JOBLIB, *words]
    code = "import sys, test_launchers as t; t.launch.hydra_main(sys.argv[1:], t.seeing_job)"
    path = {"PYTHONPATH": str(Path(__file__).parent)}
    subprocess.run([sys.executable, "-c", code, *arguments], env=os.environ | path, check=True)
    return [json.loads((job.folder / "seen.json").read_text()) for job in launch.plan(arguments).jobs]


def test_side_by_side_each_job_has_its_threads_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    share = max(1, launchers.cores() // 2)
    assert {(s["OMP_NUM_THREADS"], s["MKL_NUM_THREADS"], s["threads"]) for s in seen()} == {
        (str(share), str(share), share)
    }
    asked = seen("devices.threads=3")
    assert {(s["OMP_NUM_THREADS"], s["threads"], s["CUDA_VISIBLE_DEVICES"]) for s in asked} == {("3", 3, None)}


@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_side_by_side_each_worker_has_a_gpu(device: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 7")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    found = seen(f"devices.device={device}", "seed=1,2")
    pairs = {(s["process"], s["CUDA_VISIBLE_DEVICES"]) for s in found}
    assert len(pairs) == 2 and {gpu for _, gpu in pairs} == {"4", "7"}


def test_a_gpu_in_use_is_passed_over_while_there_is_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(launchers.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(launchers, "_held", [])
    assert [launchers._claim(["0", "1", "2"], first) for first in (1, 1, 1, 1)] == ["1", "2", "0", "1"]


def test_gpus_are_counted_without_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert launchers.gpus() == []
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H200 (UUID: GPU-a)'\necho 'GPU 1: NVIDIA H200 (UUID: GPU-b)'\n")
    tool.chmod(0o755)
    assert launchers.gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert launchers.gpus() == []


def test_an_unknown_launcher_counts_as_one_job_at_a_time() -> None:
    mine = OmegaConf.create({"_target_": "mine.MyLauncher"})
    assert launchers.at_once(mine, 5) == 1 and not launchers.outside(mine)
    launchers.check(mine, "mine", False)
