"""The command line: what each verb prints before anything is trained, what it loads, how soon it answers."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hydra.core.config_store import ConfigStore

import lnexp
from lnexp import rundir
from lnexp.cli import VERBS, main
from lnexp.config import Run
from lnexp.launch import CONF, plan

EXPERIMENTS, SWEEPS = ([p.stem for p in sorted((CONF / group).glob("*.yaml"))] for group in ("experiment", "sweep"))
SMALL = ["data=toy_copy", "size=tiny", "tokens_per_update=500", "max_updates=2", "track=none"]
EIGHT = ["-m", "model=post_ln,pre_ln", "schedule.warmup_updates=0,200", "optim.lr=1e-3,3e-3", "max_updates=60"]

Out = pytest.CaptureFixture[str]


def printed(capsys: Out, *arguments: str) -> str:
    """Run one command that must end well; give what it printed."""
    capsys.readouterr()
    assert main(list(arguments)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def figures(text: str) -> dict[str, str]:
    """Give the lines below the config as {name: value}."""
    return dict(re.findall(r"^(\S.*?)  +(\S.*)$", text.split("\n\n")[1], re.M))


@pytest.mark.parametrize("arguments", [[], ["help"], ["--help"], ["-h"]], ids=str)
def test_usage_names_every_verb(capsys: Out, arguments: list[str]) -> None:
    assert all(re.search(rf"^  {verb} ", printed(capsys, *arguments), re.M) for verb in VERBS)


def test_version(capsys: Out) -> None:
    assert printed(capsys, "--version") == f"lnexp {lnexp.__version__}\n"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_each_verb_has_help_and_does_nothing_else(capsys: Out, tmp_path: Path, verb: str, flag: str) -> None:
    assert printed(capsys, verb, "sweep=demo", flag).startswith(verb)
    assert not (tmp_path / "outputs").exists()


def test_help_lists_groups_options_and_settings_with_their_meaning(capsys: Out) -> None:
    text = printed(capsys, "show", "--help")
    assert re.search(r"^  model +post_ln, pre_ln$", text, re.M)
    assert re.search(r"^  schedule\.warmup_updates +T, updates of linear warm-up .*0 = none\.$", text, re.M)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_show_every_experiment(capsys: Out, name: str) -> None:
    text = printed(capsys, "show", f"experiment={name}")
    config, found = yaml.safe_load(text.split("\n\n")[0]), figures(text)
    assert set(config) == set(vars(Run()))
    assert re.fullmatch(r"[0-9a-f]{8}", found["run id"])
    assert found["folder"].endswith(f"/adhoc/{config['run_name']}-{found['run id']}")
    assert found["tokens per update"].startswith(f"{config['tokens_per_update']:,}")
    assert found["lr at update"].startswith("1: ")
    assert found.get("paper", "") == config["expected"]


@pytest.mark.parametrize("name", SWEEPS)
def test_show_every_sweep_lists_its_jobs(capsys: Out, name: str) -> None:
    text = printed(capsys, "show", f"sweep={name}")
    count = int(re.search(r"^sweep: (\d+) runs", text, re.M)[1])  # type: ignore[index]
    jobs = text[text.index("\nsweep: ") :].splitlines()[2:]
    factors = yaml.safe_load((CONF / "sweep" / f"{name}.yaml").read_text())["hydra"]["sweeper"]["params"]
    wanted = 1
    for values in factors.values():
        wanted *= len(str(values).split(","))
    assert count == wanted == len({line.split()[0] for line in jobs}) == len(jobs)
    assert all(f"{factor}=" in line for line in jobs for factor in factors)


@pytest.mark.parametrize("path", sorted(CONF.glob("experiment/*.yaml")) + sorted(CONF.glob("sweep/*.yaml")), ids=str)
def test_every_experiment_and_sweep_opens_with_its_claim(path: Path) -> None:
    first, command, locus, *rest = path.read_text().splitlines()
    assert first == "# @package _global_"
    assert re.match(rf"# lnexp (train|probe) {path.parent.name}={path.stem}\b", command)
    assert locus.startswith("# ") and any(r.startswith("# Expected: ") for r in rest)
    assert any(r.startswith("# Cost: ") for r in rest)


def test_a_word_narrows_a_sweep(capsys: Out) -> None:
    assert len(plan(["sweep=demo", "model=pre_ln"]).jobs) == len(plan(["sweep=demo"]).jobs) / 2


def test_eight_jobs_have_eight_folders_and_ids() -> None:
    jobs = plan(EIGHT).jobs
    assert len({job.id for job in jobs}) == len({job.folder for job in jobs}) == 8
    assert {(j.run.model.norm, j.run.schedule.warmup_updates, j.run.optim.lr) for j in jobs} == {
        (norm, warmup, rate) for norm in ("post", "pre") for warmup in (0, 200) for rate in (1e-3, 3e-3)
    }


def test_a_sweep_finds_the_folder_of_a_single_run() -> None:
    single = plan([*SMALL, "model=post_ln"]).jobs[0]
    assert single.folder in [job.folder for job in plan(["-m", *SMALL, "model=post_ln,pre_ln"]).jobs]


def test_the_direction_turns_round(capsys: Out) -> None:
    there, back = (printed(capsys, "show", "experiment=smoke", "data=tatoeba_deen", *way)
                   for way in ([], ["data.src=en", "data.tgt=de"]))  # fmt: skip
    assert "src: en\n  tgt: de\n" in back
    assert figures(there)["run id"] != figures(back)["run id"]


def test_reports_find_a_sweep_by_name_below_outputs(capsys: Out, begun: Callable[..., Path]) -> None:
    folder = begun(["experiment=smoke"])
    assert "adhoc: 1 found: 1 done\n" in printed(capsys, "status", "adhoc")
    assert printed(capsys, "table", "adhoc").endswith(f"\n{folder.parent}/table.md\n")
    assert printed(capsys, "dashboard", "adhoc") == f"{folder.parent}/dashboard.html\n"


@pytest.mark.parametrize("form", [["--format", "csv"], ["--format=csv"]], ids=str)
def test_table_format(capsys: Out, begun: Callable[..., Path], form: list[str]) -> None:
    folder = begun(["experiment=smoke"])
    assert printed(capsys, "table", *form, str(folder)).endswith("/table.csv\n")


def test_what_is_done_is_not_begun_again(capsys: Out, begun: Callable[..., Path]) -> None:
    folder = begun(SMALL)
    assert f"{folder.name}: done already, nothing to train\n" == printed(capsys, "train", *SMALL)


def test_a_sweep_goes_on_after_fairseq_was_imported(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    """fairseq's import stores a "config" of its own with Hydra; the next job must still be composed from ours."""

    def as_if_trained(run: Run, run_id: str, folder: Path, *_: object, **__: object) -> str:
        ConfigStore.instance().store(name="config", node={"foreign": 1})
        folder.mkdir(parents=True, exist_ok=True)
        rundir.write_status(folder, "done", run.max_updates, 1.0)
        return "done"

    monkeypatch.setattr("lnexp.train.train", as_if_trained)
    text = printed(capsys, "train", "-m", *SMALL, "seed=1,2,3")
    assert text.endswith("/outputs/adhoc: 3 done\n")
    ConfigStore.instance().store(name="config", node={"foreign": 1})
    assert len(plan(SMALL).jobs) == 1


