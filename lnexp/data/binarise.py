"""Tokens to numbers, in the files that fairseq reads: dict.{lang}.txt and the mmap pair .bin / .idx.

In: lines of space-separated tokens. Out: a `Vocabulary` and, a side of a split, one file of numbers and one index.
Written here, with numpy only, so that preparing data needs neither torch nor fairseq; the bytes are those that
fairseq-preprocess writes.
"""

from __future__ import annotations

import struct
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
EOS, UNK = 2, 3
_MAGIC = b"MMIDIDX\x00\x00"
_VERSION = 1
_DTYPE_CODES = {"<u2": 8, "<u4": 9}  # fairseq's numbers for uint16 and uint32
_CHUNK = 20_000  # lines turned into numbers at a time: a few MB


@dataclass(frozen=True)
class Vocabulary:
    """Symbols in the order of their numbers, after the four special ones, each with its count in training."""

    symbols: tuple[str, ...]
    counts: tuple[int, ...]

    def __len__(self) -> int:
        return len(SPECIALS) + len(self.symbols)

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {symbol: number for number, symbol in enumerate(self.symbols, len(SPECIALS))}

    @property
    def dtype(self) -> str:
        """The narrowest type that fairseq's own bound allows."""
        return "<u2" if len(self) < 65500 else "<u4"

    def text(self) -> str:
        """Give fairseq's dictionary text: "symbol count" a line, special symbols left out."""
        return "".join(f"{symbol} {count}\n" for symbol, count in zip(self.symbols, self.counts, strict=True))


def build_vocabulary(lines: Iterable[str], multiple: int = 8) -> Vocabulary:
    """Count tokens; most frequent first, equals by symbol; filled up to a multiple of 8 (tensor cores like that)."""
    counter: Counter[str] = Counter()
    for line in lines:
        counter.update(line.split())
    for special in SPECIALS:  # "</s>" written in the text itself must not end a sentence: it becomes <unk>
        counter.pop(special, None)
    ordered = sorted(counter.items(), key=lambda item: (-item[1], item[0]))
    filler = 0
    while (len(SPECIALS) + len(ordered)) % multiple:
        symbol = f"madeupword{filler:04d}"
        filler += 1
        if symbol not in counter:
            ordered.append((symbol, 0))
    return Vocabulary(tuple(symbol for symbol, _ in ordered), tuple(count for _, count in ordered))


@dataclass(frozen=True)
class Written:
    """What one side of a split came to; tokens and longest count the </s> of each sentence, as fairseq does."""

    sentences: int
    tokens: int
    unknown: int
    longest: int


def write_numbers(prefix: Path, lines: Iterable[str], vocabulary: Vocabulary) -> Written:
    """Write {prefix}.bin and {prefix}.idx; each sentence ends in </s>, words outside the vocabulary are <unk>."""
    sizes, unknown = array("i"), 0
    number_of = vocabulary.numbers.get
    with open(f"{prefix}.bin", "wb") as file:
        for chunk in _chunks(lines):
            numbers: list[int] = []
            for line in chunk:
                sentence = [number_of(word, UNK) for word in line.split()]
                unknown += sentence.count(UNK)
                numbers += sentence
                numbers.append(EOS)
                sizes.append(len(sentence) + 1)
            file.write(np.array(numbers, dtype=vocabulary.dtype).tobytes())
    lengths = np.frombuffer(sizes, dtype=np.int32) if sizes else np.zeros(0, dtype=np.int32)
    _write_index(Path(f"{prefix}.idx"), lengths, vocabulary.dtype)
    return Written(len(sizes), int(lengths.sum(dtype=np.int64)), unknown, int(lengths.max(initial=0)))


def read_numbers(prefix: Path, vocabulary: Vocabulary) -> np.ndarray:
    """Give all numbers of {prefix}.bin as one flat array, mapped from disk."""
    return np.memmap(f"{prefix}.bin", dtype=vocabulary.dtype, mode="r")


def _write_index(path: Path, lengths: np.ndarray, dtype: str) -> None:
    """Header, then each sentence's length (int32), then its place in the .bin file (int64, bytes)."""
    starts = np.zeros(len(lengths), dtype="<i8")
    np.cumsum(lengths[:-1], out=starts[1:])
    with open(path, "wb") as file:
        file.write(_MAGIC + struct.pack("<QBQ", _VERSION, _DTYPE_CODES[dtype], len(lengths)))
        file.write(lengths.astype("<i4").tobytes())
        file.write((starts * np.dtype(dtype).itemsize).tobytes())


def _chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(lines)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk
