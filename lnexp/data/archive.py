"""Files out of published archives: only those asked for, only where asked for, and only if the whole archive is sound.

In: a tar (plain, gz, xz, bz2) or zip file, told by its content. Out: files at the paths that the caller gave; no name
from the archive is ever made a path. Every entry is looked at all the same: an archive with one that could do harm
elsewhere is not the published one. A tar is read once, in one stream, and to its very end, where the checksum is.
"""

from __future__ import annotations

import bz2
import contextlib
import errno
import filecmp
import gzip
import lzma
import os
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from lnexp.errors import UserError

_CHUNK = 1 << 20
# Room for what a tar says of one entry (long names, pax records), and for what tarfile reads ahead.
_HEADERS = 2 * _CHUNK
_DEPTH = 4
# How a packed tar begins, and what unpacks it; whatever is none of these is a plain one or no tar.
_PACKED: dict[bytes, Callable[[Path], Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
_ZIP = (b"PK\3\4", b"PK\5\6")


class _Damaged(Exception):
    """What is wrong with the archive, seen by none of the libraries."""


# What the libraries raise on bytes that are not what they should be; numbers and names are not all checked by them.
_UNREADABLE = (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError)
_UNCHECKED = (ValueError, IndexError, OverflowError, RecursionError, NotImplementedError)


def extract(archive: Path, wanted: Mapping[str, Path], *, most_bytes: int, most_entries: int) -> None:
    """Write each wanted member, named by its base name or the end of its path, to its file; all of them or none.

    `most_bytes` is the size that no member may exceed, `most_entries` the number of entries.
    """
    sink = _Sink(archive, wanted, most_bytes, most_entries)
    try:
        with open(archive, "rb") as file:
            start = file.read(6)
        if start.startswith(_ZIP):
            _read_zip(archive, sink)
        else:
            _read_tar(archive, next((by for magic, by in _PACKED.items() if start.startswith(magic)), _plain), sink)
        sink.publish()
    except (_Damaged, *_UNREADABLE, *_UNCHECKED) as error:
        raise _damaged(archive, error) from None
    except OSError as error:
        if error.errno in (None, errno.EINVAL):  # gzip, bz2: "Invalid data stream"; zipfile, sent to byte -7
            raise _damaged(archive, error) from None
        raise UserError(f"{archive}: cannot be read ({error.strerror}): check the path and its permissions") from None
    finally:
        sink.clear()


def find(folder: Path, name: str) -> Path | None:
    """Find the file of that name, plain before .gz before .xz, in the folder or up to four folders down.

    Links count: a store that is shared is often linked. Two different files of one name are a fault.
    """
    top = folder.resolve()
    if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
        raise UserError(f"{folder}: cannot be looked into (Permission denied): check its permissions")
    for suffix in ("", ".gz", ".xz"):
        found = [path for path in _files(top) if path.name == name + suffix and path.is_file()]
        for other in found[1:]:
            two = " and ".join(str(path.relative_to(top)) for path in (found[0], other))
            try:
                same = filecmp.cmp(found[0], other, shallow=False)
            except OSError as error:
                raise UserError(f"{folder}: {two} cannot be compared ({error.strerror}): remove one") from None
            if not same:
                raise UserError(f"{folder}: {two} differ, and only one can be meant: remove or rename the other")
        if found:
            return folder / found[0].relative_to(top)
    return None


def _files(top: Path) -> Iterator[Path]:
    seen = set()
    for parent, folders, names in os.walk(top, followlinks=True):
        place = Path(parent).resolve()
        if place in seen:  # a link back up, or to where another led
            folders.clear()
            continue
        seen.add(place)
        folders.sort()
        if len(Path(parent).relative_to(top).parts) == _DEPTH:
            folders.clear()
        yield from (Path(parent, name) for name in sorted(names))


def _plain(path: Path) -> IO[bytes]:
    return open(path, "rb")


class _Sink:
    """Looks at every entry, and takes in the wanted ones: to temporary files until `publish`."""

    def __init__(self, archive: Path, wanted: Mapping[str, Path], most_bytes: int, most_entries: int) -> None:
        self._archive, self._most_bytes, self._most_entries = archive, most_bytes, most_entries
        self._wanted = {tuple(key.split("/")): target for key, target in wanted.items()}
        self._taken: dict[Path, str] = {}
        """Target -> the entry it came from."""
        self._written: list[Path] = []
        self._entries = 0

    def target(self, name: str, size: int, plain: bool) -> Path | None:
        """Check an entry; gives the file it is wanted for, if it is."""
        self._entries += 1
        if self._entries > self._most_entries:
            self.refuse(f"more than {self._most_entries:,} entries")
        parts = [part for part in re.split(r"[/\\]", name) if part not in ("", ".")]
        if re.search(r"[\x00-\x1f\x7f-\x9f]", name):
            self.refuse(f"entry {name!r} has control characters in its name")
        if name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name):
            self.refuse(f"entry {name!r} has an absolute path")
        if ".." in parts:
            self.refuse(f"entry {name!r} leads out of its folder")
        if not 0 <= size <= self._most_bytes:
            self.refuse(f"entry {name!r} has {size:,} bytes, over {self._most_bytes:,}")
        matching = [key for key in self._wanted if plain and tuple(parts[-len(key) :]) == key]
        if not matching:
            return None
        key = max(matching, key=len)
        target = self._wanted[key]
        if target in self._taken:
            both = f"{self._taken[target]!r} and {name!r}"
            raise UserError(f"{self._archive}: {both} both are {'/'.join(key)}: fetch the published archive")
        self._taken[target] = name
        return target

    def refuse(self, why: str) -> None:
        raise UserError(f"{self._archive}: is not safe to unpack: {why}: fetch it again, from its publisher")

    def copy(self, source: IO[bytes], name: str, size: int, target: Path | None) -> None:
        """Read an entry to its end, and write it if there is a target. Neither library gives more than `size`."""
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(self._open(target)) if target else None
            done = 0
            while chunk := source.read(_CHUNK):
                done += len(chunk)
                if file and target:
                    with _writing(target):
                        file.write(chunk)
            if done != size:
                raise _Damaged(f"{name} ends after {done:,} of {size:,} bytes")
            if file and target:
                with _writing(target):
                    file.flush()
                    os.fsync(file.fileno())

    def _open(self, target: Path) -> IO[bytes]:
        with _writing(target):
            file = open(_temporary(target), "wb")
        self._written.append(_temporary(target))
        return file

    def publish(self) -> None:
        """Rename the files into place, once all are there and the archive has been read to its end."""
        missing = ["/".join(key) for key, target in self._wanted.items() if target not in self._taken]
        if missing:
            raise UserError(f"{self._archive}: holds no {', '.join(missing)}: fetch the published archive")
        for target in self._taken:
            with _writing(target):
                os.replace(_temporary(target), target)
            self._written.append(target)
        self._written.clear()

    def clear(self) -> None:
        """Remove what was written, unless all of it is in place."""
        for path in self._written:
            path.unlink(missing_ok=True)


class _Stream:
    """The unpacked bytes of a tar, for tarfile to read; stops what would otherwise grow without end."""

    def __init__(self, file: Any, sink: _Sink) -> None:
        self._file, self._sink = file, sink
        self.total, self.limit = 0, _HEADERS

    def read(self, size: int) -> bytes:
        self.last: bytes = self._file.read(size)
        self.total += len(self.last)
        if self.total > self.limit:
            self._sink.refuse(f"over {_HEADERS:,} bytes that belong to no entry")
        return self.last

    def block(self, offset: int) -> bytes:
        """Give the 512 bytes at an offset that was read last."""
        start = offset - (self.total - len(self.last))
        return self.last[start : start + tarfile.BLOCKSIZE] if start >= 0 else b""


def _read_tar(archive: Path, unpack: Callable[[Path], Any], sink: _Sink) -> None:
    with unpack(archive) as file:
        stream = _Stream(file, sink)
        # Not "r|*", which checks neither gzip's checksum nor that there is an end.
        with tarfile.open(fileobj=stream, mode="r|", bufsize=_CHUNK) as tar:  # type: ignore[call-overload]
            while (entry := tar.next()) is not None:
                if not (entry.isreg() or entry.isdir()) or entry.issparse():
                    kinds = {tarfile.SYMTYPE: "a symbolic link", tarfile.LNKTYPE: "a hard link"}
                    sink.refuse(f"entry {entry.name!r} is {kinds.get(entry.type, 'neither file nor folder')}")
                target = sink.target(entry.name, entry.size, entry.isreg())
                stream.limit = stream.total + entry.size + _HEADERS
                if entry.isreg():
                    data = tar.extractfile(entry)
                    assert data is not None  # it is for what is no file
                    sink.copy(data, entry.name, entry.size, target)
            # tarfile takes a missing or damaged header for the end as well; that is a block of zeros.
            if stream.block(tar.offset) != bytes(tarfile.BLOCKSIZE):
                raise _Damaged("unexpected end")
        while stream.read(_CHUNK):  # the padding, behind which gzip has its checksum
            pass


def _read_zip(archive: Path, sink: _Sink) -> None:
    with zipfile.ZipFile(archive) as packed:
        for entry in packed.infolist():
            # Not `filename`, which is cut at a NUL.
            name = entry.orig_filename
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                sink.refuse(f"entry {name!r} is {'a symbolic link' if kind == stat.S_IFLNK else 'no plain file'}")
            target = sink.target(name, entry.file_size, not entry.is_dir())
            if entry.flag_bits & 1:
                raise _Damaged(f"{name} is locked with a password")
            if not entry.is_dir():
                with packed.open(entry) as data:
                    sink.copy(data, name, entry.file_size, target)


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.tmp")


def _damaged(archive: Path, error: Exception) -> UserError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return UserError(f"{archive}: is damaged or cut short ({reason}): fetch it again")


@contextlib.contextmanager
def _writing(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{target}: cannot be written ({error.strerror}): make room or check its folder") from None
