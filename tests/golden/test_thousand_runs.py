"""1,000 run folders: table, status and clean in under two seconds each, the page in under five and under 15 MB."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import fake_outputs
import pytest

from lnexp import clean
from lnexp.report import dashboard, table
from lnexp.report.collect import collect

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sweep = tmp_path_factory.mktemp("thousand") / "big"
    template = fake_outputs.write_run(
        sweep / "template", fake_outputs.run("post", 200, 7777), metrics=fake_outputs.rows("post", 200, 1), scores=[]
    )
    texts = {file.name: file.read_text() for file in template.iterdir()}
    for file in template.iterdir():
        file.unlink()
    template.rmdir()
    for index in range(1000):
        folder = sweep / f"run-{index:08x}"
        folder.mkdir()
        config = texts["config.yaml"].replace("seed: 7777", f"seed: {index % 10}")
        config = config.replace("warmup_updates: 200", f"warmup_updates: {index // 10}")
        scores = json.dumps([fake_outputs.score(20 + index % 7)])
        for name, text in {**texts, "config.yaml": config, "scores.json": scores}.items():
            (folder / name).write_text(text)
    return sweep


def seconds(work: Callable[[], object]) -> float:
    """Give the processor time that it takes: others use the machine too."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def test_table(sweep: Path) -> None:
    texts: list[str] = []
    assert (took := seconds(lambda: texts.append(table.render(collect(sweep), "md")))) < 2, f"table took {took:.2f} s"
    assert texts[0].partition("The paper's claims")[0].count("(n=10)") == 100


def test_dashboard(sweep: Path) -> None:
    begun = time.process_time()
    file = dashboard.write(sweep)
    took = time.process_time() - begun
    assert took < 5, f"dashboard took {took:.2f} s"
    assert file.stat().st_size < 15e6


def share_log(sweep: Path, rows: list[dict[str, object]]) -> None:
    """Give all runs these rows; the file lies on the disk once."""
    (sweep / "log").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for run in sweep.glob("run-*"):
        (run / "metrics.jsonl").unlink()
        (run / "metrics.jsonl").hardlink_to(sweep / "log")
    (sweep / "log").unlink()


def test_table_of_runs_as_long_as_the_papers(sweep: Path) -> None:
    """IWSLT14: 16,500 updates with a row every 100 and 15 validations."""
    rows = fake_outputs.rows("post", 200, 1)
    train, valid = ([row for row in rows if row["split"] == split] for split in ("train", "valid"))
    share_log(sweep, [*train[:15] * 11, *valid, *valid[:7]])
    took = seconds(lambda: table.render(collect(sweep), "md"))
    assert took < 2, f"table took {took:.2f} s"


def test_status_and_clean(sweep: Path) -> None:
    """The runs have long logs, checkpoints and W&B folders here, and a hundred of them were killed."""
    share_log(sweep, fake_outputs.rows("post", 200, 1) * 400)  # 12,800 rows, 2.7 MB
    for index, run in enumerate(sorted(sweep.glob("run-*"))):
        for place in ("checkpoints/best.pt", "checkpoints/last.pt", "wandb/run/files/output.log", "wandb/run/logs/a"):
            (run / place).parent.mkdir(parents=True, exist_ok=True)
            (run / place).write_bytes(b"1234")
        if index % 10 == 0:
            (run / "status.json").write_text('{"state": "running", "updates": 1150, "wall_s": 240.0, "reason": null}')
            (run / ".lock").touch()
    texts: list[str] = []
    assert (took := seconds(lambda: texts.append(table.status(sweep)))) < 2, f"status took {took:.2f} s"
    assert "big: 1000 found: 900 done, 100 cut" in texts[0]
    took = seconds(lambda: clean.clean(sweep, say=texts.append))
    assert took < 2, f"clean took {took:.2f} s"
    assert "900 files of 900 runs, 0.0 MB: would go" in texts[-1]
