"""Whole runs on generated digits: learn, stop, go on, score again, do nothing twice."""

import json
import os
import re
import signal
from pathlib import Path

import pytest
import torch

from lnexp import rundir
from lnexp.cli import main
from lnexp.launch import plan

# A run of seconds: 12 updates, two validations.
SHORT = ["data=toy_copy", "size=tiny", "schedule=constant", "decode=greedy", "track=none", "devices.threads=1",
         "tokens_per_update=500", "max_updates=12", "validate_every=6", "log_every=3", "optim.lr=1e-3"]  # fmt: skip


def folder(arguments):
    return plan(arguments).jobs[0].folder


def lasting(row):
    """A row without what a clock says."""
    return {k: v for k, v in row.items() if k not in ("wall_s", "tokens_per_s")}


def test_digit_copy_is_learned_without_warmup():
    """Pre-LN, no warm-up, one thread: 4 to 10 digits copied, BLEU at least 95."""
    args = ["data=toy_copy", "size=tiny", "model=pre_ln", "schedule=linear", "schedule.warmup_updates=0",
            "decode=greedy", "track=none", "devices.threads=1", "tokens_per_update=1000", "max_updates=300",
            "validate_every=150", "optim.lr=3e-3", "seed=7"]  # fmt: skip
    assert main(["train", *args]) == 0
    scores = json.loads((folder(args) / "scores.json").read_text())
    test = next(s for s in scores if s["split"] == "test" and s["metric"] == "sacrebleu")
    assert test["value"] >= 95
    assert rundir.read_status(folder(args))["state"] == "done"


def test_a_run_folder_is_complete():
    assert main(["train", *SHORT]) == 0
    run = folder(SHORT)
    names = {p.name for p in run.iterdir()}
    assert {"config.yaml", "env.json", "metrics.jsonl", "status.json", "scores.json", "hyp.valid.txt", "hyp.test.txt",
            "checkpoints", "train.log"} <= names  # fmt: skip
    rows = list(rundir.rows(run))
    assert [(r["split"], r["updates"]) for r in rows] == [
        ("train", 3), ("train", 6), ("valid", 6), ("train", 9), ("train", 12), ("valid", 12)]  # fmt: skip
    scores = json.loads((run / "scores.json").read_text())
    assert {(s["split"], s["metric"]) for s in scores} == {
        (split, metric) for split in ("valid", "test") for metric in ("sacrebleu", "tokenized_bleu")
    }
    assert all(s["n_sentences"] == 200 and s["signature"] and s["data"] for s in scores)
    assert len((run / "hyp.test.txt").read_text().splitlines()) == 200
    assert {p.name for p in (run / "checkpoints").iterdir()} == {"best.pt", "last.pt", "previous.pt"}


