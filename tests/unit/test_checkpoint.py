"""Checkpoints: a byte that differs is noticed, nothing in them is ever run, and a full disk costs none of them."""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import disk

from lnexp.backend import checkpoint
from lnexp.errors import UserError


def state(updates: int = 3) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(updates)
    weights = {"a": torch.randn(5000, generator=generator), "b": torch.randn(3, 7, generator=generator)}
    return {"model": weights, "trained": {"seed": 1}, "updates": updates}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """last.pt of update 3, previous.pt of update 2."""
    for updates in (2, 3):
        checkpoint.write_last(state(updates), tmp_path / "checkpoints")
    return tmp_path / "checkpoints"


def test_what_is_written_is_read(folder: Path) -> None:
    found = checkpoint.read(folder / "last.pt")
    assert found["updates"] == 3 and torch.equal(found["model"]["a"], state()["model"]["a"])
    plain = torch.load(folder / "last.pt", weights_only=True)  # by torch alone, too
    assert torch.equal(plain["model"]["b"], state()["model"]["b"])
    assert sorted(p.name for p in folder.iterdir()) == ["last.pt", "previous.pt"]


def test_a_flipped_bit_is_noticed_wherever_it_is(folder: Path) -> None:
    """100 bits over the whole file, and each bit of its head and of its tail with the hash."""
    path, draw = folder / "last.pt", random.Random(1)
    good = path.read_bytes()
    places = [(draw.randrange(len(good)), draw.randrange(8)) for _ in range(100)]
    places += [(at % len(good), bit) for at in (*range(8), *range(-90, 0)) for bit in range(8)]
    for at, bit in places:
        bad = bytearray(good)
        bad[at] ^= 1 << bit
        path.write_bytes(bad)
        with pytest.raises(UserError, match=r"last\.pt: damaged: .*; delete .* to train it anew"):
            checkpoint.read(path)
        said: list[str] = []
        assert (checkpoint.read_last(folder, said.append) or {})["updates"] == 2
        assert len(said) == 1 and "last.pt: damaged" in said[0] and "previous.pt is used instead" in said[0]


