"""`make bench-growth`: how the cost of an update grows with sentence length, batch, depth, vocabulary and threads.

Each point is lnexp's Session in a process of its own (bench_side.py) on a corpus made for it: sentences of one length,
words drawn evenly from a vocabulary of one size; every axis starts from the same base point. Held against the FLOP
formula of bench_figures.flop, scaled from the base point, and nothing else.
Results: outputs/bench/growth-*.json and *.md, written anew after every point.
Exit codes: 0 done, 1 a run failed, 2 the input was wrong or something is missing.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shlex
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bench_common as common
from bench_figures import FORMULA, Shape, flop, peak_of

if TYPE_CHECKING:
    from lnexp.config import Run

SIDE = Path(__file__).with_name("bench_side.py")
WARMUP, COUNTED = 1, 3
DEAR = 1.5
"""A point that costs more than this times the base point has one update less: the whole is to stay below 10 minutes."""
FASTER = 1.15
"""More than this times what the formula says is growth that the formula does not explain."""


@dataclass(frozen=True)
class Point:
    length: int = 20
    """Tokens of a sentence on each side, its end included."""
    tokens: int = 4096
    """Tokens a batch, at most."""
    layers: int = 6
    """Of the encoder and of the decoder."""
    vocabulary: int = 10_000
    threads: int = 2


AXES: dict[str, tuple[int, ...]] = {
    "length": (10, 20, 50, 100, 200),
    "tokens": (512, 1024, 2048, 4096, 8192),
    "layers": (2, 6, 12, 18),
    "vocabulary": (4_000, 10_000, 20_000, 40_000),
    "threads": (1, 2),
}


def main(words: list[str] | None = None) -> int:
    return common.run_main("bench_growth", parser(), bench, words)


def parser() -> argparse.ArgumentParser:
    def axes(word: str) -> list[str]:
        if not set(word.split(",")) <= set(AXES):
            raise argparse.ArgumentTypeError(f"{word}: need some of {','.join(AXES)}")
        return word.split(",")

    lines = (__doc__ or "").splitlines()
    made = common.Parser(prog="scripts/bench_growth.py", description=lines[0])
    made.add_argument("--mode", help="a value of devices.precision (default: the fastest)")
    made.add_argument("--size", default="iwslt", help="a file of conf/size (default iwslt)")
    made.add_argument("--tokens", type=common.count, default=Point().tokens, help="of the base point (default 4096)")
    made.add_argument("--threads", type=common.count, default=Point().threads, help="of the base point (default 2)")
    made.add_argument("--updates", type=common.count, default=COUNTED, help="that count at a point (default 3)")
    made.add_argument("--axes", type=axes, default=list(AXES), help=f"default: {','.join(AXES)}")
    made.add_argument("--out", type=Path, default=Path("outputs/bench"), help="where results go (outputs/bench)")
    return made


def bench(options: argparse.Namespace) -> int:
    from lnexp.console import say

    def make(mode: str) -> Run:
        return common.compose([f"size={options.size}", "max_updates=1"], mode)

    mode = common.chosen_modes([options.mode] if options.mode else None, make)[-1]
    size = make(mode).size
    base = Point(tokens=options.tokens, threads=options.threads, layers=size.encoder_layers)
    plan = points(base, options.axes)
    options.out.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {
        "settings": {"size": options.size, "mode": mode, "base": asdict(base), "axes": options.axes,
                     "warmup": WARMUP, "updates": options.updates},
        "machine": common.machine(common.warn_if_busy("bench_growth")),
        "command": shlex.join(["python", "scripts/bench_growth.py", *sys.argv[1:]]),
        "peaks": {},
        "points": [],
    }  # fmt: skip
    stem = options.out / f"growth-{options.size}-{mode}-{options.threads}thr"
    ticks = common.cpu_ticks()
    with tempfile.TemporaryDirectory(prefix="lnexp-bench-") as temporary:
        work = Path(temporary)
        for threads in sorted({point.threads for point in plan}):
            job = {"program": "peaks", "mode": "cpu"}
            report["peaks"][str(threads)] = common.child(SIDE, work, job, threads)["gflops"]
        # The base point again at the end: what moved in between, moved under all points.
        for number, point in enumerate([*plan, base], 1):
            found = measure(point, updates(point, base, options.updates), options.size, mode, work)
            say(f"{number}/{len(plan) + 1}: {name(point, base)}: {found['update_s']:.2f} s an update")
            report["points"].append({"point": asdict(point), **found})
            report["steal"] = common.stolen(ticks, common.cpu_ticks())
            report["rows"] = rows(report, base, Shape(0, 0, size.d_model, size.d_ffn, 0))
            page = markdown(report)
            common.write(report, page, stem)
    print(f"\n{page}\n{stem}.json\n{stem}.md")
    return 0


def points(base: Point, axes: list[str]) -> list[Point]:
    """Give the base point, then each other point of each axis, once."""
    found = [base]
    for axis in axes:
        found += [p for value in AXES[axis] if (p := replace(base, **{axis: value})) not in found]
    return found


def name(point: Point, base: Point) -> str:
    """Say in what a point differs from the base point."""
    other = {axis: value for axis, value in asdict(point).items() if value != getattr(base, axis)}
    return ", ".join(f"{axis} {value:,}" for axis, value in other.items()) or "base point"


def sentences_of(point: Point, wanted: int) -> int:
    """Give how many sentences make at least so many batches of a point, all of one size, and hold its vocabulary."""
    batch = point.tokens // point.length
    needed = math.ceil((point.vocabulary - 4) / (point.length - 1))
    return batch * max(wanted, math.ceil(needed / batch))


def corpus(length: int, vocabulary: int, sentences: int, folder: Path) -> None:
    """Write a parallel text whose every sentence has length - 1 words (its end is a token too) and whose words fill
    the vocabulary; four of its places are fairseq's own symbols."""
    draw = random.Random(1)
    words = [f"w{number}" for number in range(vocabulary - 4)]
    width = length - 1
    for side in ("aa", "bb"):
        drawn = words + draw.choices(words, k=sentences * width - len(words))  # each word at least once
        text = [" ".join(drawn[at : at + width]) for at in range(0, len(drawn), width)]
        for split, lines in (("train", text), ("valid", text[:4]), ("test", text[4:8])):
            (folder / f"{split}.{side}").write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def updates(point: Point, base: Point, wanted: int) -> int:
    """Give how many updates count at a point."""
    cost = point.layers / base.layers * point.tokens / base.tokens * base.threads / point.threads
    return max(wanted - (cost > DEAR), 1)


