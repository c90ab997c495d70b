"""The benchmark's arithmetic: rates, ratios, spreads, FLOP, what counts as the same work, and its one-line errors."""

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import bench
import bench_common as common
import bench_figures as figures
import bench_side
from bench_figures import Shape, Spread, flop, spread

from lnexp.config import Data, Model, Optim, Run, Size
from lnexp.errors import UserError

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
        "precision": "fp32",
    } | changed


def one_round(ours: float, theirs: float, gemm: float = 100.0) -> dict[str, Any]:
    """Runs whose counted update of 60 tokens takes so many seconds, after one of warm-up; bf16 takes half of fp32."""
    return {
        "order": ["bf16", "peaks", "fp32", "fairseq"],
        "sides": {
            "fp32": side([10.0, 10.0 + ours], [50, 60]),
            "bf16": side([10.0, 10.0 + ours / 2], [50, 60], precision="bf16"),
            "fairseq": side([9.0, 9.0 + theirs], [50, 60]),
        },
        "peaks": {"fp32 torch.mm": gemm / 2, "fp32 oneDNN": gemm, "bf16 torch.mm": 4 * gemm},
        "load": 0.0,
        "steal": 0.0,
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
        ({"losses": [13.0, 12.7]}, "losses part by 0.700 bits"),
        ({"losses": [13.0, float("nan")]}, "losses part by nan bits"),
    ):
        (fault,) = figures.faults(figures.compare(ours, theirs | changed))
        assert word in fault
    moved = one_round(1, 2)
    moved["sides"] = dict.fromkeys(moved["sides"], side([1, 2], [51, 60]))
    assert figures.all_faults([one_round(1, 2), moved]) == ["round 2: other batches than in round 1"]
    moved["sides"]["bf16"] = side([1, 2], [51, 61])
    assert figures.all_faults([moved]) == ["round 1, bf16: the batches differ from update 2 on"]


SHAPE, SENTENCES = Shape(1, 1, 2, 3, 5), [(4, 30), (4, 30)]


def test_summary() -> None:
    found = figures.summary([one_round(1, 2, gemm=50), one_round(2, 3), one_round(4, 4)], SHAPE, SENTENCES, 1)
    ours, bf16, stock = (found["sides"][name] for name in ("fp32", "bf16", "fairseq"))
    assert ours["rates"] == [60, 30, 15] and stock["rates"] == [30, 20, 15]
    assert ours["ratio"] == Spread(1.5, 1.0, 2.0) and bf16["ratio"] == Spread(3.0, 2.0, 4.0)
    assert stock["ratio"] == Spread(1.0, 1.0, 1.0)
    a_token = flop(SHAPE, SENTENCES) / 60
    assert found["mflop_per_target_token"] == pytest.approx(a_token / 1e6)
    assert ours["gflops"] == pytest.approx(30 * a_token / 1e9)
    # Each against the best of its own number type: 100 of oneDNN for both fp32 sides, 400 for bf16.
    assert ours["share_of_gemm_peak"] == pytest.approx(30 * a_token / 1e9 / 100)
    assert stock["share_of_gemm_peak"] == pytest.approx(20 * a_token / 1e9 / 100)
    assert bf16["share_of_gemm_peak"] == pytest.approx(60 * a_token / 1e9 / 400)
    assert ours["core_share"] == Spread(0.75, 0.75, 0.75)
    assert stock["warmup_s"] == Spread(9.0, 9.0, 9.0)
    assert found["gemm_gflops"]["fp32 oneDNN"] == Spread(100.0, 50.0, 100.0)


def test_peak_of_a_type() -> None:
    peaks = [{"fp32 torch.mm": 180.0, "fp32 oneDNN": 430.0, "bf16 torch.mm": 800.0}, {"fp32 torch.mm": 190.0}]
    assert figures.peak_of("fp32", peaks) == figures.peak_of("fp32_fast", peaks) == 430.0
    assert figures.peak_of("bf16", peaks) == 800.0 and figures.peak_of("fp16", peaks) is None


