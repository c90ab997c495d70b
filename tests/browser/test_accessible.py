"""axe-core finds no serious fault, in light and dark, whole and narrow, and with the view changed."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

import pytest
from browsing import Browser
from golden import fake_outputs

from lnexp.report import dashboard

pytestmark = pytest.mark.browser

# axe.min.js of the npm package axe-core@4.12.1; PyPI's copy has one line feed more at its end.
AXE_SHA256 = "66a8aaa95a8b044a7fd74a5435873bf04ff65a1ca75567c921b7509742085a14"


@pytest.fixture(scope="module")
def axe() -> str:
    spec = importlib.util.find_spec("axe_playwright_python")
    if spec is None or not spec.submodule_search_locations:
        pytest.fail("axe-playwright-python is not installed; `make test-browser` installs it")
    raw = (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_bytes().rstrip(b"\n")
    assert hashlib.sha256(raw).hexdigest() == AXE_SHA256
    return raw.decode()


@pytest.mark.parametrize(
    ("hash", "width"),
    [("theme=light", 1280), ("theme=dark", 1280), ("theme=light", 800),
     ("theme=dark&off=model.norm%3DPost-LN&columns=model.norm&state=diverged&zoom=300,900", 1280)],
)  # fmt: skip
def test_no_serious_fault(browser: Browser, demo: Path, axe: str, hash: str, width: int) -> None:
    no_fault(browser.open(demo, hash, width), axe)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_serious_fault_of_a_sweep_that_was_only_probed(
    browser: Browser, tmp_path: Path, axe: str, theme: str
) -> None:
    no_fault(browser.open(dashboard.write(fake_outputs.write_probed(tmp_path)), f"theme={theme}"), axe)


def no_fault(page: Browser, axe: str) -> None:
    page.js(axe)
    found = page.driver.execute_async_script("axe.run(document).then(arguments[0])")
    assert len(found["passes"]) > 20
    serious = [f"{v['impact']} {v['id']}: {v['help']} ({v['nodes'][0]['html'][:200]})" for v in found["violations"]]
    assert serious == []


def test_every_control_is_reached_by_tab_and_shows_it(browser: Browser, demo: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    page = browser.open(demo)
    reached = {}
    for _ in range(60):
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        name, outline = page.js(
            "const a = document.activeElement, shown = a.closest('.switch') ? a.nextSibling : a;"
            "return [a.id || a.ariaLabel || a.textContent, getComputedStyle(shown).outlineStyle]"
        )
        reached[name] = outline
    del reached[page.js("return document.body.textContent")]  # past the last control, before the first again
    wanted = {"theme", "x-updates", "smooth", "Post-LN", "list-rows", "valid.loss_bits", "train.lr", "kind",
              "leave out pre_ln-warmup0-21c0ffee", "Pre-LN, warm-up 200", "all", "diverged"}  # fmt: skip
    assert wanted <= set(reached)
    assert {name for name, outline in reached.items() if outline != "solid"} == set()