def measure(point: Point, counted: int, size: str, mode: str, work: Path) -> dict[str, Any]:
    """Train so many updates at a point; gives seconds and target tokens an update, peak memory in MiB."""
    from lnexp.config import freeze
    from lnexp.data.prepare import prepare

    sentences = sentences_of(point, WARMUP + counted)
    text = work / f"{point.length}-{point.vocabulary}-{sentences}"
    if not text.exists():
        text.mkdir()
        corpus(point.length, point.vocabulary, sentences, text)
    words = ["data=bitext", "data.name=growth", "data.src=aa", "data.tgt=bb", "data.tokenizer=none"]
    words += ["data.bpe_merges=0", "data.max_length=0", f"size={size}", "model=post_ln", "optim=adam"]
    words += [f"data.{split}='{text}/{split}'" for split in ("train", "valid", "test")]
    words += [f"size.encoder_layers={point.layers}", f"size.decoder_layers={point.layers}", "optim.lr=1e-4"]
    words += ["schedule=constant", "track=none", "max_updates=1000", f"devices.threads={point.threads}"]
    words += [f"tokens_per_update={point.tokens}", f"paths.cache='{work}/cache'"]
    run = common.compose(words, mode)
    data = prepare(run.data, Path(run.paths.cache), lambda _: None)
    if data.manifest["vocabulary"] != point.vocabulary:
        raise common.Failed(f"{point}: the corpus has a vocabulary of {data.manifest['vocabulary']}")
    (work / "config.yaml").write_text(freeze(run), encoding="utf-8")
    job = {"program": "lnexp", "mode": mode, "warmup": WARMUP, "updates": WARMUP + counted}
    load = os.getloadavg()[0]
    found = common.child(SIDE, work, job, point.threads)
    ends, batch = found["seconds"], point.tokens // point.length * point.length
    if set(found["tokens"]) != {batch}:
        raise common.Failed(f"{point}: batches of {found['tokens']} target tokens instead of {batch}")
    return {
        "updates": counted,
        "update_s": statistics.median(b - a for a, b in zip(ends[WARMUP - 1 :], ends[WARMUP:], strict=False)),
        "target_tokens": batch,
        "peak_mib": found["peak_mib"],
        "precision": found["precision"],
        "load": load,
    }


