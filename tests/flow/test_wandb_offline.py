"""W&B without a server: what is recorded, what is said, and that nothing wandb does reaches the training."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from fakes import wandb_desk as desk

from lnexp.rundir import rows as read_rows
from lnexp.track import client, live, sink
from lnexp.track.describe import named
from lnexp.track.record import Held, held

linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for wandb's helper in /proc")


@pytest.fixture(autouse=True)
def offline(tmp_path: Path) -> Iterator[None]:
    with desk.untouched(tmp_path / "home"):
        yield


def _wait(ready: object, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not ready():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)


def test_three_runs_in_one_process_the_middle_one_fails(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    rows = desk.rows(20)
    wheres = []
    for n, name in enumerate(("one", "two", "three")):
        run = desk.a_run(norm="pre" if name == "three" else "post")
        with (
            pytest.raises(RuntimeError) if name == "two" else nullcontext(),
            desk.open_in(tmp_path / name, run, f"{n}" * 8, said) as tracker,
        ):
            for row in rows:
                tracker.log(row)
            tracker.samples([("ein Haus", "a house", 'the <b>"house"</b>')])
            if name == "two":
                raise RuntimeError("the job broke")
            tracker.finish("done", desk.SCORES, {"timing/wall_s": 12.5, "timing/share/forward": 0.25})
        wheres.append(tracker.where)
        assert tracker.where and Path(tracker.where).is_relative_to(tmp_path / name / "wandb")

    assert len(said) == len(wheres)
    for line, where in zip(said, wheres, strict=True):  # a command that can be typed as it stands
        command, found = re.fullmatch(r"W&B: recorded; to send it: (\S+) sync (.+)", line).groups()
        assert os.access(command, os.X_OK) and where.startswith(found + "/wandb/")
    out = capfd.readouterr()
    assert out.out == "" and out.err == ""  # wandb itself said nothing
    assert not list((tmp_path / "home").iterdir())  # and left nothing in HOME

    expected = [desk.in_wandb_words(row) for row in rows]
    for where in wheres:
        assert desk.history(desk.leet(where)) == expected
    summaries = [desk.leet(where, "--summary")[0] for where in wheres]
    assert [(s["state"], s["exit_code"]) for s in summaries] == [("finished", 0), ("failed", 1), ("finished", 0)]
    assert [s["summary"]["state"] for s in summaries] == ["done", "failed", "done"]
    assert [s["name"] for s in summaries] == [
        "post_ln-w200-s1-00000000", "post_ln-w200-s1-11111111", "pre_ln-w200-s1-22222222",
    ]  # fmt: skip
    first = summaries[0]
    assert first["project"] == "lnexp" and first["tags"] == ["demo", "cpu"]
    assert first["summary"]["final/test_sacrebleu"] == 31.5
    assert first["summary"]["timing/wall_s"] == 12.5 and first["summary"]["timing/share/forward"] == 0.25
    assert first["summary"]["final/test_sacrebleu_signature"] == "nrefs:1|v:2"
    assert first["config"]["model"] == {"norm": "post"} and first["config"]["ablation"] == "post-w200-lr0.001-adam"
    assert first["config"]["env"] == {"torch": "2.13.0", "data": "f00d"}
    assert "paths" not in first["config"] and first["config"]["data"]["local"] == "corpus"
    header = next(record["run"] for record in desk.leet(wheres[0]) if record["type"] == "run")
    assert "demo" in (header.get("run_group"), header.get("group"))


def test_metrics_are_charted_over_updates(tmp_path: Path) -> None:
    with desk.open_in(tmp_path / "a", desk.a_run(), "a" * 8, []) as tracker:
        tracker.log(desk.rows(1)[0])
    defined = [record["metric"] for record in desk.leet(tracker.where) if record["type"] == "metric"]
    assert {"updates", "wall_s"} <= {metric.get("name") for metric in defined}
    assert [m["step_metric"] for m in defined if m.get("glob_name") == "*"] == ["updates"]


def test_names_of_metrics() -> None:
    row = {"split": "valid", "updates": 3, "bleu": 2.0, "lr": 1e-3, "nll_bits": None, "gnorm": {"enc.0": 1.0}}
    assert named(row) == {"updates": 3, "valid/bleu": 2.0, "lr": 1e-3, "gnorm/enc.0": 1.0}


def test_a_probe_is_sent_part_by_part(tmp_path: Path) -> None:
    probe = {
        "split": "probe", "updates": 0, "epoch": 0, "wall_s": 0.5,
        "grad": {"decoder.layers.5.fc2": 1.6, "encoder.layers.0.fc1": float("nan")},
        "hidden": {"encoder.layers.0.fc2": 22.6}, "entropy": {"encoder.layers.0.self_attn": 2.5},
        "update_ratio": {"decoder.layers.5.fc2": 1e-3},
    }  # fmt: skip
    with desk.open_in(tmp_path / "a", desk.a_run(), "a" * 8, []) as tracker:
        tracker.log(probe)
    (row,) = desk.history(desk.leet(tracker.where))
    assert row == {
        "updates": 0, "epoch": 0, "wall_s": 0.5, "probe/grad/decoder.layers.5.fc2": 1.6,
        "probe/grad/encoder.layers.0.fc1": "NaN", "probe/hidden/encoder.layers.0.fc2": 22.6,
        "probe/entropy/encoder.layers.0.self_attn": 2.5, "probe/update_ratio/decoder.layers.5.fc2": 1e-3,
    }  # fmt: skip


@pytest.mark.parametrize(("state", "wandb_state"), [("diverged", "finished"), ("interrupted", "failed")])
def test_final_states(tmp_path: Path, state: str, wandb_state: str) -> None:
    tracker = desk.open_in(tmp_path / "a", desk.a_run(), "a" * 8, [])
    tracker.log(desk.rows(1)[0])
    tracker.finish(state, [])
    tracker.finish("failed", [])  # the second word is not heard
    seen = desk.leet(tracker.where, "--summary")[0]
    assert seen["state"] == wandb_state and seen["summary"]["state"] == state
    assert ("diverged" in seen["tags"]) == (state == "diverged")


def test_an_interrupt_in_the_block_is_no_failure(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), desk.open_in(tmp_path / "a", desk.a_run(), "a" * 8, []) as tracker:
        raise KeyboardInterrupt
    assert desk.leet(tracker.where, "--summary")[0]["summary"]["state"] == "interrupted"


def test_a_resumed_run_keeps_its_id_and_a_new_one_gets_another(tmp_path: Path) -> None:
    ids = []
    for folder in ("a", "a", "b"):
        with desk.open_in(tmp_path / folder, desk.a_run(), "a" * 8, []) as tracker:
            tracker.log(desk.rows(1)[0])
        ids.append(next(iter(Path(tracker.where or "").glob("*.wandb"))).stem)
    assert ids[0] == ids[1] != ids[2]
    assert all(len(i) <= 4 + 64 and i.startswith("run-" + "a" * 8) for i in ids)


def test_no_key_and_online_goes_offline_and_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    with desk.open_in(tmp_path / "a", desk.a_run("online"), "a" * 8, said) as tracker:
        pass
    assert "needs a key" in said[0] and "offline-run" in (tracker.where or "")


@pytest.mark.parametrize(
    ("environment", "netrc", "key"),
    [
        ({}, "", False),
        ({"WANDB_API_KEY": "k" * 40}, "", True),
        ({"WANDB_IDENTITY_TOKEN_FILE": "/nowhere"}, "", True),
        ({}, f"machine api.wandb.ai\n  login user\n  password {'k' * 40}\n", True),
        ({}, f"machine elsewhere.org\n  login user\n  password {'k' * 40}\n", False),
        ({}, "not a netrc", False),
        ({"WANDB_BASE_URL": "http://my.own"}, f"machine my.own\n  login user\n  password {'k' * 40}\n", True),
    ],
)
def test_where_a_key_is_looked_for(tmp_path: Path, environment: dict[str, str], netrc: str, key: bool) -> None:
    import wandb

    home = tmp_path / "other"
    home.mkdir()
    if netrc:
        (home / ".netrc").write_text(netrc)
        (home / ".netrc").chmod(0o600)
    with desk.untouched(home, WANDB_SILENT="true", **environment):
        assert client.has_key(wandb.setup().settings) is key


def test_the_environment_may_switch_it_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert type(desk.open_in(tmp_path / "a", desk.a_run("online"), "a" * 8, [])) is sink.Sink


def test_mode_none_does_not_import_wandb(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from lnexp.config import Run; from lnexp.track.choose import open_sink\n"
        "with open_sink(Run(), 'x', Path('.'), {}, print) as s: s.log({'split': 'train'}); s.samples([])\n"
        "assert 'wandb' not in sys.modules and s.where is None"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, timeout=30)


def test_without_wandb_there_is_a_null_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    said: list[str] = []
    with desk.open_in(tmp_path / "a", desk.a_run("auto"), "a" * 8, said) as tracker:
        tracker.log(desk.rows(1)[0])
    assert type(tracker) is sink.Sink and tracker.where is None
    assert len(said) == 1 and "not tracked" in said[0] and "metrics.jsonl" in said[0]


@linux
def test_a_dead_helper_is_said_once_and_the_next_run_is_tracked(tmp_path: Path) -> None:
    said: list[str] = []
    tracker = desk.open_in(tmp_path / "a", desk.a_run(), "a" * 8, said)
    _wait(lambda: tracker.where)
    os.kill(desk.core(), signal.SIGKILL)
    slowest = 0.0
    for i in range(100):
        start = time.perf_counter()
        tracker.log(desk.rows(100)[i])
        slowest = max(slowest, time.perf_counter() - start)
        time.sleep(0.002)
    tracker.finish("done", desk.SCORES)
    assert slowest < 1
    assert len(said) == 1 and "tracking stopped" in said[0] and "metrics.jsonl" in said[0]

    with desk.open_in(tmp_path / "b", desk.a_run(), "b" * 8, said) as after:
        after.log(desk.rows(1)[0])
    assert desk.leet(after.where, "--summary")[0]["state"] == "finished"


@linux
@pytest.mark.parametrize(
    "n", [pytest.param(1, id="few"), pytest.param(12_000, id="more than a pipe holds", marks=pytest.mark.slow)]
)
def test_a_helper_that_hangs_holds_up_neither_rows_nor_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    monkeypatch.setattr(live, "STUCK_S", 0.5)
    monkeypatch.setattr(live, "GRACE_S", 0.2)
    said: list[str] = []
    tracker = desk.open_in(tmp_path / "a", desk.a_run(), "a" * 8, said)
    _wait(lambda: tracker.where)
    os.kill(core := desk.core(), signal.SIGSTOP)
    slowest, row = 0.0, desk.rows(1)[0]
    try:
        for _ in range(n):
            start = time.perf_counter()
            tracker.log(row)
            slowest = max(slowest, time.perf_counter() - start)
        start = time.perf_counter()
        tracker.finish("done", [])
        assert slowest < 1 and time.perf_counter() - start < 12
    finally:
        with suppress(ProcessLookupError):
            os.kill(core, signal.SIGKILL)
    assert "tracking stopped" in said[-1] and "lnexp sync" in said[-1]

    with desk.open_in(tmp_path / "b", desk.a_run(), "b" * 8, said) as after:
        after.log(row)
    assert desk.leet(after.where, "--summary")[0]["state"] == "finished"


def test_a_killed_run_loses_at_most_the_last_second(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from fakes import wandb_desk as desk; from lnexp.rundir import RowFile\n"
        "folder = Path(sys.argv[2]); tracker = desk.open_in(folder, desk.a_run(), 'a' * 8, [])\n"
        "file = RowFile(folder); row = desk.rows(1)[0]\n"
        "while not tracker.where: time.sleep(0.01)\n"
        "print(tracker.where, flush=True)\n"
        "while True: file.write(row); tracker.log(row); time.sleep(0.05)\n"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parents[1]), str(tmp_path / "a")]
    (tmp_path / "a").mkdir()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        where = Path(process.stdout.readline().strip())
        time.sleep(2)
        process.kill()
    written = len(list(read_rows(tmp_path / "a")))
    time.sleep(0.3)
    have = held(next(where.glob("*.wandb")))
    assert written > 30 and not have.closed
    assert have.rows >= written - 1.5 * 20  # 20 rows a second; half a second of grace for a busy machine
    assert desk.leet(where, "--summary")[0]["state"] == "running"


@linux
def test_memory_of_tracking(tmp_path: Path) -> None:
    """Beyond `import wandb`, which fairseq does in any run: this process's growth, and all of the helper's."""
    code = (
        "import sys, time; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from fakes import wandb_desk as desk; import wandb\n"
        "rss = lambda pid: int(Path(f'/proc/{pid}/statm').read_text().split()[1]) * 4096 / 1e6\n"
        "before = rss('self'); tracker = desk.open_in(Path(sys.argv[2]), desk.a_run(), 'a' * 8, [])\n"
        "for row in desk.rows(400): tracker.log(row)\n"
        "while not tracker.where: time.sleep(0.01)\n"
        "time.sleep(0.5); print(rss('self') - before + rss(desk.core()))\n"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parents[1]), str(tmp_path / "a")]
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout
    assert 20 < float(text) < 60


def test_a_short_record_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk, where wandb's own last word is that all went well."""
    monkeypatch.setattr(live, "WRITTEN_S", 0.2)
    monkeypatch.setattr(live, "held", lambda path: Held(held(path).rows - 3, True))
    said: list[str] = []
    with desk.open_in(tmp_path / "a", desk.a_run(), "a" * 8, said) as tracker:
        for row in desk.rows(9):
            tracker.log(row)
    assert "holds 7 of 10 rows" in said[-1] and "metrics.jsonl" in said[-1]


def test_a_torn_file_is_read_up_to_the_tear(tmp_path: Path) -> None:
    with desk.open_in(tmp_path / "a", desk.a_run(), "a" * 8, []) as tracker:
        for row in desk.rows(300):
            tracker.log(row)
    file = next(Path(tracker.where or "").glob("*.wandb"))
    raw = file.read_bytes()
    assert len(raw) > 2 * 32 * 1024 and held(file) == Held(301, True)
    file.write_bytes(raw[: len(raw) // 2])
    half = held(file)
    assert 100 < half.rows < 200 and not half.closed
    assert half.rows == len(desk.history(desk.leet(file)))
    file.write_bytes(raw[:7])
    assert held(file) == held(tmp_path / "absent.wandb") == Held(0, False)
