"""When Pre-LN reaches what Post-LN has: every expected number is worked out by hand from the rows in the test."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "golden"))
import fake_outputs as fake

from lnexp import paper, rundir
from lnexp.config import Data, Optim, Scale, Schedule, Size
from lnexp.errors import UserError
from lnexp.report import figure, figure_pace, figure_style, markup, pace, table
from lnexp.report.collect import collect
from lnexp.report.pace_pairs import MOST, pairs

SWEEP = Path("outputs/race")
STEP = Schedule("step_drop", 0, drop_epoch=8)
WARM = Schedule("inverse_sqrt", 200)


def validations(
    losses: Sequence[float], bleus: Sequence[float] | None = None, every: int = 100
) -> list[dict[str, Any]]:
    """Give rows every `every` updates: 50 updates an epoch, half a second an update."""
    bleus = bleus or [10.0 - loss for loss in losses]
    return [
        {"split": "valid", "updates": every * k, "epoch": every * k / 50, "wall_s": every * k / 2, "loss_bits": loss,
         "nll_bits": loss - 1, "bleu": bleu}
        for k, (loss, bleu) in enumerate(zip(losses, bleus, strict=True), start=1)
    ]  # fmt: skip


def write(norm: str, seed: int, rows: list[dict[str, Any]], state: str = "done", **changes: Any) -> Path:
    """Write a run of the sweep: Post-LN with warm-up, Pre-LN without and on another schedule."""
    settings = {"schedule": WARM if norm == "post" else STEP, "validate_every": 100, **changes}
    config = fake.run(norm, 0, seed, **settings)
    name = f"{norm}-{len(list(SWEEP.glob('*')))}"
    last = rows[-1]["updates"] if rows else 0
    return fake.write_run(SWEEP / name, config, state, last, metrics=rows, scores=[fake.score(9.0, split="valid")])


def measure() -> dict[str, Any]:
    found = pace.pace(collect(SWEEP))
    assert found is not None
    json.dumps(found, allow_nan=False)  # plain data
    return found


def entry(pair: dict[str, Any], metric: str = "loss_bits", kind: str = "last") -> dict[str, Any]:
    (found,) = [e for e in pair["reach"] if (e["metric"], e["target"]) == (metric, kind)]
    return found


def mean(numbers: dict[str, Any] | None) -> float:
    assert numbers is not None
    return numbers["mean"]


def test_ninth_against_fifteenth() -> None:
    """Post-LN falls by 0.1 a validation from 5.4 to 4.0, its 15th; Pre-LN is at 4.0 with its 9th."""
    write("post", 1, validations([round(5.5 - 0.1 * k, 1) for k in range(1, 16)]))
    write("pre", 1, validations([round(4.9 - 0.1 * k, 1) for k in range(1, 16)]))
    (pair,) = measure()["pairs"]
    found = entry(pair)
    assert found["value"] == {"mean": 4.0, "sd": None, "half_width": None, "n": 1, "text": "4.00"}
    assert found["seeds"][0]["post"] == {"checkpoint": 15, "updates": 1500, "epoch": 30.0, "wall_s": 750.0}
    assert found["seeds"][0]["pre"] == {"checkpoint": 9, "updates": 900, "epoch": 18.0, "wall_s": 450.0}
    assert found["seeds"][0]["ratio"] == dict.fromkeys(pace.ALONG, 0.6)
    assert (found["n"], found["reached"], found["sooner"]) == (1, 1, 1)
    assert mean(found["post_then"]) == 4.6  # 5.5 - 0.1 * 9
    assert pair["course"]["loss_bits"][8] == {"checkpoint": 9, "updates": 900.0, "pre": 4.0, "post": 4.6, "n": 1}
    assert pair["paper"]["ratio"] == 0.6 and pair["paper"]["certainty"] == "read"


def test_last_and_best_differ_where_post_ln_gets_worse_again() -> None:
    """Loss 5, 4, 3, 4: the last value, 4, is first there at checkpoint 2, the best, 3, at checkpoint 3."""
    write("post", 1, validations([5, 4, 3, 4], [10, 20, 30, 25]))
    write("pre", 1, validations([4, 3.5, 3.1, 2.9], [26, 29, 30, 31]))
    (pair,) = measure()["pairs"]
    places = {}
    for metric in ("loss_bits", "bleu"):
        for kind in ("last", "best"):
            (seed,) = entry(pair, metric, kind)["seeds"]
            places[metric, kind] = seed["target"], seed["post"]["checkpoint"], seed["pre"]["checkpoint"]
    assert places == {
        ("loss_bits", "last"): (4, 2, 1),
        ("loss_bits", "best"): (3, 3, 4),
        ("bleu", "last"): (25, 3, 1),  # 25 is first passed by 30
        ("bleu", "best"): (30, 3, 3),
    }
    assert [entry(pair, m, k)["sooner"] for m, k in places] == [1, 0, 1, 0]


def test_a_seed_that_never_gets_there_is_counted() -> None:
    """Ratios 0.5 and 0.75 over two of three seeds: mean 0.625, sd sqrt(2) * 0.125, half width 12.7062 / sqrt(2) sd."""
    for seed in (1, 2, 3):
        write("post", seed, validations([5, 4.5, 4.2, 4]))
    write("pre", 1, validations([5, 4, 3.9, 3.8]))
    write("pre", 2, validations([5, 4.1, 4, 3.9]))
    write("pre", 3, validations([5, 4.5, 4.3, 4.1]))
    found = measure()
    (pair,) = found["pairs"]
    one = entry(pair)
    assert (one["n"], one["reached"], one["sooner"]) == (3, 2, 2)
    assert one["seeds"][2]["pre"] is None and one["seeds"][2]["ratio"] is None
    ratio = one["ratio"]["checkpoint"]
    assert (ratio["mean"], ratio["n"]) == (0.625, 2)
    assert ratio["sd"] == pytest.approx(math.sqrt(2) * 0.125, abs=1e-4)
    assert ratio["half_width"] == pytest.approx(12.7062 * 0.125, abs=1e-4)
    assert one["post"]["updates"]["n"] == 3 and one["pre"]["updates"]["n"] == 2
    row = pace.grid(found).rows[0]
    assert row[7:10] == ["0.62 ± 1.59", "2 of 3", "2 of 3"]


def test_none_reaches() -> None:
    write("post", 1, validations([5, 4]))
    write("pre", 1, validations([5, 4.5]))
    found = measure()
    one = entry(found["pairs"][0])
    assert (one["n"], one["reached"], one["sooner"]) == (1, 0, 0)
    assert one["ratio"]["checkpoint"] is None and one["post_then"] is None
    row = pace.grid(found).rows[0]
    assert row[2:] == ["2.0", "–", "200 / –", "4.0 / –", "1 min 40 s / –", "–", "0 of 1", "0 of 1", "–",
                       "0.60 (9th of 15, IWSLT14)"]  # fmt: skip


def test_losses_that_are_no_numbers_are_never_there() -> None:
    """Pre-LN breaks after its second validation; what it had before counts, nan and infinities do not."""
    nan, inf = math.nan, math.inf
    write("post", 1, validations([5, nan, 4], [10, 20, 30]))
    write("pre", 1, validations([nan, 4, nan], [90, 90, 90]), "diverged")
    write("post", 2, validations([5, 4, nan], [10, 20, 30]))
    write("pre", 2, validations([4, 4, 4], [90, 90, 90]))
    write("post", 3, validations([5, 4.5, 4], [10, 20, nan]))
    write("pre", 3, validations([inf, -inf, nan], [90, 90, 90]), "diverged")
    found = measure()
    (pair,) = found["pairs"]
    loss, bleu = entry(pair), entry(pair, "bleu")
    assert [(s["seed"], s["pre"] and s["pre"]["checkpoint"]) for s in loss["seeds"]] == [(1, 2), (3, None)]
    assert (loss["n"], loss["without_target"], loss["reached"]) == (2, 1, 1)
    assert [s["seed"] for s in bleu["seeds"]] == [1, 2]
    assert loss["post_then"] is None  # Post-LN's second is nan
    assert "1 whose last value of Post-LN is not a number" in pace.grid(found).notes[-2]


def test_with_other_intervals_updates_are_compared() -> None:
    """Post-LN every 100 updates is at 4 with update 400, Pre-LN every 150 with update 300: 0.75, not 2/4."""
    write("post", 1, validations([5, 4.6, 4.3, 4]))
    write("pre", 1, validations([5, 4, 3], every=150), validate_every=150)
    found = measure()
    (pair,) = found["pairs"]
    one = entry(pair)
    assert pair["axis"] == "updates"
    assert (mean(one["ratio"]["updates"]), "checkpoint" in one["ratio"]) == (0.75, False)
    assert mean(one["post_then"]) == 4.3  # at update 300
    # Pre-LN's first, update 150, meets Post-LN's validation of update 100; its third, update 450, that of 400.
    assert [(c["updates"], c["post"]) for c in pair["course"]["loss_bits"]] == [(150, 5), (300, 4.3), (450, 4)]
    grid = pace.grid(found)
    assert grid.rows[0][7] == "0.75 (updates)"
    assert any("not validated equally often" in note for note in grid.notes)


@pytest.mark.parametrize("spelt", [{"validate_every": 0, "updates_per_epoch": 100}, {"patience": 3, "max_epochs": 2}])
def test_as_often_by_another_name_is_as_often(spelt: dict[str, int]) -> None:
    write("post", 1, validations([5, 4]))
    write("pre", 1, validations([4, 3]), **spelt)
    assert measure()["pairs"][0]["axis"] == "checkpoint"


def test_epochs_that_end_an_update_apart_are_the_same_checkpoint() -> None:
    """Without a common seed the k-th epoch may end an update earlier: the mirrored question goes by checkpoint."""
    early = validations([4.5, 4])
    for row in early:
        row["updates"] -= 1
    write("post", 1, validations([5, 4]), validate_every=0)
    write("pre", 2, early, validate_every=0)
    (pair,) = measure()["pairs"]
    assert not pair["by_seed"] and pair["axis"] == "checkpoint"
    assert [c["post"] for c in pair["course"]["loss_bits"]] == [5, 4]
    assert entry(pair)["seeds"][0]["seed"] == [1, 2]
    assert any("no seed is common" in note for note in pace.grid(measure()).notes)


def test_runs_that_have_not_ended_are_left_out_by_name() -> None:
    for seed in (1, 2, 3, 4):
        write("post", seed, validations([5, 4]), {3: "interrupted"}.get(seed, "done"))
        write("pre", seed, validations([4, 3]), {2: "running", 4: "failed"}.get(seed, "done"))
    write("pre", 5, validations([4, 3]))
    found = measure()
    (pair,) = found["pairs"]
    assert [s["seed"] for s in entry(pair)["seeds"]] == [1]
    assert pair["left_out"] == [
        "Post-LN seed 2: no partner",
        "Post-LN seed 3: interrupted at update 200",
        "Post-LN seed 4: no partner",
        "Pre-LN seed 2: running, update 200",
        "Pre-LN seed 3: no partner",
        "Pre-LN seed 4: failed",
        "Pre-LN seed 5: no partner",
    ]
    assert all(reason in "".join(pace.grid(found).notes) for reason in pair["left_out"])


def test_a_validation_made_again_after_a_cut_counts_once() -> None:
    rows = validations([5, 4.2, 4])
    write("post", 1, [*rows[:2], {**rows[1], "loss_bits": 4.1, "wall_s": 170.0}, rows[2]])
    write("pre", 1, validations([5, 4.1, 3.9]))
    (seed,) = entry(measure()["pairs"][0])["seeds"]
    assert (seed["post"]["checkpoint"], seed["pre"]["checkpoint"]) == (3, 3)


def test_who_is_paired() -> None:
    """Adam at two rates and RAdam: rates and optimizers stay apart; Post-LN without warm-up only where none has it."""
    rows = validations([5, 4])
    for rate in (5e-4, 1e-3):
        for norm in ("post", "pre"):
            write(norm, 1, rows, optim=Optim("adam", rate))
    write("post", 1, rows, optim=Optim("adam", 5e-4), schedule=Schedule("inverse_sqrt", 0))
    write("pre", 1, rows, optim=Optim("adam", 5e-4), schedule=WARM)
    for norm in ("post", "pre"):
        write(norm, 1, rows, optim=Optim("radam", 5e-4), schedule=Schedule("linear", 0, total_updates=200))
    write("pre", 1, rows, optim=Optim("sgd", 5e-4))  # alone
    found = measure()["pairs"]
    baseline, free = "Post-LN, warm-up 200, schedule inverse_sqrt", "Pre-LN, no warm-up, schedule step_drop"
    assert [(p["settings"], p["post"], p["pre"], p["paper"] is not None) for p in found] == [
        ("optimizer adam, lr_max 5e-4", baseline, free, True),
        ("optimizer adam, lr_max 1e-3", baseline, free, True),
        ("optimizer adam, lr_max 5e-4", "Post-LN, warm-up 200", "Pre-LN, warm-up 200, schedule inverse_sqrt", False),
        ("optimizer radam, lr_max 5e-4", "Post-LN, no warm-up", "Pre-LN, no warm-up", False),
    ]


@pytest.mark.parametrize("kind", ["one model", "another size", "another batch", "nothing ended", "no rows", "empty"])
def test_nothing_to_compare(kind: str) -> None:
    rows = validations([5, 4])
    write("post", 1, [] if kind == "no rows" else rows, "running" if kind == "nothing ended" else "done")
    if kind == "one model":
        write("post", 2, rows)
    elif kind == "another size":
        write("pre", 1, rows, size=Size(2, 2, 64, 128, 4))
    elif kind == "another batch":
        write("pre", 1, rows, tokens_per_update=4096)
    else:
        write("pre", 1, rows)
    assert pace.pace([] if kind == "empty" else collect(SWEEP)) is None


def test_runs_of_two_scales_are_no_pair() -> None:
    for norm, updates in (("post", 11.0), ("pre", 22.0)):
        write(norm, 1, validations([5, 4]), scale=Scale(updates, 3.0))
    assert pace.pace(collect(SWEEP)) is None
    write("pre", 1, validations([4, 3]), scale=Scale(11.0, 3.0), schedule=Schedule("step_drop", 0, drop_epoch=9))
    (pair,) = measure()["pairs"]
    assert entry(pair)["n"] == 1
    notes = table.build(collect(SWEEP))["notes"]
    assert (
        "Runs of several scales of the paper's settings; claims and how fast compare runs of one scale alone." in notes
    )
    assert not [note for note in notes if note.startswith("At a scale")]


def test_what_learned_nothing_gives_no_target() -> None:
    """To be where such a model ends is no speed. All seeds count or none; a choice by outcome would flatter it."""
    for seed, bleus in ((1, [0.1, 4.9]), (2, [5.2, 0.1])):
        write("post", seed, validations([9, 8], bleus))
        write("pre", seed, validations([8, 7]))
    (pair,) = measure()["pairs"]
    assert [seed["seed"] for seed in entry(pair)["seeds"]] == [1, 2] and pair["left_out"] == []
    write("post", 3, validations([9, 8], [4.1, 0.1]))
    assert pace.pace(collect(SWEEP)) is None
    (pair,) = [pace._pair(pair) for pair in pairs(collect(SWEEP))]
    why = "Post-LN has learned nothing (best valid sacreBLEU 4.73 on the mean, need 5)"  # (4.9 + 5.2 + 4.1) / 3
    assert pair["left_out"][0] == f"Post-LN seed 1: {why}"


def test_where_nothing_gives_a_target_that_is_said() -> None:
    """And not before all have ended."""
    write("post", 1, validations([5, math.nan]), "diverged")
    folder = write("pre", 1, validations([4, 3]), "running")
    assert "How fast" not in table.render(collect(SWEEP))
    rundir.write_status(folder, "done", 200, 9.0)
    said = "How fast is not said: no run of Post-LN gives a target in Post-LN, warm-up 200, schedule inverse_sqrt; "
    text = table.render(collect(SWEEP))
    assert said in text and "(Post-LN seed 1: diverged at update 200; Pre-LN seed 1: no partner)" in text


def test_different_data_is_refused() -> None:
    write("post", 1, validations([5, 4]))
    folder = write("pre", 1, validations([4, 3]))
    (folder / "env.json").write_text('{"data_fingerprint": "0ther"}')
    with pytest.raises(UserError, match="data fingerprint"):
        pace.pace(collect(SWEEP))


def test_what_the_paper_says_on_its_own_corpora() -> None:
    claim = next(c for c in paper.CLAIMS if c.id == pace.CLAIM)
    assert all(f"{k}th" in claim.statement for k in pace.PAPERS)
    write("post", 1, validations([5, 4]), data=Data(paper.WMT, "en", "de"))
    write("pre", 1, validations([4, 3]), data=Data(paper.WMT, "en", "de"))
    (pair,) = measure()["pairs"]
    assert pair["paper"]["claim"] == "wmt.pre" and pair["paper"]["ratio"] is None
    for run in SWEEP.glob("*/config.yaml"):
        text = (
            run.read_text().replace(paper.WMT, paper.IWSLT).replace("src: en", "src: de").replace("tgt: de", "tgt: en")
        )
        run.write_text(text)
    (pair,) = measure()["pairs"]
    assert pair["paper"]["words"] == "0.60 (9th of 15)"


def test_the_table_is_text_in_both_languages() -> None:
    write("post", 1, validations([5, 4]))
    write("pre", 1, validations([4, 3]))
    grid = pace.grid(measure())
    assert all(len(row) == len(grid.headers) for row in grid.rows)
    assert fake.SIGNATURE in "".join(grid.notes)
    assert "last and best valid loss, 4.00 bits (n=1)" in markup.markdown(grid)
    assert "\\toprule" in markup.latex(grid)


def test_the_demo_of_the_reports() -> None:
    """By the formula of fake_outputs Pre-LN without warm-up has Post-LN's last loss from 0.503 of the updates on."""
    found = pace.pace(collect(fake.write_demo(Path("outputs"))))
    assert found is not None
    assert [(p["post"], p["pre"]) for p in found["pairs"]] == [
        ("Post-LN, warm-up 200", "Pre-LN, no warm-up"),
        ("Post-LN, warm-up 200", "Pre-LN, warm-up 200"),
    ]
    one = entry(found["pairs"][0])
    assert [(s["post"]["checkpoint"], s["pre"]["checkpoint"]) for s in one["seeds"]] == [(8, 5), (8, 5)]
    assert mean(one["ratio"]["checkpoint"]) == 5 / 8
    assert found["pairs"][1]["left_out"][0] == "Post-LN seed 2: no partner"


