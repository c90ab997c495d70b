"""Many runs: 200 of 500 rows open in under 2 seconds, 1,000 of 500 rows in under 5 and 15 MB."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from browsing import Browser, write_many

from lnexp.report import dashboard

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("runs", "seconds"), [(200, 2), (1000, 5)])
def test_it_opens_in_time(browser: Browser, tmp_path: Path, runs: int, seconds: float) -> None:
    sweep = write_many(tmp_path / "many", runs, 500)
    begun = time.process_time()
    file = dashboard.write(sweep)
    took = time.process_time() - begun
    size = file.stat().st_size
    begun = time.perf_counter()
    page = browser.open(file)
    page.js("document.querySelector('#groups button').click()")
    page.settle()
    opened = time.perf_counter() - begun
    begun = time.perf_counter()
    page.click("label[for='x-wall-clock']")
    switched = time.perf_counter() - begun
    ready = page.js("return document.documentElement.dataset.ready")
    print(f"{runs} runs: written in {took:.2f} s, {size / 1e6:.1f} MB, open and a button pressed in {opened:.2f} s, "
          f"ready {ready} ms, another axis in {switched:.2f} s")  # fmt: skip
    assert sum(page.pixels("train.loss_bits").values()) > 1000
    assert page.console() == [] and set(page.requests()) <= {file.as_uri(), "data:,"}
    assert size < 15e6
    assert opened < seconds
    assert took < 20  # reading 500,000 rows and more
    assert page.js("return document.documentElement.scrollWidth") == 1280
