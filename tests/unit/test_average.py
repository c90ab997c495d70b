"""The mean of checkpoints: equal to numpy's of the same files, told by its inputs, of the last N validations."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lnexp import averaging, retention
from lnexp.backend import average, checkpoint
from lnexp.errors import UserError
from lnexp.timing import Clock

TRAINED = {"seed": 1}


def state(updates: int) -> dict[str, Any]:
    """Parameters that depend on the update, with a matrix under two names and a tensor without dimensions."""
    draw = torch.Generator().manual_seed(updates)
    shared = torch.randn(40, 7, generator=draw) * 10**updates
    model = {"b.weight": shared, "a.weight": shared, "c.bias": torch.randn(5, generator=draw), "d": torch.tensor(3.0)}
    return {"model": model, "trained": TRAINED, "updates": updates, "optimizer": {"moments": torch.zeros(999)}}


def keep(folder: Path, updates: int, count: int) -> None:
    averaging.keep(state(updates), folder / "checkpoints", count)


def kept(folder: Path) -> list[int]:
    return [updates for updates, _ in retention.for_average(folder)]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    for updates in (1, 2, 5):
        keep(tmp_path, updates, 3)
    return [file for _, file in retention.for_average(tmp_path)]


# ---- the mean ----
def test_the_mean_is_numpys_of_what_is_in_the_files(files: list[Path]) -> None:
    found, inputs = average.mean(files, TRAINED)
    there = [torch.load(file, weights_only=True) for file in files]
    assert set(there[0]) == {"model", "trained", "updates"}  # no moments of the optimizer
    for name, value in found.items():
        expected = np.stack([each["model"][name].numpy() for each in there]).astype(np.longdouble).mean(0)
        assert value.dtype == torch.float32
        np.testing.assert_array_equal(value.numpy(), expected.astype(np.float32))
    assert [(i["file"], i["updates"]) for i in inputs] == [(f"checkpoints/update-{n}.pt", n) for n in (1, 2, 5)]


def test_it_is_summed_in_float64(tmp_path: Path) -> None:
    """1e8 + 1 - 1e8 is 0 in float32."""
    for updates, value in enumerate((1e8, 1.0, -1e8), 1):
        parameters = {"model": {"w": torch.tensor([value])}, "trained": TRAINED, "updates": updates}
        averaging.keep(parameters, tmp_path / "checkpoints", 3)
    found, _ = average.mean([file for _, file in retention.for_average(tmp_path)], TRAINED)
    assert found["w"].item() == np.float32(1 / 3)


def test_the_same_files_give_the_same_bits(files: list[Path]) -> None:
    (one, inputs), (other, again) = (average.mean(files, TRAINED) for _ in range(2))
    assert inputs == again and all(torch.equal(one[name], other[name]) for name in one)


def test_a_file_that_is_damaged_or_of_another_run_is_refused(files: list[Path]) -> None:
    with pytest.raises(UserError, match=r"update-1\.pt: of another run \(seed: 1 there, 2 here\)"):
        average.mean(files, {"seed": 2})
    raw = bytearray(files[1].read_bytes())
    raw[200] ^= 1
    files[1].write_bytes(raw)
    with pytest.raises(UserError, match=r"update-2\.pt: damaged"):
        average.mean(files, TRAINED)


# ---- what it is told by ----
def test_the_digest_is_of_names_types_shapes_and_bytes(files: list[Path]) -> None:
    model = state(1)["model"]
    shapes = {"a.weight": "[40, 7]", "b.weight": "[40, 7]", "c.bias": "[5]", "d": "[]"}
    parts = [f"{n} torch.float32 {shape}\n".encode() + model[n].numpy().tobytes() for n, shape in shapes.items()]
    assert average.mean(files[:1], TRAINED)[1][0]["sha256"] == hashlib.sha256(b"".join(parts)).hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["c.bias"].view(torch.int32).bitwise_xor_(torch.tensor([0, 0, 1, 0, 0], dtype=torch.int32)),
        lambda m: m.update(e=m.pop("d")),
        lambda m: m.update({"c.bias": m["c.bias"].view(1, 5)}),
        lambda m: m.update({"c.bias": m["c.bias"].view(torch.int32)}),
    ],
    ids=["a bit", "a name", "a shape", "a type"],
)
def test_another_digest_where_anything_differs(change: Any) -> None:
    model = state(3)["model"]
    before = average.digest(model)
    assert before == average.digest(dict(reversed(model.items())))
    change(model)
    assert average.digest(model) != before


def test_a_mean_says_of_how_many_and_of_what() -> None:
    inputs = [{"file": f"checkpoints/update-{n}.pt", "updates": n, "sha256": "0" * 64} for n in (6, 12)]
    mean = averaging.Mean(inputs)
    assert mean.label == "mean of 2" and mean.more["inputs"] == inputs
    text = ", ".join(f'{{"file": "{i["file"]}", "sha256": "{i["sha256"]}", "updates": {i["updates"]}}}' for i in inputs)
    assert mean.more["inputs_sha256"] == hashlib.sha256(f"[{text}]".encode()).hexdigest()
    assert json.loads(json.dumps(mean.more)) == mean.more


# ---- which files stay ----
def test_the_last_ones_stay_by_number_not_by_name(tmp_path: Path) -> None:
    for updates in (2, 4, 6, 8, 10, 12):
        keep(tmp_path, updates, 3)
    assert kept(tmp_path) == [8, 10, 12]
    assert [file.name for file in averaging.choose(tmp_path, 2)] == ["update-10.pt", "update-12.pt"]
    keep(tmp_path, 14, 1)
    assert kept(tmp_path) == [14]
    keep(tmp_path, 16, 0)  # the run goes on without
    assert kept(tmp_path) == []


def test_a_validation_that_is_done_again_pushes_no_other_out(tmp_path: Path) -> None:
    for updates in (2, 4, 6, 6):
        keep(tmp_path, updates, 3)
    assert kept(tmp_path) == [2, 4, 6]


@pytest.mark.parametrize("writes", [True, False])
def test_a_kill_costs_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: bool) -> None:
    """Killed after validation 8 wrote its file and before last.pt, or before it wrote: gone on from 6, the same set."""
    for updates in (2, 4, 6):
        keep(tmp_path, updates, 3)
    with monkeypatch.context() as patch:
        if not writes:
            patch.setattr(checkpoint, "write", lambda *_: None)
        keep(tmp_path, 8, 3)
    assert kept(tmp_path) == [4, 6, 8][: 2 + writes]
    averaging.forget(tmp_path, 6)
    assert kept(tmp_path) == [4, 6]
    keep(tmp_path, 8, 3)
    assert kept(tmp_path) == [4, 6, 8]


def test_begun_anew_nothing_of_before_is_left(files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "update-mine.pt").touch()
    averaging.forget(tmp_path, 0)
    assert kept(tmp_path) == [] and (tmp_path / "checkpoints" / "update-mine.pt").exists()


# ---- too few ----
def test_more_than_there_are_is_one_line_with_the_mend(files: list[Path], tmp_path: Path) -> None:
    mend = "; --average 3, or train with average=5, which for a run that has ended needs its folder deleted$"
    with pytest.raises(UserError, match=f"--average 5: has the parameters of 3 validations .*{mend}"):
        averaging.choose(tmp_path, 5)
    with pytest.raises(UserError, match=r"--average 1: has the parameters of 0 validations .*; train with average=1"):
        averaging.choose(tmp_path / "empty", 1)


@pytest.mark.parametrize("text", ["", "x", "-1", "2.0", "²", "1e3", "None"])
def test_a_number_that_is_none(text: str) -> None:
    with pytest.raises(UserError, match=f"^--average {text}: need a whole number"):
        averaging.asked(text)


def test_no_mean_is_asked_for_by_no_number() -> None:
    """0 is a setting of training."""
    assert averaging.asked("none") == 0 and averaging.asked("1") == 1
    with pytest.raises(UserError, match=r"^--average 00: need >= 1; leave it out"):
        averaging.asked("00")


def session(count: int) -> Any:
    loaded: list[dict[str, Any]] = []
    return SimpleNamespace(
        run=SimpleNamespace(average=count), clock=Clock(), loaded=loaded,
        load_state=lambda state, optimizer: loaded.append(state),
    )  # fmt: skip


def test_at_the_end_of_training_fewer_are_said_and_labelled(files: list[Path], tmp_path: Path) -> None:
    said: list[str] = []
    for count, label in ((2, "mean of 2"), (3, "mean of 3"), (5, "mean of 3")):
        mean = averaging.at_end(session(count), tmp_path, TRAINED, said.append)
        assert mean and mean.label == label
    assert said == [f"{tmp_path.name}: average=5, but 3 validations since it was set: a mean of 3"]
    assert averaging.at_end(session(0), tmp_path, TRAINED, said.append) is None and len(said) == 1
    assert averaging.at_end(session(2), tmp_path / "empty", TRAINED, said.append) is None
    assert said[1:] == ["empty: average=2, but 0 validations since it was set: no mean"]


def test_at_the_end_of_training_damage_costs_the_mean_alone(files: list[Path], tmp_path: Path) -> None:
    files[1].write_bytes(b"")
    said: list[str] = []
    one = session(3)
    assert averaging.at_end(one, tmp_path, TRAINED, said.append) is None and not one.loaded
    assert len(said) == 1 and "no mean of checkpoints: " in said[0] and "update-2.pt: damaged" in said[0]
