"""`make bench`: training speed of lnexp in each precision beside stock fairseq-train, on the same work.

In each round every side runs once, in a process of its own (bench_side.py): lnexp in each mode, fairseq in fp32, and
products of matrices for the machine's peak; the order changes from round to round. All train the same model on the same
batches of the folder that `lnexp prepare` makes, from the same seed, in the same threads; none validates or saves.
Results: outputs/bench/train-*.json and *.md, written anew after every round.
Exit codes: 0 done, 1 a run failed or the sides did not do the same work, 2 the input was wrong or something is missing.

python scripts/bench.py [options] [data.name=value | size.name=value | devices.name=value ...]
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bench_common as common
import bench_figures as figures
from bench_common import STOCK, Failed

if TYPE_CHECKING:
    from lnexp.config import Run
    from lnexp.data.prepare import Prepared

SIDE = Path(__file__).with_name("bench_side.py")
PEAKS = "peaks"


def main(words: list[str] | None = None) -> int:
    return common.run_main("bench", parser(), bench, words)


def parser() -> argparse.ArgumentParser:
    lines = (__doc__ or "").splitlines()
    made = common.Parser(prog="scripts/bench.py", description=lines[0])
    made.add_argument("--modes", type=common.names, help="values of devices.precision, as fp32,bf16 (default: all)")
    made.add_argument("--size", default="iwslt", help="a file of conf/size (default iwslt)")
    made.add_argument("--model", default="post_ln", help="a file of conf/model (default post_ln, fairseq's own)")
    made.add_argument("--tokens", type=common.count, default=4096, help="tokens a batch (default 4096)")
    made.add_argument("--updates", type=common.count, default=20, help="updates that count (default 20)")
    made.add_argument("--warmup", type=common.count, default=3, help="updates before them (default 3)")
    made.add_argument("--rounds", "--pairs", type=common.count, default=5, help="runs of each side (default 5)")
    made.add_argument("--threads", type=common.count, help="CPU threads of each run (default: all cores)")
    made.add_argument("--data", help="a file of conf/data (default: the shipped corpus, BPE of 10,000 merges)")
    made.add_argument("--local", type=Path, help="a folder with {train,valid,test}.{src,tgt}, a bitext of your own")
    made.add_argument("--out", type=Path, default=Path("outputs/bench"), help="where results go (outputs/bench)")
    made.add_argument("overrides", nargs="*", help="data.name=value, size.name=value, devices.name=value")
    return made


def bench(options: argparse.Namespace) -> int:
    from lnexp.config import freeze
    from lnexp.console import say
    from lnexp.data.prepare import prepare

    run = compose(options, (options.modes or ["fp32"])[0])
    modes = common.chosen_modes(options.modes, lambda mode: compose(options, mode))
    options.out.mkdir(parents=True, exist_ok=True)
    load = common.warn_if_busy("bench")
    data = prepare(run.data, Path(run.paths.cache).expanduser(), say)
    shape = figures.Shape(
        run.size.encoder_layers, run.size.decoder_layers, run.size.d_model, run.size.d_ffn, data.manifest["vocabulary"]
    )
    report: dict[str, Any] = {
        "settings": settings(run, data, options, modes),
        "machine": common.machine(load),
        "command": shlex.join(["python", "scripts/bench.py", *sys.argv[1:]]),
        "rounds": [],
    }
    stem = options.out / f"train-{options.size}-{options.tokens}tok-{run.devices.threads}thr"
    sides = [*modes, STOCK, PEAKS]
    with tempfile.TemporaryDirectory(prefix="lnexp-bench-") as temporary:
        work = Path(temporary)
        (work / "config.yaml").write_text(freeze(run), encoding="utf-8")
        for number in range(options.rounds):
            one: dict[str, Any] = {"order": common.order(sides, number), "sides": {}, "load": os.getloadavg()[0]}
            ticks = common.cpu_ticks()
            for side in one["order"]:
                found = measure(side, work, options.warmup, options.updates, run.devices.threads)
                say(f"round {number + 1}/{options.rounds}: {said(side, found, options.warmup)}")
                if side == PEAKS:
                    one["peaks"] = found["gflops"]
                else:
                    one["sides"][side] = found
            one["sides"] = {side: one["sides"][side] for side in sides[:-1]}
            one["steal"] = common.stolen(ticks, common.cpu_ticks())
            batches = one["sides"][STOCK].pop("sentences")
            sentences = [tuple(sentence) for batch in batches[options.warmup :] for sentence in batch]
            report["rounds"].append(one)
            first = report["rounds"][0]["sides"]
            report["check"] = {mode: figures.compare(first[mode], first[STOCK]) for mode in modes}
            report["faults"] = figures.all_faults(report["rounds"])
            report["summary"] = figures.summary(report["rounds"], shape, sentences, options.warmup)
            page = figures.markdown(report)
            common.write(report, page, stem)
    print(f"\n{page}\n{stem}.json\n{stem}.md")
    return common.complain("bench", "not the same work: " + "; ".join(report["faults"]), 1) if report["faults"] else 0


def said(side: str, found: dict[str, Any], warmup: int) -> str:
    """Say what a side came to, while the others still run."""
    if side == PEAKS:
        return "GEMM " + ", ".join(f"{name} {value:,.0f}" for name, value in found["gflops"].items()) + " GFLOP/s"
    rate = figures.tokens_per_second(found["seconds"], found["tokens"], warmup)
    return f"{side.ljust(9)} {rate:8,.0f} target tokens/s"


def compose(options: argparse.Namespace, mode: str) -> Run:
    """Give the run of our side in a mode; fairseq's is translated from it."""
    from lnexp import launch
    from lnexp.errors import UserError

    for word in options.overrides:
        if not word.startswith(("data.", "size.", "devices.")):
            raise UserError(f"{word}: need data.name=value, size.name=value or devices.name=value (or see --help)")
        if word.startswith("devices.precision"):
            raise UserError(f"{word}: --modes says in which precisions to run")
    words = common.training_words(options, options.threads or launch.cores())
    run = common.compose([*words, *options.overrides], mode)
    if run.devices.device != "cpu" or run.devices.max_tokens or run.devices.processes > 1:
        rule = "this benchmark runs on the CPU, one process, without accumulation"
        raise UserError(f"devices: {rule}: leave device, max_tokens and processes (a GPU: make gpu-check)")
    return run


