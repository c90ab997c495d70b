"""`--watch` in a browser: a new row shows without a reload, the view stays, and an ended server is said."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from browsing import Browser
from golden import fake_outputs

from lnexp.report import watch

pytestmark = pytest.mark.browser


def until(page: Browser, script: str, seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while not page.js(f"return Boolean({script})"):
        assert time.monotonic() < end, script
        time.sleep(0.1)


def test_a_new_row_shows_and_the_view_stays(browser: Browser, tmp_path: Path) -> None:
    sweep = fake_outputs.write_demo(tmp_path / "outputs")
    server = watch.serve(sweep)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        page = browser.open(address)
        page.click("label[for='x-epochs']")
        page.js("document.getElementById('train.lr').focus()")
        until(page, "document.getElementById('alive').textContent.startsWith('live, as of')")
        with open(next(sweep.glob("pre_ln-warmup0-21*")) / "metrics.jsonl", "a") as file:
            file.write(
                '{"split": "train", "updates": 1500, "epoch": 5.0, "wall_s": 400.0, "loss_bits": 4.0, "lr": 0.001}\n'
            )
        until(page, "plots.get('train.loss_bits').u.scales.x.max === 5")
        assert page.js("return document.getElementById('x-epochs').checked")
        assert page.js("return document.activeElement.id") == "train.lr"
        assert {url.removeprefix(address) for url in page.requests() if url != "data:,"} == {"", "data.json"}
        assert page.console() == []
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    until(page, "document.getElementById('alive').textContent.includes('the server does not answer')")
    assert page.pixels("train.loss_bits")["cool"] > 500
