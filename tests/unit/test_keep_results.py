"""scripts/keep_results.py: a copy that can be audited, holds no path of the machine, and gives the same table."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "golden"))
sys.path.append(str(Path(__file__).parents[2] / "scripts"))
import fake_outputs as fake
import keep_results

from lnexp.cli import main
from lnexp.paired import Tester
from lnexp.report import dashboard, table
from lnexp.report.collect import collect

LOG = "2026-01-01 py.warnings WARNING {home}/x/a.py:7: UserWarning: see /opt/lib/python/b.py and https://host/c/d\n"
Out = pytest.CaptureFixture[str]


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """The synthetic demo, whole, with the paths that a real one has."""
    sweep, home = fake.write_demo(tmp_path / "home" / "project" / "outputs"), tmp_path / "home"
    content = json.loads((sweep / "sweep.json").read_text())
    content["wanted"] = [w for w in content["wanted"] if (sweep / w["folder"]).is_dir()]
    content["commands"] = [f"lnexp train sweep=demo paths.outputs={home}/project/outputs data.local=/mnt/me/archives"]
    (sweep / "sweep.json").write_text(json.dumps(content))
    for run in sweep.glob("p*"):
        (run / "train.log").write_text(LOG.format(home=home))
        config = (run / "config.yaml").read_text()
        assert "  cache: ''\n" in config and "  entity: null\n" in config
        config = config.replace("  cache: ''\n", f"  cache: {home}/.cache/lnexp\n")
        (run / "config.yaml").write_text(config.replace("  entity: null\n", "  entity: me-myself\n"))
        (run / ".lock").write_text('{"pid": 1, "host": "here"}')
    return sweep


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_the_copy_gives_the_same_reports(sweep: Path, capsys: Out) -> None:
    assert keep_results.main([str(sweep), "results/demo"]) == 0
    kept = Path("results/demo")
    assert capsys.readouterr().out.startswith("results/demo: 7 runs, 0.")
    for form in table.SUFFIX:
        expected = table.render(collect(sweep), form, Tester())
        again = table.render(collect(kept), form, Tester())
        assert (kept / f"table{table.SUFFIX[form]}").read_text() == expected == again
    assert main(["status", "results/demo"]) == main(["figure", "results/demo"]) == 0
    out = capsys.readouterr().out
    assert "demo: 7 wanted: 6 done, 1 diverged" in out and "checkpoints 0.0 MB" in out
    assert '"state":"diverged"' in dashboard.write(kept).read_text()


def test_what_is_in_it(sweep: Path) -> None:
    keep_results.main([str(sweep), "results/demo"])
    found = files(Path("results/demo"))
    run = "pre_ln-warmup0-21c0ffee"
    assert {name for name in found if name.startswith(run)} == {
        f"{run}/{name}" for name in ("config.yaml", "env.json", "status.json", "scores.json", "timing.json",
                                     "metrics.jsonl", "train.log", "hyp.test.txt")
    }  # fmt: skip
    assert {"sweep.json", "table.md", "table.csv", "table.tex", "table.json", "curves.svg"} <= set(found)
    assert "multirun.yaml" not in found and not any(".lock" in name or "checkpoints" in name for name in found)
    for name in ("metrics.jsonl", "scores.json", "status.json", "hyp.test.txt"):
        assert found[f"{run}/{name}"] == (sweep / run / name).read_bytes()


def test_no_path_of_the_machine_is_in_it(sweep: Path, tmp_path: Path) -> None:
    keep_results.main([str(sweep), "results/demo"])
    everything = b"\n".join(files(Path("results/demo")).values()).decode()
    assert str(tmp_path) not in everything and "me-myself" not in everything and "/mnt" not in everything
    run = Path("results/demo/pre_ln-warmup0-21c0ffee")
    assert (run / "train.log").read_text() == LOG.format(home="~").replace("/opt/lib/python/b.py", ".../b.py")
    assert "  cache: ~/.cache/lnexp\n" in (run / "config.yaml").read_text()
    (command,) = json.loads(Path("results/demo/sweep.json").read_text())["commands"]
    assert command == "lnexp train sweep=demo paths.outputs=~/project/outputs data.local=.../archives"


def test_prepared_data_is_found_again_from_the_copy(sweep: Path, tmp_path: Path) -> None:
    """~ is the reader's own home, so that the dashboard of a copy shows sources where the same data was prepared."""
    data = shutil.move(tmp_path / "home" / "project" / "prepared", tmp_path / "home" / "prepared")
    for run in sweep.glob("p*"):
        env = json.loads((run / "env.json").read_text())
        (run / "env.json").write_text(json.dumps(env | {"data_folder": str(data)}))
    keep_results.main([str(sweep), "results/demo"])
    assert "~/prepared" in Path("results/demo/pre_ln-warmup0-21c0ffee/env.json").read_text()
    assert dashboard.read(Path("results/demo"))["samples"]["source"]


