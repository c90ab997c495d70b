"""The dashboard from file://: it draws, obeys its controls, keeps its view in the address, and asks for nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from browsing import Browser
from golden import fake_outputs

from lnexp.report import dashboard

pytestmark = pytest.mark.browser

LOSS = "valid.loss_bits"
CHARTS = (LOSS, "valid.bleu", "train.loss_bits", "train.lr", "train.gnorm", "train.tokens_per_s")


@pytest.fixture
def page(browser: Browser, demo: Path) -> Browser:
    return browser.open(demo)


def test_it_draws_without_network_or_error(page: Browser, demo: Path) -> None:
    page.settle()
    for chart in CHARTS:
        found = page.pixels(chart)
        assert found["warm"] > 100 or found["cool"] > 100, chart
    assert page.console() == []
    assert page.requests() == [demo.as_uri()] or set(page.requests()) <= {demo.as_uri(), "data:,"}


def test_a_factor_hides_its_curves(page: Browser) -> None:
    both = page.pixels(LOSS)
    assert both["warm"] > 500 and both["cool"] > 500
    page.click("[data-level='model.norm=Post-LN']")
    without = page.pixels(LOSS)
    assert without["warm"] == 0 and without["cool"] > 500
    assert page.js("return [...document.querySelectorAll('#groups button')].map(b => b.ariaPressed)") == [
        "false", "false", "true", "true"]  # fmt: skip
    page.click("[data-level='model.norm=Post-LN']")
    assert page.pixels(LOSS) == both and page.hash() == ""


def test_a_configuration_hides_its_curve(page: Browser) -> None:
    page.click("#groups li:nth-child(3) button")
    page.click("#groups li:nth-child(4) button")
    assert page.pixels(LOSS)["cool"] == 0 and page.pixels(LOSS)["warm"] > 500


@pytest.mark.parametrize(
    ("control", "unit"), [("x-epochs", "epochs"), ("x-wall-clock", "wall-clock"), ("x-tokens", "tokens")]
)
def test_the_x_axis_changes(page: Browser, control: str, unit: str) -> None:
    before = page.picture("train.loss_bits")
    page.click(f"label[for='{control}']")
    assert page.picture("train.loss_bits") != before
    assert f"by {unit}" in page.js(f"return document.getElementById('{LOSS}').ariaLabel")
    top = {"epochs": 4.0, "wall-clock": 0.21 * 1200 + 4.5, "tokens": 1200 * 800}[unit]
    assert page.js("return plots.get('train.loss_bits').u.scales.x.max") == pytest.approx(top)


@pytest.mark.parametrize("axis", ["xlog", "ylog"])
def test_log_axes(page: Browser, axis: str) -> None:
    page.click(f"label[for='{axis}-log']")
    kind = page.js("return plots.get(arguments[0]).u.scales[arguments[1]].distr", LOSS, axis[0])
    assert kind == 3 and page.pixels(LOSS)["cool"] > 500
    assert page.hash() == f"#{axis}=1"


def test_the_mean_and_the_band_are_those_of_the_seeds(page: Browser) -> None:
    """Pre-LN without warm-up, seeds 1 and 2: at update 600 their rows give 4.5 + 0.03 seed + (7 - 0.03 seed) e^-3.5."""
    from math import exp

    line = page.js("return plots.get('valid.loss_bits').panel.lines[2]")
    at = line["xs"].index(600)
    each = [round((f := 4.5 + 0.03 * s) + (11.5 - f) * exp(-3.5) + 0.2, 4) for s in (1, 2)]
    assert line["ys"][at] == pytest.approx(sum(each) / 2) and line["counts"][at] == 2
    assert [line["lo"][at], line["hi"][at]] == pytest.approx(each)


def test_each_seed_is_a_line_of_its_own(page: Browser) -> None:
    assert page.js("return plots.get('train.lr').panel.lines.length") == 4
    page.click("label[for='each-each']")
    assert page.js("return plots.get('train.lr').panel.lines.length") == 7


def test_smoothing_is_a_centred_mean(page: Browser) -> None:
    raw = page.js("return DATA.runs[0].train.loss_bits")
    page.click("label[for='each-each']")
    page.js("const s = document.getElementById('smooth'); s.value = 2; s.dispatchEvent(new Event('input'))")
    smooth = page.js("return plots.get('train.loss_bits').panel.lines[0].ys")
    assert smooth[0] == raw[0] and smooth[1] == pytest.approx(sum(raw[:3]) / 3)
    assert smooth[5] == pytest.approx(sum(raw[3:8]) / 5) and page.text("output") == "5 rows"


def test_hover_reads_the_values(page: Browser) -> None:
    from selenium.webdriver import ActionChains

    over = page.driver.find_element("css selector", f"[id='{LOSS}'] .u-over")
    ActionChains(page.driver).move_to_element(over).perform()
    page.settle()
    tip = page.js("return document.getElementById(arguments[0]).querySelector('.tip')", LOSS)
    assert tip.is_displayed()
    assert "update 6" in tip.text and "Post-LN, no warm-up" in tip.text and "n=2" in tip.text
    page.driver.execute_script("scrollTo(0, 0)")
    ActionChains(page.driver).move_to_element(page.driver.find_element("id", "title")).perform()
    page.settle()
    assert not tip.is_displayed()


def test_hovering_the_legend_makes_a_configuration_stand_out(page: Browser) -> None:
    from selenium.webdriver import ActionChains

    before = page.pixels(LOSS)
    ActionChains(page.driver).move_to_element(
        page.driver.find_element("css selector", "#groups li:nth-child(1) button")
    ).perform()
    page.settle()
    assert page.pixels(LOSS)["cool"] < before["cool"] / 2 and page.pixels(LOSS)["warm"] > 300


def test_the_keyboard_reads_and_looks_closer(page: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    chart = page.driver.find_element("id", "train.loss_bits")
    page.js("arguments[0].focus()", chart)
    chart.send_keys(Keys.HOME, Keys.ARROW_RIGHT)
    assert page.text("#spoken").startswith("Training loss, update 100: Post-LN, no warm-up ")
    chart.send_keys("+")
    page.settle()
    assert page.hash().startswith("#zoom=") and page.js("return document.activeElement.id") == "train.loss_bits"
    for _ in range(3):
        chart.send_keys("-")
        page.settle()
        page.settle()
    assert page.hash() == ""


def test_dragging_looks_closer_in_every_chart(page: Browser) -> None:
    from selenium.webdriver import ActionChains

    over = page.driver.find_element("css selector", f"[id='{LOSS}'] .u-over")
    ActionChains(page.driver).move_to_element_with_offset(over, -100, 0).click_and_hold().move_by_offset(
        150, 0
    ).release().perform()
    page.settle()
    page.settle()
    assert page.hash().startswith("#zoom=")
    assert (
        len({str(page.js("const s = plots.get(arguments[0]).u.scales.x; return [s.min, s.max]", c)) for c in CHARTS})
        == 1
    )
    page.click("#all")
    page.settle()
    assert page.hash() == "" and page.js(f"return plots.get('{LOSS}').u.scales.x.max") == 1200


def test_facets(page: Browser) -> None:
    page.pick("#list-rows", "schedule.warmup_updates")
    page.pick("#list-columns", "model.norm")
    page.pick("#list-metric", "valid.bleu")
    titles = page.js("return [...document.querySelectorAll('#charts figcaption')].map(f => f.textContent)")
    assert titles == ["warm-up none, model Post-LN", "warm-up none, model Pre-LN",
                      "warm-up 200, model Post-LN", "warm-up 200, model Pre-LN"]  # fmt: skip
    assert page.pixels("facet-0-0")["cool"] == 0 and page.pixels("facet-0-1")["warm"] == 0
    assert page.pixels("facet-0-0")["warm"] > 50 and page.pixels("facet-0-1")["cool"] > 50
    ranges = {str(page.js("const s = plots.get(arguments[0]).u.scales; return [s.x.min, s.x.max, s.y.min, s.y.max]",
                          f"facet-{r}-{c}")) for r in (0, 1) for c in (0, 1)}  # fmt: skip
    assert len(ranges) == 1


def test_layers_of_probes(page: Browser) -> None:
    titles = page.js("return [...document.querySelectorAll('#layers figcaption')].map(f => f.firstChild.data)")
    assert titles == ["By layer at update 0", "By layer at update 1,200", "Post-LN, warm-up 200", "Pre-LN, warm-up 200"]
    line = page.js("return plots.get('depth-first').panel.lines[0]")  # seeds 1 and 2: 1.1 and 1.2 times 0.2 * 1.8^layer
    assert line["ys"] == pytest.approx([1.15 * 0.2 * 1.8**layer for layer in range(5)], abs=1e-3)
    assert line["xs"] == [1, 2, 3, 4, 5]
    along = page.js("return [...plots.values()].find(p => p.panel.title === 'Pre-LN, warm-up 200').panel.lines")
    assert [each["label"] for each in along] == [f"layer {n}" for n in range(1, 6)]
    page.pick("#kind", "decoder.layers.*.fc1")
    line = page.js("return plots.get('depth-first').panel.lines[0]")
    assert line["ys"] == pytest.approx([2.3 * 0.2 * 1.8**layer for layer in range(5)], abs=1e-3)


@pytest.fixture(scope="session")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep over depth that was probed and never trained, one model of it also after training."""
    sweep = fake_outputs.write_probed(tmp_path_factory.mktemp("probed"))
    trained = fake_outputs.probe_rows("post", 6, 1, at="checkpoint", updates=400)
    rows = json.loads((sweep / "post-6" / "probe.json").read_text())
    (sweep / "post-6" / "probe.json").write_text(json.dumps([*rows, *trained]))
    return dashboard.write(sweep)


