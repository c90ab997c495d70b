"""W&B with a server on loopback: what arrives there, and what happens when it is away, slow, or says no."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from fakes import wandb_desk as desk
from fakes.wandb_server import FakeWandb, Recorded

from lnexp import rundir
from lnexp.cli import main
from lnexp.track import client, sink


def _rows(run: Recorded) -> list[dict[str, object]]:
    spelled = {"nan": "NaN", "inf": "Infinity"}
    lines = [line for line in run.history if "samples" not in line]
    return [{k: spelled.get(str(v), v) for k, v in line.items() if not k.startswith("_")} for line in lines]


def _send(tracker: sink.Sink, rows: list[dict[str, object]]) -> float:
    """Log the rows and give the longest that one of them took."""
    slowest = 0.0
    for row in rows:
        start = time.perf_counter()
        tracker.log(row)
        slowest = max(slowest, time.perf_counter() - start)
    return slowest


def test_a_sweep_with_a_failing_run(tmp_path: Path, server: FakeWandb, capfd: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    rows = desk.rows(60)
    for n, (norm, warmup) in enumerate([("post", 200), ("post", 0), ("pre", 200), ("pre", 0)]):
        tracker = desk.open_in(tmp_path / str(n), desk.a_run("auto", norm, warmup), f"{n}" * 8, said)
        _send(tracker, rows)
        tracker.samples([("ein Haus", "a house", "the house")])
        tracker.finish(["done", "diverged", "failed", "done"][n], desk.SCORES)
        assert tracker.where and tracker.where.startswith(server.url)
    runs = sorted(server.runs.values(), key=lambda run: run.config["run_id"])
    assert [run.name for run in runs] == [
        "post_ln-w200-s1-00000000", "post_ln-w0-s1-11111111", "pre_ln-w200-s1-22222222", "pre_ln-w0-s1-33333333",
    ]  # fmt: skip
    assert {run.group for run in runs} == {"demo"} and {run.project for run in runs} == {"lnexp"}
    assert [run.exit_code for run in runs] == [0, 0, 1, 0]
    assert [run.summary["state"] for run in runs] == ["done", "diverged", "failed", "done"]
    assert [run.tags for run in runs] == [
        ["demo", "cpu"],
        ["demo", "cpu", "diverged"],
        ["demo", "cpu"],
        ["demo", "cpu"],
    ]
    assert [run.config["ablation"] for run in runs] == [
        f"{kind}-lr0.001-adam" for kind in ("post-w200", "post-w0", "pre-w200", "pre-w0")
    ]
    assert [run.config["model"] for run in runs] == [{"norm": "post"}] * 2 + [{"norm": "pre"}] * 2
    for run in runs:
        assert _rows(run) == [desk.in_wandb_words(row) for row in rows]
        assert run.summary["final/test_sacrebleu"] == 31.5 and "samples" in run.summary
        assert "metadata" not in " ".join(run.files) and str(tmp_path) not in str(run.config)
    assert said == [f"W&B: {server.url}/me/lnexp/runs/{run.id}" for run in runs]
    out = capfd.readouterr()
    assert out.out == "" and out.err == "" and not list((tmp_path / "home").iterdir())


def test_a_resumed_run_goes_on_in_the_same_run(tmp_path: Path, server: FakeWandb) -> None:
    rows = desk.rows(40)
    for part, state in ((rows[:25], "interrupted"), (rows[25:], "done")):
        tracker = desk.open_in(tmp_path / "a", desk.a_run("online"), "a" * 8, [])
        _send(tracker, part)
        tracker.finish(state, [])
    (run,) = server.runs.values()
    assert run.resumes == 1 and run.exit_code == 0 and run.summary["state"] == "done"
    assert _rows(run) == [desk.in_wandb_words(row) for row in rows]
    assert [line["_step"] for line in run.history] == list(range(len(rows)))


@pytest.mark.parametrize("away", ["closed", pytest.param("503", marks=pytest.mark.slow)])
def test_no_server_at_the_start(tmp_path: Path, server: FakeWandb, away: str) -> None:
    server.die() if away == "closed" else server.down()
    said: list[str] = []
    start = time.perf_counter()
    rows = desk.rows(30)
    for name in "ab":
        tracker = desk.open_in(tmp_path / name, desk.a_run("auto"), name * 8, said)
        assert _send(tracker, rows) < 1
        tracker.finish("done", desk.SCORES)
        assert desk.history(desk.leet(tracker.where)) == [desk.in_wandb_words(row) for row in rows]
        mine = [line for line in said if f"lnexp sync {tmp_path / name}" in line]
        assert "no run online" in mine[0]
    assert time.perf_counter() - start < 25  # the second run did not wait for the server again


@pytest.mark.parametrize("key", ["local-" + "x" * 40, "short"])
def test_a_bad_key(tmp_path: Path, server: FakeWandb, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", key)
    said: list[str] = []
    tracker = desk.open_in(tmp_path / "a", desk.a_run("online"), "a" * 8, said)
    _send(tracker, desk.rows(3))
    tracker.finish("done", [])
    assert not server.runs and "no run online" in said[0] and "lnexp sync" in said[0]
    assert len(desk.history(desk.leet(tracker.where))) == 4


@pytest.mark.parametrize("seconds", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_a_server_that_says_503_for_a_while_loses_nothing(tmp_path: Path, server: FakeWandb, seconds: float) -> None:
    rows = desk.rows(200)
    said: list[str] = []
    tracker = desk.open_in(tmp_path / "a", desk.a_run("online"), "a" * 8, said)
    _send(tracker, rows[:50])
    while tracker.where is None:
        time.sleep(0.01)
    server.down()
    assert _send(tracker, rows[50:150]) < 1
    time.sleep(seconds)
    server.up()
    _send(tracker, rows[150:])
    tracker.finish("done", [])
    (run,) = server.runs.values()
    assert run.exit_code == 0 and _rows(run) == [desk.in_wandb_words(row) for row in rows]


def test_a_server_gone_at_the_end_and_what_sync_sends_later(
    tmp_path: Path, server: FakeWandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "FINISH_S", 2.0)
    rows = desk.rows(50)
    said: list[str] = []
    tracker = desk.open_in(tmp_path / "a", desk.a_run("online"), "a" * 8, said)
    _send(tracker, rows[:20])
    while tracker.where is None:
        time.sleep(0.01)
    server.down()
    _send(tracker, rows[20:])
    start = time.perf_counter()
    tracker.finish("done", desk.SCORES)
    assert time.perf_counter() - start < 10
    assert f"lnexp sync {tmp_path / 'a'}" in said[-1]
    server.up()
    desk.keep(tmp_path / "a", desk.a_run("online"), "done", desk.SCORES)
    assert main(["sync", str(tmp_path / "a")]) == 0
    (run,) = server.runs.values()
    assert _rows(run) == [desk.in_wandb_words(row) for row in rows] and run.exit_code == 0


def _wandb_sync(*folders: str | Path) -> None:
    command = [sys.executable, "-m", "wandb", "sync", "--yes", *map(str, folders)]
    subprocess.run(command, check=True, timeout=60, capture_output=True)


def test_an_offline_run_in_two_parts_is_sent_as_one(tmp_path: Path, server: FakeWandb) -> None:
    rows = desk.rows(40)
    for part in (rows[:25], rows[25:]):
        tracker = desk.open_in(tmp_path / "a", desk.a_run("offline"), "a" * 8, [])
        _send(tracker, part)
        tracker.finish("done", desk.SCORES)
    (folder,) = (tmp_path / "a" / "wandb").glob("offline-run-*")
    _wandb_sync(folder)
    (run,) = server.runs.values()
    assert run.name == "post_ln-w200-s1-aaaaaaaa" and run.group == "demo" and run.exit_code == 0
    assert _rows(run) == [desk.in_wandb_words(row) for row in rows]
    assert run.config["model"] == {"norm": "post"} and run.summary["final/test_sacrebleu"] == 31.5


def test_what_was_sent_between_two_parts_is_not_sent_again(tmp_path: Path, server: FakeWandb) -> None:
    rows = desk.rows(40)
    for part in (rows[:25], rows[25:]):
        tracker = desk.open_in(tmp_path / "a", desk.a_run("offline"), "a" * 8, [])
        _send(tracker, part)
        tracker.finish("done", [])
        _wandb_sync(*(tmp_path / "a" / "wandb").glob("offline-run-*"))
    (run,) = server.runs.values()
    assert _rows(run) == [desk.in_wandb_words(row) for row in rows]


def test_a_table_that_is_refused_costs_only_the_table(
    tmp_path: Path, server: FakeWandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    monkeypatch.setattr(wandb, "Table", lambda **_: 1 / 0)
    said: list[str] = []
    rows = desk.rows(5)
    tracker = desk.open_in(tmp_path / "a", desk.a_run("online"), "a" * 8, said)
    tracker.samples([("a", "b", "c")])
    _send(tracker, rows)
    tracker.finish("done", [])
    (run,) = server.runs.values()
    assert _rows(run) == [desk.in_wandb_words(row) for row in rows] and run.exit_code == 0
    assert sum("sample translations not taken" in line for line in said) == 1


@pytest.mark.parametrize("away", ["server", "offline"])
def test_rows_written_again_after_a_kill_stand_there_once(tmp_path: Path, server: FakeWandb, away: str) -> None:
    """kill -9 after row 30, the last checkpoint at row 20: training writes rows 20 to 29 a second time."""
    mode, rows = ("online" if away == "server" else "offline"), desk.rows(40)
    code = (
        "import os, sys, time; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "import wandb; wandb.setup(wandb.Settings(x_file_stream_transmit_interval=1))  # for 15 s\n"
        "from fakes import wandb_desk as desk\n"
        "tracker = desk.open_in(Path(sys.argv[2]), desk.a_run(sys.argv[3]), 'a' * 8, [])\n"
        "for row in desk.rows(40)[:30]: tracker.log(row)\n"
        "while not tracker.where: time.sleep(0.01)\n"
        "time.sleep(2.5); os.kill(os.getpid(), 9)\n"
    )
    folder = tmp_path / "a"
    killed = subprocess.run([sys.executable, "-c", code, str(Path(__file__).parents[1]), str(folder), mode], timeout=60)
    assert killed.returncode == -9
    before = [len(run.lines) for run in server.runs.values()]
    rundir.cut_rows(folder, rows[19]["updates"])
    said: list[str] = []
    tracker = desk.open_in(folder, desk.a_run(mode), "a" * 8, said)
    _send(tracker, rows[20:])
    tracker.finish("done", desk.SCORES)
    expected = [desk.in_wandb_words(row) for row in rows]
    if mode == "offline":
        (record,) = (folder / "wandb").glob("offline-run-*")
        assert desk.history(desk.leet(record)) == expected
        _wandb_sync(record)
    else:
        assert before[0] > 20
    (run,) = server.runs.values()
    assert _rows(run) == expected and run.exit_code == 0


@pytest.mark.parametrize("status", [400, 404, 409])
def test_rows_that_the_server_refuses_are_missed_and_sent_later(
    tmp_path: Path, server: FakeWandb, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """wandb itself ends as if all were well."""
    server.refuse_rows = status
    rows, said = desk.rows(9), []
    tracker = desk.open_in(desk.keep(tmp_path / "a-0", desk.a_run("online")), desk.a_run("online"), "0", said)
    _send(tracker, rows)
    with mock.patch.object(client, "SETTLE_S", 0.1):
        tracker.finish("done", [])
    assert f"the server has 0 of {len(rows)} rows" in said[-1] and "lnexp sync" in said[-1]
    server.refuse_rows = 0
    assert main(["sync", str(tmp_path / "a-0")]) == 0
    (run,) = server.runs.values()
    assert _rows(run) == [desk.in_wandb_words(row) for row in rows]


def test_a_slow_server_holds_up_no_row(tmp_path: Path, server: FakeWandb) -> None:
    server.delay_s = 0.2
    rows, start = desk.rows(100), time.perf_counter()
    tracker = desk.open_in(tmp_path / "a", desk.a_run("online"), "a" * 8, [])
    assert time.perf_counter() - start < 1
    assert _send(tracker, rows) < 1
    tracker.finish("done", [])
    (run,) = server.runs.values()
    assert _rows(run) == [desk.in_wandb_words(row) for row in rows] and run.exit_code == 0


def test_the_next_run_of_a_sweep_does_not_wait_for_a_server_that_failed_at_the_end(
    tmp_path: Path, server: FakeWandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "FINISH_S", 1.0)
    said: list[str] = []
    for name in "ab":
        tracker = desk.open_in(tmp_path / name, desk.a_run("auto"), name * 8, said)
        while tracker.where is None:
            time.sleep(0.01)
        server.down()
        _send(tracker, desk.rows(5))
        start = time.perf_counter()
        tracker.finish("done", [])
    assert time.perf_counter() - start < 2 and "offline-run" in (tracker.where or "")
    assert "as a moment ago: the server did not take everything" in " ".join(said)