def test_a_failed_job_does_not_stop_a_sweep(monkeypatch: pytest.MonkeyPatch, capsys: Out, tmp_path: Path) -> None:
    def sometimes(run: Run, run_id: str, folder: Path, *_: object, **__: object) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        state = "failed" if run.seed == 2 else "done"
        rundir.write_status(folder, state, 1, 1.0, "out of luck" if run.seed == 2 else None)
        if run.seed == 2:
            raise RuntimeError("out of luck")
        return state

    monkeypatch.setattr("lnexp.train.train", sometimes)
    assert main(["train", "-m", *SMALL, "seed=1,2,3"]) == 1
    out, err = capsys.readouterr()
    assert "failed: out of luck; retry=failed tries it again\n" in out and out.endswith("/adhoc: 2 done, 1 failed\n")
    assert "Traceback" not in out + err


LIGHT = {
    "--help": ["--help"],
    "table": ["table", "adhoc"],
    "status": ["status", "adhoc"],
    "dashboard": ["dashboard", "adhoc"],
    "show": ["show", "experiment=smoke"],
    "show a sweep": ["show", "sweep=demo"],
    "train, all done": ["train", "experiment=smoke"],
}
LOADED = """
import sys
from lnexp.cli import main
code = main(sys.argv[1:])
print(*sorted({"torch", "fairseq", "wandb", "numpy", "hydra"} & set(sys.modules)), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("name", LIGHT)
def test_what_trains_nothing_loads_no_torch(begun: Callable[..., Path], name: str) -> None:
    begun(["experiment=smoke"])
    done = subprocess.run([sys.executable, "-c", LOADED, *LIGHT[name]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(done.stderr.split()) <= ({"hydra"} if name.startswith(("show", "train")) else set())


# Seconds on a free machine, times three for a busy one; the best of three tries.
@pytest.mark.parametrize(("name", "seconds"), [("--help", 0.4), ("show", 1.5), ("table", 0.7), ("show a sweep", 1.5)])
def test_start_up_time(begun: Callable[..., Path], name: str, seconds: float) -> None:
    begun(["experiment=smoke"])
    taken = []
    for _ in range(3):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-m", "lnexp", *LIGHT[name]], capture_output=True, check=True)
        taken.append(time.perf_counter() - begin)
        if taken[-1] < seconds:
            break
    assert min(taken) < 3 * seconds


def test_the_installed_command_is_the_module() -> None:
    script = Path(sys.executable).with_name("lnexp")
    module = [sys.executable, "-m", "lnexp"]
    first, second = (
        subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
        for command in ([str(script)], module)
    )
    assert first == second == f"lnexp {lnexp.__version__}\n"


def test_prepare_needs_no_bound_on_training(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "data=toy_copy"]) == 0
    assert "data b5f0c14c8256" in capsys.readouterr().out


def test_what_is_wrong_with_the_data_comes_before_a_missing_bound(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "data.src=fr"]) == 2
    assert "only de and en" in capsys.readouterr().err


def test_only_the_markdown_table_is_printed(begun: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = begun(["data=toy_copy", "size=tiny", "max_updates=2"])
    for form, name in (("csv", "table.csv"), ("latex", "table.tex"), ("json", "table.json")):
        assert main(["table", str(run), "--format", form]) == 0
        assert capsys.readouterr().out.strip() == str(run / name)
