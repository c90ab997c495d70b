"""The work of prepare: raw text of a corpus to the files of one folder and their manifest.

In: a `Corpus`, the recipe, an empty folder. Out: that folder filled, manifest.json last.
Order: tokenise (and lower-case), drop empty training pairs, learn the joint BPE on both sides of what is left,
drop too long training pairs, count the joined vocabulary, write numbers. Valid and test keep every line.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from lnexp.config import Data
from lnexp.data import text
from lnexp.data.binarise import Vocabulary, build_vocabulary, read_numbers, write_numbers
from lnexp.data.corpora import SPLITS, Corpus
from lnexp.errors import UserError
from lnexp.rundir import write_json, write_text

Sides = tuple[list[str], list[str]]
Say = Callable[[str], None]


def build(data: Data, corpus: Corpus, folder: Path, identity: dict[str, Any], say: Say) -> None:
    """Fill the folder; `identity` (recipe, fingerprint) goes into the manifest as it is."""
    langs = (data.src, data.tgt)
    raw: dict[str, Sides] = {split: corpus.lines(split) for split in SPLITS}
    read = {split: len(raw[split][0]) for split in SPLITS}
    say(f"data: {data.name} {data.src}-{data.tgt}: tokenising {sum(read.values()):,} pairs ({data.tokenizer})")
    sides = {split: _tokens(raw[split], data) for split in SPLITS}
    for split in SPLITS[1:]:
        for lang, raw_lines, lines in zip(langs, raw[split], sides[split], strict=True):
            _write_lines(folder / f"{split}.raw.{lang}", raw_lines)
            _write_lines(folder / f"{split}.tok.{lang}", lines)

    dropped = {split: {"empty": 0, "too_long": 0} for split in SPLITS}
    sides["train"], dropped["train"]["empty"] = _keep(sides["train"], lambda src, tgt: bool(src and tgt))
    if data.bpe_merges:
        say(f"data: learning {data.bpe_merges:,} merges of joint BPE")
        codes = text.learn_bpe(itertools.chain(*sides["train"]), data.bpe_merges)
        _write_lines(folder / "codes.bpe", codes)
        sides = {split: _pair(text.apply_bpe(side, codes) for side in sides[split]) for split in SPLITS}
    if limit := data.max_length:
        sides["train"], dropped["train"]["too_long"] = _keep(
            sides["train"], lambda src, tgt: max(src.count(" "), tgt.count(" ")) < limit
        )
    if not sides["train"][0]:
        why = f"{dropped['train']['empty']:,} have an empty side, {dropped['train']['too_long']:,} are over"
        rule = f"data.max_length={data.max_length}"
        raise UserError(f"{corpus.place}: no training pair is left ({why} {rule}): look at train.*, or raise the limit")

    say("data: counting the vocabulary and writing numbers")
    vocabulary = build_vocabulary(itertools.chain(*sides["train"]))
    for lang in langs:  # joined: shared embeddings need one numbering
        write_text(folder / f"dict.{lang}.txt", vocabulary.text())
    splits = {}
    for split in SPLITS:
        written = {
            lang: write_numbers(_prefix(folder, split, data, lang), lines, vocabulary)
            for lang, lines in zip(langs, sides[split], strict=True)
        }
        splits[split] = {
            "read": read[split],
            "pairs": len(sides[split][0]),
            "dropped": dropped[split],
            "tokens": {lang: side.tokens for lang, side in written.items()},
            "unknown_rate": {lang: side.unknown / max(side.tokens, 1) for lang, side in written.items()},
            "longest": {lang: side.longest for lang, side in written.items()},
        }
    train, valid = (read_numbers(_prefix(folder, split, data, data.tgt), vocabulary) for split in ("train", "valid"))
    manifest = {
        "source": data.name,
        "src": data.src,
        "tgt": data.tgt,
        "corpus_digest": corpus.digest,
        **identity,
        "tools": {name: importlib.metadata.version(name) for name in ("sacremoses", "subword-nmt")},
        "splits": splits,
        "vocabulary": len(vocabulary),
        "target_unigram_bits": unigram_bits(train, valid, vocabulary),
        "files": {path.name: _entry(path) for path in sorted(folder.iterdir())},
    }
    write_json(folder / "manifest.json", manifest)


def unigram_bits(train: np.ndarray, valid: np.ndarray, vocabulary: Vocabulary) -> float:
    """Bits a token of valid under the word frequencies of train, add-one smoothed: what a model that has learned
    nothing but frequencies reaches. A run that stays above it is at chance."""
    counts = np.bincount(train, minlength=len(vocabulary)) + 1.0
    return float(-np.log2(counts / counts.sum())[valid].mean())


def _tokens(pair: Sides, data: Data) -> Sides:
    """Tokenise both sides; lower-casing comes after, as in the common recipes (prefix lists are case-sensitive)."""

    def side(lines: list[str], lang: str) -> Iterable[str]:
        tokens = text.tokenize(lines, lang) if data.tokenizer == "moses" else (" ".join(x.split()) for x in lines)
        return (line.lower() for line in tokens) if data.lowercase else tokens

    return _pair(side(lines, lang) for lines, lang in zip(pair, (data.src, data.tgt), strict=True))


def _pair(sides: Iterable[Iterable[str]]) -> Sides:
    src, tgt = (list(side) for side in sides)
    return src, tgt


def _keep(pair: Sides, wanted: Callable[[str, str], bool]) -> tuple[Sides, int]:
    """Give the pairs that are wanted, and how many were not."""
    kept = [(src, tgt) for src, tgt in zip(*pair, strict=True) if wanted(src, tgt)]
    return ([src for src, _ in kept], [tgt for _, tgt in kept]), len(pair[0]) - len(kept)


def _prefix(folder: Path, split: str, data: Data, lang: str) -> Path:
    return folder / f"{split}.{data.src}-{data.tgt}.{lang}"


def _write_lines(path: Path, lines: list[str]) -> None:
    write_text(path, "".join(f"{line}\n" for line in lines))


def _entry(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
