"""`lnexp status`: what is read of a run, who holds its lock, how long it still takes, the screen that follows it."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "golden"))
import fake_outputs as fake

from lnexp import guard, rundir
from lnexp.cli import main
from lnexp.report import live, status, table
from lnexp.report.collect import collect
from lnexp.report.status import Standing, standings

HOLD = "import sys, time; from pathlib import Path; from lnexp.guard import lock\n"
HOLD += "with lock(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)\n"


def running(folder: Path, updates: int = 600, rows: list[rundir.Row] | None = None, **settings: object) -> Path:
    metrics = fake.rows("pre", 200, 1, updates) if rows is None else rows
    return fake.write_run(folder, fake.run("pre", 200, 1, **settings), "running", updates, metrics=metrics)


def ends(folder: Path, state: str = "done") -> None:
    """Let it come to its end as training does: last validation and scores are there before the state."""
    with open(folder / "metrics.jsonl", "a") as file:
        last = {"split": "valid", "updates": 1200, "epoch": 2.6, "wall_s": 250.0, "loss_bits": 4.7, "bleu": 30.0}
        file.write(json.dumps(last) + "\n")
    rundir.write_json(folder / "scores.json", [fake.score(30.0)])
    rundir.write_status(folder, state, 1200, 252.0)


def one(folder: Path) -> Standing:
    (run,) = standings(folder)
    return run


# ---- the lock ----
def test_a_lock_is_seen_and_left_as_it_is(tmp_path: Path) -> None:
    assert not live.held(tmp_path) and list(tmp_path.iterdir()) == []
    with guard.lock(tmp_path):
        content = (tmp_path / ".lock").read_text()
        assert live.held(tmp_path)
        assert (tmp_path / ".lock").read_text() == content
    before = (tmp_path / ".lock").stat().st_mtime_ns
    assert not live.held(tmp_path)
    assert (tmp_path / ".lock").stat().st_mtime_ns == before
    with guard.lock(tmp_path):  # asking did not leave it held
        pass


@pytest.mark.parametrize(
    ("content", "silent_s", "held"),
    [
        ("", 0, False),
        ('{"pid": 1, "host": "elsewhere"}', 5, True),
        ('{"pid": 1, "host": "elsewhere"}', live.STALE_S + 5, False),
        (json.dumps({"pid": 1, "host": os.uname().nodename}), 5, False),
        ("{", 5, True),
        ("{", live.STALE_S + 5, False),
        ("[1]", 5, False),
        ("\udcff", 5, True),
    ],
)
def test_an_owner_on_another_machine_lives_while_it_touches_its_lock(
    tmp_path: Path, content: str, silent_s: float, held: bool
) -> None:
    lock = tmp_path / ".lock"
    lock.write_bytes(content.encode(errors="surrogateescape"))
    os.utime(lock, (time.time() - silent_s,) * 2)
    assert live.held(tmp_path) is held


def test_a_lock_that_is_a_link_cannot_be_told(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "other")
    assert live.held(tmp_path) and not (tmp_path / "other").exists()


def test_a_killed_run_is_cut_and_a_living_one_runs(tmp_path: Path) -> None:
    folder = running(tmp_path / "s" / "a")
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout and process.stdout.readline() == "held\n"
        assert "s: 1 found: 1 running\n" in status.status(tmp_path / "s")
    finally:
        process.kill()
        process.wait()
    before = sorted((p, p.stat().st_mtime_ns) for p in folder.rglob("*"))
    text = status.status(tmp_path / "s")
    assert "s: 1 found: 1 cut\n" in text
    assert "a: killed at update 600; the same command goes on\n" in text
    assert sorted((p, p.stat().st_mtime_ns) for p in folder.rglob("*")) == before


def test_a_run_that_ends_while_it_is_read_is_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = running(tmp_path / "a")

    def held(_: Path) -> bool:
        ends(folder)
        return False

    monkeypatch.setattr(live, "held", held)
    assert (one(folder).state, one(folder).updates) == ("done", 1200)


# ---- rows ----
def test_only_the_end_of_a_long_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"split": "train", "updates": u, "wall_s": u / 4, "loss_bits": 5.0} for u in range(1, 50_001)]
    running(tmp_path / "a", 50_000, [{"split": "valid", "updates": 0, "loss_bits": 9.5, "bleu": 0.5}, *rows])
    parsed: list[object] = []
    loads = json.loads
    monkeypatch.setattr(live.json, "loads", lambda text: parsed.append(text) or loads(text))
    recent = live.recent(tmp_path / "a")
    assert len(recent.rows) < 150 and recent.rows[-1] == rows[-1] and not recent.whole
    assert recent.valid["loss_bits"] == 9.5  # however long ago
    assert recent.updates_per_s() == pytest.approx(4.0)
    assert len(parsed) < 150


def test_a_long_row_of_a_probe_does_not_hide_the_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[rundir.Row] = [{"split": "train", "updates": u, "wall_s": u / 4, "loss_bits": 5.0} for u in range(2000)]
    probe = {"split": "probe", "updates": 2000, "grad": {f"decoder.layers.{i}.fc2": 1.0 for i in range(500)}}
    running(tmp_path / "a", 2000, [*rows, probe])
    assert len(json.dumps(probe)) > live.TAIL
    assert live.recent(tmp_path / "a").updates_per_s() == pytest.approx(4.0)
    monkeypatch.setattr(live, "LONG_TAIL", 10**9)  # not read where the short tail tells the speed
    running(tmp_path / "b", 2000, rows)
    assert not live.recent(tmp_path / "b").whole


@pytest.mark.parametrize("size", [live.TAIL - 1, live.TAIL, live.TAIL + 1, 2 * live.TAIL])
def test_rows_at_the_edge_of_what_is_read(tmp_path: Path, size: int) -> None:
    first = json.dumps({"split": "valid", "updates": 1, "loss_bits": 1.5}) + "\n"
    last = json.dumps({"split": "train", "updates": 2}) + "\n"
    filler = json.dumps({"split": "train", "updates": 1, "x": ""}) + "\n"
    filler = filler.replace('""', '"' + "y" * (size - len(first + filler + last)) + '"')
    (tmp_path / "metrics.jsonl").write_text(first + filler + last)
    recent = live.recent(tmp_path)
    assert (recent.last["updates"], recent.valid["loss_bits"]) == (2, 1.5)


def test_no_rows_a_torn_row_and_rows_without_updates(tmp_path: Path) -> None:
    assert live.recent(tmp_path) == live.Recent()
    file = tmp_path / "metrics.jsonl"
    file.touch()
    assert live.recent(tmp_path).last == {}
    file.write_text('{"split": "train", "updates": 7}\n{"split": "train"}\n{"split": "train", "upd')
    assert live.recent(tmp_path).last == {"split": "train", "updates": 7}


@pytest.mark.parametrize("line", ["{", "17", '"text"', '[{"a": 1}]', "", "\xff"])
def test_a_line_that_is_no_row_makes_the_run_damaged(tmp_path: Path, line: str) -> None:
    folder = running(tmp_path / "a")
    with open(folder / "metrics.jsonl", "ab") as file:
        file.write(line.encode("latin-1") + b"\n")
    run = one(folder)
    assert run.state == "damaged"
    assert str(run.reason).startswith(f"{folder}/metrics.jsonl, line ")
    assert "\n" not in str(run.reason) and "1 damaged" in status.status(folder)


def test_of_a_very_long_log_damage_at_the_end_is_seen(tmp_path: Path) -> None:
    folder = running(tmp_path / "a")
    row = json.dumps({"split": "train", "updates": 5, "wall_s": 1.0}) + "\n"
    (folder / "metrics.jsonl").write_text(row * (status.WHOLE // len(row) + 1) + "{\n")
    run = one(folder)
    assert run.state == "damaged"
    assert str(run.reason).startswith(f"{folder}/metrics.jsonl: cannot be read as rows of JSON (")


def test_the_table_reads_the_validations_alone_and_gives_the_same(tmp_path: Path) -> None:
    running(tmp_path / "s" / "a")
    few, all_ = collect(tmp_path / "s")[0], collect(tmp_path / "s")[0].forgive()
    assert few.series("valid", "loss_bits") == all_.series("valid", "loss_bits") != []
    assert "rows" not in vars(few)
    assert table.best_valid_loss(few) == table.best_valid_loss(all_)


# ---- speed and time left ----
def rows(*points: tuple[int, float]) -> list[rundir.Row]:
    return [{"split": "train", "updates": u, "wall_s": s} for u, s in points]


@pytest.mark.parametrize(
    ("found", "whole", "speed"),
    [
        ([], True, None),
        (rows((100, 50.0)), True, 2.0),
        (rows((100, 50.0)), False, None),
        (rows((1100, 550.0), (1200, 650.0), (1300, 750.0)), False, 1.0),
        (rows((100, 50.0), (100, 60.0)), False, None),
        (rows((100, 50.0), (200, 50.0)), False, None),
        (rows((100, 50.0), (200, float("nan"))), True, 2.0),
    ],
)
def test_speed(found: list[rundir.Row], whole: bool, speed: float | None) -> None:
    assert live.Recent(found, {}, whole).updates_per_s() == speed


@pytest.mark.parametrize(
    ("settings", "bound", "left_s"),
    [
        ({}, 1200, 300.0),
        ({"max_updates": 0}, None, None),
        ({"max_updates": 0, "max_epochs": 3}, 900, 150.0),  # 300 updates an epoch
        ({"max_epochs": 3}, 900, 150.0),
        ({"max_epochs": 9}, 1200, 300.0),
        ({"max_wall_s": 400.0}, 1200, 100.0),
        ({"max_wall_s": 4000.0}, 1200, 300.0),
        ({"max_updates": 0, "max_wall_s": 400.0}, None, None),
        ({"max_updates": 500}, 500, 0.0),
    ],
    ids=str,
)
def test_time_left(tmp_path: Path, settings: dict[str, object], bound: int | None, left_s: float | None) -> None:
    folder = running(tmp_path / "a", 600, rows((300, 150.0), (600, 300.0)), **settings)
    with guard.lock(folder):
        run = one(folder)
    assert (run.state, run.updates, run.wall_s) == ("running", 600, 300.0)
    assert (run.bound, run.left_s) == (bound, left_s)
    assert one(folder).left_s is None  # cut: nothing runs


def test_nothing_is_known_of_an_epoch_before_it_has_a_length(tmp_path: Path) -> None:
    folder = running(tmp_path / "a", max_updates=0, max_epochs=3)
    (folder / "env.json").unlink()
    assert one(folder).bound is None
    assert "  600  " in status.status(folder)


# ---- text, JSON, disk ----
def test_disk_counts_a_file_once_and_follows_no_link(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "wandb" / "files").mkdir(parents=True)
    (run / "checkpoints" / "last.pt").write_bytes(b"x" * 1000)
    (run / "checkpoints" / "same.pt").hardlink_to(run / "checkpoints" / "last.pt")
    (run / "wandb" / "files" / "log").write_bytes(b"x" * 50)
    (tmp_path / "big").write_bytes(b"x" * 9000)
    (run / "link").symlink_to(tmp_path)
    length = (run / "link").lstat().st_size
    assert live.disk(run) == (1050 + length, 1000)
    assert live.disk(tmp_path / "nosuch") == (0, 0)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0.0 MB"), (38_190_000, "38.2 MB"), (999_900_000, "999.9 MB"), (999_960_000, "1.0 GB"), (2**31, "2.1 GB")],
)
def test_size(count: int, text: str) -> None:
    assert live.size(count) == text


def test_json_is_the_same_as_data(tmp_path: Path) -> None:
    sweep = fake.write_demo(tmp_path / "outputs")
    content = json.loads(status.data("demo", tmp_path / "outputs"))
    assert content["wanted"] == 8 and content["counts"] | {"done": 6, "diverged": 1, "missing": 1} == content["counts"]
    assert sum(content["counts"].values()) == len(content["runs"]) == 8
    assert content["disk"]["checkpoint_bytes"] == 7 * 3 * 38_190_000
    assert content["runs"][1] == {
        "name": "post_ln-warmup0-02c0ffee", "folder": str(sweep / "post_ln-warmup0-02c0ffee"), "state": "diverged",
        "updates": 900, "bound": 1200, "valid_loss_bits": "nan", "valid_bleu": 0.92, "wall_s": 189.0, "left_s": None,
        "reason": "gradient norm not finite at update 851",
    }  # fmt: skip


def test_what_was_only_probed_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is not waited for, unless a sweep asks for its training."""
    folder = running(tmp_path / "s" / "a")
    (folder / "status.json").unlink()
    (folder / "metrics.jsonl").unlink()
    assert one(tmp_path / "s").state == "missing"
    (folder / "probe.json").write_text("[]")
    assert one(tmp_path / "s").state == "probed" and one(tmp_path / "s").reason is None
    text = status.status(tmp_path / "s")
    assert "s: 1 found: 1 probed\n" in text and "probed        –           –" in text
    assert "1 run (1 probed)" in table.render(collect(tmp_path / "s"))
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    status.watch(tmp_path / "s", out=Terminal())
    assert waited == []
    (tmp_path / "s" / "sweep.json").write_text('{"sweep": "s", "wanted": [{"folder": "a", "overrides": ["seed=1"]}]}')
    status.watch(tmp_path / "s", out=Terminal())
    assert waited == [2.0]


