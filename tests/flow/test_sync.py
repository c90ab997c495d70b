"""`lnexp sync`: the server is brought up to the run folders, whatever became of wandb's own files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from fakes import wandb_desk as desk
from fakes.wandb_server import FakeWandb, Recorded

from lnexp import rundir
from lnexp.cli import main
from lnexp.guard import lock
from lnexp.sync import samples
from lnexp.track import client
from lnexp.track.record import held

ROWS = desk.rows(29)
WORDS = [desk.in_wandb_words(row) for row in ROWS]


def _sync(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    capsys.readouterr()
    code = main(["sync", str(folder)])
    out, err = capsys.readouterr()
    return code, (out + err).splitlines()


def _rows(run: Recorded) -> list[dict[str, object]]:
    spelled = {"nan": "NaN", "inf": "Infinity"}
    return [{k: spelled.get(str(v), v) for k, v in line.items() if not k.startswith("_")} for line in run.history]


def _folder(tmp_path: Path, name: str = "post_ln-0a0a0a0a", state: str = "done") -> Path:
    """Make a run folder that W&B has never heard of."""
    folder = desk.keep(tmp_path / "demo" / name, desk.a_run(), state, desk.SCORES if state == "done" else None)
    desk.write_rows(folder, ROWS)
    return folder


def test_a_sweep_that_was_never_tracked(tmp_path: Path, server: FakeWandb, capsys: pytest.CaptureFixture[str]) -> None:
    states = ["done", "diverged", "failed", "interrupted", "running"]
    for n, state in enumerate(states):
        _folder(tmp_path, f"post_ln-{n}0a0a0a0", state)
    (tmp_path / "demo" / "post_ln-00a0a0a0" / "hyp.test.txt").write_text("the house\n")
    code, lines = _sync(tmp_path / "demo", capsys)
    assert code == 0 and len(lines) == len(states)
    assert all(f"sent 30 of 30 rows, {'interrupted' if s == 'running' else s}: {server.url}" in line
               for s, line in zip(states, lines, strict=True))  # fmt: skip
    runs = sorted(server.runs.values(), key=lambda run: run.name)
    assert [run.name for run in runs] == [f"post_ln-w200-s1-{n}0a0a0a0" for n in range(5)]
    assert [run.exit_code for run in runs] == [0, 0, 1, 1, 1]
    assert [run.summary["state"] for run in runs] == ["done", "diverged", "failed", "interrupted", "interrupted"]
    assert ["diverged" in run.tags for run in runs] == [False, True, False, False, False]
    for run in runs:
        assert _rows(run) == WORDS and run.group == "demo" and run.config["model"] == {"norm": "post"}
        assert run.config["env"] == {"torch": "2.13.0", "data_fingerprint": "f00d"}  # no folder of this machine
    assert runs[0].summary["final/test_sacrebleu"] == 31.5 and "samples" in runs[0].summary
    assert runs[1].summary["reason"] == "diverged for a reason"

    sent = len(server.queries)
    code, lines = _sync(tmp_path / "demo", capsys)
    assert code == 0 and all(line.endswith("complete already, 30 rows") for line in lines), lines
    assert "UpsertBucket" not in server.queries[sent:]  # nothing was opened again


def test_sentences_of_kept_results_have_their_source(tmp_path: Path) -> None:
    """Kept results name the prepared data with ~ in place of a home."""
    data, folder = Path.home() / "cache" / "mine", tmp_path / "run"
    for place in (data, folder):
        place.mkdir(parents=True)
    (data / "test.raw.de").write_text("das Haus\n")
    (data / "test.raw.en").write_text("the house\n")
    (folder / "hyp.test.txt").write_text("a house\n")
    run = desk.a_run()
    run.data.src, run.data.tgt = "de", "en"
    assert samples(folder, run, {"data_folder": "~/cache/mine"}) == [("das Haus", "the house", "a house")]


def _recorded_offline(tmp_path: Path) -> tuple[Path, Path]:
    """Give the folder of a run that has ended, and wandb's own of its offline record."""
    folder = desk.keep(tmp_path / "post_ln-0a0a0a0a", desk.a_run(), "done", desk.SCORES)
    with desk.open_in(folder, desk.a_run(), "0a0a0a0a", []) as tracker:
        for row in ROWS:
            tracker.log(row)
        tracker.finish("done", desk.SCORES)
    return folder, Path(tracker.where or "")


