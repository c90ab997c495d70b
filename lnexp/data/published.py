"""The published corpora: which archives, which files in them, and how each file becomes lines.

Facts alone; acquire.py gets the archives. Sizes and hashes are those that TensorFlow Datasets, Hugging Face's data
sets, sacreBLEU, sockeye and the logs of fairseq's users give.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lnexp.config import Data
from lnexp.data.fetch import Remote
from lnexp.data.lines import RawFile, read_lines
from lnexp.errors import UserError

Reader = Callable[[Iterable[str]], Iterator[str]]


@dataclass(frozen=True)
class Copy:
    """One packing of a set of files; `inner` names the archive inside the archive."""

    remote: Remote
    inner: str | None = None


@dataclass(frozen=True)
class Bundle:
    """Files that come together; `copies` are the archives that hold them, any one of which will do."""

    copies: tuple[Copy, ...]
    files: tuple[str, ...]


@dataclass(frozen=True)
class Published:
    version: str
    licence: str
    bundles: tuple[Bundle, ...]
    sides: Mapping[str, tuple[tuple[str, Reader], ...]]
    """"train.de" -> its files in order, each with what turns it into lines."""
    straight_apostrophes: tuple[str, ...]
    read: Mapping[str, int]
    """Pairs that the standard set has, before anything is dropped."""
    recipe: Mapping[str, object]
    """The settings under which `kept` and `codes_sha256` hold."""
    kept: Mapping[str, int]
    codes_sha256: str | None = None
    """Of the codes that the reference preparation learned with 10,000 merges."""

    def files(self, where: Mapping[str, Path], name: str) -> list[RawFile]:
        """Give the raw files of one side of a split, each as its lines."""
        return [RawFile(str(where[file]), partial(_lines, where[file], reader)) for file, reader in self.sides[name]]

    def is_standard(self, data: Data) -> bool:
        """Say whether the recipe is the one under which the standard numbers were counted."""
        return all(getattr(data, name) == value for name, value in self.recipe.items())


def _lines(path: Path, reader: Reader) -> Iterator[str]:
    empty = True
    for line in reader(read_lines(path)):
        empty = False
        yield line
    if empty:
        raise UserError(f"{path}: no sentence in it: need the file as it was published")


def train_tags(lines: Iterable[str]) -> Iterator[str]:
    """Lines of IWSLT's train.tags files: headers with addresses left out, titles and descriptions kept as sentences."""
    for line in lines:
        if not any(tag in line for tag in ("<url>", "<talkid>", "<keywords>")):
            yield re.sub("</?(?:title|description)>", "", line)


def segments(lines: Iterable[str]) -> Iterator[str]:
    """Sentences of an XML or SGML test set: what stands in <seg id="..."> ... </seg>, as it is written there."""
    for line in lines:
        if "<seg id" in line:
            line = re.sub(r'<seg id="[0-9]*">\s*', "", line)
            yield re.sub(r"\s*</seg>\s*", "", line)


def plain(lines: Iterable[str]) -> Iterator[str]:
    return iter(lines)


def _need_languages(name: str, data_src: str, data_tgt: str) -> None:
    for key, lang in (("src", data_src), ("tgt", data_tgt)):
        if lang not in ("de", "en"):
            raise UserError(f"data.{key}={lang}: {name} has only de and en")


def iwslt14(src: str, tgt: str) -> Published:
    """IWSLT 2014 German-English (TED talks), as prepare-iwslt14.sh of fairseq and MIXER reads it."""
    _need_languages("iwslt14_deen", src, tgt)
    sets = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")  # the test set, in this order
    sides: dict[str, tuple[tuple[str, Reader], ...]] = {}
    for lang in ("de", "en"):
        sides[f"train.{lang}"] = ((f"train.tags.de-en.{lang}", train_tags),)
        sides[f"test.{lang}"] = tuple((f"IWSLT14.{name}.de-en.{lang}.xml", segments) for name in sets)
    archive_itself = Remote(
        "de-en.tgz",
        ("https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz",
         "http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"),
        size=19_982_877,
    )  # fmt: skip
    # Where it came from it is gone (404 since 2021): WIT3 hands out the whole year, on a page for people.
    whole_year = Copy(Remote("2014-01.tgz", ()), inner="2014-01/texts/de/en/de-en.tgz")
    return Published(
        version="iwslt14 de-en, WIT3 release 2014-01",
        licence="TED talks, CC BY-NC-ND 3.0 (https://wit3.fbk.eu)",
        bundles=(Bundle((Copy(archive_itself), whole_year), _files(sides)),),
        sides=sides,
        straight_apostrophes=("test",),
        read={"train": 174_443, "test": 6_750},
        recipe={"normalize_punctuation": False, "tokenizer": "moses", "split_hyphens": False, "lowercase": True,
                "max_length": 175, "max_ratio": 1.5, "limits_on": "tokens", "valid_every": 23},
        kept={"train": 160_239, "valid": 7_283},
        codes_sha256="3dd02684b6693abce3ba59520425901b0b910abeec2ae6b15cc62e458441d503",
    )  # fmt: skip