def test_done_twice_it_is_the_same(sweep: Path) -> None:
    keep_results.main([str(sweep), "results/demo"])
    before = files(Path("results/demo"))
    keep_results.main([str(sweep), "results/demo"])
    assert files(Path("results/demo")) == before


def test_a_sweep_that_has_not_ended(sweep: Path, capsys: Out) -> None:
    (sweep / "pre_ln-warmup0-21c0ffee" / "status.json").write_text(
        '{"state": "running", "updates": 500, "wall_s": 9, "reason": null}'
    )
    (sweep / "pre_ln-warmup0-22c0ffee" / "scores.json").write_text("[")
    shutil.rmtree(sweep / "pre_ln-warmup200-31c0ffee")
    assert keep_results.main([str(sweep), "results/demo"]) == 2
    expected = f"keep_results: {sweep}: 1 running, 1 damaged, 1 missing: train on until all have ended, or keep what is"
    assert capsys.readouterr().err == f"{expected} there with --partial\n" and not Path("results").exists()
    assert keep_results.main([str(sweep), "results/demo", "--partial"]) == 0
    assert main(["status", "results/demo"]) == 0
    assert "7 wanted: 3 done, 1 cut, 1 diverged, 1 damaged, 1 missing" in capsys.readouterr().out


def test_a_long_log_stays_where_it_is(sweep: Path) -> None:
    (sweep / "pre_ln-warmup0-21c0ffee" / "train.log").write_text("x" * (keep_results.MOST + 1))
    keep_results.main([str(sweep), "results/demo"])
    assert len(list(Path("results/demo").glob("*/train.log"))) == 6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "need a sweep folder and where to keep it"),
        (["--all", "a"], "need a sweep folder and where to keep it"),
        (["nosuch", "results/demo"], "nosuch: no such folder"),
        (["SWEEP/pre_ln-warmup0-21c0ffee", "results/demo"], "no sweep.json"),
        (["SWEEP", "SWEEP/kept"], "lies in the sweep itself"),
        (["SWEEP", "other"], "other/run-of-another: is not a run of"),
        (["SWEEP", "file"], "file: cannot be written"),
    ],
)
def test_wrong_words(sweep: Path, capsys: Out, arguments: list[str], words: str) -> None:
    Path("other/run-of-another").mkdir(parents=True)
    Path("file").touch()
    assert keep_results.main([word.replace("SWEEP", str(sweep)) for word in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("keep_results: ") and words in line
    assert list(Path("other").rglob("*")) == [Path("other/run-of-another")]


@pytest.mark.parametrize(
    "text", ["1/s of bits/token", "https://host/a/b", "score / length^1.2", "nrefs:1|case:mixed", "~/.cache/x", "a/b/c"]
)
def test_what_is_no_path_of_the_machine_stays(text: str) -> None:
    assert keep_results.anonymous(text) == text
