"""The open page and what tests ask of it, and a sweep of many runs to open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from golden import fake_outputs

if TYPE_CHECKING:
    from selenium.webdriver import Chrome


class Browser:
    """The open page, and what tests ask of it."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver
        self.js = driver.execute_script

    def open(self, page: Path | str, hash: str = "", width: int = 1280, height: int = 900) -> Browser:
        import chromium

        self.driver.get_log("browser")
        self.driver.get_log("performance")
        chromium.resize(self.driver, width, height)
        chromium.open_page(self.driver, page, hash)
        assert self.js("return document.documentElement.dataset.ready"), self.driver.get_log("browser")
        return self

    def resize(self, width: int, height: int = 900) -> None:
        import chromium

        chromium.resize(self.driver, width, height)
        self.settle()

    def settle(self) -> None:
        """Wait until what the last event asked for is drawn."""
        self.driver.execute_async_script(
            "const done = arguments[0];"
            "setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(() => done())));"
        )

    def click(self, selector: str) -> None:
        self.js("const e = document.querySelector(arguments[0]); e.scrollIntoView({block: 'center'});", selector)
        self.driver.find_element("css selector", selector).click()
        self.settle()

    def pick(self, selector: str, value: str) -> None:
        from selenium.webdriver.support.ui import Select

        Select(self.driver.find_element("css selector", selector)).select_by_value(value)
        self.settle()

    def text(self, selector: str) -> str:
        return str(self.js("return document.querySelector(arguments[0]).textContent", selector))

    def hash(self) -> str:
        return str(self.js("return location.hash"))

    def pixels(self, chart: str) -> dict[str, int]:
        """Count a chart's pixels: warm (Post-LN), cool (Pre-LN), and how dark the rest is on the mean."""
        return dict(self.js(_PIXELS, chart))

    def picture(self, chart: str) -> str:
        return str(self.js("return document.getElementById(arguments[0]).querySelector('canvas').toDataURL()", chart))

    def console(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Give every address that the browser has asked for since `open`."""
        entries = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [e["params"]["request"]["url"] for e in entries if e["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if url != "about:blank"]


_PIXELS = """
const canvas = document.getElementById(arguments[0]).querySelector("canvas");
if (!canvas) return { warm: 0, cool: 0 };
const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
let warm = 0, cool = 0;
for (let i = 0; i < data.length; i += 4) {
  if (data[i + 3] < 200) continue;
  if (data[i] > data[i + 2] + 60) warm++;
  if (data[i + 2] > data[i] + 60) cool++;
}
return { warm, cool };
"""


def write_many(sweep: Path, runs: int, rows: int) -> Path:
    """Write runs of two models, five warm-ups and five rates, each with as many seeds as it takes, `rows` rows each."""
    for index in range(runs):
        norm, warmup, rate, seed = ("post", "pre")[index % 2], index // 2 % 5, index // 10 % 5, index // 50 + 1
        config = fake_outputs.run(norm, 100 * warmup, seed)
        config.optim.lr = (rate + 1) * 5e-4
        metrics: list[dict[str, Any]] = []
        for i in range(1, rows + 1):
            row = {"updates": 10 * i, "epoch": i / 30, "wall_s": (2 + seed / 50) * i}
            noise = ((i * 7919 + index * 104729) % 1000) / 2000
            metrics.append({"split": "train", **row, "lr": config.optim.lr, "gnorm": 1 + noise, "tokens_per_s": 3e3,
                            "loss_bits": 3 + warmup / 10 + 60 / (i + 6) + noise})  # fmt: skip
            if i % 50 == 0:
                metrics.append({"split": "valid", **row, "loss_bits": 3 + 60 / (i + 6), "bleu": 40 - 4000 / (i + 100)})
        fake_outputs.write_run(sweep / f"{norm}-w{warmup}-r{rate}-s{seed}", config, metrics=metrics,
                               scores=[fake_outputs.score(30 + seed / 10)], costs=fake_outputs.timing(seed),
                               translations=fake_outputs.sentences(f"run {index}"))  # fmt: skip
    return sweep
