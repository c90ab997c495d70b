"""Tokens to numbers, in the files that fairseq reads: dict.{lang}.txt and the mmap pair .bin / .idx.

In: lines of space-separated tokens. Out: a `Vocabulary` and, a side of a split, one file of numbers and one index.
Written here, with numpy only, so that preparing data needs neither torch nor fairseq; the bytes are those that
fairseq-preprocess writes.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
EOS, UNK = 2, 3
_MAGIC = b"MMIDIDX\x00\x00"
_VERSION = 1
_DTYPE_CODES = {"<u2": 8, "<u4": 9}  # fairseq's numbers for uint16 and uint32


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


def build_vocabulary(counts: Mapping[str, int], multiple: int = 8) -> Vocabulary:
    """Order counted symbols: most frequent first, equals by symbol; filled up to a multiple of 8 (tensor cores like
    that). "</s>" written in the text itself must not end a sentence: it becomes <unk>."""
    ordered = sorted((item for item in counts.items() if item[0] not in SPECIALS), key=lambda item: (-item[1], item[0]))
    filler = 0
    while (len(SPECIALS) + len(ordered)) % multiple:
        symbol = f"madeupword{filler:04d}"
        filler += 1
        if symbol not in counts:
            ordered.append((symbol, 0))
    return Vocabulary(tuple(symbol for symbol, _ in ordered), tuple(count for _, count in ordered))


@dataclass(frozen=True)
class Numbers:
    """Some sentences as numbers, each ending in </s>: all of them in one array, and their lengths."""

    flat: np.ndarray
    lengths: np.ndarray


def to_numbers(lines: Iterable[str], vocabulary: Vocabulary) -> Numbers:
    """Look every word up; words outside the vocabulary are <unk>."""
    number_of = vocabulary.numbers.get
    flat: list[int] = []
    lengths = array("i")
    for line in lines:
        sentence = [number_of(word, UNK) for word in line.split()]
        flat += sentence
        flat.append(EOS)
        lengths.append(len(sentence) + 1)
    return Numbers(np.array(flat, dtype=vocabulary.dtype), np.array(lengths, dtype=np.int32))


class NumbersFile:
    """The pair {prefix}.bin, {prefix}.idx of one side of a split, written as numbers come."""

    def __init__(self, prefix: Path, vocabulary: Vocabulary) -> None:
        self._prefix, self._dtype = prefix, vocabulary.dtype
        self._file = open(f"{prefix}.bin", "wb")
        self._lengths = array("i")
        self.counts = np.zeros(len(vocabulary), dtype=np.int64)
        """How often each number stands in it."""

    def add(self, numbers: Numbers) -> None:
        self._file.write(numbers.flat.tobytes())
        self._lengths.frombytes(numbers.lengths.tobytes())
        self.counts += np.bincount(numbers.flat, minlength=len(self.counts))

    def close(self) -> Written:
        """Write the index: header, each sentence's length (int32), each one's place in the .bin file (int64, bytes)."""
        self._file.close()
        lengths = np.array(self._lengths, dtype="<i4")
        starts = np.zeros(len(lengths), dtype="<i8")
        np.cumsum(lengths[:-1], out=starts[1:])
        with open(f"{self._prefix}.idx", "wb") as file:
            file.write(_MAGIC + struct.pack("<QBQ", _VERSION, _DTYPE_CODES[self._dtype], len(lengths)))
            file.write(lengths.tobytes())
            file.write((starts * np.dtype(self._dtype).itemsize).tobytes())
        return Written(len(lengths), int(self.counts.sum()), int(self.counts[UNK]), int(lengths.max(initial=0)))


@dataclass(frozen=True)
class Written:
    """What one side of a split came to; tokens and longest count the </s> of each sentence, as fairseq does."""

    sentences: int
    tokens: int
    unknown: int
    longest: int
