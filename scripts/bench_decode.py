"""`make bench-decode RUN=...`: sentences a second of lnexp in each precision beside stock fairseq-generate.

Both translate the same binarised split with the same parameters (RUN/checkpoints/best.pt, written once as fairseq's own
checkpoint), the run's own decoding and the same tokens a batch. In each round every side runs once, in a process of its
own (bench_decode_side.py), the order changes from round to round; loading is left out. BLEU of every side by lnexp's
own scoring. Results: outputs/bench/decode-*.json and *.md, written anew after every round.
Exit codes: 0 done, 1 a run failed, 2 the input was wrong or something is missing.

python scripts/bench_decode.py RUN [options] [decode.name=value ...]
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bench_common as common
from bench_common import STOCK
from bench_figures import ratios, side_name, spread

if TYPE_CHECKING:
    from lnexp.config import Decode, Run

SIDE = Path(__file__).with_name("bench_decode_side.py")


def main(words: list[str] | None = None) -> int:
    return common.run_main("bench_decode", parser(), bench, words)


def parser() -> argparse.ArgumentParser:
    lines = (__doc__ or "").splitlines()
    made = common.Parser(prog="scripts/bench_decode.py", description=lines[0])
    made.add_argument("run", type=Path, help="a run folder with checkpoints/best.pt")
    made.add_argument("--modes", type=common.names, help="values of decode.precision (default fp32,bf16)")
    made.add_argument("--split", choices=("valid", "test"), default="test", help="what to translate (default test)")
    made.add_argument("--rounds", type=common.count, default=5, help="runs of each side (default 5)")
    made.add_argument("--threads", type=common.count, help="CPU threads of each run (default: all cores)")
    made.add_argument("--out", type=Path, default=Path("outputs/bench"), help="where results go (outputs/bench)")
    made.add_argument("overrides", nargs="*", help="decode.name=value, where not the run's own decoding")
    return made


def bench(options: argparse.Namespace) -> int:
    from lnexp import evaluate
    from lnexp.config import freeze
    from lnexp.console import say
    from lnexp.data.prepare import prepare
    from lnexp.errors import UserError

    checkpoint = options.run.resolve() / "checkpoints" / "best.pt"
    run = of_folder(options)
    modes = options.modes or ["fp32", "bf16"]
    for mode in modes:
        common.compose(["max_updates=1", f"decode.precision={mode}"])
    if not checkpoint.exists():
        raise UserError(f"{options.run}: no checkpoints/best.pt to translate with; train the run first")
    options.out.mkdir(parents=True, exist_ok=True)
    load = common.warn_if_busy("bench_decode")
    data = prepare(run.data, Path(run.paths.cache).expanduser(), say)
    evaluate.check_data(options.run, data)
    threads = run.devices.threads
    report: dict[str, Any] = {
        "settings": {"run": options.run.resolve().name, "split": options.split, "threads": threads, "modes": modes,
                     "rounds": options.rounds, "decode": evaluate.label(run.decode),
                     "batch_tokens": run.decode.max_tokens, "data": f"{run.data.name} {data.fingerprint}",
                     "sentences": len(data.raw(options.split, run.data.tgt))},
        "machine": common.machine(load),
        "command": shlex.join(["python", "scripts/bench_decode.py", *sys.argv[1:]]),
        "rounds": [],
    }  # fmt: skip
    stem = options.out / f"decode-{options.run.resolve().name}-{options.split}-{threads}thr"
    hypotheses: dict[str, list[str]] = {}
    scores: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="lnexp-bench-") as temporary:
        work = Path(temporary)
        (work / "config.yaml").write_text(freeze(run), encoding="utf-8")
        job = {"mode": "fp32", "checkpoint": str(checkpoint), "split": options.split}
        common.child(SIDE, work, job | {"program": "export"}, threads)
        for number in range(options.rounds):
            one: dict[str, Any] = {"order": common.order([*modes, STOCK], number), "load": os.getloadavg()[0]}
            one |= {"sides": {}, "repeats": {}}
            ticks = common.cpu_ticks()
            for side in one["order"]:
                program = {"program": STOCK, "mode": "fp32"} if side == STOCK else {"program": "lnexp", "mode": side}
                found = common.child(SIDE, work, job | program, threads)
                lines = found.pop("hypotheses")
                one["sides"][side] = found
                one["repeats"][side] = lines == hypotheses.setdefault(side, lines)
                if side not in scores:
                    said: Any = Said(lines)
                    scores[side] = evaluate.translate(said, data, run, options.split, run.decode).scores
                rate, bleu = len(lines) / found["search_seconds"], scores[side][0].value
                say(f"round {number + 1}/{options.rounds}: {side.ljust(9)} {rate:8.1f} sentences/s, BLEU {bleu:.2f}")
            one["steal"] = common.stolen(ticks, common.cpu_ticks())
            report["rounds"].append(one)
            report["summary"] = summary(report["rounds"], hypotheses, scores)
            page = markdown(report)
            common.write(report, page, stem)
    print(f"\n{page}\n{stem}.json\n{stem}.md")
    return 0


class Said:
    """What a side has said, in the place of a session: it is scored by the code that scores a session."""

    def __init__(self, lines: list[str]) -> None:
        from lnexp.timing import Clock

        self.lines, self.clock = lines, Clock()

    def translate(self, split: str, decode: Decode) -> list[str]:
        return self.lines


def of_folder(options: argparse.Namespace) -> Run:
    """Give the run of the folder with the decoding that is asked for; on the CPU, as one process."""
    from lnexp import launch
    from lnexp.errors import UserError

    for word in options.overrides:
        if not word.startswith(("decode.", "decode=")):
            raise UserError(f"{word}: need decode.name=value or decode=NAME (or see --help)")
    run, decode = launch.decode_of(options.run, options.overrides)
    devices = replace(run.devices, device="cpu", threads=options.threads or launch.cores(), processes=1)
    return replace(run, decode=decode or run.decode, devices=devices)


def identical(ours: Sequence[str], theirs: Sequence[str]) -> float:
    """Give the share of sentences that come out the same, token by token."""
    return sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(theirs)


def summary(rounds: list[dict[str, Any]], hypotheses: dict[str, list[str]], scores: dict[str, Any]) -> dict[str, Any]:
    """Put the rounds together. The ratio holds all of our translate() against stock's time in the search alone."""
    sentences = len(hypotheses[STOCK])
    found = {}
    for side in sorted(rounds[0]["sides"], key=lambda side: (side == STOCK, list(hypotheses).index(side))):
        runs = [one["sides"][side] for one in rounds]
        stock = [one["sides"][STOCK] for one in rounds]
        found[side] = {
            "precision": runs[0]["precision"],
            "sentences_per_s": spread([sentences / run["search_seconds"] for run in runs]),
            "ratios": ratios([s["search_seconds"] for s in stock], [run["search_seconds"] for run in runs]),
            "loop_ratios": ratios([s["seconds"] for s in stock], [run["seconds"] for run in runs]),
            "core_share": spread([run["cpu_seconds"] / (run["seconds"] * run["threads"]) for run in runs]),
            "bleu": {score.metric: score.value for score in scores[side]},
            "bleu_signature": scores[side][0].signature,
            "identical": identical(hypotheses[side], hypotheses[STOCK]),
            "repeats": all(one["repeats"][side] for one in rounds),
            "peak_mib": max(run["peak_mib"] for run in runs),
        }
    return found


