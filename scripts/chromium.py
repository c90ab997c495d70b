"""A headless Chromium for browser tests and screenshots: the system's, through Selenium, with nothing of a user's."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

PROGRAMS = ("chromium", "chromedriver")
# No sandbox: in containers, as root, there is none. The rest keeps the browser from calling home.
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
         "--disable-background-networking", "--disable-component-update", "--disable-sync")  # fmt: skip


def missing() -> str | None:
    """Say in one line what to install, or None."""
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if not lacking:
        return None
    return f"{' and '.join(lacking)} not found; on Debian: apt-get install chromium chromium-driver"


@contextmanager
def chromium(width: int = 1280, height: int = 900) -> Iterator[webdriver.Chrome]:
    """Give a browser whose log of network and console can be read; its profile goes with it."""
    options = Options()
    options.binary_location = shutil.which("chromium") or ""
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--window-size={width},{height}", f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
        try:
            resize(driver, width, height)
            yield driver
        finally:
            driver.quit()


def resize(driver: webdriver.Chrome, width: int, height: int, scale: float = 1) -> None:
    """Set the size of the page itself, in CSS pixels, without window frames."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def open_page(driver: webdriver.Chrome, page: Path | str, hash: str = "") -> None:
    """Open a file or an address anew, also where only the hash differs from the page that is open."""
    address = page.absolute().as_uri() if isinstance(page, Path) else page
    driver.get("about:blank")
    driver.get(address + (f"#{hash}" if hash else ""))


if __name__ == "__main__":
    if problem := missing():
        sys.exit(problem)
