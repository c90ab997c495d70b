"""Whole runs in each precision of a CPU: the same training, up to what the type rounds."""

import json
from pathlib import Path

import pytest
import torch

from lnexp import rundir
from lnexp.backend.precision import resolve
from lnexp.cli import main
from lnexp.errors import UserError
from lnexp.launch import plan

SHORT = ["data=toy_copy", "size=tiny", "schedule=constant", "decode=greedy", "track=none", "devices.threads=1",
         "tokens_per_update=500", "max_updates=12", "validate_every=6", "log_every=3", "optim.lr=1e-3",
         "size.dropout=0"]  # fmt: skip


def trained(precision: str, *more: str) -> Path:
    arguments = [*SHORT, f"devices.precision={precision}", *more]
    assert main(["train", *arguments]) == 0
    return plan(arguments).jobs[0].folder


def losses(run: Path) -> list[float]:
    return [row[name] for row in rundir.rows(run) for name in ("loss_bits", "nll_bits")]


@pytest.mark.parametrize("model", ["post_ln", "pre_ln"])
def test_every_precision_takes_the_same_path(model: str) -> None:
    runs = {name: trained(name, f"model={model}") for name in ("fp32", "fp32_fast", "bf16")}
    assert len({run.name for run in runs.values()}) == 3
    for name, run in runs.items():
        assert json.loads((run / "env.json").read_text())["precision"] == name
    assert losses(runs["fp32_fast"]) == pytest.approx(losses(runs["fp32"]), rel=1e-4)
    assert losses(runs["bf16"]) == pytest.approx(losses(runs["fp32"]), rel=0.01)
    assert losses(runs["bf16"]) != losses(runs["fp32"])


def test_auto_says_what_it_chose_and_is_that() -> None:
    run = trained("auto")
    chosen = json.loads((run / "env.json").read_text())["precision"]
    assert chosen in ("fp32_fast", "bf16") and losses(run) == losses(trained(chosen))


def test_auto_takes_what_the_device_has(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    for has, expected in ((True, "bf16"), (False, "fp32_fast")):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda has=has: has)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
        assert resolve("auto", cpu) == expected
    assert resolve("auto", cuda) == "fp32" and resolve("fp16", cuda) == "fp16" and resolve("bf16", cpu) == "bf16"
    with pytest.raises(UserError, match=r"devices\.precision=fp16: .*bf16"):
        resolve("fp16", cpu)


def test_float16_on_a_cpu_ends_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *SHORT, "devices.precision=fp16"]) == 2
    assert "devices.precision=fp16: no fast kernels on a CPU" in capsys.readouterr().err


def test_a_score_in_bf16_stands_beside_the_one_in_fp32() -> None:
    run = trained("bf16")
    assert main(["eval", str(run), "decode=greedy", "decode.precision=bf16"]) == 0
    labels = [score["decode"] for score in json.loads((run / "scores.json").read_text())]
    assert sum(label.endswith("-bf16") for label in labels) == 4 and len(labels) == 8
