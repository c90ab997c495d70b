"""Raw text files: one sentence a line, UTF-8, plain or packed (.gz, .xz), read line by line whatever their size.

Lines end at "\\n" alone, as line-parallel files demand: a lone "\\r" and Unicode's other separators stay inside theirs.
Every fault is one UserError that names the file, the line and the mend.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO, TypeVar

from lnexp.errors import UserError

Result = TypeVar("Result")
PACKED = ("", ".gz", ".xz")
_BOM = b"\xef\xbb\xbf"
_OTHER_KINDS = {
    b"\xff\xfe": "looks like UTF-16: convert it to UTF-8",
    b"\xfe\xff": "looks like UTF-16: convert it to UTF-8",
    b"\x1f\x8b": "is packed with gzip: let its name end in .gz",
    b"\xfd7zXZ": "is packed with xz: let its name end in .xz",
    b"BZh": "is packed with bzip2: unpack it",
}
# A line this long is a file without line ends; it is refused before it fills the memory.
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class RawFile:
    """The lines of a file, and what to call it in messages."""

    name: str
    lines: Callable[[], Iterator[str]]


def read_lines(path: Path) -> Iterator[str]:
    """Give the lines of a file; the mark at its head and a "\\r" before a line's end are left out."""
    number = 0
    for number, raw in enumerate(_raw_lines(path), 1):
        if number == 1:
            for head, what in _OTHER_KINDS.items():
                if raw.startswith(head):
                    raise UserError(f"{path}: {what}")
            raw = raw.removeprefix(_BOM)
            if not raw:  # a mark and nothing else
                number = 0
                break
        if b"\0" in raw:
            raise UserError(f"{path}, line {number:,}: a NUL byte: remove it")
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise UserError(f"{path}, line {number:,}: not valid UTF-8: convert the file to UTF-8") from None
        yield line.removesuffix("\n").removesuffix("\r")
    if number == 0:
        raise UserError(f"{path} is empty: there is nothing to read in it")


def sha256(path: Path) -> str:
    """Hash the unpacked bytes: the same for a file and its packed copy."""
    stat = _guarded(path, path.stat)
    return _sha256(path, stat.st_size, stat.st_mtime_ns)


@cache
def _sha256(path: Path, size: int, changed_ns: int) -> str:
    """Once a process for a file as it is: each run of a sweep asks again."""
    whole = hashlib.sha256()
    with _reading(path) as file:
        while block := _guarded(path, lambda: file.read(1 << 20)):
            whole.update(block)
    return whole.hexdigest()


def _raw_lines(path: Path) -> Iterator[bytes]:
    with _reading(path) as file:
        number = 1
        while raw := _guarded(path, lambda: file.readline(_MOST_BYTES + 1)):
            if len(raw) > _MOST_BYTES:
                raise UserError(f"{path}, line {number:,}: over {_MOST_BYTES:,} bytes: need one sentence a line")
            yield raw
            number += 1


def _reading(path: Path) -> BinaryIO | gzip.GzipFile | lzma.LZMAFile:
    def opened() -> BinaryIO | gzip.GzipFile | lzma.LZMAFile:
        if path.suffix == ".gz":
            return gzip.open(path, "rb")
        return lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb")

    return _guarded(path, opened)


def _guarded(path: Path, read: Callable[[], Result]) -> Result:
    """Do one read; what can go wrong with a file becomes one line."""
    try:
        return read()
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        kind = "xz" if path.suffix == ".xz" else "gzip"
        raise UserError(f"{path} is a damaged {kind} file ({error}): copy it again or unpack it") from None
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{path} cannot be read ({reason}): check the path and its permissions") from None