def settings(run: Run, data: Prepared, options: argparse.Namespace, modes: list[str]) -> dict[str, Any]:
    names = ("size", "model", "tokens", "updates", "warmup", "rounds")
    return {
        **{name: getattr(options, name) for name in names},
        "modes": modes,
        "threads": run.devices.threads,
        "data": f"{run.data.name} {run.data.src}-{run.data.tgt} {data.fingerprint}",
        "vocabulary": data.manifest["vocabulary"],
        "shape": asdict(run.size),
        "optim": asdict(run.optim),
    }


def measure(side: str, work: Path, warmup: int, updates: int, threads: int, device: str = "cpu") -> dict[str, Any]:
    """Run one side to its end: PEAKS, a name that begins with fairseq (then "fairseq fp16" for its --fp16), or a mode
    of lnexp. `updates` are those that count."""
    program, _, mode = side.partition(" ") if side.startswith(STOCK) else ("lnexp", "", side)
    job: dict[str, Any] = {"program": program, "mode": mode or "fp32", "warmup": warmup, "updates": warmup + updates}
    if side == PEAKS:
        job |= {"program": PEAKS, "mode": device}
    elif device == "cuda":
        job["syncs"] = 5
    found = common.child(SIDE, work, job, threads, device == "cuda")
    if side != PEAKS and len(found["seconds"]) != warmup + updates:
        raise Failed(f"{side}: {len(found['seconds'])} updates instead of {warmup + updates}")
    return found


if __name__ == "__main__":
    sys.exit(main())