def markdown(report: dict[str, Any]) -> str:
    """Write the report as a page."""
    settings, found, rounds = report["settings"], report["summary"], report["rounds"]
    stock = found[STOCK]
    lines = [
        f"# Decoding speed: lnexp and stock fairseq-generate, {settings['run']}",
        "",
        *common.machine_lines(report["machine"], settings["threads"], [one["steal"] for one in rounds]),
        f"Split {settings['split']} of {settings['data']}, {settings['sentences']:,} sentences; {settings['decode']}, "
        f"{settings['batch_tokens']:,} tokens a batch; rounds: {len(rounds)} of {settings['rounds']}.",
        "",
        "| | sentences/s, median (lowest to highest) | x stock, median of the rounds (lowest to highest) | "
        "sacreBLEU (difference) | same translation as stock | CPU time / (threads x time) | peak memory, MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for side, row in found.items():
        bleu = f"{row['bleu']['sacrebleu']:.2f}"
        gap = row["bleu"]["sacrebleu"] - stock["bleu"]["sacrebleu"]
        by = spread(row["ratios"])
        lines.append(
            f"| {side_name(side, row['precision'])} | {row['sentences_per_s'].text(1)} | "
            + ("1" if side == STOCK else f"**{by.median:.2f}** ({by.low:.2f} to {by.high:.2f})")
            + f" | {bleu}{'' if side == STOCK else f' ({gap:+.2f})'} | {row['identical']:.1%} | "
            f"{row['core_share'].text(2)} | {row['peak_mib']:,.0f} |"
        )
    loops = ", ".join(f"{n} {spread(row['loop_ratios']).text(2)}" for n, row in found.items() if n != STOCK)
    changed = [name for name, row in found.items() if not row["repeats"]]
    lines += [
        "",
        "Time: lnexp, all of Session.translate (batches, search, tokens to text); fairseq, what it spends in the "
        'search (inference_step, its own printed "Translated ... in" time), without its printing and scoring.',
        f"Against fairseq's loop from the first batch to the last, printing included: {loops}. Loading is in neither.",
        f"BLEU: {stock['bleu_signature']}; translations "
        + (
            f"of the first round, **others in a later one: {', '.join(changed)}**."
            if changed
            else "equal in all rounds."
        ),
        "",
        f"Again: `{report['command']}`",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
