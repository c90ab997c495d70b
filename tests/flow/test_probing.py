"""`lnexp probe` and probe.every: what lands in the run folder, that training goes its own way, what it costs."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
import torch

from lnexp import rundir, survey
from lnexp.cli import main
from lnexp.launch import plan
from lnexp.probe import QUANTITIES
from lnexp.report import probes

TINY = ["data=toy_copy", "size=tiny", "track=none", "devices.threads=1", "tokens_per_update=500"]
SHORT = [*TINY, "schedule=constant", "decode=greedy", "max_updates=12", "validate_every=6", "log_every=3",
         "optim.lr=1e-3", "size.dropout=0.2"]  # fmt: skip


def folder(arguments: list[str]) -> Path:
    return plan(arguments, bound=False).jobs[0].folder


def probed(arguments: list[str]) -> list[survey.Row]:
    assert main(["probe", *arguments]) == 0
    return survey.read(folder(arguments) / "probe.json")


def value(rows: list[survey.Row], quantity: str, module: str, **more: object) -> float:
    (found,) = (row["value"] for row in rows
                if {"quantity": quantity, "module": module, **more}.items() <= row.items())  # fmt: skip
    return float(found)


def test_a_probe_of_settings_makes_the_run_folder(capsys: pytest.CaptureFixture[str]) -> None:
    args = [*TINY, "model=post_ln", "probe.seeds=2", "probe.batches=2"]
    rows = probed(args)
    assert {p.name for p in folder(args).iterdir()} == {"config.yaml", "probe.json"}
    assert {row["seed"] for row in rows} == {1, 2} and {row["quantity"] for row in rows} == set(QUANTITIES)
    assert {(row["at"], row["updates"]) for row in rows} == {("init", 0)}
    key = ("seed", "quantity", "module")
    assert len({tuple(row[k] for k in key) for row in rows}) == len(rows)
    assert value(rows, "grad_norm_of_mean", "decoder.layers.1.fc2", seed=1) > 0
    out = capsys.readouterr().out
    assert "grad_norm_of_mean, 2 seeds (sd)" in out and "decoder layer 2 of 2" in out and "2 of 2 seeds" in out


def test_reports_name_every_quantity() -> None:
    assert list(probes.QUANTITIES) == list(QUANTITIES)


def test_what_was_measured_is_not_measured_again(capsys: pytest.CaptureFixture[str]) -> None:
    args = [*TINY, "probe.batches=1"]
    before = probed(args)
    capsys.readouterr()
    assert probed([*args, "probe.seeds=1"]) == before
    assert "measured already" in capsys.readouterr().out
    more = probed([*args, "probe.seeds=2"])
    assert "1 of 2 seeds" in capsys.readouterr().out
    assert more[: len(before)] == before and len(more) == 2 * len(before)
    other = probed([*args, "probe.inputs=gaussian"])  # takes the place of seed 1
    assert len(other) == len(more) and other[: len(before)] == more[len(before) :]
    assert "of Gaussian inputs" in other[-1]["setting"]


def test_the_model_is_the_one_that_training_starts_from() -> None:
    """By SGD's first step, lr |g| / |W|: with the norms of the matrices in a session at update 0."""
    from lnexp.backend import open_session
    from lnexp.data.prepare import prepare

    args = [*TINY, "optim=sgd", "optim.lr=0.5", "probe.batches=1", "seed=4", "devices.precision=fp32"]
    rows, run = probed(args), plan(args, bound=False).jobs[0].run
    data = prepare(run.data, Path(run.paths.cache))
    session = open_session(run, data, 1)
    for name, p in session._trainer.get_model().named_parameters():
        if p.dim() == 2:
            module = name.removesuffix(".weight")
            ratio = 0.5 * value(rows, "grad_norm_of_mean", module) / float(p.norm())
            assert value(rows, "update_ratio", module) == pytest.approx(ratio, rel=1e-3), module
    first = next(session.updates_stream())  # no dropout here: the very gradient, over all parameters
    total = math.sqrt(sum(row["value"] ** 2 for row in rows if row["quantity"] == "grad_norm_of_mean"))
    assert 0.9 * first["gnorm"] < total < first["gnorm"]