# ---- the screen ----
class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_watch_draws_until_all_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, screen, waited = running(tmp_path / "a"), Terminal(), []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        ends(folder, "interrupted" if len(waited) == 1 else "done")

    monkeypatch.setattr(time, "sleep", sleep)
    status.watch(folder, out=screen)
    assert waited == [2.0, 2.0]
    first, second, third = screen.getvalue().split("\033[J\033[?7l")[1:]
    assert "1 cut" in first and "1 interrupted" in second and "1 done" in third
    assert first.endswith("\033[?7h\033[4F")  # back over header, run, counts and disk
    assert third.endswith("\033[?7h")


def test_watch_waits_for_what_has_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.write_demo(tmp_path / "outputs")

    def stop(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", stop)
    screen = Terminal()
    status.watch("demo", tmp_path / "outputs", screen)
    assert screen.getvalue().endswith("\033[?7h\n")


def test_watch_fits_the_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "9")
    monkeypatch.setenv("COLUMNS", "80")
    for state in ("done", "diverged", "failed"):
        for index in range(4):
            fake.write_run(tmp_path / "s" / f"{state}{index}", fake.run("pre", 0, 1), state)
    screen = Terminal()
    status.watch(tmp_path / "s", out=screen)
    lines = screen.getvalue().splitlines()
    assert len(lines) == 9  # the last holds the cursor
    assert [line.split()[0] for line in lines[1:5]] == ["failed"] * 4
    assert lines[5] == "… and 8 more" and "12 found: 4 done, 4 diverged, 4 failed" in lines[6]