def test_a_cut_file_is_noticed_wherever_it_was_cut(folder: Path) -> None:
    path = folder / "last.pt"
    good = path.read_bytes()
    lengths = [0, 1, 63, 64, 65, len(good) - 1, len(good) - 64, len(good) - 65, len(good) - 73]
    lengths += [len(good) * part // 12 for part in range(1, 12)]
    assert len(set(lengths)) == 20
    for length in lengths:
        path.write_bytes(good[:length])
        with pytest.raises(UserError, match="damaged"):
            checkpoint.read(path)
    path.write_bytes(good + b"\0")
    with pytest.raises(UserError, match="damaged"):
        checkpoint.read(path)


def test_both_damaged_is_one_line(folder: Path) -> None:
    for name in ("last.pt", "previous.pt"):
        (folder / name).write_bytes((folder / name).read_bytes()[:-1])
    with pytest.raises(UserError, match=rf"last\.pt: damaged.*previous\.pt: damaged.*; delete {folder} ") as caught:
        checkpoint.read_last(folder, print)
    assert "\n" not in str(caught.value)


def test_none_there(tmp_path: Path) -> None:
    assert checkpoint.read_last(tmp_path, print) is None
    with pytest.raises(UserError, match=r"best\.pt: no such checkpoint; train the run first"):
        checkpoint.read(tmp_path / "best.pt")


def test_one_of_another_run(folder: Path) -> None:
    assert checkpoint.read(folder / "last.pt", {"seed": 1})["updates"] == 3
    line = r"last\.pt: of another run \(optim\.lr: None there, 0\.1 here, seed: 1 there, 2 here\); delete "
    for read in (lambda other: checkpoint.read(folder / "last.pt", other),
                 lambda other: checkpoint.read_last(folder, print, other)):  # fmt: skip
        with pytest.raises(UserError, match=line):
            read({"seed": 2, "optim.lr": 0.1})


class Hostile:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {os.environ['TRAP']}",)


def signed(raw: bytes) -> bytes:
    return raw + hashlib.sha256(raw).hexdigest().encode()


def in_a_zip(path: Path, content: bytes) -> None:
    """Put `content` in place of the pickle of a real checkpoint, and sign the whole as checkpoint.py does."""
    with zipfile.ZipFile(path) as real:
        parts = {name: real.read(name) for name in real.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as false:
        for name, part in parts.items():
            false.writestr(name, content if name.endswith("data.pkl") else part)
    raw = path.read_bytes()[:-2] + struct.pack("<H", 71) + b"sha256:"
    path.write_bytes(signed(raw))


@pytest.mark.parametrize("form", ["pickle", "signed pickle", "signed zip"])
def test_a_hostile_file_is_never_run(folder: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    trap, path = folder / "trap", folder / "last.pt"
    monkeypatch.setenv("TRAP", str(trap))
    content = pickle.dumps(state(4) | {"window": Hostile()})
    if form == "signed zip":
        in_a_zip(path, pickle.dumps({"model": {}, "trained": {}, "window": Hostile()}, protocol=2))
    else:
        path.write_bytes(signed(content) if form == "signed pickle" else content)
    said: list[str] = []
    assert (checkpoint.read_last(folder, said.append) or {})["updates"] == 2
    assert len(said) == 1 and "\n" not in said[0] and "previous.pt is used instead" in said[0]
    with pytest.raises(UserError, match=r"last\.pt: (damaged|not a readable checkpoint \(UnpicklingError\))"):
        checkpoint.read(path)
    assert ("damaged" in said[0]) == (form == "pickle")
    assert not trap.exists()
    pickle.loads(pickle.dumps(Hostile()))  # it would have done something
    assert trap.exists()


def test_the_zip_of_the_hostile_test_is_one_that_would_be_read(folder: Path) -> None:
    with zipfile.ZipFile(folder / "last.pt") as real:
        (name,) = [name for name in real.namelist() if name.endswith("data.pkl")]
        content = real.read(name)
    in_a_zip(folder / "last.pt", content)
    assert checkpoint.read(folder / "last.pt")["updates"] == 3


@pytest.mark.parametrize("content", [[1], {"model": {}}, torch.zeros(2)], ids=["list", "part", "tensor"])
def test_a_file_of_torch_that_is_no_checkpoint(folder: Path, content: Any) -> None:
    checkpoint.write(content, folder / "best.pt")
    with pytest.raises(UserError, match=r"best\.pt: not a checkpoint of a run; delete "):
        checkpoint.read(folder / "best.pt")


def left_alone(folder: Path) -> None:
    assert sorted(p.name for p in folder.iterdir() if p.name != "ballast") == ["last.pt", "previous.pt"]
    assert [checkpoint.read(folder / name)["updates"] for name in ("last.pt", "previous.pt")] == [3, 2]


@pytest.mark.parametrize("room", [0, 4, 8, 16, 20])
def test_a_full_disk(tmp_path: Path, room: int) -> None:
    """`room` KiB are left, of 22 that a checkpoint takes."""
    with disk.small(tmp_path / "disk", "256k") as small:
        for updates in (2, 3):
            checkpoint.write_last(state(updates), small / "checkpoints")
        ballast = disk.fill(small)
        os.truncate(ballast, ballast.stat().st_size - room * 1024)
        with pytest.raises(OSError, match="No space left on device") as caught:
            checkpoint.write_last(state(4), small / "checkpoints")
        assert caught.value.filename == str(small / "checkpoints" / "next.pt")
        left_alone(small / "checkpoints")
        ballast.unlink()
        checkpoint.write_last(state(4), small / "checkpoints")
        assert checkpoint.read(small / "checkpoints" / "last.pt")["updates"] == 4


def test_a_disk_that_is_full_at_the_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated: some file systems say so only when the file is closed or synchronised."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", disk.no_space)
        with pytest.raises(OSError, match="No space left on device") as caught:
            checkpoint.write_last(state(4), folder)
    assert caught.value.filename == str(folder / "next.pt")
    left_alone(folder)


@pytest.mark.parametrize("at", [0, 1, 2, 7])
def test_a_disk_that_is_full_at_a_write(folder: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Simulated, at the `at`-th write; torch.save itself would say "unexpected pos"."""
    seen = iter(range(1000))

    class Full:
        def __init__(self, file: Any) -> None:
            self._file = file

        def write(self, data: bytes) -> int:
            if next(seen) >= at:
                disk.no_space()
            return int(self._file.write(data))

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

    made = checkpoint._Kept.__init__
    monkeypatch.setattr(checkpoint._Kept, "__init__", lambda self, file: made(self, Full(file)))
    with pytest.raises(OSError, match="No space left on device") as caught:
        checkpoint.write_last(state(4), folder)
    assert caught.value.filename == str(folder / "next.pt")
    left_alone(folder)


@pytest.mark.parametrize("at", [1, 2])
def test_a_kill_between_the_renames(folder: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Whatever was done of the three renames, a whole checkpoint is found."""
    replace, done = os.replace, iter(range(10))

    def killed(*paths: Any) -> None:
        if next(done) == at:
            raise KeyboardInterrupt
        replace(*paths)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", killed)
        checkpoint.write_last(state(4), folder)
    assert (checkpoint.read_last(folder, print) or {})["updates"] == 3
    checkpoint.write_last(state(5), folder)
    assert (checkpoint.read_last(folder, print) or {})["updates"] == 5


def test_a_deleted_run_folder_is_not_made_anew(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        checkpoint.write_last(state(), tmp_path / "gone" / "checkpoints")
    assert not (tmp_path / "gone").exists()