def test_a_sweep_is_probed_run_by_run(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["-m", *TINY, "model=post_ln,pre_ln", "probe.batches=1"]
    assert main(["probe", *args]) == 0
    folders = [job.folder for job in plan(args, bound=False).jobs]
    assert len(folders) == 2 and all((f / "probe.json").exists() for f in folders)
    out = capsys.readouterr().out
    assert out.count("decoder layer 2 of 2") == 2 and "layer 1 of 2" not in out
    assert out.splitlines()[-1].startswith("shown: the last layer of each stack; probe.json in each run folder has all")


def test_figure_3_is_composed_at_the_papers_width() -> None:
    jobs = plan(["sweep=fig3_depth"], bound=False).jobs
    sizes = [(j.run.model.norm, j.run.size.encoder_layers, j.run.size.decoder_layers) for j in jobs]
    assert sizes == [(norm, depth, depth) for norm in ("post", "pre") for depth in (6, 8, 10, 12, 14)]
    assert {(j.run.size.d_model, j.run.size.d_ffn, j.run.size.heads, j.run.probe.seeds) for j in jobs} == {
        (512, 1024, 4, 10)
    }


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("clip", ["0", "0.05"])
def test_a_probe_in_training_leaves_no_trace(precision: str, clip: str) -> None:
    """The same losses, parameters, moments, place in the data and translations, with dropout; and its rows beside."""
    args = [*SHORT, f"devices.precision={precision}", f"optim.clip_norm={clip}"]
    assert main(["train", *args, "sweep_name=plain"]) == 0
    assert main(["train", *args, "sweep_name=probed", "probe.every=4"]) == 0
    plain, watched = (folder([*args, f"sweep_name={n}"]) for n in ("plain", "probed"))
    states = [torch.load(f / "checkpoints" / "last.pt", weights_only=True) for f in (plain, watched)]
    assert all(torch.equal(states[0]["model"][k], states[1]["model"][k]) for k in states[0]["model"])
    moments = [state["optimizer"]["torch"]["state"] for state in states]
    assert all(torch.equal(m, moments[1][i][k]) for i, each in moments[0].items() for k, m in each.items())
    assert states[0]["batches"] == states[1]["batches"]
    assert (plain / "hyp.test.txt").read_bytes() == (watched / "hyp.test.txt").read_bytes()
    clocks = ("wall_s", "tokens_per_s")
    rows, mine = ([{k: v for k, v in row.items() if k not in clocks} for row in rundir.rows(f)]
                  for f in (plain, watched))  # fmt: skip
    assert [row for row in mine if row["split"] != "probe"] == rows
    probes = [row for row in mine if row["split"] == "probe"]
    assert [row["updates"] for row in probes] == [4, 8, 12]
    assert all({"grad", "update_ratio", "hidden", "entropy"} <= row.keys() for row in probes)
    assert all(0 < ratio < 1 for row in probes for ratio in row["update_ratio"].values())


def test_gradients_in_training_are_those_before_clipping() -> None:
    args = [*SHORT, "probe.every=1", "log_every=1", "max_updates=2", "validate_every=2", "optim=sgd"]
    found = []
    for clip in ("0", "0.05"):
        assert main(["train", *args, f"optim.clip_norm={clip}"]) == 0
        found.append(list(rundir.rows(folder([*args, f"optim.clip_norm={clip}"])))[:2])
    (free, loss), (clipped, _) = found
    assert free["split"] == "probe" and loss["split"] == "train" and loss["gnorm"] > 0.05
    for name, norm in free["grad"].items():
        assert clipped["grad"][name] == pytest.approx(norm, rel=1e-4)
        assert clipped["update_ratio"][name] < free["update_ratio"][name]
    total = math.sqrt(sum(norm**2 for norm in free["grad"].values()))
    assert 0.9 * loss["gnorm"] < total <= loss["gnorm"]


def test_reports_take_rows_of_probes() -> None:
    args = [*SHORT, "probe.every=2", "sweep_name=watched"]
    assert main(["train", *args]) == 0
    for verb in ("status", "table", "dashboard"):
        assert main([verb, "watched"]) == 0
    assert main(["status", "watched", "--json"]) == 0


def test_checkpoints_are_probed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *SHORT]) == 0
    run = folder(SHORT)
    config = (run / "config.yaml").read_bytes()
    assert main(["probe", *SHORT, "probe.batches=1"]) == 0
    assert main(["probe", str(run), "--checkpoint", "last", "probe.batches=1"]) == 0
    rows = survey.read(run / "probe.json")
    assert {(row["at"], row["updates"], row["seed"]) for row in rows} == {("init", 0, 1), ("checkpoint", 12, 1)}
    init, trained = (value(rows, "hidden_norm", "decoder.layer_norm", at=at) for at in ("init", "checkpoint"))
    assert trained > init  # Pre-LN's stream grows as it learns
    capsys.readouterr()
    assert main(["probe", *SHORT, "--checkpoint=last", "probe.batches=1"]) == 0  # the same, by its settings
    assert "checkpoint at update 12" in (out := capsys.readouterr().out) and "measured already" in out
    assert (run / "config.yaml").read_bytes() == config


