"""The two sentences under the table: they follow the numbers, also where those speak against the paper."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "golden"))
import fake_outputs as fake
from fakes.verdicts import results, run

from lnexp.report import table
from lnexp.report.collect import collect
from lnexp.report.summary import _judge


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    return fake.write_demo(tmp_path / "outputs")


def test_summary_says_the_opposite_when_the_numbers_do(tmp_path: Path) -> None:
    values = {("post", 0): 29.0, ("post", 200): 29.5, ("pre", 0): 20.0, ("pre", 200): 31.0}
    for (norm, warmup), value in values.items():
        scores = [fake.score(value)]
        fake.write_run(tmp_path / "s" / f"{norm}{warmup}", fake.run(norm, warmup, 1), scores=scores)
    text = table.summary(collect(tmp_path / "s"))
    assert "Post-LN loses 0.5" in text and "Pre-LN loses 11.0" in text
    assert text.endswith("not the paper's picture: here Post-LN does without the warm-up, and Pre-LN needs it.")


@pytest.mark.parametrize(
    ("post", "pre", "words"),
    [
        (25.5, 0.4, "This is the paper's picture: Post-LN needs the warm-up, Pre-LN does without it."),
        (25.5, -3.0, "This is the paper's picture: Post-LN needs the warm-up, Pre-LN does without it."),
        (0.3, 0.1, "This is not the paper's picture: here neither model needs the warm-up."),
        (3.0, 0.1, "here Post-LN gains a little from the warm-up, and Pre-LN does without it."),
        (25.0, 4.0, "Post-LN needs the warm-up, as in the paper, but here Pre-LN gains a little from it too."),
        (25.0, 9.0, "Post-LN needs the warm-up, as in the paper, but here Pre-LN needs it too."),
        (
            4.0,
            9.0,
            "This is not the paper's picture: here Post-LN gains a little from the warm-up, and Pre-LN needs it.",
        ),
    ],
)
def test_verdict(post: float, pre: float, words: str) -> None:
    assert _judge(post, pre).endswith(words)


def test_summary_names_what_is_missing(demo: Path) -> None:
    shutil.rmtree(demo / "pre_ln-warmup200-31c0ffee")
    text = table.summary(collect(demo))
    assert "Post-LN loses 28.6 test sacreBLEU" in text
    assert text.endswith("Not all four can be compared: Pre-LN with warm-up is 2 missing.")
    for folder in demo.glob("post_ln-*"):
        shutil.rmtree(folder)
    (demo / "sweep.json").unlink()
    assert "Post-LN without warm-up is not among them" in table.summary(collect(demo))


def test_summary_of_one_diverged_run(tmp_path: Path) -> None:
    fake.write_run(tmp_path / "s" / "a", fake.run("post", 0, 1), "diverged", 412)
    assert "Post-LN without warm-up diverged at update 412" in table.summary(collect(tmp_path / "s"))


def test_other_sweeps_are_summed_up_by_their_claims() -> None:
    """Post-LN alone, at two rates: not the four that the warm-up's worth is read off."""
    bleu = {(5e-4, 0): 1.9, (5e-4, 500): 10.6, (5e-4, 4000): 24.4, (1e-3, 0): 2.5, (1e-3, 500): 0.5, (1e-3, 4000): 6.0}
    found = [
        r for (lr, warmup), value in bleu.items() for r in results(run("post", warmup, lr), [value, value + 0.1])
    ]  # fmt: skip
    assert table.summary(found) == (
        "Judged by these runs, of the paper's claims 4 hold: no warm-up ends far below T = 500 at the lower rate, "
        "T = 500 ends no higher than T = 4000 at the lower rate, T = 500 collapses at the higher rate, "
        "no warm-up, read as lr_max/sqrt(t), fails; "
        "1 holds in part: Post-LN without warm-up ends far below Post-LN with it (1 of 2 comparisons)."
    )


def test_a_sweep_about_nothing_in_the_paper() -> None:
    found = [r for warmup in (500, 4000) for r in results(run("pre", warmup, lr=warmup * 1e-6), [30.0])]
    assert table.summary(found) == "None of the paper's comparisons is among these runs."