def test_a_sweep_that_was_only_probed(browser: Browser, probed: Path) -> None:
    """Values of probe_rows: layer + seed / 10, seeds 1 to 3; 6 and 8 layers."""
    page = browser.open(probed)
    assert page.js("return [...document.querySelectorAll('#probes figcaption')].map(f => f.firstChild.data)") == [
        "Decoder layers at initialisation", "Last decoder layer by depth at initialisation",
        "Decoder layers after 400 updates"]  # fmt: skip
    lines = page.js("return plots.get('probed-init-layer-decoder').panel.lines")
    assert lines[0]["label"].startswith("Post-LN, warm-up 400") and len(lines) == 4
    assert lines[0]["xs"] == [1, 2, 3, 4, 5, 6] and lines[0]["ys"] == pytest.approx([n + 0.2 for n in range(1, 7)])
    assert lines[0]["lo"] == pytest.approx([n + 0.1 for n in range(1, 7)])
    depth = page.js("return plots.get('probed-init-depth-decoder').panel.lines")
    assert [line["label"] for line in depth] == ["Post-LN, warm-up 400", "Pre-LN, warm-up 400"]
    assert depth[1]["xs"] == [6, 8] and depth[1]["ys"] == [6.2, 8.2] and depth[1]["hi"] == [6.3, 8.3]
    assert page.pixels("probed-init-depth-decoder")["cool"] > 300  # both models have the same values here
    assert page.js("return ['charts', 'outcome', 'together'].every(id => document.getElementById(id).hidden)")
    assert page.text("#kicker") == "4 configurations, 4 runs4 probed"
    assert "Line: mean over seeds" in page.text("#measured-reading") and "4 batches" in page.text("#measured-reading")
    assert page.console() == [] and page.js("return document.documentElement.scrollWidth") == 1280


