"""Words from run folders, in a real browser: shown as they are, never run, and the layout stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from browsing import Browser
from golden import fake_outputs

from lnexp.report import dashboard

pytestmark = pytest.mark.browser

RUN_ME = "window.hacked = true"
HOSTILE = {
    "script": f"</script><script>{RUN_ME}</script><!-- <script>",
    "image": f"<img src=x onerror='{RUN_ME}'><svg onload='{RUN_ME}'>",
    "quotes": f"\"'`${{{RUN_ME}}}` \\ \u2028 & <b> javascript:{RUN_ME}",
    "right to left": "abc \u202egnp.exe \u2066 مرحبا بالعالم שלום",
    "emoji": "👩‍🔬 🏳️‍🌈 Ünïcødé 漢字",
    "long": "x" * 10_000,
    "many words": "word " * 2_000,
    "places": "/*{page.js}*/ $& $1 \\g<0> {{x}}",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_text_stays_text(browser: Browser, tmp_path: Path, kind: str) -> None:
    text = HOSTILE[kind]
    for norm, seed in (("post", 1), ("pre", 2)):
        config = fake_outputs.run(norm, 200, seed, run_name=text, expected=text)
        config.optim.name = text if norm == "post" else "adam"  # a factor: legend, buttons, facets
        fake_outputs.write_run(
            tmp_path / "s" / f"{text.replace('/', '_')[:60]}-{seed}", config, "failed", 3, text,
            fake_outputs.rows(norm, 200, seed, 200), [fake_outputs.score(1.0, decode=text)], translations=[text] * 12,
        )  # fmt: skip
    page = browser.open(dashboard.write(tmp_path / "s"))
    page.click("#groups li:first-child button")
    page.pick("#list-rows", "optim.name")
    page.pick("#theme", "dark")
    page.settle()
    assert page.js("return window.hacked") is None
    assert page.console() == []
    assert page.js("return document.querySelectorAll('script, img, iframe, object, embed').length") == 3
    for width in (1280, 800):
        page.resize(width)
        assert page.js("return document.documentElement.scrollWidth") == width
    shown = page.js("return document.querySelector('#samples tbody td:last-child').textContent")
    if kind in ("script", "image", "emoji", "places"):
        assert shown == text.strip()
    assert page.js("return document.querySelector('#samples tbody tr').offsetHeight") < 600
    cells = "return [...document.querySelectorAll('#runs tbody tr')].map(r => r.cells.length)"
    assert page.js(cells) == [7, 7]
    assert page.js("return document.documentElement.scrollHeight") < 9000


def test_code_put_into_the_page_later_does_not_run(browser: Browser, demo: Path) -> None:
    """Even if something got through, the policy in the page would refuse it."""
    page = browser.open(demo)
    page.js("const s = document.createElement('script'); s.textContent = arguments[0]; document.body.append(s);"
            "const i = document.createElement('div'); i.setAttribute('onclick', arguments[0]); document.body.append(i);"
            "i.click();",
            RUN_ME)  # fmt: skip
    assert page.js("return window.hacked") is None
    assert any("Content Security Policy" in line for line in page.console())
