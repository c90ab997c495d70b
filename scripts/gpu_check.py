"""`make gpu-check`: lnexp on a CUDA device: speed beside stock fairseq, losses beside the CPU, memory, waits.

Run by gpu_check.sh, which bounds its time. Not run on a GPU yet; --device cpu runs every line but CUDA's own.
Results are written anew after every side. Exit codes: 0 done, 1 a run failed, 2 something is missing or was wrong.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bench
import bench_common as common
import bench_figures as figures
from bench_common import STOCK

if TYPE_CHECKING:
    from lnexp.config import Run

GPU_MODES = ("bf16", "fp16", "fp32")
CURVE = "demo"
"""Its size has no dropout: on two devices the same seed draws other masks."""


def main(words: list[str] | None = None) -> int:
    return common.run_main("gpu_check", parser(), check, words)


def parser() -> argparse.ArgumentParser:
    lines = (__doc__ or "").splitlines()
    made = common.Parser(prog="scripts/gpu_check.sh", description=lines[0])
    made.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to try the script itself")
    made.add_argument("--modes", type=common.names, help="values of devices.precision (default bf16,fp16,fp32)")
    made.add_argument("--size", default="iwslt", help="a file of conf/size (default iwslt)")
    made.add_argument("--model", default="post_ln", help="a file of conf/model (default post_ln)")
    made.add_argument("--tokens", type=common.count, default=4096, help="tokens a batch (default 4096)")
    made.add_argument("--updates", type=common.count, default=40, help="updates that count (default 40)")
    made.add_argument("--warmup", type=common.count, default=10, help="updates before them (default 10)")
    made.add_argument("--rounds", type=common.count, default=2, help="runs of each side (default 2)")
    made.add_argument("--curve-updates", type=common.count, default=100, help="updates of the loss curve (default 100)")
    made.add_argument("--data", help="a file of conf/data (default: the shipped corpus, BPE of 10,000 merges)")
    made.add_argument("--out", type=Path, default=Path("outputs/gpu_check"), help="where results go")
    made.set_defaults(local=None)
    return made


def check(options: argparse.Namespace) -> int:
    import torch

    from lnexp.config import freeze
    from lnexp.console import say
    from lnexp.data.prepare import prepare

    began, cuda = time.monotonic(), options.device == "cuda"
    if cuda and not torch.cuda.is_available():
        built = f"is built for CUDA {torch.version.cuda}" if torch.version.cuda else "is a build without CUDA"
        rule = (
            f"torch {torch.__version__} {built}; need a CUDA torch in .venv, a device and its driver (or --device cpu)"
        )
        return common.complain("gpu_check", f"no CUDA device: {rule}", 2)
    named = options.modes or (GPU_MODES if cuda else None)
    modes = common.chosen_modes(named, lambda mode: compose(options, mode, options.device), options.device)
    run = compose(options, modes[0], options.device)
    data = prepare(run.data, Path(run.paths.cache).expanduser(), say)
    size, threads, stem = run.size, run.devices.threads, options.out / "gpu_check"
    shape = figures.Shape(
        size.encoder_layers, size.decoder_layers, size.d_model, size.d_ffn, data.manifest["vocabulary"]
    )
    sides = [*modes, STOCK, *[f"{STOCK} fp16"] * cuda, bench.PEAKS]
    report: dict[str, Any] = {
        "settings": {n: getattr(options, n) for n in ("device", "size", "tokens", "updates", "warmup", "rounds")}
        | {"threads": threads, "modes": modes, "shape": asdict(size), "data": f"{run.data.name} {data.fingerprint}"},
        "machine": common.machine(os.getloadavg()[0]),
        "device": described(torch) if cuda else "cpu",
        "command": shlex.join(["scripts/gpu_check.sh", *sys.argv[1:]]),
        "rounds": [],
        "curve": {},
    }

    def keep() -> None:
        report["wall_s"] = time.monotonic() - began
        common.write(report, markdown(report), stem)

    with tempfile.TemporaryDirectory(prefix="lnexp-gpu-") as temporary:
        work = Path(temporary)
        for device, mode in dict.fromkeys([("cpu", "fp32"), *[(options.device, mode) for mode in modes]]):
            small = compose(options, mode, device, curve=True)
            (work / "config.yaml").write_text(freeze(small), encoding="utf-8")
            # One update counts at least, so that the warm-up is all but the last.
            found = bench.measure(mode, work, max(options.curve_updates - 1, 1), 1, threads, device)
            report["curve"][f"{device} {mode}"] = found["losses"]
            say(f"loss curve, {device} {mode}: {found['losses'][0]:.3f} to {found['losses'][-1]:.3f} bits")
            keep()
        (work / "config.yaml").write_text(freeze(run), encoding="utf-8")
        for number in range(options.rounds):
            one: dict[str, Any] = {"order": common.order(sides, number), "sides": {}}
            for side in one["order"]:
                found = bench.measure(side, work, options.warmup, options.updates, threads, options.device)
                say(f"round {number + 1}/{options.rounds}: {bench.said(side, found, options.warmup)}")
                if side == bench.PEAKS:
                    one["peaks"] = found["gflops"]
                else:
                    one["sides"][side] = found
            batches = one["sides"][STOCK].pop("sentences")
            sentences = [tuple(sentence) for batch in batches[options.warmup :] for sentence in batch]
            one["sides"] = {side: one["sides"][side] for side in sides[:-1]}
            one["sides"].get(f"{STOCK} fp16", {}).pop("sentences", None)
            report["rounds"].append(one)
            report["summary"] = figures.summary(report["rounds"], shape, sentences, options.warmup)
            keep()
    print(f"\n{markdown(report)}\n{stem}.json\n{stem}.md")
    return 0


def compose(options: argparse.Namespace, mode: str, device: str, curve: bool = False) -> Run:
    """Give the run to time, or the smaller one of the loss curve: size=demo, 500 tokens, Pre-LN, 2,000 merges."""
    from lnexp.launch import cores

    words = common.training_words(options, cores())
    if curve:
        words += [f"size={CURVE}", "model=pre_ln", "tokens_per_update=500", "optim.lr=1e-3"]
    return common.compose([*words, f"devices={'gpu' if device == 'cuda' else 'cpu'}"], mode)


def described(torch: Any) -> str:
    found = torch.cuda.get_device_properties(0)
    memory = found.total_memory / 2**30
    return f"{found.name}, compute capability {found.major}.{found.minor}, {memory:.0f} GiB, CUDA {torch.version.cuda}"


def gap(curve: list[float], reference: list[float]) -> tuple[float, int]:
    """Give (largest difference in bits, the update from 1 at which it is) of two loss curves."""
    gaps = [abs(a - b) for a, b in zip(curve, reference, strict=True)]
    return max(gaps), gaps.index(max(gaps)) + 1


def markdown(report: dict[str, Any]) -> str:
    """Write the page, with what was measured so far."""
    settings = report["settings"]
    lines = [
        f"# lnexp on {report['device']}",
        "",
        *common.machine_lines(report["machine"], settings["threads"], []),
        f"{report['wall_s']:.0f} s until here. Data {settings['data']}.",
        "",
        f"## Loss curve: size={CURVE}, 500 tokens a batch, the same seed and batches",
        "",
        "| | first, bits | last, bits | largest difference to cpu fp32, bits (at update) |",
        "|---|---|---|---|",
    ]
    reference = report["curve"]["cpu fp32"]
    for name, curve in report["curve"].items():
        largest, at = gap(curve, reference)
        lines.append(f"| {name} | {curve[0]:.4f} | {curve[-1]:.4f} | {largest:.4f} ({at}) |")
    if "summary" in report:
        lines += ["", *speed(report)]
    lines += ["", f"Again: `{report['command']}`"]
    return "\n".join(lines) + "\n"


def speed(report: dict[str, Any]) -> list[str]:
    """Write the table of speed, memory and waits."""
    settings, found, first = report["settings"], report["summary"], report["rounds"][0]["sides"]
    lines = [
        f"## Speed: size={settings['size']}, {settings['tokens']:,} tokens a batch",
        "",
        f"{settings['updates']} updates after {settings['warmup']} of warm-up; rounds: {len(report['rounds'])} of "
        f"{settings['rounds']}.",
        "",
        "| | target tokens/s | x fairseq fp32 | GFLOP/s | share of GEMM peak | peak GPU memory, MiB | "
        "peak host memory, MiB | waits for the GPU an update | same batches |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in found["sides"].items():
        share = "-" if row["share_of_gemm_peak"] is None else f"{row['share_of_gemm_peak']:.0%}"
        noted = (first[name]["cuda_peak_mib"], "{:,.0f}"), (first[name].get("syncs"), "{:.1f}")
        memory, waits = ("-" if value is None else form.format(value) for value, form in noted)
        same = figures.first_difference(first[name]["tokens"], first[STOCK]["tokens"]) is None
        lines.append(
            f"| {figures.side_name(name, row['precision'])} | {row['target_tokens_per_s'].text()} | "
            f"{row['ratio'].text(2)} | {row['gflops']:,.0f} | {share} | {memory} | {row['peak_mib']:,.0f} | "
            f"{waits} | {'yes' if same else '**no**'} |"
        )
    peaks = ", ".join(f"{name} {value.text()}" for name, value in found["gemm_gflops"].items())
    lines += ["", f"GEMM peaks, GFLOP/s: {peaks}. Formula: {figures.FORMULA}."]
    if settings["device"] == "cuda":
        lines.append('Waits: calls that torch.cuda.set_sync_debug_mode("warn") names, mean of 5 updates.')
    return lines


if __name__ == "__main__":
    sys.exit(main())
