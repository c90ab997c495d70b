"""What is done to one chunk of a corpus; pure functions of their input, run in worker processes.

Each writes its files under a folder and its report last: a chunk with a report is whole
and is never done twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from lnexp.config import Data
from lnexp.data import bpe, clean, moses, oddities, subwords
from lnexp.data.binarise import Numbers, Vocabulary, to_numbers
from lnexp.files import write_text
from lnexp.rundir import write_json

Pair = tuple[str, str]


@dataclass(frozen=True)
class Chunk:
    """Consecutive pairs of one split; `first` is the number of the first one, from 1."""

    number: int
    first: int
    pairs: Sequence[Pair]


@dataclass(frozen=True)
class Place:
    """Where the files of a stage lie: <folder>/<split>.<chunk number>.<what>."""

    folder: Path
    split: str

    def path(self, number: int, what: str) -> Path:
        return self.folder / f"{self.split}.{number:05d}.{what}"

    def report(self, number: int) -> dict[str, Any] | None:
        """Give the report of a finished chunk."""
        try:
            found = json.loads(self.path(number, "json").read_bytes())
        except FileNotFoundError:
            return None
        return found if isinstance(found, dict) else None

    def lines(self, number: int, what: str) -> list[str]:
        text = self.path(number, what).read_bytes().decode()
        return text.removesuffix("\n").split("\n") if text else []

    def write_marks(self, number: int, numbers: Sequence[int], pairs: Sequence[Pair]) -> None:
        """Keep, for the count of repeats, each pair's number in the raw text and the hashes of its sides."""
        rows = np.column_stack([np.array(numbers, dtype=np.uint64), oddities.marks(pairs)])
        np.save(self.path(number, "marks.npy"), rows)

    def marks(self, number: int) -> np.ndarray:
        """Give them back: (pairs, 3)."""
        return np.load(self.path(number, "marks.npy"))

    def write(self, number: int, what: str, lines: Sequence[str]) -> None:
        write_text(self.path(number, what), "".join(f"{line}\n" for line in lines))


def tokenise(data: Data, straight: bool, place: Place, chunk: Chunk) -> int:
    """Raw pairs to tokens; of train those that may stay, beside their raw text. Gives the pairs read."""
    train = place.split == "train"
    src, tgt = (_tokeniser(data, lang, straight, train) for lang in (data.src, data.tgt))
    kept: list[Pair] = []
    raw: list[Pair] = []
    numbers: list[int] = []
    dropped: Counter[str] = Counter()
    for number, pair in enumerate(chunk.pairs, chunk.first):
        tokens = src(pair[0]), tgt(pair[1])
        reason = _reason(data, "tokens", tokens) if train else None
        if reason:
            dropped[reason] += 1
            continue
        kept.append(tokens)
        raw.append(pair)
        numbers.append(number)
    lower = moses.lower if data.lowercase else str
    for side, lang in enumerate((data.src, data.tgt)):
        place.write(chunk.number, lang, [lower(pair[side]) for pair in kept])
        if not train or data.valid_every:
            place.write(chunk.number, f"raw.{lang}", [pair[side] for pair in raw])
    place.write_marks(chunk.number, numbers, raw)
    seen = oddities.observe(chunk.first, chunk.pairs)
    report = {"read": len(chunk.pairs), "kept": len(kept), "dropped": dict(dropped), "seen": seen}
    write_json(place.path(chunk.number, "json"), report)
    return len(chunk.pairs)


def count_words(data: Data, place: Place, part: tuple[int, int]) -> Counter[str]:
    """Count the words of a chunk's training pairs, both sides; `part` is (chunk number, pairs kept before it)."""
    number, before = part
    sides = (training(data, before, place.lines(number, lang)) for lang in (data.src, data.tgt))
    return bpe.count_words(chain.from_iterable(sides))


def segment(data: Data, model: str, tokens: Place, place: Place, part: tuple[int, int]) -> int:
    """Tokens to subwords; of train those within the limits. `model` is the file that holds what was learned."""
    number, before = part
    report = place.report(number)
    if report is None:
        cut = subwords.cutter(subwords.kind(data), model)
        sides = [[cut(line) for line in tokens.lines(number, lang)] for lang in (data.src, data.tgt)]
        dropped: Counter[str] = Counter()
        if place.split == "train":
            kept = []
            for pair in training(data, before, list(zip(*sides, strict=True))):
                reason = _reason(data, "subwords", pair)
                dropped[reason or ""] += 1
                if not reason:
                    kept.append(pair)
            del dropped[""]
            sides = [[pair[side] for pair in kept] for side in (0, 1)]
        for lang, side in zip((data.src, data.tgt), sides, strict=True):
            place.write(number, lang, side)
        counts: Counter[str] = Counter()
        for side in sides:
            for line in side:
                counts.update(line.split())
        write_json(place.path(number, "json"), {"kept": len(sides[0]), "dropped": dict(dropped), "counts": counts})
        return len(sides[0])
    return int(report["kept"])


def number(data: Data, vocabulary: Vocabulary, place: Place, chunk: int) -> tuple[Numbers, Numbers]:
    """Subwords to numbers, source and target."""
    src, tgt = (to_numbers(place.lines(chunk, lang), vocabulary) for lang in (data.src, data.tgt))
    return src, tgt


def training(data: Data, before: int, lines: Sequence[Any]) -> list[Any]:
    """Leave out every n-th of the kept pairs, which is the validation set's; `before` were kept in earlier chunks."""
    if not data.valid_every:
        return list(lines)
    return [line for place, line in enumerate(lines, before + 1) if place % data.valid_every]


def _reason(data: Data, now: str, pair: Pair) -> str | None:
    """Say why a training pair is left out; only an empty side counts where the limits are on something else."""
    here = data.limits_on == now
    return clean.keeps(*pair, 1, data.max_length if here and data.max_length else inf,
                       data.max_ratio if here and data.max_ratio else inf)  # fmt: skip


@cache
def _moses(lang: str, split_hyphens: bool) -> Callable[[str], str]:
    return moses.Tokenizer(lang, split_hyphens=split_hyphens)


def _tokeniser(data: Data, lang: str, straight: bool, train: bool) -> Callable[[str], str]:
    """Give what turns a raw line of this language into tokens."""

    def plain(line: str) -> str:
        return " ".join(line.split())

    tokens = _moses(lang, data.split_hyphens) if data.tokenizer == "moses" else plain
    if train and data.normalize_punctuation:
        return lambda line: tokens(moses.remove_non_printing(moses.normalize_punctuation(line, lang)))
    return (lambda line: tokens(line.replace("’", "'"))) if straight else tokens
