"""Fetching: whatever a server does, the file under its name is the right one or is not there."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.http_server import Reply, Server

from lnexp.data import fetch as fetching
from lnexp.data.fetch import Remote, Waits, fetch, verify
from lnexp.errors import UserError

BODY = random.Random(1).randbytes(300_000)
OTHER = BODY[:-1] + bytes([BODY[-1] ^ 1])
CUT = 100_000
GOOD = Reply(BODY)
FAST = Waits(timeout_s=0.3, backoff_s=(0.01, 0.02), log_every_s=60)
NAME = "file.tgz"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as running:
        yield running


@pytest.fixture
def remote(server: Server) -> Remote:
    return Remote(NAME, (server.url(),), len(BODY), hashlib.sha256(BODY).hexdigest())


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def get(remote: Remote, folder: Path) -> list[str]:
    """Fetch what must come, look that it is whole and alone, and give what was said."""
    said: list[str] = []
    assert fetch(remote, folder, said.append, FAST) == folder / NAME
    assert (folder / NAME).read_bytes() == BODY
    assert names(folder) == {NAME}
    return said


def fail(remote: Remote, folder: Path) -> str:
    """Fetch what must not come: one line, and nothing under the file's name."""
    with pytest.raises(UserError) as caught:
        fetch(remote, folder, lambda _: None, FAST)
    assert not (folder / NAME).exists()
    message = str(caught.value)
    assert "\n" not in message
    return message


def begin(server: Server, remote: Remote, folder: Path, **more: Any) -> None:
    """Leave a part of CUT bytes behind, as a run that is killed does."""
    server.replies["/file.tgz"] = [Reply(BODY, stop_after=CUT, **more)]
    once = dataclasses.replace(FAST, backoff_s=())
    with pytest.raises(UserError, match=f"ended after {CUT:,} of {len(BODY):,} bytes"):
        fetch(remote, folder, lambda _: None, once)
    assert (folder / f"{NAME}.part").read_bytes() == BODY[:CUT]
    server.asked.clear()


def test_fetched_once(server: Server, remote: Remote, tmp_path: Path) -> None:
    server.replies["/file.tgz"] = [GOOD]
    folder = tmp_path / "new" / "folder"
    get(remote, folder)
    get(remote, folder)
    assert len(server.asked) == 1
    assert server.asked[0][1]["User-Agent"] == "lnexp"


@pytest.mark.parametrize("known", [{}, {"sha256": None}, {"size": None}, {"size": None, "sha256": None}])
@pytest.mark.parametrize("length", [True, False])
def test_whatever_is_known(
    server: Server, remote: Remote, tmp_path: Path, known: dict[str, None], length: bool
) -> None:
    server.replies["/file.tgz"] = [dataclasses.replace(GOOD, length=length)]
    get(dataclasses.replace(remote, **known), tmp_path / "x")  # type: ignore[arg-type]


def test_what_is_there_is_verified_not_fetched(server: Server, remote: Remote, tmp_path: Path) -> None:
    server.replies["/file.tgz"] = [GOOD]
    for raw, words in ((BODY[:-1], "299,999 bytes instead of 300,000"), (OTHER, "sha256 ")):
        (tmp_path / NAME).write_bytes(raw)
        with pytest.raises(UserError) as caught:
            fetch(remote, tmp_path, lambda _: None, FAST)
        assert str(caught.value).startswith(f"{tmp_path / NAME}: {words}") and "delete it" in str(caught.value)
        assert (tmp_path / NAME).read_bytes() == raw
    assert server.asked == []


