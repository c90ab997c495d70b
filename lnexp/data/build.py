"""The work of prepare: raw text of a corpus to the files of one folder and their manifest, chunk by chunk.

In: a `Corpus`, the recipe, a work folder. Out: <work>/done filled, manifest.json last.
Order: tokenise and clean, learn subwords on what stays, cut, clean, count the joined vocabulary, write numbers. Valid
and test keep every line. What a killed process had finished is found again: chunks carry a report when they are whole.
"""

from __future__ import annotations

import importlib.metadata
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from lnexp.config import Data
from lnexp.data import oddities, stages, subwords
from lnexp.data.binarise import NumbersFile, Vocabulary, build_vocabulary
from lnexp.data.corpora import SPLITS, Corpus
from lnexp.data.manifest import entry, unigram_bits
from lnexp.data.pool import Pool
from lnexp.data.progress import Progress
from lnexp.data.stages import Chunk, Pair, Place
from lnexp.errors import UserError
from lnexp.files import write_text
from lnexp.rundir import read_json, write_json

Say = Callable[[str], None]
# Big enough that a process is busy for seconds, small enough that a dozen of them fit into memory: 20,000 pairs of
# running text are about 6 MB.
CHUNK = 20_000


class Builder:
    """The stages of one corpus, each over all chunks."""

    def __init__(self, data: Data, corpus: Corpus, work: Path, pool: Pool, say: Say) -> None:
        self._data, self._corpus, self._pool, self._say = data, corpus, pool, say
        self._langs = (data.src, data.tgt)
        self._splits = tuple(s for s in SPLITS if s != "valid" or not data.valid_every)
        self._work, self.folder = work, work / "done"
        for name in ("tokens", "subwords", "done"):
            (work / name).mkdir(parents=True, exist_ok=True)
        self._tokens = {split: Place(work / "tokens", split) for split in SPLITS}
        self._subwords = {split: Place(work / "subwords", split) for split in SPLITS}
        self._reports: dict[str, list[dict[str, Any]]] = {}

    def build(self, identity: Mapping[str, Any]) -> None:
        """Do all stages; `identity` (recipe, fingerprint) goes into the manifest as it is."""
        data, name = self._data, self._data.name
        raw = self._raw_as_before()
        self._say(f"data: {name} {data.src}-{data.tgt}: tokenising ({data.tokenizer})")
        for split in reversed(self._splits):  # test first: it is small, and its faults are then said at once
            self._tokenise(split)
            self._check_read(split)
        if data.valid_every:
            self._hold_out()
        self._check_kept()
        self._references()
        model = self._learn()
        counts: Counter[str] = Counter()
        kept: dict[str, int] = {}
        for split in SPLITS:
            found = self._segment(split, model)
            kept[split] = sum(int(report["kept"]) for report in found)
            self._reports[f"{split} subwords"] = found
            if split == "train":
                for report in found:
                    counts.update(report["counts"])
        if not kept["train"]:
            raise UserError(self._nothing_left())
        self._say("data: writing numbers")
        vocabulary = build_vocabulary(counts)
        for lang in self._langs:  # joined: shared embeddings need one numbering
            write_text(self.folder / f"dict.{lang}.txt", vocabulary.text())
        sides = {split: self._number(split, vocabulary) for split in SPLITS}
        if self._corpus.digests() != raw:
            raise UserError(f"data={name}: the text was changed while it was read: run the command again")
        self._manifest({**identity, "raw": raw}, vocabulary, sides)

    def _raw_as_before(self) -> dict[str, str]:
        """Hash the raw files; what an earlier attempt made of others is thrown away."""
        path, raw = self._work / "raw.json", self._corpus.digests()
        if path.exists() and read_json(path) != raw:
            self._say("data: the text has changed since an earlier attempt was cut; beginning anew")
            for name in ("tokens", "subwords", "done"):
                shutil.rmtree(self._work / name)
                (self._work / name).mkdir()
        write_json(path, raw)
        return raw

    def _tokenise(self, split: str) -> None:
        place = self._tokens[split]
        work = partial(stages.tokenise, self._data, split in self._corpus.straight_apostrophes, place)
        with Progress(f"tokenising {split}", "pairs", self._say) as progress:
            for read in self._pool.each(work, self._chunks(split)):
                progress.add(read)
        self._reports[split] = self._read_reports(place)

    def _chunks(self, split: str) -> Iterator[Chunk]:
        pairs = self._corpus.pairs(split)
        number = 0
        while chunk := list(islice(pairs, CHUNK)):
            if self._tokens[split].report(number) is None:  # else done before an earlier attempt was cut
                yield Chunk(number, number * CHUNK + 1, chunk)
            number += 1

    def _read_reports(self, place: Place) -> list[dict[str, Any]]:
        reports: list[dict[str, Any]] = []
        while (report := place.report(len(reports))) is not None:
            reports.append(report)
        return reports

    def _parts(self, split: str) -> list[tuple[int, int]]:
        """Give (chunk, kept pairs before it)."""
        before, parts = 0, []
        for number, report in enumerate(self._reports[split]):
            parts.append((number, before))
            before += report["kept"]
        return parts

    def _hold_out(self) -> None:
        """Make every n-th kept training pair the validation set."""
        train, valid, every = self._tokens["train"], self._tokens["valid"], self._data.valid_every
        for lang in (*self._langs, *(f"raw.{lang}" for lang in self._langs)):
            held: list[str] = []
            for number, before in self._parts("train"):
                lines = train.lines(number, lang)
                held += lines[(every - 1 - before) % every :: every]
            valid.write(0, lang, held)
        raw = [valid.lines(0, f"raw.{lang}") for lang in self._langs]
        pairs: list[Pair] = list(zip(*raw, strict=True))
        kept = len(pairs)
        if not kept:
            train_pairs = f"train has {self._total('train', 'kept'):,} pairs that stay"
            raise UserError(f"data.valid_every={every}: {train_pairs}, so none for validation: set it lower")
        valid.write_marks(0, range(1, kept + 1), pairs)
        report = {"read": kept, "kept": kept, "dropped": {}, "seen": oddities.observe(1, pairs)}
        write_json(valid.path(0, "json"), report)
        self._reports["valid"] = [report]

    def _total(self, split: str, what: str) -> int:
        return sum(int(report[what]) for report in self._reports[split])

    def _check_read(self, split: str) -> None:
        standard = self._corpus.standard
        if standard:
            self._need(f"{split} has", self._total(split, "read"), standard.read[split])

    def _check_kept(self) -> None:
        standard = self._corpus.standard
        if standard and standard.is_standard(self._data):
            valid = self._total("valid", "kept")
            kept = {"train": self._total("train", "kept") - valid, "valid": valid}
            for split, wanted in standard.kept.items():
                self._need(f"{split} keeps", kept[split], wanted)

    def _need(self, words: str, found: int, wanted: int) -> None:
        """Raise UserError where a published corpus does not have the standard's counts."""
        if found != wanted:
            mend = "give the files as they were published, or set data.standard=false to take these all the same"
            raise UserError(f"data={self._data.name}: {words} {found:,} pairs, the standard set {wanted:,}: {mend}")

    def _references(self) -> None:
        """Keep valid and test as raw text and as tokens, for scoring."""
        for split in SPLITS[1:]:
            for lang in self._langs:
                for what, name in ((f"raw.{lang}", f"{split}.raw.{lang}"), (lang, f"{split}.tok.{lang}")):
                    parts = [self._tokens[split].lines(n, what) for n in range(len(self._reports[split]))]
                    write_text(self.folder / name, "".join(f"{line}\n" for part in parts for line in part))

    def _learn(self) -> str:
        """Give the file of the subword model, learned unless it is there."""
        data = self._data
        name = subwords.file_name(data)
        if name is None:
            return ""
        path = self.folder / name
        if data.codes:
            write_text(path, "".join(f"{line}\n" for line in subwords.own_codes(data.codes)))
        elif not path.exists() and name == "codes.bpe":
            words: Counter[str] = Counter()
            with Progress("counting words", "chunks", self._say) as progress:
                work = partial(stages.count_words, data, self._tokens["train"])
                for counted in self._pool.each(work, self._parts("train")):
                    words.update(counted)
                    progress.add(1)
            self._say(f"data: learning {data.bpe_merges:,} merges of joint BPE from {len(words):,} different words")
            with Progress("learning BPE", "merges", self._say) as progress:
                learned = subwords.learn_bpe(data, words, path, progress.reach)
            if learned < data.bpe_merges:
                self._say(f"data: {learned:,} merges of {data.bpe_merges:,}: no further pair occurs twice")
        elif not path.exists():
            self._say(f"data: learning {data.pieces:,} sentencepiece pieces")
            subwords.learn_sentencepiece(data, self._training_lines(), path)
        return str(path)

    def _training_lines(self) -> Iterator[str]:
        for number, before in self._parts("train"):
            sides = [self._tokens["train"].lines(number, lang) for lang in self._langs]
            for pair in stages.training(self._data, before, list(zip(*sides, strict=True))):
                yield from pair

    def _segment(self, split: str, model: str) -> list[dict[str, Any]]:
        work = partial(stages.segment, self._data, model, self._tokens[split], self._subwords[split])
        with Progress(f"subwords of {split}", "pairs", self._say) as progress:
            for kept in self._pool.each(work, self._parts(split)):
                progress.add(kept)
        if split != "train":
            for lang in self._langs:
                parts = [self._subwords[split].lines(n, lang) for n in range(len(self._reports[split]))]
                write_text(self.folder / f"{split}.sub.{lang}", "".join(f"{line}\n" for p in parts for line in p))
        return self._read_reports(self._subwords[split])

    def _nothing_left(self) -> str:
        why: Counter[str] = Counter()
        for name in ("train", "train subwords"):
            for report in self._reports[name]:
                why.update(report["dropped"])
        reasons = ", ".join(f"{n:,} {reason.replace('_', ' ')}" for reason, n in why.most_common())
        limits = f"data.max_length={self._data.max_length}, data.max_ratio={self._data.max_ratio:g}"
        rule = "look at the text, or raise the limits"
        return f"data={self._data.name}: no training pair is left ({reasons}; {limits}): {rule}"

    def _number(self, split: str, vocabulary: Vocabulary) -> dict[str, NumbersFile]:
        prefix = f"{split}.{self._data.src}-{self._data.tgt}"
        files = {lang: NumbersFile(self.folder / f"{prefix}.{lang}", vocabulary) for lang in self._langs}
        work = partial(stages.number, self._data, vocabulary, self._subwords[split])
        with Progress(f"numbers of {split}", "pairs", self._say) as progress:
            for both in self._pool.each(work, range(len(self._reports[f"{split} subwords"]))):
                for file, numbers in zip(files.values(), both, strict=True):
                    file.add(numbers)
                progress.add(len(both[0].lengths))
        return files

    def _manifest(
        self, identity: Mapping[str, Any], vocabulary: Vocabulary, sides: dict[str, dict[str, NumbersFile]]
    ) -> None:
        data, splits = self._data, {}
        for split, files in sides.items():
            written = {lang: file.close() for lang, file in files.items()}
            dropped: Counter[str] = Counter()
            for name in (split, f"{split} subwords"):
                for report in self._reports[name]:
                    dropped.update(report["dropped"])
            splits[split] = {
                "read": self._total(split, "read"),
                "pairs": written[data.src].sentences,
                "dropped": dict(sorted(dropped.items())),
                "tokens": {lang: side.tokens for lang, side in written.items()},
                "unknown_rate": {lang: side.unknown / max(side.tokens, 1) for lang, side in written.items()},
                "longest": {lang: side.longest for lang, side in written.items()},
                "seen": oddities.merge(report["seen"] for report in self._reports[split]),
            }
        standard = self._corpus.standard
        codes = self.folder / "codes.bpe"
        manifest = {
            "source": data.name,
            "src": data.src,
            "tgt": data.tgt,
            **identity,
            "standard": standard.version if standard else None,
            "tools": {name: importlib.metadata.version(name) for name in ("lnexp", "sacremoses")},
            "splits": splits,
            "repeats": self._repeats(),
            "vocabulary": len(vocabulary),
            "target_unigram_bits": unigram_bits(*(sides[split][data.tgt].counts for split in SPLITS[:2])),
            "files": {path.name: entry(path) for path in sorted(self.folder.iterdir())},
        }
        if standard and standard.codes_sha256 and standard.is_standard(data) and data.bpe_merges == 10_000:
            same = manifest["files"][codes.name]["sha256"] == standard.codes_sha256
            manifest["reference_codes"] = same
            if not same:
                self._say(
                    "data: note: the BPE codes are not those that the reference preparation learned from this text"
                )
        write_json(self.folder / "manifest.json", manifest)

    def _repeats(self) -> dict[str, Any]:
        """Count what stands in the data twice, by pair numbers of the raw text; held-out pairs are valid's alone."""
        rows = {}
        for split in SPLITS:
            parts = [self._tokens[split].marks(number) for number, _ in self._parts(split)]
            rows[split] = np.concatenate(parts)
        if every := self._data.valid_every:
            rows["train"] = rows["train"][np.arange(1, len(rows["train"]) + 1) % every != 0]
        found = oddities.repeats({split: part[:, 1:] for split, part in rows.items()})
        for split, counts in found.items():
            for count in counts.values():
                count["numbers"] = [int(rows[split][number - 1, 0]) for number in count["numbers"]]
        return found
