"""Prepared data: what is in the folder, when it is found again, and that it is whole or not there."""

import dataclasses
import hashlib
import json
import math
import multiprocessing
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from lnexp.config import Data
from lnexp.data import build
from lnexp.data.corpora import SPLITS, open_corpus
from lnexp.data.prepare import Prepared, prepare
from lnexp.errors import UserError


def quiet(_: str) -> None:
    """Say nothing."""


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The head of the shipped corpus, as a user's own folder."""
    folder = tmp_path_factory.mktemp("small")
    corpus = open_corpus(Data(name="tatoeba_deen", src="de", tgt="en"))
    for split, size in (("train", 600), ("valid", 60), ("test", 50)):
        for lang, lines in zip(("de", "en"), corpus.lines(split), strict=True):
            (folder / f"{split}.{lang}").write_text("".join(f"{line}\n" for line in lines[:size]), encoding="utf-8")
    return folder


@pytest.fixture
def data(small: Path) -> Data:
    return Data(name="small", src="de", tgt="en", local=str(small), bpe_merges=200)


def tree(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_folder_and_manifest(data: Data, tmp_path: Path) -> None:
    said: list[str] = []
    made = prepare(data, tmp_path / "new" / "cache", said.append)
    assert made.folder == tmp_path / "new" / "cache" / f"small-de-en-{made.fingerprint}"
    assert len(made.fingerprint) == 12 and int(made.fingerprint, 16)
    assert any("tokenising" in line for line in said) and any("BPE" in line for line in said)
    manifest = made.manifest
    assert manifest == json.loads((made.folder / "manifest.json").read_text())
    assert manifest["corpus_digest"] == open_corpus(data).digest
    assert manifest["splits"]["train"]["pairs"] == manifest["splits"]["train"]["read"] == 600
    names = {path.name for path in made.folder.iterdir()}
    assert names == {*manifest["files"], "manifest.json"}
    assert {"dict.de.txt", "dict.en.txt", "codes.bpe", "valid.raw.de", "test.tok.en", "train.de-en.de.bin"} < names
    for name, entry in manifest["files"].items():
        raw = (made.folder / name).read_bytes()
        assert entry == {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    assert (made.folder / "dict.de.txt").read_bytes() == (made.folder / "dict.en.txt").read_bytes()


def test_references(data: Data, tmp_path: Path) -> None:
    made = prepare(dataclasses.replace(data, lowercase=True), tmp_path, quiet)
    for split in SPLITS[1:]:
        for lang, lines in zip(("de", "en"), open_corpus(data).lines(split), strict=True):
            assert made.raw(split, lang) == lines
            tokens = made.tokenized(split, lang)
            assert len(tokens) == len(lines) and tokens == [line.lower() for line in tokens] != lines
            assert not any("@@" in line for line in tokens)


def test_unigram_bits(data: Data, tmp_path: Path) -> None:
    made = prepare(dataclasses.replace(data, tokenizer="none", bpe_merges=0), tmp_path, quiet)
    corpus = open_corpus(data)
    train = Counter(word for line in corpus.lines("train")[1] for word in [*line.split(), "</s>"])
    joined = {word for side in corpus.lines("train") for line in side for word in line.split()}
    size = made.manifest["vocabulary"]
    assert len(joined) + 4 <= size < len(joined) + 12
    bits = [
        -math.log2(((train[word] if word in joined or word == "</s>" else 0) + 1) / (train.total() + size))
        for line in corpus.lines("valid")[1]
        for word in [*line.split(), "</s>"]
    ]
    assert made.manifest["target_unigram_bits"] == pytest.approx(sum(bits) / len(bits), abs=1e-9)
    assert made.manifest["splits"]["valid"]["tokens"]["en"] == len(bits)
    assert made.manifest["splits"]["valid"]["unknown_rate"]["en"] > 0
    assert not (made.folder / "codes.bpe").exists()


def test_second_call_reads_the_manifest_only(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepare(data, tmp_path, quiet)
    monkeypatch.setattr(build, "build", lambda *_: pytest.fail("built again"))
    said: list[str] = []
    begin = time.perf_counter()
    assert prepare(data, tmp_path, said.append) == first
    assert time.perf_counter() - begin < 0.5  # measured: 9 ms on the whole shipped corpus
    assert said == []


def test_the_same_content_elsewhere_is_found(data: Data, tmp_path: Path) -> None:
    first = prepare(data, tmp_path / "cache", quiet)
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in Path(data.local or "").iterdir():
        (moved / path.name).write_bytes(path.read_bytes())
    assert prepare(dataclasses.replace(data, local=str(moved)), tmp_path / "cache", quiet) == first


def test_recipe_and_content_make_the_fingerprint(data: Data, tmp_path: Path) -> None:
    changes = [{}, {"lowercase": True}, {"bpe_merges": 100}, {"max_length": 9}, {"tokenizer": "none"}]
    changes += [{"src": "en", "tgt": "de"}]
    marks = [prepare(dataclasses.replace(data, **change), tmp_path, quiet).fingerprint for change in changes]
    assert len(set(marks)) == len(changes)


def test_made_twice_is_the_same(data: Data, tmp_path: Path) -> None:
    one, two = (prepare(data, tmp_path / name, quiet).folder for name in ("one", "two"))
    assert tree(one) == tree(two)


def test_dropped_pairs(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    rows = {
        "train": [("a b", "x y"), ("", "x"), ("a", " "), ("a b c d", "x"), ("a", "x y z"), ("\x01", "x")],
        "valid": [("a b c d", "x"), ("", "x"), ("a", "")],
        "test": [("a\u2028b", "x\ry")],
    }
    for split, pairs in rows.items():
        for lang, side in zip(("aa", "bb"), zip(*pairs, strict=True), strict=True):
            (folder / f"{split}.{lang}").write_bytes("".join(f"{line}\n" for line in side).encode())
    made = prepare(Data("own", "aa", "bb", str(folder), max_length=3), tmp_path, quiet)
    splits = made.manifest["splits"]
    assert splits["train"]["dropped"] == {"empty": 3, "too_long": 1}
    assert (splits["train"]["read"], splits["train"]["pairs"]) == (6, 2)
    assert (splits["valid"]["pairs"], splits["valid"]["dropped"]) == (3, {"empty": 0, "too_long": 0})
    assert splits["valid"]["longest"] == {"aa": 5, "bb": 2}
    assert made.tokenized("valid", "aa") == ["a b c d", "", "a"]
    assert made.raw("test", "aa") == ["a\u2028b"] and made.tokenized("test", "aa") == ["a b"]
    assert made.raw("test", "bb") == ["x\ry"] and made.tokenized("test", "bb") == ["x y"]


def test_no_training_pair_left(data: Data, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no training pair is left .*data\.max_length=1"):
        prepare(dataclasses.replace(data, max_length=1), tmp_path, quiet)
    assert [path for path in tmp_path.iterdir() if path.suffix != ".lock"] == []


def test_toy_copy(tmp_path: Path) -> None:
    made = prepare(Data("toy_copy", "aa", "bb", tokenizer="none", bpe_merges=50), tmp_path, quiet)
    assert made.manifest["vocabulary"] == 16
    assert made.raw("test", "bb") == made.tokenized("test", "aa")
    # Seven digits and one end mark a sentence: the entropy of that is H(1/8) + 7/8 log2(10) = 3.45 bits.
    assert made.manifest["target_unigram_bits"] == pytest.approx(3.45, abs=0.02)


@pytest.mark.parametrize("damage", ["cut", "gone", "manifest cut", "manifest alien", "a file in its place"])
def test_damaged_cache_is_made_again(data: Data, tmp_path: Path, damage: str) -> None:
    folder = prepare(data, tmp_path, quiet).folder
    before = tree(folder)
    if damage == "cut":
        os.truncate(folder / "train.de-en.en.bin", 100)
    elif damage == "gone":
        (folder / "dict.en.txt").unlink()
    elif damage == "manifest cut":
        os.truncate(folder / "manifest.json", 100)
    elif damage == "manifest alien":
        (folder / "manifest.json").write_text("[]")
    else:
        folder.rename(tmp_path / "away")
        folder.write_text("")
    said: list[str] = []
    assert tree(prepare(data, tmp_path, said.append).folder) == before
    assert "damaged" in said[0]
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")] == []


def test_unwritable_cache(data: Data, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"paths\.cache=.*file/cache: cannot be written \(Not a directory\)"):
        prepare(data, tmp_path / "file" / "cache", quiet)


def test_full_disk(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(build, "write_numbers", fail)
    with pytest.raises(UserError, match=r"paths\.cache=.*No space left on device"):
        prepare(data, tmp_path, quiet)
    assert [path for path in tmp_path.iterdir() if path.suffix != ".lock"] == []


def _work(data: Data, cache: Path, slow: bool = False) -> None:
    def say(line: str) -> None:
        if slow and "writing numbers" in line:
            (cache / "half-way").touch()
            time.sleep(60)

    prepare(data, cache, say)


def test_killed_half_way(data: Data, tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_work, args=(data, tmp_path, True))
    process.start()
    deadline = time.monotonic() + 30
    while not (tmp_path / "half-way").exists():
        assert time.monotonic() < deadline and process.is_alive()
        time.sleep(0.02)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    assert any(path.name.endswith(".tmp") for path in tmp_path.iterdir())
    made = prepare(data, tmp_path, quiet)
    assert made.raw("valid", "de")
    assert not any(path.name.endswith(".tmp") for path in tmp_path.iterdir())


def test_two_at_once(data: Data, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_work, args=(data, tmp_path)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert sum(path.is_dir() for path in tmp_path.iterdir()) == 1
    assert isinstance(prepare(data, tmp_path, lambda line: pytest.fail(line)), Prepared)


def test_two_at_once_without_locks(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system that has no locks both build, and the second to finish takes what the first has made."""
    build_really = build.build

    def overtaken(*args: object) -> None:
        build_really(*args)
        monkeypatch.setattr(build, "build", build_really)
        first.append(prepare(data, tmp_path, quiet))

    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    first: list[Prepared] = []
    monkeypatch.setattr("fcntl.flock", no_locks)
    monkeypatch.setattr(build, "build", overtaken)
    second = prepare(data, tmp_path, quiet)
    assert first == [second]
    assert sum(path.is_dir() for path in tmp_path.iterdir()) == 1
