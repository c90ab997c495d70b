"""What makes two runs the same run, what is legal, and that a frozen config comes back as it was."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from lnexp.check import check, check_bound
from lnexp.config import (
    Data,
    Decode,
    Model,
    Optim,
    Paths,
    Run,
    Size,
    freeze,
    identity,
    load,
    run_id,
)
from lnexp.errors import UserError
from lnexp.launch import CONF, plan
from lnexp.schedule import Schedule

# What a run is called, where it lies, who watches it, how fast it runs: another value is the same run.
SAME_RUN = {
    "track.mode", "track.project", "track.entity", "track.tags", "paths.outputs", "paths.cache", "run_name",
    "sweep_name", "expected", "log_every", "max_wall_s", "devices.device", "devices.threads", "devices.max_tokens",
    "devices.processes",
    "probe.every", "probe.inputs", "probe.batches", "probe.tokens", "probe.seeds", "probe.init",
    "scale.updates", "scale.lr", "scale.suffix",
    "retry", "keep", "average", "data.local", "data.train", "data.valid", "data.test", "data.codes",
}  # fmt: skip

# An id that changes orphans every run trained before: a new entry here is fine, a changed one needs a reason.
EXPERIMENTS = {
    "iwslt14_post_nowarmup": "2bdb2077",
    "iwslt14_post_radam": "71f3f483",
    "iwslt14_post_warmup": "9f16fe2f",
    "iwslt14_pre_nowarmup": "5f60837e",
    "iwslt14_pre_radam": "4781425a",
    "smoke": "2093775a",
    "wmt14_post_warmup": "70eafc8e",
    "wmt14_pre_nowarmup": "579dd7b7",
}


def legal() -> Run:
    return Run(
        data=Data("toy_copy", "aa", "bb"), model=Model("pre"), size=Size(2, 2, 64, 128, 4), optim=Optim(lr=1e-3),
        schedule=Schedule("inverse_sqrt", 4000), decode=Decode(5, 1.2), paths=Paths("outputs", "cache"),
        tokens_per_update=4096, max_updates=100, run_name="pre-w4000",
    )  # fmt: skip


def put(run: Run, changes: dict[str, Any]) -> Run:
    for name, value in changes.items():
        *groups, leaf = name.split(".")
        part: Any = run
        for group in groups:
            part = getattr(part, group)
        assert hasattr(part, leaf), name
        setattr(part, leaf, value)
    return run


def leaves(part: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for f in fields(part):
        value = getattr(part, f.name)
        if is_dataclass(value):
            yield from leaves(value, f"{prefix}{f.name}.")
        else:
            yield prefix + f.name, value


def another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return {str: "other", int: 77, float: 0.77, list: [0.5, 0.5], type(None): "other"}[type(value)]


def test_a_neutral_run_has_no_identity() -> None:
    assert identity(Run()) == {}


def test_identity_holds_what_is_set_and_nothing_else() -> None:
    assert identity(legal()) == {
        "data.name": "toy_copy", "data.src": "aa", "data.tgt": "bb", "decode.beam": 5, "decode.lenpen": 1.2,
        "max_updates": 100, "model.norm": "pre", "optim.lr": 0.001, "schedule.name": "inverse_sqrt",
        "schedule.warmup_updates": 4000, "size.d_ffn": 128, "size.d_model": 64, "size.decoder_layers": 2,
        "size.encoder_layers": 2, "size.heads": 4, "tokens_per_update": 4096,
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name, _ in leaves(Run())])
def test_each_field_changes_the_id_or_is_known_not_to(name: str) -> None:
    before = dict(leaves(legal()))[name]
    changed = run_id(put(legal(), {name: another(before)}), "source")
    assert (changed == run_id(legal(), "source")) == (name in SAME_RUN)


@pytest.mark.parametrize("name", [name for name, _ in leaves(Run())])
def test_a_field_at_its_neutral_value_leaves_no_trace(name: str) -> None:
    neutral = dict(leaves(Run()))[name]
    assert name not in identity(put(legal(), {name: neutral}))


def test_other_data_makes_another_id() -> None:
    assert run_id(legal(), "source") != run_id(legal(), "other source")


def test_the_way_ids_are_made_has_not_changed() -> None:
    assert run_id(legal(), "source") == "68da171b"


def test_every_experiment_has_its_id_here() -> None:
    assert {p.stem for p in (CONF / "experiment").glob("*.yaml")} == set(EXPERIMENTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_ids_of_the_experiments(name: str) -> None:
    assert plan([f"experiment={name}"]).jobs[0].id == EXPERIMENTS[name]


ODD = {
    "sweep_name": "1e3", "run_name": "007", "expected": "33.9 ± 0.1 %: # \"ja\" | no\n", "optim.lr": 1e-5,
    "track.tags": ["no", "1e3", "2020-01-01"], "track.entity": None, "data.local": "~/my corpus/ä", "seed": 2**31 - 1,
    "max_wall_s": 3.0, "optim.betas": [0.9, 0.98], "data.lowercase": True,
}  # fmt: skip


@pytest.mark.parametrize("changes", [{}, ODD, *({k: v} for k, v in ODD.items())], ids=str)
def test_a_frozen_config_comes_back(tmp_path: Path, changes: dict[str, Any]) -> None:
    run = put(legal(), changes)
    (tmp_path / "config.yaml").write_text(freeze(run), encoding="utf-8")
    assert load(tmp_path / "config.yaml") == run


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("warmup: 3", "warmup"),
        ("schedule: {warmup: 3}", "warmup"),
        ("max_updates: many", "many"),
        ("- a list", "mapping"),
        ("", "mapping"),
        ("model: {norm: [", "config.yaml"),
        ("model: {norm: ä}", "utf-8"),
    ],
)
def test_a_config_that_is_none_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "config.yaml").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=words) as caught:
        load(tmp_path / "config.yaml")
    assert "not a config of this version" in str(caught.value) and "\n" not in str(caught.value)


def test_no_config(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run folder"):
        load(tmp_path / "config.yaml")


def test_the_legal_run_is_legal() -> None:
    check(legal())


NAN, INF = math.nan, math.inf
STEP = {"schedule.name": "step_drop", "schedule.drop_epoch": 8, "schedule.drop_factor": 0.1}
LINEAR = {"schedule.name": "linear", "schedule.warmup_updates": 20, "schedule.total_updates": 100}

# Legal at its very edge.
EDGES: list[dict[str, Any]] = [
    {"schedule.warmup_updates": 0}, {"size.heads": 64}, {"size.dropout": 0.0}, {"optim.clip_norm": 0.0},
    {"max_updates": 0, "max_epochs": 1}, {"max_updates": 0, "max_wall_s": 0.1}, {"max_updates": 0, "patience": 1},
    {"decode.max_len_a": 1.0, "decode.max_len_b": 0}, {"decode.lenpen": -0.5}, {"seed": 0}, {"seed": 2**31 - 1},
    STEP, {**STEP, "schedule.drop_epoch": 1, "schedule.drop_factor": 1.0},
    {**STEP, "schedule.after_drop": "inverse_sqrt"},
    LINEAR, {**LINEAR, "schedule.total_updates": 21}, {**LINEAR, "schedule.hold_updates": 99},
    {"run_name": "a" * 100}, {"data.src": "deu"},
]  # fmt: skip

# change -> words of the one line, the first being the setting.
ILLEGAL: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"data.src": ""}, ("data.src=:", "language code")),
    ({"data.src": "DE"}, ("data.src=DE", "language code")),
    ({"data.tgt": "english"}, ("data.tgt=english", "language code")),
    ({"data.tgt": "aa"}, ("data.tgt=aa", "other than data.src")),
    ({"data.tokenizer": "spacy"}, ("data.tokenizer=spacy", "moses, none")),
    ({"data.bpe_merges": -1}, ("data.bpe_merges=-1", ">= 0", "no BPE")),
    ({"data.max_length": -1}, ("data.max_length=-1", ">= 0")),
    *(({"data.max_ratio": v}, (f"data.max_ratio={v}", ">= 1")) for v in (-1.0, 0.5, NAN, INF)),
    ({"data.limits_on": "words"}, ("data.limits_on=words", "subwords, tokens")),
    ({"data.valid_every": 1}, ("data.valid_every=1", ">= 2")),
    ({"retry": "all"}, ("retry=all", "none, failed")),
    ({"average": -1}, ("average=-1", ">= 0", "no mean")),
    *(({"devices.processes": n}, (f"devices.processes={n}", ">= 1 and at most")) for n in (0, -1, 9999)),
    ({"keep": "some"}, ("keep=some", "all, best, none")),
    ({"data.subwords": "wordpiece"}, ("data.subwords=wordpiece", "bpe, sentencepiece")),
    ({"data.subwords": "sentencepiece"}, ("data.pieces=0", ">= 1")),
    ({"data.pieces": 100}, ("data.pieces=100", "data.subwords=sentencepiece")),
    ({"data.subwords": "sentencepiece", "data.pieces": 9, "data.codes": "x"}, ("data.codes=x", "sentencepiece")),
    ({"model.norm": "middle"}, ("model.norm=middle", "post, pre")),
    *(({f"size.{n}": 0}, (f"size.{n}=0", ">= 1"))
      for n in ("encoder_layers", "decoder_layers", "d_model", "d_ffn", "heads")),
    ({"size.heads": 3}, ("size.heads=3", "divisor of size.d_model=64")),
    ({"size.d_model": 63, "size.heads": 9}, ("size.d_model=63", "even")),
    *(({f"size.{n}": p}, (f"size.{n}={p}", "0 <= p < 1")) for p in (1.0, -0.1, NAN)
      for n in ("dropout", "attention_dropout", "activation_dropout")),
    ({"size.share_embeddings": "some"}, ("size.share_embeddings=some", "all, decoder, none")),
    ({"optim.name": "lion"}, ("optim.name=lion", "adam, radam, sgd")),
    *(({"optim.lr": v}, (f"optim.lr={v}", "finite rate > 0")) for v in (0.0, -1.0, NAN, INF)),
    ({"optim.betas": [0.9]}, ("optim.betas=[0.9]", "two numbers")),
    ({"optim.betas": [0.9, 1.0]}, ("optim.betas=[0.9, 1.0]", "0 <= b < 1")),
    *(({"optim.eps": v}, (f"optim.eps={v}", "> 0")) for v in (0.0, NAN, INF)),
    *(({"optim.weight_decay": v}, (f"optim.weight_decay={v}", ">= 0")) for v in (-0.1, NAN, INF)),
    *(({"optim.clip_norm": v}, (f"optim.clip_norm={v}", ">= 0", "no clipping")) for v in (-0.1, NAN, INF)),
    *(({"optim.label_smoothing": v}, (f"optim.label_smoothing={v}", "0 <= eps < 1")) for v in (-0.1, 1.0, NAN)),
    ({"schedule.name": "cosine"}, ("schedule.name=cosine", "inverse_sqrt", "linear")),
    ({"schedule.warmup_updates": -1}, ("schedule.warmup_updates=-1", ">= 0", "no warm-up")),
    ({"schedule.hold_updates": -1}, ("schedule.hold_updates=-1", ">= 0")),
    ({**STEP, "schedule.drop_epoch": 0}, ("schedule.drop_epoch=0", ">= 1")),
    *(({**STEP, "schedule.drop_factor": v}, (f"schedule.drop_factor={v}", "0 < factor <= 1")) for v in (0.0, 1.1, NAN)),
    ({**STEP, "schedule.after_drop": "cosine"}, ("schedule.after_drop=cosine", "constant, inverse_sqrt")),
    *(({**LINEAR, "schedule.total_updates": n}, (f"schedule.total_updates={n}", "schedule.warmup_updates=20"))
      for n in (0, 20)),
    ({**LINEAR, "schedule.hold_updates": 100}, ("schedule.total_updates=100", "schedule.hold_updates=100")),
    ({"decode.beam": 0}, ("decode.beam=0", ">= 1", "greedy")),
    *(({"decode.lenpen": v}, (f"decode.lenpen={v}", "finite")) for v in (NAN, INF)),
    *(({"decode.max_len_a": v}, (f"decode.max_len_a={v}", ">= 0")) for v in (-0.1, NAN, INF)),
    ({"decode.max_len_b": -1}, ("decode.max_len_b=-1", ">= 0")),
    ({"decode.max_len_b": 0}, ("decode.max_len_b=0", "decode.max_len_a=0")),
    ({"decode.max_tokens": 0}, ("decode.max_tokens=0", ">= 1")),
    ({"probe.every": -1}, ("probe.every=-1", ">= 0", "none")),
    ({"probe.inputs": "words"}, ("probe.inputs=words", "batches, gaussian")),
    ({"probe.batches": 0}, ("probe.batches=0", ">= 1")),
    ({"probe.tokens": -1}, ("probe.tokens=-1", ">= 0")),
    ({"probe.seeds": 0}, ("probe.seeds=0", ">= 1")),
    ({"probe.init": "zero"}, ("probe.init=zero", "fairseq, xavier")),
    ({"track.mode": "maybe"}, ("track.mode=maybe", "none, offline, online, auto")),
    ({"devices.device": "tpu"}, ("devices.device=tpu", "cpu, cuda, auto")),
    ({"devices.precision": "fp64"}, ("devices.precision=fp64", "fp32")),
    ({"devices.threads": -1}, ("devices.threads=-1", ">= 0")),
    ({"devices.max_tokens": -1}, ("devices.max_tokens=-1", ">= 0")),
    *(({"seed": v}, (f"seed={v}", "0 <= seed")) for v in (-1, 2**31)),
    ({"tokens_per_update": 0}, ("tokens_per_update=0", ">= 1")),
    *(({n: -1}, (f"{n}=-1", ">= 0"))
      for n in ("max_updates", "max_epochs", "max_wall_s", "patience", "validate_every")),
    ({"max_wall_s": INF}, ("max_wall_s=inf", ">= 0")),
    ({"log_every": 0}, ("log_every=0", ">= 1")),
    *(({n: v}, (f"{n}={v}", "folder")) for n in ("run_name", "sweep_name")
      for v in ("", "a/b", "..", ".hidden", "-x", "a b", "a\n", "ä", "a" * 101)),
    *(({f"paths.{n}": ""}, (f"paths.{n}=", "folder")) for n in ("outputs", "cache")),
]  # fmt: skip


@pytest.mark.parametrize("changes", EDGES, ids=str)
def test_legal_at_the_edge(changes: dict[str, Any]) -> None:
    check(put(legal(), changes))


@pytest.mark.parametrize(("changes", "words"), ILLEGAL, ids=str)
def test_illegal(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as caught:
        check(put(legal(), changes))
    assert str(caught.value).startswith(words[0])
    assert all(word in str(caught.value) for word in words)


def test_training_needs_a_bound() -> None:
    check_bound(legal())
    with pytest.raises(UserError, match="max_updates=0: need a bound: max_updates, max_epochs, max_wall_s or patience"):
        check_bound(put(legal(), {"max_updates": 0}))