def rows(report: dict[str, Any], base: Point, shape: Shape) -> list[dict[str, Any]]:
    """Put each point beside what the formula makes of the base point; the base point's time is the mean of its two."""
    measured: dict[Point, list[dict[str, Any]]] = {}
    for entry in report["points"]:
        measured.setdefault(Point(**entry["point"]), []).append(entry)

    def work(point: Point) -> float:
        """FLOP an update over threads."""
        full = replace(shape, encoder_layers=point.layers, decoder_layers=point.layers, vocabulary=point.vocabulary)
        sentences = round(measured[point][0]["target_tokens"] / point.length)
        return flop(full, [(point.length, point.length)] * sentences) / point.threads

    base_s = statistics.mean(entry["update_s"] for entry in measured[base])
    found = []
    for axis in report["settings"]["axes"]:
        for value in AXES[axis]:
            point = replace(base, **{axis: value})
            if point not in measured:
                continue
            entry = measured[point][0]
            seconds = base_s if point == base else entry["update_s"]
            predicted = base_s * work(point) / work(base)
            gflops = work(point) * point.threads / seconds / 1e9
            peak = peak_of(entry["precision"], [report["peaks"][str(point.threads)]])
            found.append({
                "axis": axis, "value": value, "update_s": seconds, "predicted_s": predicted,
                "excess": excess(seconds, predicted, base_s), "target_tokens_per_s": entry["target_tokens"] / seconds,
                "gflops": gflops, "share_of_gemm_peak": gflops / peak if peak else None,
                "peak_mib": max(e["peak_mib"] for e in measured[point]),
            })  # fmt: skip
    return found


def excess(seconds: float, predicted: float, base: float) -> float:
    """Give growth between a point and the base point over what the formula says of it; above 1 = it grows faster.

    From the smaller to the larger of the two: for a point below the base point that is from the point to the base.
    """
    return seconds / predicted if predicted >= base else predicted / seconds


def markdown(report: dict[str, Any]) -> str:
    """Write the report as a page."""
    settings, machine = report["settings"], report["machine"]
    base = Point(**settings["base"])
    bases = [entry["update_s"] for entry in report["points"] if Point(**entry["point"]) == base]
    fast = [f"{row['axis']} {row['value']:,}" for row in report["rows"] if row["excess"] > FASTER]
    peaks = "; ".join(f"{threads} threads: " + ", ".join(f"{n} {v:,.0f}" for n, v in found.items())
                      for threads, found in report["peaks"].items())  # fmt: skip
    lines = [
        f"# How the cost of an update grows: lnexp {settings['mode']}, {settings['size']}",
        "",
        *common.machine_lines(machine, base.threads, [report["steal"]]),
        f"Base point: sentences of {base.length} tokens a side, {base.tokens:,} tokens a batch, {base.layers} + "
        f"{base.layers} layers, vocabulary {base.vocabulary:,}, {base.threads} threads; measured "
        + " and ".join(f"{s:.3f}" for s in bases) + " s an update (first, last).",
        f"Each point in a process of its own, median of {settings['updates']} updates after {settings['warmup']} (one "
        f"less where an update costs over {DEAR} times the base point's).",
        "",
        "| axis | value | s an update | predicted | growth / formula | target tokens/s | GFLOP/s | "
        "share of GEMM peak | peak memory, MiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in report["rows"]:
        share = "-" if row["share_of_gemm_peak"] is None else f"{row['share_of_gemm_peak']:.0%}"
        growth = f"**{row['excess']:.2f}**" if row["excess"] > FASTER else f"{row['excess']:.2f}"
        lines.append(
            f"| {row['axis']} | {row['value']:,} | {row['update_s']:.3f} | {row['predicted_s']:.3f} | {growth} | "
            f"{row['target_tokens_per_s']:,.0f} | {row['gflops']:.1f} | {share} | {row['peak_mib']:,.0f} |"
        )
    lines += [
        "",
        f"Grows faster than the formula by more than {FASTER - 1:.0%}: {', '.join(fast) or 'nothing'}. The growth is "
        "that between the row and the base point, from the smaller to the larger.",
        f"Formula: FLOP an update over threads, scaled from the base point: {FORMULA}.",
        f"GEMM peaks, GFLOP/s, 2048^3: {peaks}.",
        "",
        f"Again: `{report['command']}`",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