@pytest.mark.parametrize("record", ["gone", "short", "whole"])
def test_whatever_became_of_the_offline_record(
    tmp_path: Path, server: FakeWandb, capsys: pytest.CaptureFixture[str], record: str
) -> None:
    folder, where = _recorded_offline(tmp_path)
    file = next(where.glob("*.wandb"))
    if record == "short":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    elif record == "gone":
        shutil.rmtree(where)
    assert _sync(folder, capsys)[0] == 0
    if record != "gone":  # wandb's own command passes over what is sent
        command = [sys.executable, "-m", "wandb", "sync", "--yes", str(where)]
        subprocess.run(command, check=True, timeout=60, capture_output=True)
    (run,) = server.runs.values()
    assert _rows(run) == WORDS and run.exit_code == 0 and run.summary["final/test_sacrebleu"] == 31.5


def test_what_wandb_sync_has_sent_is_complete(
    tmp_path: Path, server: FakeWandb, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, where = _recorded_offline(tmp_path)
    command = [sys.executable, "-m", "wandb", "sync", "--yes", str(where)]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    assert _sync(folder, capsys) == (0, ["post_ln-0a0a0a0a: complete already, 30 rows"])


def test_a_run_that_goes_on_is_sent_from_where_the_server_stands(
    tmp_path: Path, server: FakeWandb, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = desk.keep(tmp_path / "post_ln-0a0a0a0a", desk.a_run(), "interrupted")
    desk.write_rows(folder, ROWS[:12])
    assert "sent 12 of 12 rows, interrupted" in _sync(folder, capsys)[1][0]
    desk.write_rows(folder, ROWS[12:])
    desk.keep(folder, desk.a_run(), "done", desk.SCORES)
    assert "sent 18 of 30 rows, done" in _sync(folder, capsys)[1][0]
    (run,) = server.runs.values()
    assert _rows(run) == WORDS and run.exit_code == 0 and run.resumes == 1


def test_a_run_made_anew_never_writes_over_what_the_server_has(
    tmp_path: Path, server: FakeWandb, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _folder(tmp_path)
    assert _sync(folder, capsys)[0] == 0
    rundir.cut_rows(folder, 9)
    code, (line,) = _sync(folder, capsys)
    assert code == 1 and "the server has 30 rows, the folder 10" in line and "run-id" in line
    (run,) = server.runs.values()
    assert _rows(run) == WORDS


def test_a_run_in_training_and_a_damaged_one_hold_up_no_other(
    tmp_path: Path, server: FakeWandb, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a-0a0a0a0a", "b-0b0b0b0b", "c-0c0c0c0c"):
        _folder(tmp_path, name)
    (tmp_path / "demo" / "b-0b0b0b0b" / "scores.json").write_text("[")
    with lock(tmp_path / "demo" / "a-0a0a0a0a"):
        code, lines = _sync(tmp_path / "demo", capsys)
    assert code == 1 and len(lines) == 3
    assert "a-0a0a0a0a: not sent: " in lines[0] and "process" in lines[0]
    assert "b-0b0b0b0b: not sent: " in lines[1] and "scores.json" in lines[1]
    assert "sent 30 of 30 rows" in lines[2] and len(server.runs) == 1


def test_no_key(
    tmp_path: Path, server: FakeWandb, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _folder(tmp_path)
    monkeypatch.delenv("WANDB_API_KEY")
    code, lines = _sync(folder, capsys)
    assert code == 2 and lines == ["lnexp sync: no W&B key; `wandb login`, or set WANDB_API_KEY"]


@pytest.mark.parametrize("fault", ["bad key", "short key", "closed", "503"])
def test_no_server_or_a_bad_key(
    tmp_path: Path, server: FakeWandb, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    folder = _folder(tmp_path)
    monkeypatch.setattr(client, "ASK_S", 2)
    if "key" in fault:
        monkeypatch.setenv("WANDB_API_KEY", "local-" + "x" * 40 if fault == "bad key" else "short")
    elif fault == "closed":
        server.die()
    else:
        server.down()
    start = time.perf_counter()
    code, lines = _sync(folder, capsys)
    assert time.perf_counter() - start < 20
    assert len(lines) == 1 and not server.runs
    if "key" in fault:
        assert code == 2 and lines[0].startswith("lnexp sync: the W&B key is refused (") and "wandb login" in lines[0]
    else:
        assert code == 1 and lines[0].startswith(f"W&B: {server.url} does not answer (") and "try again" in lines[0]


def test_a_server_that_goes_away_between_two_runs(
    tmp_path: Path, server: FakeWandb, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a-0a0a0a0a", "b-0b0b0b0b"):
        _folder(tmp_path, name)
    server.refuse_rows = 400
    monkeypatch.setattr(client, "SETTLE_S", 0.1)
    code, lines = _sync(tmp_path / "demo", capsys)
    assert code == 1 and all("not sent: the server has 0 of 30 rows; sync again" in line for line in lines)
    server.refuse_rows = 0
    assert _sync(tmp_path / "demo", capsys)[0] == 0
    assert [_rows(run) for run in server.runs.values()] == [WORDS, WORDS]


def test_a_helper_process_that_hangs_is_given_up(
    tmp_path: Path, server: FakeWandb, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """wandb waits for it without a limit, in its calls as at the end of the process."""
    folder = _folder(tmp_path)
    monkeypatch.setattr(client, "SEND_S", 1.0)
    begin = client.begin

    def stopped(*arguments: Any) -> Any:
        os.kill(desk.core(), signal.SIGSTOP)
        return begin(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(client, "begin", stopped)
        start = time.monotonic()
        code, lines = _sync(folder, capsys)
        assert time.monotonic() - start < 20
    assert (code, lines) == (1, [f"{folder.name}: not sent: wandb's helper process did not answer in 1 s"])
    monkeypatch.setattr(client, "SEND_S", 60.0)
    assert _sync(folder, capsys)[0] == 0 and len(server.runs) == 1


def test_a_helper_process_that_does_not_end_holds_up_no_command(
    tmp_path: Path, server: FakeWandb, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "FORGET_S", 0.5)
    settled, helpers = client.settled, []

    def stopped(*arguments: Any) -> int:
        rows = settled(*arguments)
        helpers.append(desk.core())
        os.kill(helpers[0], signal.SIGSTOP)
        return rows

    monkeypatch.setattr(client, "settled", stopped)
    start = time.monotonic()
    code, (line,) = _sync(_folder(tmp_path), capsys)
    assert code == 0 and "sent 30 of 30 rows" in line and time.monotonic() - start < 20
    assert not Path(f"/proc/{helpers[0]}").exists()


@pytest.mark.slow
def test_a_run_killed_at_14_s_with_a_row_a_second(
    tmp_path: Path, server: FakeWandb, capsys: pytest.CaptureFixture[str]
) -> None:
    """At most two rows are missing in the W&B file, none in metrics.jsonl, and sync sends all."""
    folder = desk.keep(tmp_path / "post_ln-0a0a0a0a", desk.a_run(), "running")
    code = (
        "import os, sys, time; from pathlib import Path; sys.path.insert(0, sys.argv[1]); start = time.time()\n"
        "from fakes import wandb_desk as desk\n"
        "tracker = desk.open_in(Path(sys.argv[2]), desk.a_run(), '0a0a0a0a', [])\n"
        "for row in desk.rows(60): tracker.log(row); print(flush=True); time.sleep(1)\n"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parents[1]), str(folder)]
    start, written = time.monotonic(), 0
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        while time.monotonic() - start < 14:
            process.stdout.readline()
            written += 1
        process.kill()
    rows = list(rundir.rows(folder))
    assert len(rows) == written >= 12
    time.sleep(0.5)
    have = held(next((folder / "wandb").glob("offline-run-*/*.wandb"))).rows
    with capsys.disabled():
        print(f"\nkilled at 14 s: {written} rows written, {have} in the W&B file")
    assert have >= written - 2
    assert _sync(folder, capsys)[0] == 0
    (run,) = server.runs.values()
    assert _rows(run) == [desk.in_wandb_words(row) for row in rows] and run.summary["state"] == "interrupted"
