"""W&B with a server on loopback: what arrives there, and what happens when it is away, slow, or says no."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from fakes import wandb_desk as desk
from fakes.wandb_server import KEY, FakeWandb, Recorded

from lnexp.track import sink


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeWandb]:
    with (
        FakeWandb() as fake,
        desk.untouched(tmp_path / "home", WANDB_BASE_URL=fake.url, WANDB_API_KEY=KEY, WANDB_INIT_TIMEOUT="2"),
    ):
        yield fake


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
    assert [run.config["ablation"] for run in runs] == ["post-w200", "post-w0", "pre-w200", "pre-w0"]
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


@pytest.mark.parametrize("away", ["closed", "503"])
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
        mine = [line for line in said if f"wandb sync {tracker.where}" in line]
        assert "no run online" in mine[0]
    assert time.perf_counter() - start < 25  # the second run did not wait for the server again


@pytest.mark.parametrize("key", ["local-" + "x" * 40, "short"])
def test_a_bad_key(tmp_path: Path, server: FakeWandb, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", key)
    said: list[str] = []
    tracker = desk.open_in(tmp_path / "a", desk.a_run("online"), "a" * 8, said)
    _send(tracker, desk.rows(3))
    tracker.finish("done", [])
    assert not server.runs and "no run online" in said[0] and "wandb sync" in said[0]
    assert len(desk.history(desk.leet(tracker.where))) == 4


def test_a_server_that_says_503_for_a_while_loses_nothing(tmp_path: Path, server: FakeWandb) -> None:
    rows = desk.rows(200)
    said: list[str] = []
    tracker = desk.open_in(tmp_path / "a", desk.a_run("online"), "a" * 8, said)
    _send(tracker, rows[:50])
    while tracker.where is None:
        time.sleep(0.01)
    server.down()
    assert _send(tracker, rows[50:150]) < 1
    time.sleep(2)
    server.up()
    _send(tracker, rows[150:])
    tracker.finish("done", [])
    (run,) = server.runs.values()
    assert run.exit_code == 0 and _rows(run) == [desk.in_wandb_words(row) for row in rows]


def test_a_server_gone_at_the_end_and_what_sync_sends_later(
    tmp_path: Path, server: FakeWandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "FINISH_S", 2.0)
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
    assert "wandb sync --include-online " in said[-1]
    server.up()
    command = said[-1].partition("wandb sync ")[2].split()
    subprocess.run(
        [sys.executable, "-m", "wandb", "sync", "--yes", *command], check=True, timeout=60, capture_output=True
    )
    (run,) = server.runs.values()
    assert _rows(run) == [desk.in_wandb_words(row) for row in rows]


def test_offline_runs_are_sent_later_as_one(tmp_path: Path, server: FakeWandb) -> None:
    rows = desk.rows(40)
    folders = []
    for part in (rows[:25], rows[25:]):
        tracker = desk.open_in(tmp_path / "a", desk.a_run("offline"), "a" * 8, [])
        _send(tracker, part)
        tracker.finish("done", [])
        folders.append(tracker.where or "")
    command = [sys.executable, "-m", "wandb", "sync", "--yes", *folders]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    (run,) = server.runs.values()
    assert run.name == "post_ln-w200-s1-aaaaaaaa" and run.group == "demo" and run.exit_code == 0
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
    tracker.samples([("a", "b", "c")])
    _send(tracker, rows)
    tracker.finish("done", [])
    (run,) = server.runs.values()
    assert _rows(run) == [desk.in_wandb_words(row) for row in rows] and run.exit_code == 0
    assert sum("not all was taken" in line for line in said) == 1