def test_watch_prints_once_in_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = running(tmp_path / "a")
    assert main(["status", str(folder), "--watch"]) == 0
    assert capsys.readouterr().out == status.status(folder)


def test_ctrl_c_ends_watch_in_order(tmp_path: Path) -> None:
    folder = running(tmp_path / "a")
    near, far = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "lnexp", "status", str(folder), "--watch"], stdout=far, stderr=far
    )
    os.close(far)
    shown = b""
    while b"disk: " not in shown:
        shown += os.read(near, 4096)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    os.close(near)
    assert b"Traceback" not in shown


# ---- the command ----
def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], refuses: Callable[..., None]) -> None:
    fake.write_demo(tmp_path / "outputs")
    assert main(["status", "--json", "demo"]) == 0
    assert json.loads(capsys.readouterr().out)["wanted"] == 8
    refuses(["status", "demo", "--json", "--watch"], "--watch --json: need one of the two")
    refuses(["status", "--watch"], "nothing given: need a sweep or run folder")
    refuses(["status", "demo", "--follow"], "--follow: no such option")
    refuses(["status", "nosuch", "--watch"], "nosuch: no such folder", "demo")


@pytest.fixture
def refuses(capsys: pytest.CaptureFixture[str]) -> Callable[..., None]:
    def check(arguments: list[str], *words: str) -> None:
        assert main(arguments) == 2
        out, err = capsys.readouterr()
        assert out == "" and len(err.splitlines()) == 1 and all(word in err for word in words), err

    return check
