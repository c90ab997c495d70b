"""The decoding benchmark: its words for fairseq, its arithmetic, its page, its one-line errors."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import bench_decode as decode
from bench_decode_side import generate_arguments
from bench_figures import Spread

from lnexp.config import Data, Decode, Run
from lnexp.score import Bleu


def test_fairseq_words() -> None:
    run = Run(data=Data(src="de", tgt="en"), decode=Decode(5, 1.2, 1.5, 10, 3000))
    words = generate_arguments(run, Path("data"), Path("stock.pt"), "test")
    options = dict(zip(words[1::2], words[2::2], strict=False))
    assert words[0] == "data" and "--cpu" in words
    assert options["--path"] == "stock.pt" and options["--gen-subset"] == "test"
    assert (options["--beam"], options["--lenpen"], options["--max-tokens"]) == ("5", "1.2", "3000")
    assert (options["--max-len-a"], options["--max-len-b"]) == ("1.5", "10")


def side(search: float, loop: float, precision: str = "fp32") -> dict[str, Any]:
    return {"search_seconds": search, "seconds": loop, "cpu_seconds": loop, "threads": 2, "precision": precision,
            "peak_mib": 3.0}  # fmt: skip


def rounds() -> list[dict[str, Any]]:
    one = {"order": ["fp32", "fairseq"], "load": 0.0, "steal": 0.0}
    return [
        one | {"sides": {"fp32": side(1, 1), "fairseq": side(4, 5)}, "repeats": {"fp32": True, "fairseq": True}},
        one | {"sides": {"fp32": side(2, 2), "fairseq": side(4, 6)}, "repeats": {"fp32": False, "fairseq": True}},
    ]


def test_summary_and_page() -> None:
    said = {"fairseq": ["a", "b", "c", "d"], "fp32": ["a", "b", "c", "x"]}
    scores = {name: [Bleu("sacrebleu", value, "sig", 4)] for name, value in (("fairseq", 30.0), ("fp32", 29.98))}
    found = decode.summary(rounds(), said, scores)
    assert list(found) == ["fp32", "fairseq"]
    assert found["fp32"]["sentences_per_s"] == Spread(3.0, 2.0, 4.0)
    assert found["fp32"]["ratios"] == [4.0, 2.0] and found["fp32"]["loop_ratios"] == [5.0, 3.0]
    assert found["fairseq"]["ratios"] == [1.0, 1.0]
    assert found["fp32"]["identical"] == 0.75 and found["fairseq"]["identical"] == 1.0
    assert found["fp32"]["core_share"] == Spread(0.5, 0.5, 0.5)
    page = decode.markdown({
        "settings": {"run": "r", "threads": 2, "split": "test", "data": "toy", "sentences": 4, "decode": "beam5",
                     "batch_tokens": 4000, "rounds": 2},
        "machine": {"processor": "P", "cores": 2, "mhz": [], "system": "S", "load_before": 0.0, "versions": {}},
        "rounds": rounds(), "summary": found, "command": "again",
    })  # fmt: skip
    assert "| lnexp fp32 | 3.0 (2.0 to 4.0) | **3.00** (2.00 to 4.00) | 29.98 (-0.02) | 75.0% |" in page
    assert "| fairseq fp32 | 1.0 (1.0 to 1.0) | 1 | 30.00 | 100.0% |" in page
    assert "fp32 4.00 (3.00 to 5.00)" in page and "others in a later one: fp32" in page


def test_other_lengths_are_refused() -> None:
    with pytest.raises(ValueError):
        decode.identical(["a"], ["a", "b"])


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["no/such/run"], "no/such/run: not a run folder"),
        (["RUN"], "no checkpoints/best.pt"),
        (["RUN", "--modes", "fp7"], "decode.precision=fp7"),
        (["RUN", "optim.lr=1"], "need decode.name=value"),
        (["RUN", "decode.beam=0"], "decode.beam=0"),
        (["RUN", "--split", "train"], "invalid choice"),
        ([], "required: run"),
    ],
)
def test_wrong_input(words: list[str], line: str, tmp_path: Path, begun: Callable[..., Path]) -> None:
    folder = str(begun(["data=toy_copy", "size=tiny", "max_updates=1"])) if "RUN" in words else ""
    command = [sys.executable, decode.__file__, *[folder if w == "RUN" else w for w in words]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and line in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr
