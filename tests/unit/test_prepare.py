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
from fakes.bitext import own, write_head

from lnexp.config import Data
from lnexp.data import build
from lnexp.data.corpora import SPLITS, open_corpus
from lnexp.data.prepare import Prepared, prepare
from lnexp.data.subwords import join
from lnexp.errors import UserError


def quiet(_: str) -> None:
    """Say nothing."""


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The head of the shipped corpus, as a user's own folder."""
    return write_head(tmp_path_factory.mktemp("small"), 600, 60, 50)


@pytest.fixture
def data(small: Path) -> Data:
    return own(small, name="small", bpe_merges=200)


def lines_of(data: Data, split: str) -> list[list[str]]:
    corpus = open_corpus(data).get(Path(), Path(), print)
    return [list(corpus.lines(f"{split}.{lang}")) for lang in (data.src, data.tgt)]


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
    assert manifest["raw"] == {
        f"{split}.{lang}": hashlib.sha256(Path(f"{getattr(data, split)}.{lang}").read_bytes()).hexdigest()
        for split in SPLITS for lang in ("de", "en")
    }  # fmt: skip
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
        for lang, lines in zip(("de", "en"), lines_of(data, split), strict=True):
            assert made.raw(split, lang) == lines
            tokens = made.tokenized(split, lang)
            assert len(tokens) == len(lines) and tokens == [line.lower() for line in tokens] != lines
            assert not any("@@" in line for line in tokens)


def test_unigram_bits(data: Data, tmp_path: Path) -> None:
    made = prepare(dataclasses.replace(data, tokenizer="none", bpe_merges=0), tmp_path, quiet)
    train = Counter(word for line in lines_of(data, "train")[1] for word in [*line.split(), "</s>"])
    joined = {word for side in lines_of(data, "train") for line in side for word in line.split()}
    size = made.manifest["vocabulary"]
    assert len(joined) + 4 <= size < len(joined) + 12
    bits = [
        -math.log2(((train[word] if word in joined or word == "</s>" else 0) + 1) / (train.total() + size))
        for line in lines_of(data, "valid")[1]
        for word in [*line.split(), "</s>"]
    ]
    assert made.manifest["target_unigram_bits"] == pytest.approx(sum(bits) / len(bits), abs=1e-9)
    assert made.manifest["splits"]["valid"]["tokens"]["en"] == len(bits)
    assert made.manifest["splits"]["valid"]["unknown_rate"]["en"] > 0
    assert not (made.folder / "codes.bpe").exists()