def wmt14(src: str, tgt: str) -> Published:
    """WMT 2014 English-German: Europarl v7, Common Crawl, News Commentary v9; newstest2013 and newstest2014 (3,003)."""
    _need_languages("wmt14_ende", src, tgt)
    parts = ("europarl-v7", "commoncrawl", "news-commentary-v9")
    sides: dict[str, tuple[tuple[str, Reader], ...]] = {}
    for lang in ("de", "en"):
        role = "src" if lang == src else "ref"
        sides[f"train.{lang}"] = tuple((f"{part}.de-en.{lang}", plain) for part in parts)
        sides[f"valid.{lang}"] = ((f"newstest2013-{role}.{lang}.sgm", segments),)
        sides[f"test.{lang}"] = ((f"newstest2014-deen-{role}.{lang}.sgm", segments),)

    def bundle(*names: str, copies: tuple[Copy, ...]) -> Bundle:
        files = _files({n: s for n, s in sides.items() if n.partition(".")[0] in names})
        return Bundle(copies, files)

    def part(index: int, *copies: Copy) -> Bundle:
        return Bundle(copies, tuple(f"{parts[index]}.de-en.{lang}" for lang in ("de", "en")))

    return Published(
        version="wmt14 en-de, europarl v7, commoncrawl, news commentary v9, newstest2013, newstest2014 full",
        licence="Europarl and WMT data, free for research (https://www.statmt.org/wmt14/translation-task.html)",
        bundles=(
            part(0, _statmt("wmt13/training-parallel-europarl-v7.tgz", 657_632_379,
                            "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7"),
                 _hub("wmt13/resolve/main-zip/training-parallel-europarl-v7.zip", 658_092_427,
                      "5b2d8b32c2396da739b4e731871c597fcc6e75729becd74619d0712eecf7770e")),
            part(1, _statmt("wmt13/training-parallel-commoncrawl.tgz", 918_311_367,
                            "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5"),
                 _hub("wmt13/resolve/main-zip/training-parallel-commoncrawl.zip", 918_734_483,
                      "5ffe980072ea29adfd84568d099bea366d9f72772b988e670794ae851b4e5627")),
            part(2, _statmt("wmt14/training-parallel-nc-v9.tgz", 80_418_416,
                            "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485"),
                 _hub("wmt14/resolve/main-zip/training-parallel-nc-v9.zip", 80_462_375,
                      "ce199f93ec56ff480137ba29f0819f9a22e70d88be6d7458f112303d67d623d5")),
            # newstest2013 is the same in every year's dev.tgz; the years differ in what they add.
            bundle("valid", copies=(
                Copy(Remote("dev.tgz", ("https://data.statmt.org/wmt17/translation-task/dev.tgz",
                                        "http://data.statmt.org/wmt17/translation-task/dev.tgz"),
                            sha256="9d5ff04a28496b7796904ea65e50e3837bab14dbdca88b1e063105f17513dca9")),
                _hub("wmt19/resolve/main-zip/translation-task/dev.zip", 38_714_274,
                     "d796e363740fdc4261aa6f5a3d2f8223e3adaee7d737b7724863325b8956dfd1"),
                Copy(Remote("dev.tgz", ("http://data.statmt.org/wmt19/translation-task/dev.tgz",), 38_654_961,
                            "7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7")),
                _statmt("wmt14/dev.tgz", 17_742_707, md5="88ba3fc60b2278d59277122e1c7dd6e7"))),
            bundle("test", copies=(
                _statmt("wmt14/test-full.tgz", 3_255_445, md5="a8cd784e006feb32ac6f3d9ec7eb389a"),)),
        ),
        sides=sides,
        straight_apostrophes=("valid", "test"),
        read={"train": 4_520_620, "valid": 3_000, "test": 3_003},
        recipe={},
        kept={},
    )  # fmt: skip


CORPORA: dict[str, Callable[[str, str], Published]] = {"iwslt14_deen": iwslt14, "wmt14_ende": wmt14}


def _statmt(path: str, size: int, sha256: str | None = None, md5: str | None = None) -> Copy:
    urls = (f"https://www.statmt.org/{path}", f"http://www.statmt.org/{path}")
    return Copy(Remote(path.rpartition("/")[2], urls, size, sha256, md5))


def _hub(path: str, size: int, sha256: str) -> Copy:
    return Copy(Remote(path.rpartition("/")[2], (f"https://huggingface.co/datasets/wmt/{path}",), size, sha256))


def _files(sides: Mapping[str, tuple[tuple[str, Reader], ...]]) -> tuple[str, ...]:
    return tuple(file for side in sides.values() for file, _ in side)
