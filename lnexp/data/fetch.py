"""Published files by HTTP: resumed, checked, from the first mirror that gives the right one; whole or not there.

In: a `Remote` (name, mirrors, and size and checksum as far as they are known) and a folder. Out: folder/name.
Until it is whole and checked it is folder/<name>.part; <name>.part.from keeps the ETag or date of what that is a part
of. A run that was killed, or a line that broke, goes on from there. The caller sees to it that one process fetches.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import socket
import ssl
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError

from tqdm import tqdm

from lnexp.errors import UserError
from lnexp.files import write_text

Say = Callable[[str], None]

_CHUNK = 1 << 16
# Bytes after which a line that breaks counts as moving on, so that its tries are counted anew.
_PROGRESS = 1 << 20
# HTTP answers that may be others a little later; so may all from 500 on.
_MAY_PASS = {408, 425, 429}


@dataclass(frozen=True)
class Remote:
    """A file as its publisher offers it."""

    name: str
    urls: tuple[str, ...]  # mirrors, in the order in which they are tried
    size: int | None = None  # bytes, where known
    sha256: str | None = None
    md5: str | None = None  # looked at where there is no sha256


@dataclass(frozen=True)
class Waits:
    """Seconds; tests shorten them."""

    timeout_s: float = 30.0  # for the connection, and then without a byte
    backoff_s: tuple[float, ...] = (1.0, 4.0, 15.0)  # before each further try at one mirror
    log_every_s: float = 10.0


class _Failed(Exception):
    """Why a mirror did not give the file, and whether to try the same one again."""

    def __init__(self, reason: str, again: bool = False) -> None:
        super().__init__(" ".join(reason.split()))  # urllib has reasons of several lines
        self.again = again


def verify(path: Path, remote: Remote) -> None:
    """Compare size and checksum, as far as they are known."""
    try:
        fault = _mismatch(path, remote)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}): check what it is and its permissions") from None
    if fault:
        raise UserError(f"{path}: {fault}, so damaged or another file: delete it and fetch it again")


def fetch(remote: Remote, folder: Path, say: Say, waits: Waits = Waits()) -> Path:
    """Give folder/name, whole and checked; no server is asked when it is there already."""
    target = folder / remote.name
    if os.path.lexists(target):
        verify(target, remote)
        return target
    with _disk(folder, remote):
        folder.mkdir(parents=True, exist_ok=True)
        part = _Part(folder, remote)
        # A run may have been killed between the last byte and the rename.
        if remote.size is not None and part.size() >= remote.size and not part.publish():
            return target
    reasons = []
    for number, url in enumerate(remote.urls, 1):
        try:
            _from_mirror(url, part, say, waits)
            return target
        except _Failed as failure:
            reasons.append(f"{url}: {failure}")
            say(f"data: {reasons[-1]}" + ("; trying the next mirror" if number < len(remote.urls) else ""))
    size = f" ({remote.size:,} bytes)" if remote.size is not None else ""
    mend = f"put {remote.name}{size} into DIR and set data.local=DIR"
    raise UserError(f"{remote.name}: no mirror gives it ({'; '.join(reasons)}): try again later, or {mend}")


def _mismatch(path: Path, remote: Remote) -> str | None:
    """Say what is wrong with the file, or None."""
    size = path.stat().st_size
    if remote.size is not None and size != remote.size:
        return f"{size:,} bytes instead of {remote.size:,}"
    kind, expected = ("sha256", remote.sha256) if remote.sha256 else ("md5", remote.md5)
    if expected:
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, kind).hexdigest()
        if found != expected.lower():
            return f"{kind} {found} instead of {expected.lower()}"
    return None if size else "empty"


class _Part:
    """The file so far, and the validator by which a server knows whether it still has the same one."""

    def __init__(self, folder: Path, remote: Remote) -> None:
        self.folder, self.remote = folder, remote
        self._path = folder / f"{remote.name}.part"
        self._note = folder / f"{remote.name}.part.from"

    def size(self) -> int:
        return self._path.stat().st_size if self._path.is_file() else 0

    def validator(self) -> str:
        return self._note.read_text(encoding="utf-8", errors="replace") if self._note.is_file() else ""

    def open(self, start: int, validator: str) -> IO[bytes]:
        """Go on at byte `start`, or begin anew; a killed run never leaves a part with the note of another."""
        if not start:
            self.drop()
            self._path.touch()
            if validator:
                write_text(self._note, validator)
        file = open(self._path, "r+b")
        file.seek(start)
        return file

    def drop(self) -> None:
        self._note.unlink(missing_ok=True)
        self._path.unlink(missing_ok=True)

    def publish(self) -> str | None:
        """Take the final name if this is the right file, and be on the disk by then; else go, and say what is wrong."""
        fault = _mismatch(self._path, self.remote)
        if fault:
            self.drop()
            return fault
        with open(self._path, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(self._path, self.folder / self.remote.name)
        self._note.unlink(missing_ok=True)
        return None


def _from_mirror(url: str, part: _Part, say: Say, waits: Waits) -> None:
    """Try one mirror until the file is there or `_Failed` says why not."""
    tries, best = 0, part.size()
    while True:
        try:
            return _once(url, part, say, waits)
        except _Failed as failure:
            if part.size() >= best + _PROGRESS:
                tries, best = 0, part.size()
            if not failure.again or tries == len(waits.backoff_s):
                raise
            say(f"data: {url}: {failure}; trying again in {waits.backoff_s[tries]:g} s")
        time.sleep(waits.backoff_s[tries])
        tries += 1


def _once(url: str, part: _Part, say: Say, waits: Waits) -> None:
    """Ask once for what is missing, take what comes, and publish the file if it is whole."""
    request = urllib.request.Request(url, headers={"User-Agent": "lnexp"})
    offset = part.size() if part.validator() else 0
    if offset:
        request.add_header("Range", f"bytes={offset}-")
        request.add_header("If-Range", part.validator())
    try:
        with _opener().open(request, timeout=waits.timeout_s) as answer:
            start = _receive(answer, offset, part, say, waits)
    except HTTPError as error:
        error.close()
        if error.code != 416 or not offset:
            raise _Failed(f"{error.code} {error.reason}", error.code in _MAY_PASS or error.code >= 500) from None
        start = offset  # no byte is missing, or else the part is of something else
    except (OSError, HTTPException, ValueError) as error:
        raise _line_fault(error, waits) from None
    with _disk(part.folder, part.remote):
        fault = part.publish()
    if fault:  # after a resumption the part may be to blame, not the mirror
        raise _Failed(fault, again=start > 0)


def _opener() -> urllib.request.OpenerDirector:
    """Give what urllib offers for http and https; its own opener would follow a redirect to ftp as well."""
    lib = urllib.request
    opener = lib.OpenerDirector()
    for kind in (lib.ProxyHandler, lib.HTTPHandler, lib.HTTPSHandler, lib.HTTPRedirectHandler, lib.UnknownHandler):
        opener.add_handler(kind())
    opener.add_handler(lib.HTTPDefaultErrorHandler())
    opener.add_handler(lib.HTTPErrorProcessor())
    return opener


def _receive(answer: HTTPResponse, offset: int, part: _Part, say: Say, waits: Waits) -> int:
    """Write the body to the part; gives the byte at which it began."""
    remote = part.remote
    start, whole = _span(answer)
    if start != (offset if answer.status == 206 else 0):
        with _disk(part.folder, remote):
            part.drop()
        raise _Failed(f"answers {answer.status} with other bytes than those asked for", again=offset > 0)
    chunk = _read(answer, start, whole, waits)
    if answer.headers.get_content_type() == "text/html" or re.match(rb"\W*<(!doctype|html)", chunk, re.IGNORECASE):
        raise _Failed("a web page instead of the file (it has moved, or a login is asked for)")
    if whole is not None and remote.size not in (None, whole):
        raise _Failed(f"offers {whole:,} bytes instead of {remote.size:,}")
    most = whole if whole is not None else remote.size
    if offset and not start:
        say(f"data: {remote.name}: the server has another file by now, or cannot go on from the middle; starting anew")
    quiet = not sys.stderr.isatty()
    bar = tqdm(total=most, initial=start, desc=remote.name, unit="B", unit_scale=True, disable=quiet, leave=False)
    done, due = start, time.monotonic() + waits.log_every_s
    with _disk(part.folder, remote), bar:
        if most is not None and shutil.disk_usage(part.folder).free < most - max(start, part.size()):
            raise OSError(errno.ENOSPC, "")
        with part.open(start, _validator(answer)) as file:
            # A body without a length ends where the server closes; one that is too long shall not fill the disk.
            while chunk and (most is None or done <= most):
                file.write(chunk)
                done += len(chunk)
                bar.update(len(chunk))
                if quiet and time.monotonic() >= due:
                    due = time.monotonic() + waits.log_every_s
                    say(f"data: {remote.name}: {done / 1e6:,.1f}{f' of {most / 1e6:,.1f}' if most else ''} MB")
                chunk = _read(answer, done, whole, waits)
    if most is not None and done < most:
        raise _Failed(f"ended after {done:,} of {most:,} bytes", again=True)
    return start


def _read(answer: HTTPResponse, done: int, whole: int | None, waits: Waits) -> bytes:
    """Read what has come, and nothing after the last byte; faults of the line are OSErrors, like those of the disk."""
    try:
        return answer.read1(_CHUNK if whole is None else min(_CHUNK, whole - done))
    except (OSError, HTTPException) as error:
        raise _line_fault(error, waits) from None


def _span(answer: HTTPResponse) -> tuple[int, int | None]:
    """Give the first byte that the answer holds, and the length of the whole file where it is told."""
    length = answer.headers.get("Content-Length", "")
    if answer.status != 206:
        return 0 if answer.status == 200 else -1, int(length) if length.isdecimal() else None
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", answer.headers.get("Content-Range", "").strip())
    return (int(found[1]), None if found[2] == "*" else int(found[2])) if found else (-1, None)


def _validator(answer: HTTPResponse) -> str:
    """Give what If-Range may hold: a strong ETag, else the date of the last change, else nothing."""
    etag = answer.headers.get("ETag", "").strip()
    return etag if etag.startswith('"') else answer.headers.get("Last-Modified", "").strip()


def _line_fault(error: Any, waits: Waits) -> _Failed:
    """Put a fault of the line into words; refused connections and unknown hosts are not tried again at once."""
    if isinstance(error, URLError) and isinstance(error.reason, OSError):
        error = error.reason
    if isinstance(error, TimeoutError):
        return _Failed(f"no answer for {waits.timeout_s:g} s", again=True)
    if isinstance(error, socket.gaierror):
        return _Failed(f"unknown host ({error.strerror}; no network?)")
    if isinstance(error, ConnectionRefusedError | ssl.SSLCertVerificationError):
        return _Failed(str(error.strerror or error).lower())
    if isinstance(error, ConnectionError | ssl.SSLError | HTTPException):
        return _Failed(f"connection broken ({type(error).__name__})", again=True)
    return _Failed(str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error))


@contextlib.contextmanager
def _disk(folder: Path, remote: Remote) -> Iterator[None]:
    """Turn faults of the disk into a line that names the folder; what is there already stays, to go on from."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            need = f"{remote.size:,} bytes" if remote.size is not None else "more"
            fault = f"no room for {remote.name}, which needs {need}: free some"
        else:
            fault = f"{remote.name} cannot be written ({error.strerror or error}): check the folder and its permissions"
        raise UserError(f"{folder}: {fault}, or set paths.cache=DIR") from None