def test_second_call_reads_the_manifest_only(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepare(data, tmp_path, quiet)
    monkeypatch.setattr(build.Builder, "build", lambda *_: pytest.fail("built again"))
    said: list[str] = []
    begin = time.perf_counter()
    assert prepare(data, tmp_path, said.append) == first
    assert time.perf_counter() - begin < 0.5  # measured: 9 ms on the whole shipped corpus
    assert said == []


def test_the_same_content_elsewhere_is_found(data: Data, tmp_path: Path) -> None:
    first = prepare(data, tmp_path / "cache", quiet)
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in Path(data.train).parent.iterdir():
        (moved / path.name).write_bytes(path.read_bytes())
    assert prepare(own(moved, name="small", bpe_merges=200), tmp_path / "cache", quiet) == first


def test_recipe_and_content_make_the_fingerprint(data: Data, tmp_path: Path) -> None:
    changes = [{}, {"lowercase": True}, {"bpe_merges": 100}, {"max_length": 9}, {"tokenizer": "none"},
               {"src": "en", "tgt": "de"}, {"max_ratio": 2.0}, {"max_length": 9, "limits_on": "tokens"},
               {"valid": "", "valid_every": 10}, {"normalize_punctuation": True}, {"split_hyphens": True},
               {"bpe_merges": 0}, {"subwords": "sentencepiece", "bpe_merges": 0, "pieces": 300}]  # fmt: skip
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
    made = prepare(own(folder, "aa", "bb", max_length=3), tmp_path, quiet)
    splits = made.manifest["splits"]
    assert splits["train"]["dropped"] == {"empty": 3, "too_long": 1}
    assert (splits["train"]["read"], splits["train"]["pairs"]) == (6, 2)
    assert (splits["valid"]["pairs"], splits["valid"]["dropped"]) == (3, {})
    assert splits["valid"]["longest"] == {"aa": 5, "bb": 2}
    assert made.tokenized("valid", "aa") == ["a b c d", "", "a"]
    assert made.raw("test", "aa") == ["a\u2028b"] and made.tokenized("test", "aa") == ["a b"]
    assert made.raw("test", "bb") == ["x\ry"] and made.tokenized("test", "bb") == ["x y"]


def test_no_training_pair_left(data: Data, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no training pair is left .*600 too long.*data\.max_length=1"):
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
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".work"] == []


def test_unwritable_cache(data: Data, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"paths\.cache=.*file/cache: cannot be written \(Not a directory\)"):
        prepare(data, tmp_path / "file" / "cache", quiet)


def test_full_disk(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(build.NumbersFile, "add", fail)
        with pytest.raises(UserError, match=r"paths\.cache=.*No space left on device.*make room"):
            prepare(data, tmp_path, quiet)
    assert [path.suffix for path in tmp_path.iterdir() if path.is_dir()] == [".work"]  # not taken for a whole one
    said: list[str] = []
    made = prepare(data, tmp_path, said.append)
    assert "going on" in said[0] and not any("learning" in line for line in said)
    assert tree(made.folder) == tree(prepare(data, tmp_path / "other", quiet).folder)


def _work(data: Data, cache: Path, hang_at: str = "") -> None:
    def say(line: str) -> None:
        if hang_at and hang_at in line:
            (cache / "half-way").touch()
            time.sleep(60)

    prepare(data, cache, say)


@pytest.mark.parametrize("moment", ["tokenising", "learning", "writing numbers"])
def test_killed_half_way(data: Data, tmp_path: Path, moment: str) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_work, args=(data, tmp_path, moment))
    process.start()
    deadline = time.monotonic() + 30
    while not (tmp_path / "half-way").exists():
        assert time.monotonic() < deadline and process.is_alive()
        time.sleep(0.02)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    assert [path.suffix for path in tmp_path.iterdir() if path.is_dir()] == [".work"]
    said: list[str] = []
    made = prepare(data, tmp_path, said.append)
    assert "going on where an earlier attempt was cut" in said[0]
    assert tree(made.folder) == tree(prepare(data, tmp_path / "other", quiet).folder)
    assert not any(path.suffix == ".work" for path in tmp_path.iterdir())


def test_chunks_and_processes_do_not_show(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = dataclasses.replace(data, valid="", valid_every=7, max_length=8, limits_on="tokens")
    one = prepare(whole, tmp_path / "one", quiet)
    monkeypatch.setattr(build, "CHUNK", 101)
    many = prepare(whole, tmp_path / "many", quiet, workers=2)
    assert tree(one.folder) == tree(many.folder)
    splits = one.manifest["splits"]
    assert splits["train"]["pairs"] + splits["valid"]["pairs"] + splits["train"]["dropped"]["too_long"] == 600


def test_every_nth_kept_pair_is_valid(data: Data, tmp_path: Path) -> None:
    made = prepare(dataclasses.replace(data, valid="", valid_every=7, max_length=7, limits_on="tokens",
                                       tokenizer="none", bpe_merges=0), tmp_path, quiet)  # fmt: skip
    kept = [pair for pair in zip(*lines_of(data, "train"), strict=True) if max(len(x.split()) for x in pair) <= 7]
    assert made.raw("valid", "de") == [src for src, _ in kept][6::7]
    assert made.raw("valid", "en") == [tgt for _, tgt in kept][6::7]
    rest = Counter(word for place, (_, tgt) in enumerate(kept, 1) if place % 7 for word in tgt.split())
    assert made.manifest["splits"]["train"]["tokens"]["en"] == rest.total() + made.manifest["splits"]["train"]["pairs"]


def test_held_out_pairs_are_not_in_training_too(data: Data, tmp_path: Path) -> None:
    """No sentence stands twice in the shipped text; one pair written twice is found, by its number in the raw text."""
    folder = tmp_path / "own"
    folder.mkdir()
    for path in Path(data.train).parent.iterdir():
        lines = path.read_text(encoding="utf-8").splitlines()
        if path.name.startswith("train"):
            lines[0], lines[100] = "x " * 99, lines[6]  # pair 1 is dropped, pair 101 is pair 7 again
        (folder / path.name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    held = own(folder, valid="", valid_every=3, max_length=50, limits_on="tokens", bpe_merges=0)
    repeats = prepare(held, tmp_path, quiet).manifest["repeats"]
    assert repeats["valid"]["in_train_pair"] == {"count": 1, "numbers": [2]}, repeats["valid"]


def test_no_pair_is_left_for_validation(data: Data, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.valid_every=601: train has 600 pairs that stay, so none"):
        prepare(dataclasses.replace(data, valid="", valid_every=601), tmp_path, quiet)


def test_text_that_changes_while_it_is_read(data: Data, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    for path in Path(data.train).parent.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())

    def meddle(line: str) -> None:
        if "tokenising" in line:
            with open(folder / "train.de", "a", encoding="utf-8") as de, open(folder / "train.en", "a") as en:
                de.write("Ganz anders.\n")
                en.write("Quite different.\n")

    with pytest.raises(UserError, match="the text was changed while it was read"):
        prepare(own(folder), tmp_path, meddle)
    assert not any(path.is_dir() and path != folder for path in tmp_path.iterdir())


def test_text_that_changes_after_a_kill(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fingerprint of a published corpus does not tell: what was made of the other text is thrown away."""
    with monkeypatch.context() as patched:
        patched.setattr(build, "to_numbers", None, raising=False)
        patched.setattr(build.Builder, "_number", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(UserError, match="full"):
            prepare(data, tmp_path, quiet)
    (work,) = tmp_path.glob(".*.work")
    raw = json.loads((work / "raw.json").read_text())
    (work / "raw.json").write_text(json.dumps({**raw, "train.de": "0" * 64}))
    said: list[str] = []
    prepare(data, tmp_path, said.append)
    assert any("has changed" in line for line in said) and any("learning" in line for line in said)


def test_own_codes(data: Data, tmp_path: Path) -> None:
    first = prepare(data, tmp_path, quiet)
    codes = tmp_path / "codes"
    codes.write_bytes((first.folder / "codes.bpe").read_bytes())
    again = prepare(dataclasses.replace(data, codes=str(codes), bpe_merges=9), tmp_path, quiet)
    assert again.fingerprint != first.fingerprint
    same = {name for name in first.manifest["files"] if name != "manifest.json"}
    assert {n: again.manifest["files"][n] for n in same} == {n: first.manifest["files"][n] for n in same}
    codes.write_text("#version: 0.2\na b\n")
    other = prepare(dataclasses.replace(data, codes=str(codes)), tmp_path, quiet)
    assert other.fingerprint != again.fingerprint
    codes.write_text("#version: 0.2\na b c d\n")
    with pytest.raises(UserError, match="line 2"):
        prepare(dataclasses.replace(data, codes=str(codes)), tmp_path, quiet)


def test_sentencepiece(data: Data, tmp_path: Path) -> None:
    pieces = dataclasses.replace(data, subwords="sentencepiece", bpe_merges=0, pieces=300, tokenizer="none")
    made, again = prepare(pieces, tmp_path, quiet), prepare(pieces, tmp_path / "again", quiet)
    assert tree(made.folder) == tree(again.folder)
    assert 280 < made.manifest["vocabulary"] < 320
    cut = (made.folder / "test.sub.en").read_text(encoding="utf-8").splitlines()
    assert any("▁" in line for line in cut) and join(cut, pieces) == made.tokenized("test", "en")
    with pytest.raises(UserError, match=r"data\.pieces=99999: this text has room for [\d]+ pieces at most"):
        prepare(dataclasses.replace(pieces, pieces=99_999), tmp_path, quiet)
    with pytest.raises(UserError, match=r"data\.pieces=9: need more than the [\d]+ characters of this text"):
        prepare(dataclasses.replace(pieces, pieces=9), tmp_path, quiet)


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
    build_really = build.Builder.build

    def overtaken(*args: object) -> None:
        build_really(*args)
        monkeypatch.setattr(build.Builder, "build", build_really)
        first.append(prepare(data, tmp_path, quiet))

    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    first: list[Prepared] = []
    monkeypatch.setattr("fcntl.flock", no_locks)
    monkeypatch.setattr(build.Builder, "build", overtaken)
    second = prepare(data, tmp_path, quiet)
    assert first == [second]
    assert sum(path.is_dir() for path in tmp_path.iterdir()) == 1
