"""Dictionary and mmap files: what fairseq reads is what was written, and its own tools write the same bytes."""

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from fairseq.binarizer import FileBinarizer, VocabularyDatasetBinarizer
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDataset
from fairseq.tokenizer import tokenize_line
from fakes.bitext import shipped

from lnexp.data.binarise import EOS, UNK, NumbersFile, Vocabulary, Written, build_vocabulary, to_numbers

LINES = ["the cat sat", "", "the dog sat on the mat", "ä b ä", "madeupword0000 x", "a a a a"]


def count(lines: Iterable[str]) -> Counter[str]:
    return Counter(word for line in lines for word in line.split())


def write_numbers(prefix: Path, lines: Iterable[str], vocabulary: Vocabulary, at_a_time: int = 1000) -> Written:
    rest = iter(lines)
    file = NumbersFile(prefix, vocabulary)
    while chunk := list(islice(rest, at_a_time)):
        file.add(to_numbers(chunk, vocabulary))
    return file.close()


def read_numbers(prefix: Path, vocabulary: Vocabulary) -> np.ndarray:
    return np.fromfile(f"{prefix}.bin", dtype=vocabulary.dtype)


def fairseq_writes(folder: Path, train: list[Path], text: Path) -> Dictionary:
    """fairseq-preprocess --joined-dictionary, without its command line."""
    dictionary = Dictionary()
    for path in train:
        Dictionary.add_file_to_dictionary(str(path), dictionary, tokenize_line, 1)
    dictionary.finalize(padding_factor=8)
    dictionary.save(str(folder / "dict.txt"))
    binarizer = VocabularyDatasetBinarizer(dictionary, append_eos=True)
    FileBinarizer.multiprocess_dataset(
        str(text), "mmap", binarizer, str(folder / "theirs"), vocab_size=len(dictionary), num_workers=1
    )
    return dictionary


def same_bytes(folder: Path, sides: list[list[str]], lines: list[str]) -> Vocabulary:
    paths = []
    for number, side in enumerate(sides):
        paths.append(folder / f"train.{number}")
        paths[-1].write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    (folder / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    theirs = fairseq_writes(folder, paths, folder / "text")
    vocabulary = build_vocabulary(count(line for side in sides for line in side))
    written = write_numbers(folder / "ours", iter(lines), vocabulary)
    assert vocabulary.text() == (folder / "dict.txt").read_text(encoding="utf-8")
    assert len(vocabulary) == len(theirs)
    for kind in ("bin", "idx"):
        assert (folder / f"ours.{kind}").read_bytes() == (folder / f"theirs.{kind}").read_bytes()
    assert written.sentences == len(lines)
    return vocabulary


def test_same_bytes_as_fairseq(tmp_path: Path) -> None:
    same_bytes(tmp_path, [LINES, ["ein Hund", "a a"]], [*LINES, "unseen words here"])


def test_same_bytes_as_fairseq_on_shipped_text(tmp_path: Path) -> None:
    src, tgt = (list(shipped().lines(f"valid.{lang}")) for lang in ("de", "en"))
    vocabulary = same_bytes(tmp_path, [src, tgt], tgt)
    assert len(vocabulary) % 8 == 0


def test_large_vocabulary_takes_four_bytes(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(65_600)]
    last = max(words)  # all are equally frequent, so order is by symbol
    vocabulary = same_bytes(tmp_path, [[" ".join(words)]], [f"w0 {last} new"])
    assert vocabulary.dtype == "<u4"
    assert MMapIndexedDataset(str(tmp_path / "ours"))[0].tolist() == [4, 65_603, UNK, EOS]


def test_fairseq_reads_back(tmp_path: Path) -> None:
    vocabulary = build_vocabulary(count(LINES))
    lines = [*LINES, "the bird"]
    written = write_numbers(tmp_path / "valid", lines, vocabulary)
    (tmp_path / "dict.txt").write_text(vocabulary.text(), encoding="utf-8")
    theirs = Dictionary.load(str(tmp_path / "dict.txt"))
    assert theirs.symbols[:4] == ["<s>", "<pad>", "</s>", "<unk>"]
    assert tuple(theirs.symbols[4:]) == vocabulary.symbols and tuple(theirs.count[4:]) == vocabulary.counts
    dataset = MMapIndexedDataset(str(tmp_path / "valid"))
    assert len(dataset) == len(lines)
    for numbers, line in zip(dataset, lines, strict=True):
        assert numbers.tolist() == theirs.encode_line(line, add_if_not_exist=False).tolist()
        assert numbers[-1] == theirs.eos()
    assert dataset.sizes.tolist() == [len(line.split()) + 1 for line in lines]
    assert (written.tokens, written.unknown, written.longest) == (sum(dataset.sizes), 1, 7)
    assert read_numbers(tmp_path / "valid", vocabulary).tolist() == np.concatenate(list(dataset)).tolist()


def test_order_and_padding() -> None:
    vocabulary = build_vocabulary(count(["b a c b", "ä Z"]))
    assert vocabulary.symbols == ("b", "Z", "a", "c", "ä", *(f"madeupword{n:04d}" for n in range(7)))
    assert vocabulary.counts == (2, 1, 1, 1, 1, *[0] * 7)
    assert len(vocabulary) == 16


def test_padding_passes_over_a_name_that_is_taken() -> None:
    assert build_vocabulary(count(["madeupword0000 x"])).symbols == (
        "madeupword0000", "x", "madeupword0001", "madeupword0002",
    )  # fmt: skip


@pytest.mark.parametrize("special", ["<s>", "<pad>", "</s>", "<unk>"])
def test_special_symbols_in_the_text_are_unknown_words(tmp_path: Path, special: str) -> None:
    # Here we differ from fairseq on purpose: there a written "</s>" ends the sentence half-way.
    vocabulary = build_vocabulary(count([f"a {special} b"]))
    assert special not in vocabulary.symbols
    assert write_numbers(tmp_path / "x", [f"a {special} b"], vocabulary).unknown == 1
    assert read_numbers(tmp_path / "x", vocabulary).tolist() == [4, UNK, 5, EOS]


def test_many_chunks(tmp_path: Path) -> None:
    vocabulary = build_vocabulary(count(LINES))
    write_numbers(tmp_path / "one", LINES * 7, vocabulary)
    write_numbers(tmp_path / "many", LINES * 7, vocabulary, at_a_time=4)
    for kind in ("bin", "idx"):
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"many.{kind}").read_bytes()