def test_wrong_input_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    args = [*TINY, "probe.batches=1"]
    rows = probed(args)
    run = folder(args)
    cases = [
        ([*TINY, "--checkpoint", "first"], "--checkpoint first: need one of best, last"),
        ([*TINY, "--checkpoint"], "--checkpoint : need one of best, last"),
        ([*TINY, "--quantity", "loss"], "--quantity loss: need one of grad_norm_of_mean"),
        ([*TINY, "--checkpoint", "best"], "checkpoints/best.pt: no such checkpoint; train the run first"),
        ([str(run)], "checkpoints/best.pt: no such checkpoint"),
        (["--checkpoint", "best"], "--checkpoint best: of which run? Name its folder, or give its settings"),
        ([str(run), "seed=3"], "seed=3: a run folder has its settings"),
        ([str(run.parent)], "a sweep; name one run folder"),
        (["nowhere"], "nowhere: no such folder"),
        ([*TINY, "probe.inputs=words"], "probe.inputs=words: need one of batches, gaussian"),
        ([*TINY, "probe.init=zero"], "probe.init=zero: need one of fairseq, xavier"),
        ([*TINY, "probe.batches=0"], "probe.batches=0: need >= 1"),
        ([*TINY, "probe.seeds=0"], "probe.seeds=0: need >= 1"),
        ([*TINY, "probe.every=-1"], "probe.every=-1: need >= 0"),
        ([*TINY, "sweep_name=new", "probe.tokens=3"], "probe.tokens=3: need at least"),
        ([*TINY, "sweep_name=new", "probe.batches=100000"], "probe.batches=100000: the training data makes"),
        ([*TINY, "probe.batch=1"], "probe.batch: no such setting; did you mean probe.batches?"),
    ]
    damaged = (args, "probe.json: not the rows of a probe; delete it")
    for arguments, words in [*cases, damaged]:
        if words == damaged[1]:
            (run / "probe.json").write_text("[{}]")
        capsys.readouterr()
        assert main(["probe", *arguments]) == 2, arguments
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and words in err, err
    assert rows and not (run.parent.parent / "new").exists()


@pytest.mark.slow
def test_a_probe_costs_at_most_three_training_steps() -> None:
    """Of one 500-token batch of a 6-6 model of width 512 in fp32, loading and initialisation apart; medians of 5."""
    from lnexp.backend import open_prober, open_session
    from lnexp.data.prepare import prepare

    args = ["size=iwslt", "tokens_per_update=500", "devices.precision=fp32", "probe.batches=1", "model=post_ln"]
    run = plan(args, bound=False).jobs[0].run
    data = prepare(run.data, Path(run.paths.cache))
    session, prober = open_session(run, data, 1), open_prober(run, data, 1)
    stream, model = session.updates_stream(), prober._model(1)
    next(stream)
    steps, probes = [], []
    for _ in range(5):
        begun = time.perf_counter()
        next(stream)
        steps.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        prober._measure(model, 1, None, 1e-3)
        probes.append(time.perf_counter() - begun)
    print(f"a step {sorted(steps)[2]:.2f} s, a probe {sorted(probes)[2]:.2f} s")
    assert sorted(probes)[2] <= 3 * sorted(steps)[2]


@pytest.mark.slow
def test_probing_every_100_updates_slows_training_by_at_most_3_percent() -> None:
    """By the session's own clock, in which a probe is "tracking", and with the row's way to the disk."""
    from lnexp.backend import open_session
    from lnexp.data.prepare import prepare

    run = plan(["probe.every=100", "devices.threads=1"], bound=False).jobs[0].run
    session = open_session(run, prepare(run.data, Path(run.paths.cache)), 1)
    stream, rows = session.updates_stream(), rundir.RowFile(Path())
    for _ in range(200):
        next(stream)
        if session.probed:
            with session.clock("tracking"):
                rows.write({"split": "probe", "updates": session.updates, **session.probed})
    assert len(list(rundir.rows(Path()))) == 2
    spent = session.clock.seconds()
    share = spent["tracking"] / sum(spent[part] for part in ("data", "forward", "backward", "optimizer"))
    print(f"{spent['tracking'] / 2:.3f} s a probe, {share:.2%}")
    assert share <= 0.03