def test_verify(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(b"abc")
    md5, sha256 = hashlib.md5(b"abc").hexdigest(), hashlib.sha256(b"abc").hexdigest()
    for right in ({}, {"md5": md5.upper()}, {"sha256": sha256}, {"sha256": sha256, "md5": md5}, {"size": 3}):
        verify(path, Remote(NAME, (), **right))  # type: ignore[arg-type]
    for kind, found, wrong in (("md5", md5, "0" * 32), ("sha256", sha256, "0" * 64)):
        with pytest.raises(UserError, match=f"{kind} {found} instead of {wrong}"):
            verify(path, Remote(NAME, (), 3, **{kind: wrong}))
    path.write_bytes(b"")
    with pytest.raises(UserError, match="empty"):
        verify(path, Remote(NAME, ()))
    path.unlink()
    path.symlink_to(tmp_path / "gone")  # a link to nowhere is there, too: it is not written through
    with pytest.raises(UserError, match="cannot be read"):
        fetch(Remote(NAME, ()), tmp_path, lambda _: None)


PASSING = {
    "500": Reply(status=500),
    "503": Reply(status=503),
    "429": Reply(status=429),
    "short": Reply(BODY, stop_after=CUT),
    "short, no length": Reply(BODY, stop_after=CUT, length=False),
    "reset": Reply(BODY, stop_after=CUT, then="reset"),
    "nothing": Reply(BODY, stop_after=0),
    "stalled": Reply(BODY, stop_after=CUT, then="stall"),
    "stalled at once": Reply(BODY, stop_after=0, then="stall"),
}


@pytest.mark.parametrize("kind", PASSING)
def test_passing_troubles(server: Server, remote: Remote, tmp_path: Path, kind: str) -> None:
    server.replies["/file.tgz"] = [PASSING[kind], PASSING[kind], GOOD]
    said = get(remote, tmp_path)
    assert [line.rpartition(";")[2] for line in said] == [" trying again in 0.01 s", " trying again in 0.02 s"]
    assert all(line.startswith(f"data: {server.url()}: ") for line in said)
    assert ("no answer for 0.3 s" in said[0]) == kind.startswith("stalled")
    # What had come was not asked for again.
    resumed = f"bytes={CUT}-" if PASSING[kind].stop_after == CUT and kind != "reset" else None
    assert kind == "reset" or server.ranges() == [None, resumed, f"bytes={2 * CUT}-" if resumed else None]


def test_tries_are_counted(server: Server, remote: Remote, tmp_path: Path) -> None:
    server.replies["/file.tgz"] = [Reply(status=502)]
    begin_s = time.monotonic()
    assert f"{server.url()}: 502 Bad Gateway" in fail(remote, tmp_path)
    assert len(server.asked) == 3 and time.monotonic() - begin_s >= 0.03


def test_a_line_that_moves_on_is_not_given_up(
    server: Server, remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.replies["/file.tgz"] = [Reply(BODY, stop_after=40_000)]
    with monkeypatch.context() as patch:
        patch.setattr(fetching, "_PROGRESS", 40_000)
        get(remote, tmp_path / "a")
    assert len(server.asked) == 8
    # But not for ever: where nothing can be resumed, the same bytes do not count twice.
    server.replies["/file.tgz"] = [Reply(BODY, stop_after=40_000, etag="")]
    monkeypatch.setattr(fetching, "_PROGRESS", 40_000)
    server.asked.clear()
    assert "ended after 40,000 of 300,000 bytes" in fail(remote, tmp_path / "b")
    assert len(server.asked) == 3


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_lasting_troubles_go_to_the_next_mirror(server: Server, remote: Remote, tmp_path: Path, status: int) -> None:
    server.replies = {"/gone": [Reply(status=status)], "/file.tgz": [GOOD]}
    said = get(dataclasses.replace(remote, urls=(server.url("/gone"), server.url())), tmp_path)
    assert len(said) == 1 and said[0].endswith("trying the next mirror")
    assert said[0].startswith(f"data: {server.url('/gone')}: {status} ")
    assert [path for path, _ in server.asked] == ["/gone", "/file.tgz"]


WRONG = {
    "other bytes": (Reply(OTHER), "sha256 "),
    "too short": (Reply(BODY[:CUT]), "offers 100,000 bytes instead of 300,000"),
    "too long": (Reply(BODY + b"x"), "offers 300,001 bytes instead of 300,000"),
    "too long, no length": (Reply(BODY * 9, length=False), "bytes instead of 300,000"),
    "empty": (Reply(b""), "offers 0 bytes"),
    "page": (Reply(b"<p>buy this domain", kind="text/html; charset=utf-8"), "a web page instead of the file"),
    "page in disguise": (Reply(b"\xef\xbb\xbf\n<!DOCTYPE html>", kind=""), "a web page instead of the"),
    "no content": (Reply(status=204), "answers 204"),
    "unasked range": (Reply(BODY, 206, headers={"Content-Range": "bytes 5-9/300000"}), "answers 206"),
    "redirect away": (Reply(status=302, location="ftp://127.0.0.1/x"), "ftp"),
    "redirect to a file": (Reply(status=302, location="file:///etc/passwd"), "302"),
    "redirect in a circle": (Reply(status=302, location="/wrong"), "302"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_files_go_to_the_next_mirror(server: Server, remote: Remote, tmp_path: Path, kind: str) -> None:
    reply, words = WRONG[kind]
    server.replies = {"/wrong": [reply], "/file.tgz": [GOOD]}
    alone = dataclasses.replace(remote, urls=(server.url("/wrong"),))
    message = fail(alone, tmp_path)
    assert f"{server.url('/wrong')}: " in message and words in message
    said = get(dataclasses.replace(remote, urls=(server.url("/wrong"), server.url())), tmp_path)
    assert len(said) == 1 and words in said[0] and said[0].endswith("trying the next mirror")


def test_too_long_a_file_is_not_read_to_its_end(server: Server, remote: Remote, tmp_path: Path) -> None:
    server.replies["/file.tgz"] = [Reply(BODY * 100, length=False)]
    found = fail(remote, tmp_path).partition(" bytes instead of")[0].rpartition(" ")[2]
    assert 300_000 < int(found.replace(",", "")) < 400_000


def test_all_mirrors_dead(server: Server, remote: Remote, tmp_path: Path) -> None:
    with Server() as other:
        refused = other.url()
    urls = (server.url("/a"), refused, "http://no-such-host.invalid/x", "file:///etc/hostname", "ftp://127.0.0.1/x")
    message = fail(dataclasses.replace(remote, urls=urls), tmp_path)
    assert message.startswith(f"{NAME}: no mirror gives it ({urls[0]}: 404 Not Found; {refused}: connection refused; ")
    assert f"{urls[2]}: unknown host" in message
    assert f"{urls[3]}: unknown url type: file; {urls[4]}: unknown url type: ftp" in message
    assert message.endswith(f"put {NAME} (300,000 bytes) into DIR and set data.local=DIR")
    assert len(server.asked) == 1 and names(tmp_path) == set()


def test_redirects(server: Server, remote: Remote, tmp_path: Path) -> None:
    begin(server, remote, tmp_path)
    server.replies = {"/old": [Reply(status=301, location=server.url("/file.tgz"))], "/file.tgz": [GOOD]}
    get(dataclasses.replace(remote, urls=(server.url("/old"),)), tmp_path)
    assert server.ranges() == [f"bytes={CUT}-"] * 2


@pytest.mark.parametrize("by", [{}, {"etag": "", "modified": "Mon, 01 Dec 2014 10:00:00 GMT"}])
def test_resumed(server: Server, remote: Remote, tmp_path: Path, by: dict[str, str]) -> None:
    begin(server, remote, tmp_path, **by)
    server.replies["/file.tgz"] = [Reply(BODY, **by)]  # type: ignore[arg-type]
    assert get(remote, tmp_path) == []
    assert server.ranges() == [f"bytes={CUT}-"]
    assert server.asked[0][1]["If-Range"] == (by.get("modified") or '"one"')


@pytest.mark.parametrize("weak", ["", 'W/"one"'])
def test_not_resumed_without_a_validator(server: Server, remote: Remote, tmp_path: Path, weak: str) -> None:
    begin(server, remote, tmp_path, etag=weak)
    server.replies["/file.tgz"] = [GOOD]
    get(remote, tmp_path)
    assert server.ranges() == [None]


ANEW = {
    "the server cannot resume": Reply(BODY, ranges=False),
    "another file by now": Reply(BODY, etag='"two"'),
    "another file, no length": Reply(BODY, etag='"two"', length=False),
}


@pytest.mark.parametrize("kind", ANEW)
def test_started_anew(server: Server, remote: Remote, tmp_path: Path, kind: str) -> None:
    begin(server, remote, tmp_path)
    (tmp_path / f"{NAME}.part").write_bytes(OTHER[-CUT:])  # would spoil the file if it were kept
    server.replies["/file.tgz"] = [ANEW[kind]]
    said = get(remote, tmp_path)
    assert len(said) == 1 and "starting anew" in said[0] and len(server.asked) == 1


def test_changed_between_two_parts(server: Server, remote: Remote, tmp_path: Path) -> None:
    server.replies["/file.tgz"] = [
        Reply(OTHER, stop_after=CUT),
        Reply(BODY, etag='"two"', stop_after=2 * CUT),
        Reply(BODY, etag='"two"'),
    ]
    get(remote, tmp_path)
    assert [headers["If-Range"] for _, headers in server.asked] == [None, '"one"', '"two"']
    assert server.ranges() == [None, f"bytes={CUT}-", f"bytes={2 * CUT}-"]


def test_a_spoilt_part_is_fetched_anew_from_the_same_mirror(server: Server, remote: Remote, tmp_path: Path) -> None:
    begin(server, remote, tmp_path)
    (tmp_path / f"{NAME}.part").write_bytes(bytes(CUT))
    server.replies["/file.tgz"] = [GOOD]
    said = get(remote, tmp_path)
    assert len(said) == 1 and "sha256" in said[0] and server.ranges() == [f"bytes={CUT}-", None]


def test_another_range_than_asked_for(server: Server, remote: Remote, tmp_path: Path) -> None:
    begin(server, remote, tmp_path)
    for wrong in ("bytes 5-299999/300000", "bytes 0-299999/300000", "nonsense", ""):
        (tmp_path / NAME).unlink(missing_ok=True)
        (tmp_path / f"{NAME}.part").write_bytes(BODY[:CUT])
        (tmp_path / f"{NAME}.part.from").write_text('"one"')
        server.replies["/file.tgz"] = [Reply(BODY, headers={"Content-Range": wrong}), GOOD]
        server.asked.clear()
        get(remote, tmp_path)
        assert server.ranges() == [f"bytes={CUT}-", None]


def test_killed_before_the_rename(server: Server, remote: Remote, tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(BODY)
    (tmp_path / f"{NAME}.part.from").write_text('"one"')
    get(remote, tmp_path)
    assert server.asked == []


@pytest.mark.parametrize("part", [OTHER, BODY + b"x"])
def test_a_whole_but_wrong_part(server: Server, remote: Remote, tmp_path: Path, part: bytes) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(part)
    (tmp_path / f"{NAME}.part.from").write_text('"one"')
    server.replies["/file.tgz"] = [GOOD]
    get(remote, tmp_path)
    assert server.ranges() == [None]


@pytest.mark.parametrize(("part", "requests"), [(BODY, 1), (OTHER, 2), (BODY + b"x", 2)])
def test_range_not_satisfiable(server: Server, remote: Remote, tmp_path: Path, part: bytes, requests: int) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(part)
    (tmp_path / f"{NAME}.part.from").write_text('"one"')
    server.replies["/file.tgz"] = [GOOD]
    get(dataclasses.replace(remote, size=None), tmp_path)
    assert server.ranges() == [f"bytes={len(part)}-", None][:requests]


def test_no_room_is_seen_beforehand(
    server: Server, remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(server, remote, tmp_path)
    server.replies["/file.tgz"] = [GOOD]
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=len(BODY) - CUT - 1))
    message = fail(remote, tmp_path)
    assert message.startswith(f"{tmp_path}: no room for {NAME}, which needs 300,000 bytes")
    assert (tmp_path / f"{NAME}.part").read_bytes() == BODY[:CUT]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=len(BODY) - CUT))
    get(remote, tmp_path)


class FullDisk:
    """A file that takes the first bytes only."""

    def __init__(self, file: Any, fault: OSError) -> None:
        self._file, self._fault = file, fault

    def __enter__(self) -> FullDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, raw: bytes) -> None:
        if self._file.tell() > CUT:
            raise self._fault
        self._file.write(raw)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "no room for file.tgz, which needs 300,000 bytes"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "no room for file.tgz, which needs 300,000 bytes"),
        (OSError(errno.EIO, "Input/output error"), "file.tgz cannot be written (Input/output error)"),
    ],
)
def test_disk_full(
    server: Server, remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: OSError, words: str
) -> None:
    server.replies = {"/file.tgz": [GOOD], "/next": [GOOD]}
    real = fetching._Part.open
    both = dataclasses.replace(remote, urls=(server.url(), server.url("/next")))
    with monkeypatch.context() as patch:
        patch.setattr(fetching._Part, "open", lambda *arguments: FullDisk(real(*arguments), fault))
        message = fail(both, tmp_path)
    assert message.startswith(f"{tmp_path}: {words}") and "paths.cache=DIR" in message
    assert len(server.asked) == 1  # it is not the mirror's fault
    get(both, tmp_path)
    (resumed,) = server.ranges()[1:]
    assert resumed is not None and int(resumed[6:-1]) > CUT  # what was there was made use of