def test_what_of_a_probe_is_shown_is_in_the_address(browser: Browser, probed: Path) -> None:
    page = browser.open(probed)
    page.pick("#module", "fc1")
    assert page.text("#probes figcaption span") == "W1 (fc1)"
    assert page.hash() == "#module=fc1"
    assert page.js("return plots.get('probed-init-layer-decoder').panel.lines[0].ys[0]") == pytest.approx(0.012)
    page.click("[data-level='model.norm=Post-LN']")
    assert page.pixels("probed-init-layer-decoder")["warm"] == 0
    assert page.js("return plots.get('probed-init-depth-decoder').panel.lines.length") == 1
    page = browser.open(probed, "quantity=__proto__&module=constructor")
    assert page.console() == [] and page.pixels("probed-init-layer-decoder")["cool"] > 300


def test_six_lines_of_one_model_are_told_apart(browser: Browser, tmp_path: Path) -> None:
    """Figure 2: Post-LN with three warm-ups and two rates."""
    for warmup in (0, 500, 4000):
        for rate in (5e-4, 1e-3):
            config = fake_outputs.run("post", warmup, 1)
            config.optim.lr = rate
            fake_outputs.write_run(tmp_path / "s" / f"{warmup}-{rate}", config,
                                   metrics=fake_outputs.rows("post", 200, 1))  # fmt: skip
    page = browser.open(dashboard.write(tmp_path / "s"))
    lines = page.js("return plots.get('valid.bleu').panel.lines.map(l => [l.dash.join(), l.marker.shape, l.stroke])")
    assert len({(dash, shape) for dash, shape, _ in lines}) == len({(dash, stroke) for dash, _, stroke in lines}) == 6
    keys = page.js("return [...document.querySelectorAll('#groups svg')].map(s => s.innerHTML)")
    assert len(set(keys)) == 6
    assert page.console() == []


