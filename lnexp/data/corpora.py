"""Where raw parallel text comes from: shipped, generated, your own files, or a published corpus.

In: the data part of the config. Out: a `Source`, which has a digest before anything is fetched or read twice, and
gives the `Corpus`: line-parallel raw text of train, valid and test.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import chain, zip_longest
from pathlib import Path

from lnexp.config import Data
from lnexp.data import acquire, lines, published
from lnexp.data.lines import RawFile
from lnexp.errors import UserError

Say = Callable[[str], None]
SHIPPED = ("tatoeba_deen", "toy_copy")
SPLITS = ("train", "valid", "test")
_SHIPPED = Path(__file__).parent / "shipped"
# Copying digits is the smallest task that needs attention; 6,000 pairs are learned in a minute on one thread.
_TOY_SIZES = {"train": 6000, "valid": 200, "test": 200}


@dataclass(frozen=True)
class Corpus:
    """Raw text, by name: "train.de" is the German side of train, in one file or several, as it is in them."""

    src: str
    tgt: str
    sides: Callable[[str], list[RawFile]]
    digests: Callable[[], dict[str, str]]
    """sha256 of each raw file, by its name."""
    straight_apostrophes: tuple[str, ...] = ()
    """Splits whose recipe turns ’ into ' before tokenising (test sets that come as XML or SGML)."""
    standard: published.Published | None = None
    """What the counts are held against; None where there is no standard, or it was waived."""

    def lines(self, name: str) -> Iterator[str]:
        """Give one side of a split."""
        return chain.from_iterable(file.lines() for file in self.sides(name))

    def pairs(self, split: str) -> Iterator[tuple[str, str]]:
        """Give (source, target); UserError where one side of a file is longer than the other."""
        both = (self.sides(f"{split}.{lang}") for lang in (self.src, self.tgt))
        for src_file, tgt_file in zip(*both, strict=True):
            read = [0, 0]
            for src, tgt in zip_longest(src_file.lines(), tgt_file.lines()):
                read[0] += src is not None
                read[1] += tgt is not None
                if src is not None and tgt is not None:
                    yield src, tgt
            if read[0] != read[1]:
                has = f"{src_file.name} has {read[0]:,} lines and {tgt_file.name} has {read[1]:,}"
                raise UserError(f"{has}: both sides need one sentence a line, as many on each")


@dataclass(frozen=True)
class Source:
    """A corpus that can be had; `get(archives, work, say)` fetches and unpacks what it needs."""

    digests: Callable[[], dict[str, str]]
    get: Callable[[Path, Path, Say], Corpus]

    @cached_property
    def digest(self) -> str:
        """sha256 over names and hashes of all raw files: the same for either direction, packed or not."""
        text = "".join(f"{name} {digest}\n" for name, digest in sorted(self.digests().items()))
        return hashlib.sha256(text.encode()).hexdigest()