def race() -> None:
    """Write two seeds: Post-LN ends at 4 with its 4th; Pre-LN is there with its 2nd and, seed 2, never."""
    for seed in (1, 2):
        write("post", seed, validations([7, 6, 5, 4], [10, 20, 30, 40]))
    write("pre", 1, validations([5, 4, 3, 2], [40, 50, 60, math.nan]))
    write("pre", 2, validations([7, 6.5, 6, 5], [20, 30, 50, 60]))


def test_the_figure_shows_target_and_arrivals(monkeypatch: pytest.MonkeyPatch) -> None:
    race()
    seen: list[Any] = []
    monkeypatch.setattr(figure_style, "finish", lambda _, __, panels, foot, ___: seen.append((panels, foot)) or b"")
    figure_pace.draw(collect(SWEEP), "race", "svg")
    ((loss, bleu), foot) = seen[0]
    assert loss.get_title() == "Pre/Post 0.50, Pre-LN there in 1 of 2 seeds"
    assert bleu.get_title() == "Pre/Post 0.50 ± 3.18, Pre-LN there in 2 of 2 seeds"  # 1/4 and 3/4: 12.7062 / 4
    assert [[text.get_text() for text in panel.texts] for panel in (loss, bleu)] == [["4", "2"], ["4", "2"]]
    stars = [
        (float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in loss.lines if line.get_marker() == "*"
    ]
    assert stars == [(4, 4), (2, 4)]
    assert loss.lines[0].get_ydata() == [4, 4]  # the target, across the panel
    assert loss.get_xlabel() == "checkpoint"
    assert "band" in foot and f"BLEU: {fake.SIGNATURE}" in foot


def test_the_figures_curves() -> None:
    race()
    (pair,) = pairs(collect(SWEEP))
    pres = [pre for _, pre in pair.partners]
    assert figure_pace.curve(pres, "loss_bits", "checkpoint") == [(1, [5, 7]), (2, [4, 6.5]), (3, [3, 6]), (4, [2, 5])]
    assert figure_pace.curve(pres, "bleu", "updates")[2:] == [
        (300, [60, 50]),
        (400, [60]),
    ]  # what is no number is not drawn


def test_many_pairs_are_counted_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(MOST + 2):
        for norm in ("post", "pre"):
            write(norm, 1, validations([5, 4]), optim=Optim("adam", 1e-3 * (k + 1)))
    seen: list[Any] = []
    monkeypatch.setattr(figure_style, "finish", lambda _, __, panels, foot, ___: seen.append((panels, foot)) or b"")
    figure_pace.draw(collect(SWEEP), "many", "svg")
    assert len(seen[0][0]) == 2 * MOST and "2 more pairs are not drawn" in seen[0][1]
    grid = pace.grid(measure())
    assert len(grid.rows) == 2 * MOST and any(note.startswith("2 more pairs") for note in grid.notes)


def test_without_a_pair_there_is_no_figure_of_it() -> None:
    write("pre", 1, validations([5, 4]))
    assert [file.name for file in figure.write(SWEEP)] == ["curves.svg"]
