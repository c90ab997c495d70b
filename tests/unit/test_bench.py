"""The benchmark's arithmetic: rates, ratios, spreads, FLOP, what counts as the same work, and its one-line errors."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import bench
import bench_figures as figures
import bench_side
from bench_figures import Shape, Spread, flop, spread

from lnexp.config import Data, Model, Optim, Run, Size

BENCH = Path(__file__).parents[2] / "scripts" / "bench.py"


def side(seconds: list[float], tokens: list[int], **changed: Any) -> dict[str, Any]:
    losses = [13.0 - n for n in range(len(tokens))]
    return {
        "seconds": seconds,
        "cpu_seconds": [0.75 * s for s in seconds],
        "tokens": tokens,
        "losses": losses,
        "parameters": 9,
        "threads": 1,
        "peak_mib": 5.0,
    } | (changed)


def pair(ours: float, theirs: float, gemm: float = 100.0) -> dict[str, Any]:
    """Two runs whose counted update of 60 tokens takes so many seconds, after one of warm-up."""
    return {
        "lnexp": side([10.0, 10.0 + ours], [50, 60]),
        "fairseq": side([9.0, 9.0 + theirs], [50, 60]),
        "gemm_gflops": gemm,
    }


def test_spread_and_ratios() -> None:
    assert spread([3.0, 1.0, 10.0]) == Spread(3.0, 1.0, 10.0)
    assert spread([1.0, 2.0]).median == 1.5
    assert spread([1000.4, 1200.0, 990.0]).text() == "1,000 (990 to 1,200)"
    # Pair by pair: the median of ratios, which is not the ratio of medians.
    found = figures.ratios([10, 20, 30], [10, 5, 20])
    assert found == [1.0, 4.0, 1.5] and spread(found).median == 1.5
    with pytest.raises(ValueError):
        figures.ratios([1.0], [])


def test_rate_leaves_the_warm_up_out() -> None:
    # Updates end at 5, 7, 8 and 10 s; the first two are warm-up: 30 + 60 tokens in 10 - 7 s.
    assert figures.tokens_per_second([5, 7, 8, 10], [1000, 500, 30, 60], 2) == 30.0


def test_flop_by_hand() -> None:
    # d=2, f=3, V=5. Encoder layer: 4*4 + 2*2*3 = 28 weights by source; decoder layer: 6*4 + 12 = 36 by target and
    # 2*4 = 8 by source; output 10 by target. S=4, T=3: 6 * (4*(28 + 8) + 3*(36 + 10)) = 6 * 282 = 1692.
    # Attention: 12 * 2 * (4*4 + 3*3 + 3*4) = 24 * 37 = 888.
    one = Shape(1, 1, 2, 3, 5)
    assert flop(one, [(4, 3)]) == 1692 + 888
    assert flop(one, [(4, 3), (4, 3)]) == 2 * flop(one, [(4, 3)])
    # Two encoder and three decoder layers: 6 * (4*(2*28 + 3*8) + 3*(3*36 + 10)) + 24 * (2*16 + 3*(9 + 12)).
    assert flop(Shape(2, 3, 2, 3, 5), [(4, 3)]) == 6 * (320 + 354) + 24 * (32 + 63)


def test_same_work() -> None:
    ours, theirs = side([1, 2], [50, 60]), side([3, 4], [50, 60])
    assert figures.faults(figures.compare(ours, theirs)) == []
    assert figures.first_difference([1, 2, 3], [1, 2, 3]) is None
    assert figures.first_difference([1, 2, 3], [1, 9, 3]) == 2
    assert figures.first_difference([1, 2, 3], [1, 2]) == 3
    for changed, word in (
        ({"tokens": [50, 61]}, "batches differ from update 2"),
        ({"parameters": 10}, "parameters differ"),
        ({"threads": 2}, "torch threads differ"),
        ({"losses": [13.2, 12.0]}, "first losses differ"),
        ({"losses": [float("nan"), 12.0]}, "first losses differ"),
    ):
        (fault,) = figures.faults(figures.compare(ours, theirs | changed))
        assert word in fault
    moved = pair(1, 2)
    moved["lnexp"] = moved["fairseq"] = side([1, 2], [51, 60])
    assert figures.all_faults([pair(1, 2), moved]) == ["pair 2: other batches than in pair 1"]


def test_summary() -> None:
    shape, sentences = Shape(1, 1, 2, 3, 5), [(4, 30), (4, 30)]
    found = figures.summary([pair(1, 2, gemm=50), pair(2, 3), pair(4, 4)], shape, sentences, 1)
    assert found["lnexp"]["rates"] == [60, 30, 15] and found["fairseq"]["rates"] == [30, 20, 15]
    assert found["ratio"] == Spread(1.5, 1.0, 2.0)
    a_token = flop(shape, sentences) / 60
    assert found["mflop_per_target_token"] == pytest.approx(a_token / 1e6)
    assert found["lnexp"]["gflops"] == pytest.approx(30 * a_token / 1e9)
    assert found["lnexp"]["share_of_gemm_peak"] == pytest.approx(30 * a_token / 1e9 / 100)
    assert found["lnexp"]["core_share"] == Spread(0.75, 0.75, 0.75)
    assert found["fairseq"]["warmup_s"] == Spread(9.0, 9.0, 9.0)


def test_stock_words() -> None:
    run = Run(
        data=Data(src="de", tgt="en"),
        model=Model("pre"),
        size=Size(2, 3, 64, 128, 4, 0.1),
        optim=Optim(lr=1e-4, label_smoothing=0.1),
        tokens_per_update=512,
    )
    words = bench_side.stock_arguments(run, Path("data"), 23, Path("work"))
    options = dict(zip(words[1::2], words[2::2], strict=False))
    assert words[0] == "data"
    assert options["--encoder-layers"] == "2" and options["--decoder-layers"] == "3"
    assert options["--adam-betas"] == "(0.9, 0.98)" and options["--max-tokens"] == "512"
    assert {"--cpu", "--no-save", "--encoder-normalize-before", "--share-all-embeddings"} < set(words)
    run.model.norm, run.size.share_embeddings = "post", "none"
    words = bench_side.stock_arguments(run, Path("data"), 23, Path("work"))
    assert not [w for w in words if "normalize" in w or "share" in w]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--size", "huge"], "size=huge"),
        (["--local", "no/such/folder"], "no file"),
        (["--data", "wmt14_ende", "data.local=/no/such"], "no such folder"),
        (["--pairs", "0"], "need a whole number"),
        (["optim.lr=1"], "optim.lr=1"),
    ],
)
def test_wrong_input(words: list[str], line: str, tmp_path: Path) -> None:
    done = run_bench([sys.executable], words, tmp_path)
    assert done.returncode == 2 and line in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr


def test_without_fairseq(tmp_path: Path) -> None:
    # -S: no site-packages, as in a Python where nothing was installed.
    done = run_bench([sys.executable, "-S"], [], tmp_path)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "fairseq" in done.stderr and "make venv" in done.stderr


def test_a_side_that_fails_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(bench.Failed, match="nothing ended with code 1: KeyError: 'nothing'"):
        bench.measure("nothing", tmp_path, 1, 1)


def run_bench(python: list[str], words: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [*python, str(BENCH), *words]
    environment = os.environ | {"LNEXP_CACHE": str(folder / "cache")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