def test_same_command_twice_trains_once(capsys):
    assert main(["train", *SHORT]) == 0
    before = (folder(SHORT) / "metrics.jsonl").read_bytes()
    capsys.readouterr()
    assert main(["train", *SHORT]) == 0
    assert "nothing to train" in capsys.readouterr().out
    assert (folder(SHORT) / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("cut", [4, 6, 11])
def test_stopped_and_gone_on_equals_undisturbed_bit_for_bit(cut, monkeypatch, capsys):
    """SIGTERM at update `cut` (mid-epoch; at a validation), the same command again: same rows, weights, scores."""
    from lnexp.backend.session import Session

    dropout = ["size.dropout=0.2", "optim.lr=2e-3"]
    assert main(["train", *SHORT, *dropout, "sweep_name=whole"]) == 0
    update = Session._update

    def interrupted(self, samples):
        out = update(self, samples)
        if self.updates == cut:
            os.kill(os.getpid(), signal.SIGTERM)
        return out

    with monkeypatch.context() as patch:
        patch.setattr(Session, "_update", interrupted)
        assert main(["train", *SHORT, *dropout, "sweep_name=cut"]) == 130
    cut_run, whole = (folder([*SHORT, *dropout, f"sweep_name={n}"]) for n in ("cut", "whole"))
    assert rundir.read_status(cut_run)["state"] == "interrupted"
    assert main(["train", *SHORT, *dropout, "sweep_name=cut"]) == 0
    assert f"goes on from update {cut}" in capsys.readouterr().out
    assert [lasting(r) for r in rundir.rows(cut_run)] == [lasting(r) for r in rundir.rows(whole)]
    states = [torch.load(run / "checkpoints" / "last.pt", weights_only=True) for run in (cut_run, whole)]
    for name in states[0]["model"]:
        assert torch.equal(states[0]["model"][name], states[1]["model"][name]), name
    for index, moments in states[0]["optimizer"]["torch"]["state"].items():
        assert all(torch.equal(moments[k], states[1]["optimizer"]["torch"]["state"][index][k]) for k in moments)
    assert (cut_run / "scores.json").read_text() == (whole / "scores.json").read_text()


def test_a_restart_that_is_stopped_at_once_keeps_its_place():
    """Saved again before any update, the state still says where in the data training stood."""
    from lnexp.backend import open_session
    from lnexp.data.prepare import prepare

    run = plan(SHORT).jobs[0].run
    data = prepare(run.data, Path(run.paths.cache))
    first, second = (open_session(run, data, 1) for _ in range(2))
    stream = first.updates_stream()
    for _ in range(3):
        next(stream)
    second.load_state(first.state())
    assert second.state()["batches"] == first.state()["batches"] and second.state()["updates"] == 3


def test_bleu_in_training_is_bleu_of_eval():
    assert main(["train", *SHORT]) == 0
    run = folder(SHORT)
    best = min((r for r in rundir.rows(run) if r["split"] == "valid"), key=lambda r: r["loss_bits"])
    before = json.loads((run / "scores.json").read_text())
    valid = next(s for s in before if s["split"] == "valid" and s["metric"] == "sacrebleu")
    assert valid["value"] == best["bleu"]
    assert main(["eval", str(run)]) == 0
    assert json.loads((run / "scores.json").read_text()) == before
    assert main(["eval", str(run), "decode.beam=3"]) == 0
    after = json.loads((run / "scores.json").read_text())
    assert len(after) == 8 and after[:4] == before
    assert (run / "hyp.test.beam3-lp1-len1.2x+10.txt").exists()


def test_eval_refuses_other_data(capsys):
    assert main(["train", *SHORT]) == 0
    run = folder(SHORT)
    env = json.loads((run / "env.json").read_text())
    rundir.write_json(run / "env.json", env | {"data_fingerprint": "0" * 12})
    assert main(["eval", str(run)]) == 2
    assert "trained on data 000000000000" in capsys.readouterr().err


def test_a_run_whose_loss_is_not_finite_is_a_result():
    args = [*SHORT, "optim=sgd", "optim.lr=1e30"]
    assert main(["train", *args]) == 0
    status = rundir.read_status(folder(args))
    assert status["state"] == "diverged"
    assert re.search(r"update \d+: .*; before it training loss [\d.]+ bits, gradient norm [\d.]+", status["reason"])


def test_a_run_that_stays_at_chance_is_a_result():
    args = [*SHORT, "optim.lr=1e-9", "max_epochs=1", "max_updates=0", "tokens_per_update=5000", "validate_every=0"]
    assert main(["train", *args]) == 0
    status = rundir.read_status(folder(args))
    assert status["state"] == "diverged" and "stayed at chance" in status["reason"]


def test_sweep_with_a_failing_job_goes_on(monkeypatch, capsys):
    from lnexp.backend.session import Session

    validate = Session.validate

    def breaks(self, split="valid"):
        if self.run.seed == 2:
            raise RuntimeError("planted")
        return validate(self, split)

    monkeypatch.setattr(Session, "validate", breaks)
    args = [*SHORT, "sweep_name=three", "seed=1,2,3"]
    assert main(["train", "-m", *args]) == 1
    states = {job.run.seed: rundir.read_status(job.folder) for job in plan(["-m", *args]).jobs}
    assert {seed: s["state"] for seed, s in states.items()} == {1: "done", 2: "failed", 3: "done"}
    assert "planted" in states[2]["reason"]
    failed = plan(["-m", *args]).jobs[1].folder
    assert "planted" in (failed / "train.log").read_text()
    wanted = json.loads((failed.parent / "sweep.json").read_text())["wanted"]
    assert len(wanted) == 3
    assert "1 failed" in capsys.readouterr().out


def test_two_jobs_side_by_side():
    args = ["-m", *SHORT, "sweep_name=pair", "model=post_ln,pre_ln", "hydra/launcher=joblib",
            "hydra.launcher.n_jobs=2", "devices.threads=0"]  # fmt: skip
    assert main(["train", *args]) == 0
    for job in plan(args).jobs:
        assert rundir.read_status(job.folder)["state"] == "done"
        env = json.loads((job.folder / "env.json").read_text())
        from lnexp.launch import cores

        assert env["threads"] == max(1, cores() // 2)


def test_a_folder_in_use_is_left_alone(capsys):
    import fcntl

    run = folder(SHORT)
    run.mkdir(parents=True)
    with open(run / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert main(["train", *SHORT]) == 2
    assert "in use by" in capsys.readouterr().err


def test_eval_leaves_a_running_run_alone(capsys):
    import fcntl

    assert main(["train", *SHORT]) == 0
    before = (folder(SHORT) / "scores.json").read_bytes()
    with open(folder(SHORT) / ".lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert main(["eval", str(folder(SHORT)), "decode.beam=2"]) == 2
    assert "in use by" in capsys.readouterr().err
    assert (folder(SHORT) / "scores.json").read_bytes() == before
