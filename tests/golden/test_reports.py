"""The reports of one small synthetic sweep, word for word. UPDATE_GOLDEN=1 rewrites the stored files: read the diff."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import fake_outputs
import pytest

from lnexp.clean import clean
from lnexp.guard import lock
from lnexp.report import dashboard, table
from lnexp.report.collect import collect
from lnexp.report.status import data, status

EXPECTED = Path(__file__).parent / "expected"


def same(name: str, text: str) -> None:
    file = EXPECTED / name
    if os.environ.get("UPDATE_GOLDEN"):
        EXPECTED.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"{name} differs; UPDATE_GOLDEN=1 pytest {__file__} rewrites it"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_outputs.write_demo(tmp_path_factory.mktemp("golden") / "outputs")


@pytest.mark.parametrize("fmt", table.SUFFIX)
def test_table(demo: Path, fmt: str) -> None:
    same(f"table{table.SUFFIX[fmt]}", table.render(collect(demo), fmt))


def test_summary(demo: Path) -> None:
    same("summary.txt", table.summary(collect(demo)) + "\n")


def test_status(demo: Path) -> None:
    same("status.txt", table.status(demo))


@pytest.mark.parametrize(("name", "write"), [("status_states.txt", status), ("status_states.json", data)])
def test_status_of_every_state(name: str, write: Callable[[str, Path], str]) -> None:
    sweep = fake_outputs.write_states(Path("outputs"))
    with lock(sweep / "running-c0ffee"):
        text = write("states", Path("outputs"))
    # The size of a config grows with every new setting; those of checkpoints stay.
    same(name, re.sub(r'"bytes": \d+', '"bytes": 0', text))


@pytest.mark.parametrize(("keep", "yes"), [("best", False), ("none", False), ("best", True), ("none", True)])
def test_clean(keep: str, yes: bool) -> None:
    sweep, said = fake_outputs.write_states(Path("outputs")), []
    with lock(sweep / "running-c0ffee"):
        clean("states", keep, yes, Path("outputs"), said.append)
    same(f"clean_{keep}{'_yes' if yes else ''}.txt", "\n".join(said) + "\n")


def test_dashboard_data(demo: Path) -> None:
    page = dashboard.write(demo).read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found
    # Stored a key a line, so that a change shows as a small diff; curves stay on one line each.
    text = json.dumps(json.loads(found[1]), indent=1, ensure_ascii=False)
    text = re.sub(
        r"\[\s+((?:[-\d.e]+|null)(?:,\s+(?:[-\d.e]+|null))*)\s+\]", lambda m: "[" + " ".join(m[1].split()) + "]", text
    )
    same("dashboard.json", text + "\n")


def test_dashboard_is_one_file_without_addresses(demo: Path) -> None:
    page = dashboard.page(dashboard.data(collect(demo)))
    assert "/*{" not in page
    assert not re.search(r"<(script|link|img|iframe)[^>]*\b(src|href)=[\"'](?!data:)", page)
    assert "default-src 'none'" in page
    assert len(page) < 200_000


def test_vendored_library_is_unchanged() -> None:
    import hashlib

    vendor = Path(dashboard.__file__).parent / "vendor"
    lines = [line.split() for line in (vendor / "SHA256SUMS").read_text().splitlines() if not line.startswith("#")]
    assert len(lines) == 3
    for digest, name in lines:
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest, name