def test_what_differs_between_chosen_runs(page: Browser) -> None:
    fields = "return [...document.querySelectorAll('#diff td:first-child code')].map(c => c.textContent)"
    assert page.js(fields) == ["model.norm", "schedule.warmup_updates"]
    for name in ("post_ln-warmup0-01c0ffee", "post_ln-warmup200-11c0ffee"):
        page.click(f"[aria-label='leave out {name}']")
    assert page.js(fields) == ["schedule.warmup_updates"]
    page.pick("#add", "pre_ln-warmup0-22c0ffee")
    assert page.js(fields) == ["schedule.warmup_updates", "seed"]
    assert page.js("return document.querySelectorAll('#samples th').length") == 6


def test_translations_side_by_side(page: Browser) -> None:
    row = page.js("return [...document.querySelector('#samples tbody tr').cells].map(c => c.textContent)")
    assert row[:3] == ["1", "Sentence 1 as the source has it.", "Sentence 1 as the reference has it."]
    assert row[3] == "Sentence 1 as post_ln-warmup0-01c0ffee has it." and row[5] == row[2]
    assert page.js("return document.querySelectorAll('#samples .same').length") == 24


@pytest.fixture(scope="session")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs decoded by their best checkpoint and by a mean, one of them by another beam, too."""
    sweep = tmp_path_factory.mktemp("averaged") / "s"
    for norm, beam in (("post", 5), ("pre", 4)):
        scores = [fake_outputs.score(20.0), fake_outputs.score(21.0, checkpoint="mean of 5"),
                  *([fake_outputs.score(22.0, decode="beam4-lp0.6")] if beam == 4 else [])]  # fmt: skip
        said = fake_outputs.sentences("the best")
        run = fake_outputs.write_run(sweep / norm, fake_outputs.run(norm, 200, 1), scores=scores, translations=said)
        for middle in ("mean-of-5", *(["beam4-lp0.6"] if beam == 4 else [])):
            lines = fake_outputs.sentences(middle)
            (run / f"hyp.test.{middle}.txt").write_text("".join(f"{line}\n" for line in lines))
    return dashboard.write(sweep)


def test_the_reader_chooses_the_decoding(browser: Browser, averaged: Path) -> None:
    page = browser.open(averaged)
    heads = "return [...document.querySelectorAll('#samples th')].map(c => c.textContent)"
    cells = "return [...document.querySelector('#samples tbody tr').cells].map(c => c.textContent)"
    options = page.js("return [...document.getElementById('decoding').options].map(o => o.value)")
    assert options == ["best checkpoint", "best checkpoint, beam4-lp0.6", "mean of 5", "all"]
    assert page.js(cells) == ["1", *["Sentence 1 as the best has it."] * 2]
    page.pick("#decoding", "mean of 5")
    assert page.js(cells) == ["1", *["Sentence 1 as mean-of-5 has it."] * 2] and page.hash() == "#decoding=mean+of+5"
    page.pick("#decoding", "best checkpoint, beam4-lp0.6")  # the other run has none
    assert page.js(heads) == ["line", "Pre-LN, warm-up 200, seed 1"]
    page.pick("#decoding", "all")
    assert page.js(heads)[1:3] == [f"Post-LN, warm-up 200, seed 1: {way}" for way in ("best checkpoint", "mean of 5")]
    assert len(page.js(heads)) == 6 and page.console() == []
    assert browser.open(averaged, "decoding=__proto__").js(cells)[1] == "Sentence 1 as the best has it."


def test_scores_of_different_decodings_are_rows_of_their_own(browser: Browser, averaged: Path) -> None:
    page = browser.open(averaged)
    rows = page.js(
        "return [...document.querySelectorAll('#diff tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    assert rows[-3:] == [["test sacrebleu, beam5-lp1.2", "20.00", "20.00"],
                         ["test sacrebleu, mean of 5, beam5-lp1.2", "21.00", "21.00"],
                         ["test sacrebleu, beam4-lp0.6", "–", "22.00"]]  # fmt: skip


def test_one_decoding_is_no_choice(page: Browser) -> None:
    assert page.js("return document.getElementById('decodings').hidden")
    kinds = page.js("return [...document.querySelectorAll('#diff tbody tr')].map(r => r.cells[0].textContent)")
    assert kinds[-3:] == ["valid sacrebleu", "test sacrebleu", "test tokenized_bleu"]


def test_the_paper_s_claims(page: Browser) -> None:
    title = page.text("#h-claims")
    assert title.startswith("The paper's claims, judged") and title.endswith(": 1 holds, 1 cannot be said")
    rows = page.js(
        "return [...document.querySelectorAll('#claims tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    assert rows[0][0] == "holds" and rows[0][2:5] == ["no warm-up: 1.12 (n=2)", "warm-up 200: 29.72 (n=2)", "+28.59"]
    assert rows[1][0].startswith("cannot be saidthe mean lies within the bounds") and len(rows[1]) == 10
    marks = page.js("return [...document.querySelectorAll('#claims .state')].map(s => s.className)")
    assert marks == ["state holds brief", "state open brief"]


@pytest.mark.parametrize("width", [1280, 400])
def test_long_names_are_read_in_full(browser: Browser, tmp_path: Path, width: int) -> None:
    """In the legend and beside the cursor; nine lines make the legend a grid."""
    from selenium.webdriver import ActionChains

    for index in range(9):
        config = fake_outputs.run("post", 200, 1)
        config.optim.name = f"an_optimizer_with_a_long_name_{index}"
        fake_outputs.write_run(tmp_path / "s" / str(index), config, metrics=fake_outputs.rows("post", 200, 1))
    page = browser.open(dashboard.write(tmp_path / "s"), width=width)
    over = page.driver.find_element("css selector", f"[id='{LOSS}'] .u-over")
    ActionChains(page.driver).move_to_element(over).perform()
    page.settle()
    whole = (
        "return [...document.querySelectorAll(arguments[0])].filter(e => e.scrollWidth <= e.clientWidth"
        " && e.getBoundingClientRect().right <= innerWidth && e.textContent.includes('with_a_long_name')).length"
    )
    assert page.js(whole, "#groups .foreign") == page.js(whole, ".tip:not([hidden]) .foreign") == 9
    assert page.js("return document.documentElement.scrollWidth") == width


def test_states(page: Browser) -> None:
    assert page.text("#kicker") == "4 configurations, 8 runs6 done1 missing1 diverged"
    page.click("#states button:nth-child(4)")
    assert page.js("return [...document.querySelectorAll('#runs tbody tr')].map(r => r.cells[3].textContent)") == [
        "diverged at update 900"]  # fmt: skip
    assert page.hash() == "#state=diverged"


def test_the_address_holds_the_whole_view(page: Browser, demo: Path) -> None:
    page.click("label[for='x-wall-clock']")
    page.click("label[for='ylog-log']")
    page.click("[data-level='schedule.warmup_updates=none']")
    page.click("#groups li:nth-child(2) button")
    page.pick("#theme", "dark")
    page.pick("#list-columns", "model.norm")
    page.click("[aria-label='leave out pre_ln-warmup0-21c0ffee']")
    state = "return JSON.stringify([view, [...view.off], [...view.hidden], chosen().map(r => r.name)])"
    seen, picture, link = page.js(state), page.picture("facet-0-1"), page.hash()
    page.open(demo, link[1:])
    assert page.js(state) == seen and page.picture("facet-0-1") == picture
    assert page.js("return getComputedStyle(document.body).backgroundColor") == "rgb(19, 20, 22)"
    page.click("#reset")
    assert page.hash() == "" and page.js("return document.querySelectorAll('#charts figure').length") == 6


def test_a_link_followed_in_the_open_page(page: Browser) -> None:
    page.js("location.hash = '#x=epoch&off=model.norm%3DPre-LN'")
    page.settle()
    assert page.js("return document.getElementById('x-epochs').checked") and page.pixels(LOSS)["cool"] == 0


@pytest.mark.parametrize(
    "hash",
    ["x=nowhere&metric=__proto__&rows=constructor&kind=x", "off=%3Cimg%20src%3Dx%3E&run=%3Cscript%3E&run=toString",
     "zoom=NaN,1e999&smooth=1e9", "zoom=5,1", "%E0%A4%A", "&&==#&", "theme=%22%3E&state=__proto__"],
)  # fmt: skip
def test_a_broken_link_does_no_harm(browser: Browser, demo: Path, hash: str) -> None:
    page = browser.open(demo, hash)
    assert page.console() == [] and page.pixels(LOSS)["cool"] > 500


def test_dark_and_light(page: Browser) -> None:
    light = page.picture(LOSS)
    page.driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    page.settle()
    try:
        assert page.js("return getComputedStyle(document.body).backgroundColor") == "rgb(19, 20, 22)"
        assert page.picture(LOSS) != light
        page.pick("#theme", "light")
        assert page.js("return getComputedStyle(document.body).backgroundColor") == "rgb(253, 253, 252)"
        assert page.picture(LOSS) == light
    finally:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize("width", [1280, 800, 400])
def test_nothing_is_wider_than_the_window(browser: Browser, demo: Path, width: int) -> None:
    page = browser.open(demo, width=width)
    assert page.js("return document.documentElement.scrollWidth") == width
    page.resize(width - 60)
    assert page.js("return document.documentElement.scrollWidth") == width - 60


def test_paper(page: Browser, tmp_path: Path) -> None:
    import base64

    page.pick("#theme", "dark")
    page.js("addEventListener('beforeprint', () => { window.atPrint = [document.documentElement.dataset.theme, "
            "plots.get('train.lr').u.width]; })")  # fmt: skip
    pdf = base64.b64decode(page.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert pdf.startswith(b"%PDF") and pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") in range(2, 8)
    assert page.js("return window.atPrint") == ["light", 420]
    page.settle()
    assert page.js("return document.documentElement.dataset.theme") == "dark"
    assert page.js("return plots.get('train.lr').u.width") < 400
