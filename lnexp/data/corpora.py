"""Where raw parallel text comes from: shipped with the package, generated, or a folder of the user's own.

In: the data part of the config. Out: a `Corpus` that gives line-parallel text and a digest of its raw bytes.
Lines end at "\\n" only, as line-parallel files demand: other Unicode line separators stay inside their line.
Every fault is one UserError that names the file and the mend.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path

from lnexp.config import Data
from lnexp.errors import UserError

SPLITS = ("train", "valid", "test")
_PUBLISHED = ("iwslt14_deen", "wmt14_ende")
_SHIPPED = Path(__file__).parent / "shipped"
_BOM = b"\xef\xbb\xbf"

# Copying digits is the smallest task that needs attention; 6,000 pairs are learned in a minute on one thread.
_TOY_SIZES = {"train": 6000, "valid": 200, "test": 200}


@dataclass(frozen=True)
class Corpus:
    """Raw text of three splits in two languages; `read` gives the bytes of "train.de" and so on, unpacked."""

    name: str
    src: str
    tgt: str
    place: str
    """What to call it in messages: a folder, or the corpus itself."""
    read: Callable[[str], bytes]

    @cached_property
    def digest(self) -> str:
        """sha256 over names and unpacked bytes of all files: the same for either direction, packed or not."""
        whole = hashlib.sha256()
        for name in sorted(f"{split}.{lang}" for split in SPLITS for lang in (self.src, self.tgt)):
            raw = self.read(name)
            whole.update(f"{name} {len(raw)}\n".encode())
            whole.update(raw)
        return whole.hexdigest()

    def lines(self, split: str) -> tuple[list[str], list[str]]:
        """Give the source and the target lines of a split, as many on either side."""
        src, tgt = (self._side(f"{split}.{lang}") for lang in (self.src, self.tgt))
        if len(src) != len(tgt):
            counts = f"{split}.{self.src} has {len(src)} lines and {split}.{self.tgt} has {len(tgt)}"
            raise UserError(f"{self.place}: {counts}: both sides need one sentence a line, as many on each")
        return src, tgt

    def _side(self, name: str) -> list[str]:
        raw = self.read(name).removeprefix(_BOM)
        if not raw:
            raise UserError(f"{self.place}: {name} is empty: need one sentence a line")
        # One search over the bytes is cheap; the line number is worked out only when something is found.
        nul = raw.find(b"\0")
        if nul >= 0:
            raise UserError(f"{self.place}: {name}, line {_line(raw, nul)}: a NUL byte: remove it")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            where = f"{name}, line {_line(raw, error.start)}"
            raise UserError(f"{self.place}: {where}: not valid UTF-8: convert the file to UTF-8") from None
        return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def open_corpus(data: Data) -> Corpus:
    """Find the corpus that the config names; faults that need no reading of the text are raised here."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}", data.name):
        raise UserError(f"data.name={data.name}: need letters, digits and ._+- only (it names a folder)")
    if data.local:
        place = f"data.local={data.local}"
        try:
            return _folder(data, Path(data.local).expanduser(), place)
        except (OSError, RuntimeError) as error:  # no permission, a name too long, no such user's home
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"{place}: cannot be looked into ({reason}): check the path and its permissions") from None
    if data.name == "tatoeba_deen":
        for key, lang in (("src", data.src), ("tgt", data.tgt)):
            if lang not in ("de", "en"):
                raise UserError(f"data.{key}={lang}: tatoeba_deen has only de and en")
        return _folder(data, _SHIPPED / data.name, data.name)
    if data.name == "toy_copy":
        return Corpus(data.name, data.src, data.tgt, data.name, _toy_copy)
    if data.name in _PUBLISHED:
        files = f"train/valid/test.{{{data.src},{data.tgt}}}"
        raise UserError(
            f"data={data.name}: fetching the published archives is not part of this version yet: "
            f"set data.local=DIR, a folder with {files} (plain or .gz)"
        )
    known = "tatoeba_deen, toy_copy, iwslt14_deen or wmt14_ende"
    raise UserError(f"data.name={data.name}: no such corpus: need {known}, or your own files with data.local=DIR")


def source_digest(data: Data) -> str:
    """Give the digest of the raw data for the run id; nothing has to be prepared for it.

    A published corpus is known by its name alone, so that its runs can be shown before it is there.
    """
    if data.name in _PUBLISHED and not data.local:
        return data.name
    return open_corpus(data).digest


def _line(raw: bytes, offset: int) -> int:
    return raw.count(b"\n", 0, offset) + 1


def _folder(data: Data, folder: Path, place: str) -> Corpus:
    """A folder with {split}.{lang}, plain or .gz; where both are there the plain file counts."""
    if not folder.exists():
        raise UserError(f"{place}: no such folder: check the path")
    if not folder.is_dir():
        raise UserError(f"{place}: not a folder: need the folder that holds train, valid and test")
    files: dict[str, Path] = {}
    missing = []
    for name in (f"{split}.{lang}" for split in SPLITS for lang in (data.src, data.tgt)):
        found = [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
        if found:
            files[name] = found[0]
        else:
            missing.append(name)
    if missing:
        raise UserError(f"{place}: missing {', '.join(missing)}: put these files there, plain or .gz")
    for path in files.values():
        if path.stat().st_size == 0:
            raise UserError(f"{place}: {path.name} is empty: need one sentence a line")
    return Corpus(data.name, data.src, data.tgt, place, partial(_read, files, place))


def _read(files: dict[str, Path], place: str, name: str) -> bytes:
    path = files[name]
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{place}: {path.name} is a damaged gzip file ({error}): copy it again or unpack it") from None
    except OSError as error:
        raise UserError(f"{place}: {path.name} cannot be read ({error.strerror}): check its permissions") from None


def _toy_copy(name: str) -> bytes:
    """Both languages are the same text: the target copies the source."""
    split = name.partition(".")[0]
    start = sum(_TOY_SIZES[earlier] for earlier in SPLITS[: SPLITS.index(split)])
    return "".join(f"{line}\n" for line in _toy_lines()[start : start + _TOY_SIZES[split]]).encode()


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