def open_corpus(data: Data) -> Source:
    """Find the corpus that the config names; faults that need no reading of the text are raised here."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}", data.name):
        raise UserError(f"data.name={data.name}: need letters, digits and ._+- only (it names a folder)")
    own = {name: getattr(data, name) for name in SPLITS}
    if data.name in published.CORPORA:
        _refuse(own, f"{data.name} comes from its archives; your own files go with data=bitext")
        return _published(data)
    _refuse({"local": data.local}, "only for iwslt14_deen and wmt14_ende; your own files go with data=bitext")
    if data.name in SHIPPED:
        _refuse(own, f"{data.name} has its own text; your own files go with data=bitext")
        _refuse({"valid_every": data.valid_every}, f"{data.name} has a validation set of its own: need 0")
        return _toy(data) if data.name == "toy_copy" else _tatoeba(data)
    return _bitext(data, own)


def _refuse(values: Mapping[str, str | int | None], rule: str) -> None:
    for name, value in values.items():
        if value:
            raise UserError(f"data.{name}={value}: {rule}")


def _published(data: Data) -> Source:
    wanted = published.CORPORA[data.name](data.src, data.tgt)
    has_valid = f"valid.{data.src}" in wanted.sides
    if has_valid == bool(data.valid_every):
        need = "need 0" if has_valid else "it is made of every n-th training pair, as the recipe's 23"
        there = "a validation set of its own" if has_valid else "no validation set of its own"
        raise UserError(f"data.valid_every={data.valid_every}: {data.name} has {there}: {need}")
    local = None if data.local is None else _folder("data.local", data.local)

    def digests() -> dict[str, str]:
        # The standard set is known by its name, so that its runs can be shown before it is there.
        return {data.name: wanted.version} if data.standard or not local else acquire.digests(wanted, local)

    def get(archives: Path, raw: Path, say: Say) -> Corpus:
        where = acquire.acquire(wanted, local, archives / data.name, raw, data.standard, say)
        standard = wanted if data.standard else None
        hashes = partial(_hashes, where)
        return Corpus(data.src, data.tgt, partial(wanted.files, where), hashes, wanted.straight_apostrophes, standard)

    return Source(digests, get)


def _bitext(data: Data, own: dict[str, str]) -> Source:
    if not any(own.values()) and data.name != "bitext":
        known = ", ".join((*SHIPPED, *published.CORPORA))
        rule = "your own text needs data.train=DIR/train, data.valid=DIR/valid and data.test=DIR/test (data=bitext)"
        raise UserError(f"data.name={data.name}: no such corpus: need {known}; {rule}")
    for name, value in own.items():
        if not value and not (name == "valid" and data.valid_every):
            rule = f"data.{name}=DIR/{name} for DIR/{name}.{data.src} and DIR/{name}.{data.tgt}, plain, .gz or .xz"
            raise UserError(f"data.{name} is not set: need {rule}")
    if own["valid"] and data.valid_every:
        raise UserError(f"data.valid_every={data.valid_every}: data.valid={data.valid} is the validation set already")
    files: dict[str, Path] = {}
    for name, value in own.items():
        for lang in (data.src, data.tgt) if value else ():
            files[f"{name}.{lang}"] = _file(f"data.{name}", value, lang)
    return _from_files(data, files)


def _tatoeba(data: Data) -> Source:
    for key, lang in (("src", data.src), ("tgt", data.tgt)):
        if lang not in ("de", "en"):
            raise UserError(f"data.{key}={lang}: tatoeba_deen has only de and en")
    names = [f"{split}.{lang}" for split in SPLITS for lang in ("de", "en")]
    return _from_files(data, {name: _SHIPPED / data.name / f"{name}.gz" for name in names})


def _from_files(data: Data, files: dict[str, Path]) -> Source:
    corpus = Corpus(data.src, data.tgt, lambda name: [_raw_file(files[name])], partial(_hashes, files))
    return Source(corpus.digests, lambda *_: corpus)


def _raw_file(path: Path) -> RawFile:
    return RawFile(str(path), lambda: lines.read_lines(path))


def _hashes(files: Mapping[str, Path]) -> dict[str, str]:
    return {name: lines.sha256(path) for name, path in sorted(files.items())}


def _file(setting: str, value: str, lang: str) -> Path:
    """Find {value}.{lang}, plain or packed; where both are there the plain file counts."""
    try:
        start = Path(value).expanduser()
        tried = [start.with_name(f"{start.name}.{lang}{end}") for end in lines.PACKED]
        found = next((path for path in tried if path.is_file()), None)
    except (OSError, RuntimeError, ValueError) as error:  # no permission, a name too long, no such user's home
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{setting}={value}: cannot be looked into ({reason}): check the path") from None
    if found is None:
        raise UserError(f"{setting}={value}: no file {tried[0]}, nor with .gz or .xz: check the path and the language")
    if found.stat().st_size == 0:
        raise UserError(f"{found} is empty: there is nothing to read in it")
    return found


def _folder(setting: str, value: str) -> Path:
    try:
        folder = Path(value).expanduser()
        there, right = folder.exists(), folder.is_dir()
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{setting}={value}: cannot be looked into ({reason}): check the path") from None
    if not there:
        raise UserError(f"{setting}={value}: no such folder: check the path")
    if not right:
        raise UserError(f"{setting}={value}: not a folder: need the folder that holds the archives")
    return folder


def _toy(data: Data) -> Source:
    """Both languages are the same text: the target copies the source."""

    def side(name: str) -> list[RawFile]:
        split = name.partition(".")[0]
        start = sum(_TOY_SIZES[earlier] for earlier in SPLITS[: SPLITS.index(split)])
        return [RawFile(name, lambda: iter(_toy_lines()[start : start + _TOY_SIZES[split]]))]

    def digests() -> dict[str, str]:
        return {"toy_copy": hashlib.sha256("\n".join(_toy_lines()).encode()).hexdigest()}

    corpus = Corpus(data.src, data.tgt, side, digests)
    return Source(digests, lambda *_: corpus)


@cache
def _toy_lines() -> list[str]:
    """Sequences of 4 to 10 digits, no sequence twice, so that no split shares one with another."""
    distinct: dict[str, None] = {}
    number = 0
    while len(distinct) < sum(_TOY_SIZES.values()):
        # A hash of the running number, unlike a library's generator, gives the same text for ever.
        draw = hashlib.sha256(f"toy_copy {number}".encode()).digest()
        distinct[" ".join(str(byte % 10) for byte in draw[1 : 5 + draw[0] % 7])] = None
        number += 1
    return list(distinct)