def test_folder_that_cannot_be_made(server: Server, remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        fetch(remote, tmp_path / "file" / "folder", lambda _: None, FAST)
    assert server.asked == []


@pytest.mark.parametrize("every_s", [0.0, 60.0])
def test_lines_in_a_log(server: Server, remote: Remote, tmp_path: Path, every_s: float) -> None:
    server.replies["/file.tgz"] = [GOOD]
    said: list[str] = []
    fetch(remote, tmp_path, said.append, dataclasses.replace(FAST, log_every_s=every_s))
    assert (len(said) > 1 and said[-1] == f"data: {NAME}: 0.3 of 0.3 MB") if every_s == 0 else said == []


def test_bar_on_a_terminal(
    server: Server, remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.replies["/file.tgz"] = [GOOD]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    said: list[str] = []
    fetch(remote, tmp_path, said.append, dataclasses.replace(FAST, log_every_s=0))
    assert said == [] and NAME in capsys.readouterr().err


def test_interrupted_runs_go_on(server: Server, remote: Remote, tmp_path: Path) -> None:
    """A run killed at any chunk leaves a part that the next one can use, and never the file's name."""
    server.replies["/file.tgz"] = [GOOD]
    for tick in range(3):
        with pytest.raises(KeyboardInterrupt):
            fetch(remote, tmp_path, interrupt_after(0), dataclasses.replace(FAST, log_every_s=0))
        assert names(tmp_path) == {f"{NAME}.part", f"{NAME}.part.from"}, tick
    get(remote, tmp_path)
    starts = [int(asked[6:-1]) for asked in server.ranges()[1:] if asked]
    assert len(starts) == 3 and 0 < starts[0] < starts[1] < starts[2] < len(BODY)


def interrupt_after(lines: int) -> Callable[[str], None]:
    left = [lines]

    def say(_: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    return say
