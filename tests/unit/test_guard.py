"""The lock of a run folder, and its log file."""

from __future__ import annotations

import json
import logging
import os
import platform
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import disk

from lnexp import guard
from lnexp.errors import UserError
from lnexp.guard import FolderLost, lock

DAY = 86_400.0


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Path]:
    """Leave the lock of another machine, touched so many seconds ago. Its beats are a thousand times as fast."""
    monkeypatch.setattr(guard, "BEAT_S", 0.1)

    def leave(ago_s: float) -> Path:
        path = tmp_path / ".lock"
        path.write_text(json.dumps({"pid": 4, "host": "elsewhere"}))
        os.utime(path, (time.time() - ago_s,) * 2)
        return path

    return leave


def test_a_lock_is_free_again_afterwards(tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        with lock(tmp_path, said.append) as held:
            held.check()
            assert json.loads((tmp_path / ".lock").read_text()) == {"pid": os.getpid(), "host": platform.node()}
            refused = f"in use by process {os.getpid()} on {platform.node()}; wait for it"
            with pytest.raises(UserError, match=refused), lock(tmp_path):
                pass
    assert said == [] == (tmp_path / ".lock").read_text().split()
    assert [p.name for p in tmp_path.iterdir()] == [".lock"]


def test_a_lock_taken_this_moment_is_named_when_it_is_signed(tmp_path: Path) -> None:
    import fcntl

    with open(tmp_path / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        signed = threading.Timer(0.2, lambda: (file.write('{"pid": 5, "host": "here"}'), file.flush()))
        signed.start()
        with pytest.raises(UserError, match="in use by process 5 on here"), lock(tmp_path):
            pass
        signed.join()


def test_a_lock_left_by_a_dead_process(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text(json.dumps({"pid": 4, "host": platform.node()}))
    said: list[str] = []
    with lock(tmp_path, said.append):
        pass
    assert said == [f"{tmp_path.name}: process 4 on {platform.node()} ended without a word; taking its lock over"]


@pytest.mark.parametrize("ago_s", [61, DAY, -61, -DAY])
def test_a_silent_lock_of_another_machine_is_taken_over(
    tmp_path: Path, foreign: Callable[[float], Path], ago_s: float
) -> None:
    """Also where it was touched in the future: a clock was set back since."""
    foreign(ago_s)
    said: list[str] = []
    with lock(tmp_path, said.append):
        pass
    assert said == [f"{tmp_path.name}: process 4 on elsewhere has been silent for {abs(ago_s):.0f} s; "
                    "taking its lock over"]  # fmt: skip


@pytest.mark.parametrize("ago_s", [0, 30, 58])
def test_a_fresh_lock_of_another_machine_is_respected(
    tmp_path: Path, foreign: Callable[[float], Path], ago_s: float
) -> None:
    path = foreign(ago_s)
    before = path.read_text()
    refused = r"in use by process 4 on elsewhere \(its last sign of life came \d+ s ago\)"
    with pytest.raises(UserError, match=refused), lock(tmp_path):
        pass
    assert path.read_text() == before


@pytest.mark.parametrize("jump_s", [DAY, -DAY])
def test_a_living_owner_survives_a_clock_that_was_set(
    tmp_path: Path, foreign: Callable[[float], Path], jump_s: float
) -> None:
    """It looks silent for a day, but touches its lock while one watches."""
    path = foreign(jump_s)
    over = threading.Event()
    with open(path, "a") as file:
        beat = threading.Thread(target=guard._beat, args=(file.fileno(), over))
        beat.start()
        with pytest.raises(UserError, match="in use by process 4 on elsewhere"), lock(tmp_path):
            pass
        over.set()
        beat.join()


@pytest.mark.parametrize("jump_s", [DAY, -DAY])
def test_python_s_clock_does_not_count(
    tmp_path: Path, foreign: Callable[[float], Path], monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    foreign(0)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump_s)
    with pytest.raises(UserError, match="in use by"), lock(tmp_path):
        pass
    foreign(61 + jump_s)  # 61 s by the file system
    with lock(tmp_path):
        before = (tmp_path / ".lock").stat().st_mtime_ns
        time.sleep(0.3)
        assert 0 < (tmp_path / ".lock").stat().st_mtime_ns - before < 1e9


def test_a_folder_that_is_gone_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with lock(folder) as held:
        shutil.rmtree(folder)
        with pytest.raises(FolderLost, match="run: deleted while this run was in it"):
            held.check()
    assert not folder.exists()


def test_a_new_folder_of_the_same_name_is_another_s(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with lock(folder) as held:
        shutil.rmtree(folder)
        folder.mkdir()
        with lock(folder) as other:
            with pytest.raises(FolderLost, match="run: deleted"):
                held.check()
            other.check()
    assert (folder / ".lock").read_text() == ""


def test_a_folder_taken_over_is_noticed(tmp_path: Path) -> None:
    """This process was asleep for a minute; one of another machine works there now."""
    with lock(tmp_path) as held:
        (tmp_path / ".lock").write_text(json.dumps({"pid": 4, "host": "elsewhere"}))
        with pytest.raises(FolderLost, match="another process has taken it over"):
            held.check()
        theirs = (tmp_path / ".lock").read_text()
    assert (tmp_path / ".lock").read_text() == theirs


def test_a_read_only_folder_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    refused = r"cannot be written \(Read-only file system\); "
    with disk.read_only(folder), pytest.raises(UserError, match=refused) as caught, lock(folder):
        pass
    assert "\n" not in str(caught.value) and not list(folder.iterdir())


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with disk.small(tmp_path / "disk") as small:
        disk.fill(small)
        refused = r"cannot be written \(No space left on device\); make room"
        with pytest.raises(UserError, match=refused), lock(small):
            pass


def test_a_log_that_cannot_be_written_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with disk.small(tmp_path / "disk") as small, guard.log_file(small):
        disk.fill(small)
        logging.getLogger("lnexp").error("a long story" * 1000)
    assert "Traceback" not in capsys.readouterr().err