def test_page() -> None:
    rounds = [one_round(1, 2), one_round(2, 6)]
    settings = {"size": "demo", "tokens": 500, "threads": 2, "updates": 1, "warmup": 1, "rounds": 5,
                "data": "toy", "vocabulary": 5}  # fmt: skip
    machine = {"processor": "P", "cores": 2, "mhz": [2000.0, 3000.0], "system": "S", "load_before": 0.0,
               "versions": {"torch": "9"}}  # fmt: skip
    check = {
        mode: figures.compare(rounds[0]["sides"][mode], rounds[0]["sides"]["fairseq"]) for mode in ("fp32", "bf16")
    }
    report = {"settings": settings, "machine": machine, "rounds": rounds, "check": check, "faults": [],
              "command": "again", "summary": figures.summary(rounds, SHAPE, SENTENCES, 1)}  # fmt: skip
    page = figures.markdown(report)
    assert "| lnexp bf16 | 90 (60 to 120) | **5.00** (4.00 to 6.00) |" in page
    assert "| fairseq fp32 | 20 (10 to 30) | 1 |" in page
    assert "| 2 | bf16, peaks, fp32, fairseq | 3.00 | 6.00 | 0.0 |" in page
    assert "yes: the same batches" in page and "steal" not in page and "rounds: 2 of 5" in page
    rounds[1]["steal"] = 0.031
    stolen = figures.markdown(report | {"faults": ["another model"]})
    assert "0.0%, 3.1%" in stolen and "2,000 to 3,000 MHz" in stolen and "**no: another model**" in stolen
    widths = {line.count("|") for line in page.splitlines() if line.startswith("| lnexp") or line.startswith("| | ")}
    assert widths == {9}


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_no_side_always_follows_the_same(n: int) -> None:
    sides = [str(k) for k in range(n)]
    rows = [common.order(sides, number) for number in range(n if n % 2 == 0 else 2 * n)]
    assert all(sorted(row) == sides for row in rows)
    pairs = Counter(pair for row in rows for pair in pairwise(row))
    places = Counter(place for row in rows for place in enumerate(row))
    assert len(pairs) == n * (n - 1) and len(set(pairs.values())) == 1
    assert len(places) == n * n and len(set(places.values())) == 1
    # Already in the five rounds of the default.
    first = [common.order(sides, number) for number in range(5)]
    for one in sides:
        assert len({row[row.index(one) - 1] if row.index(one) else None for row in first}) > 1


def test_modes() -> None:
    def make(mode: str) -> None:
        if mode == "fp32_fast":
            raise UserError(f"{mode}: not here")

    assert common.chosen_modes(None, make) == ["fp32", "bf16"]
    assert common.chosen_modes(["bf16"], make) == ["bf16"]
    with pytest.raises(UserError, match="not here"):
        common.chosen_modes(["bf16", "fp32_fast"], make)


def test_stolen_time() -> None:
    assert common.stolen((10, 1000), (40, 2000)) == 0.03
    assert common.stolen((10, 1000), (10, 1000)) == 0.0
    steal, total = common.cpu_ticks()
    assert 0 <= steal <= total


def test_peaks(tmp_path: Path) -> None:
    found = common.child(bench.SIDE, tmp_path, {"program": "peaks", "mode": "cpu", "side": 64}, 1)
    assert {"fp32 torch.mm", "bf16 torch.mm"} <= found["gflops"].keys() and min(found["gflops"].values()) > 0
    assert found["peak_mib"] > 50


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
    run.devices.device = "cuda"
    words = bench_side.stock_arguments(run, Path("data"), 23, Path("work"))
    assert not [w for w in words if "normalize" in w or "share" in w or w == "--cpu"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--size", "huge"], "size=huge"),
        (["--local", "no/such/folder"], "no file"),
        (["--data", "wmt14_ende", "data.local=/no/such"], "no such folder"),
        (["--pairs", "0"], "need a whole number"),
        (["--modes", "fp32,"], "need values of devices.precision"),
        (["--modes", "fp7"], "devices.precision=fp7"),
        (["--modes", "fp16"], "devices.precision=fp16"),
        (["--round", "three"], "--rounds/--pairs: three: need a whole number"),
        (["devices.precision=bf16"], "--modes"),
        (["devices.processes=2"], "one process"),
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
    with pytest.raises(common.Failed, match="nothing fp32 ended with code 1: KeyError: 'nothing'"):
        common.child(bench.SIDE, tmp_path, {"program": "nothing", "mode": "fp32"}, 1)


def run_bench(python: list[str], words: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [*python, str(BENCH), *words]
    environment = os.environ | {"LNEXP_CACHE": str(folder / "cache")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
