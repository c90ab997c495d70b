"""1,000 run folders: table and status in under two seconds, the page in under five and under 15 MB."""

from __future__ import annotations

import json
import time
from pathlib import Path

import fake_outputs
import pytest

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


def test_table_and_status(sweep: Path) -> None:
    begun = time.process_time()
    results = collect(sweep)
    text = table.render(results, "md")
    took = time.process_time() - begun
    assert len(results) == 1000
    assert text.count("(n=10)") == 100
    assert took < 2, f"table took {took:.2f} s"
    begun = time.process_time()
    assert "1000 done" in table.status(sweep)
    took = time.process_time() - begun
    assert took < 2, f"status took {took:.2f} s"


def test_dashboard(sweep: Path) -> None:
    begun = time.process_time()
    file = dashboard.write(sweep)
    took = time.process_time() - begun
    assert took < 5, f"dashboard took {took:.2f} s"
    assert file.stat().st_size < 15e6
