"""The growth table: points, corpus, prediction by the formula, what counts as faster growth, its one-line errors."""

import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import bench_growth as growth
from bench_figures import Shape
from bench_growth import AXES, Point


def test_every_point_of_every_axis_once() -> None:
    base = Point()
    found = growth.points(base, list(AXES))
    assert found[0] == base and len(found) == len(set(found)) == sum(map(len, AXES.values())) - len(AXES) + 1
    assert replace(base, length=200) in found and replace(base, threads=1) in found
    assert growth.points(base, ["threads"]) == [base, replace(base, threads=1)]
    assert growth.name(base, base) == "base point"
    assert growth.name(replace(base, vocabulary=40_000), base) == "vocabulary 40,000"


def test_dear_points_have_one_update_less() -> None:
    base = Point()
    assert growth.updates(base, base, 3) == growth.updates(replace(base, tokens=512), base, 3) == 3
    assert growth.updates(replace(base, threads=1), base, 3) == growth.updates(replace(base, layers=12), base, 3) == 2
    assert growth.updates(replace(base, tokens=8192), base, 1) == 1


def test_corpus_has_one_length_and_the_vocabulary(tmp_path: Path) -> None:
    growth.corpus(5, 104, 60, tmp_path)
    for side in ("aa", "bb"):
        lines = (tmp_path / f"train.{side}").read_text().splitlines()
        assert len(lines) == 60 and {len(line.split()) for line in lines} == {4}
        assert len({word for line in lines for word in line.split()}) == 100


def test_all_batches_are_full() -> None:
    # 25 sentences of 20 tokens in 512; 9,996 words in sentences of 19 need 527, that is 22 batches.
    assert growth.sentences_of(Point(tokens=512), 4) == 22 * 25
    assert growth.sentences_of(Point(tokens=8192), 4) == 4 * 409


def report(seconds: dict[Point, float]) -> dict[str, Any]:
    """A report in which every sentence pair of a point's tokens was an update's."""
    return {
        "settings": {"axes": list(AXES), "size": "s", "mode": "bf16", "base": asdict(Point()), "updates": 3,
                     "warmup": 1},
        "machine": {"processor": "P", "cores": 2, "mhz": [], "system": "S", "load_before": 0.0, "versions": {}},
        "peaks": {n: {"fp32 torch.mm": 50.0, "bf16 torch.mm": 100.0 * int(n)} for n in ("1", "2")},
        "steal": 0.0,
        "command": "again",
        "points": [
            {"point": asdict(p), "update_s": s, "target_tokens": p.tokens // p.length * p.length, "peak_mib": 9.0,
             "precision": "bf16", "load": 0.0}
            for p, s in seconds.items()
        ],
    }  # fmt: skip


def test_prediction() -> None:
    base, shape = Point(), Shape(0, 0, 8, 16, 0)
    # By hand, a target token and its source token, L layers, vocabulary V, sentences of n = 20:
    # 6 * (L*(4*64 + 2*128 + 2*64) + L*(6*64 + 2*128) + 8*V) + 12*8*(L*n + 2*L*n) = 6*(1280*L + 8*V) + 288*L*n.
    a_token = 6 * (1280 * 6 + 8 * 10_000) + 288 * 6 * 20
    deeper = 6 * (1280 * 12 + 8 * 10_000) + 288 * 12 * 20
    longer = 6 * (1280 * 6 + 8 * 10_000) + 288 * 6 * 100
    points = {base: 2.0, replace(base, layers=12): 4.0, replace(base, length=100): 2.0, replace(base, threads=1): 3.0}
    rows = {(r["axis"], r["value"]): r for r in growth.rows(report(points), base, shape)}
    assert len(rows) == len(AXES) + 3  # the base point stands on every axis
    assert rows["layers", 6]["excess"] == 1 and rows["layers", 6]["predicted_s"] == 2.0
    assert rows["layers", 12]["predicted_s"] == pytest.approx(2.0 * deeper / a_token)
    assert rows["layers", 12]["excess"] == pytest.approx(4.0 / (2.0 * deeper / a_token))
    # 4096 // 20 * 20 = 4080 tokens at the base point, 40 * 100 = 4000 at length 100.
    assert rows["length", 100]["predicted_s"] == pytest.approx(2.0 * longer * 4000 / (a_token * 4080))
    assert rows["length", 20]["gflops"] == pytest.approx(a_token * 4080 / 2.0 / 1e9)
    assert rows["length", 20]["share_of_gemm_peak"] == pytest.approx(a_token * 4080 / 2.0 / 1e9 / 200)
    # One thread: twice the time predicted, on a peak of its own.
    assert rows["threads", 1]["predicted_s"] == pytest.approx(4.0)
    assert rows["threads", 1]["excess"] == pytest.approx(0.75)
    assert rows["threads", 1]["share_of_gemm_peak"] == pytest.approx(a_token * 4080 / 3.0 / 1e9 / 100)


def test_faster_than_the_formula_from_the_smaller_to_the_larger() -> None:
    assert growth.excess(5.0, 4.0, 2.0) == 1.25  # above the base point, and dearer than predicted
    assert growth.excess(0.8, 1.0, 2.0) == 1.25  # below it, and cheaper: from there to the base it grows faster
    assert growth.excess(1.25, 1.0, 2.0) == 0.8  # a cost that does not shrink is no growth


def test_page() -> None:
    base = Point()
    found = report({base: 2.0, replace(base, layers=12): 9.0})
    found["rows"] = growth.rows(found, base, Shape(0, 0, 8, 16, 0))
    page = growth.markdown(found)
    assert "more than 15%: layers 12." in page and "| layers | 12 | 9.000 |" in page
    found["rows"] = found["rows"][:1]
    assert "more than 15%: nothing." in growth.markdown(found)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--axes", "width"], "need some of length"),
        (["--mode", "fp7"], "devices.precision=fp7"),
        (["--size", "huge"], "size=huge"),
        (["--threads", "0"], "need a whole number"),
    ],
)
def test_wrong_input(words: list[str], line: str, tmp_path: Path) -> None:
    command = [sys.executable, growth.__file__, *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and line in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr
