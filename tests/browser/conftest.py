"""A headless Chromium for all tests here, and the pages that it opens. `make test-browser` installs what it takes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browsing import Browser
from golden import fake_outputs

from lnexp.report import dashboard

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))


@pytest.fixture(scope="session")
def chrome() -> Iterator[Chrome]:
    try:
        import chromium
    except ImportError as error:
        pytest.fail(f"{error}; `make test-browser` installs it")
    if problem := chromium.missing():
        pytest.fail(problem)
    with chromium.chromium() as driver:
        driver.set_page_load_timeout(60)
        yield driver


@pytest.fixture
def browser(chrome: Chrome) -> Browser:
    return Browser(chrome)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dashboard.write(fake_outputs.write_demo(tmp_path_factory.mktemp("browser") / "outputs"))
