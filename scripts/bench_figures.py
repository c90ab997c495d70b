"""The arithmetic of the training benchmark and its table: pure functions on what the sides recorded.

In: time stamps, tokens and losses of single updates. Out: rates, ratios, spreads, FLOP and Markdown. A round holds one
run of each side: {"order": [side], "sides": {side: what it noted}, "peaks": {product: GFLOP/s}, "steal": share}.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from bench_common import STOCK, machine_lines

PART = 0.05
"""Of stock's first loss: how far two losses of one update may lie apart at most."""


@dataclass(frozen=True)
class Shape:
    """What decides the cost of a Transformer's update, besides its batch."""

    encoder_layers: int
    decoder_layers: int
    d_model: int
    d_ffn: int
    vocabulary: int


@dataclass(frozen=True)
class Spread:
    """The middle of some repeats, and how far they lie apart."""

    median: float
    low: float
    high: float

    def text(self, digits: int = 0) -> str:
        return f"{self.median:,.{digits}f} ({self.low:,.{digits}f} to {self.high:,.{digits}f})"


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Divide round by round: the runs of a round stand next to each other in time, and share the machine's mood."""
    return [a / b for a, b in zip(ours, theirs, strict=True)]


def tokens_per_second(seconds: Sequence[float], tokens: Sequence[int], warmup: int) -> float:
    """Target tokens of the counted updates over the time from the end of the warm-up to the end of the last one.

    `seconds` holds the moment at which each update ended, warm-up included; data loading lies in between, and counts.
    """
    return sum(tokens[warmup:]) / (seconds[-1] - seconds[warmup - 1])


def core_share(run: dict[str, Any], threads: int, warmup: int) -> float:
    """CPU time of the counted updates over what `threads` free cores give: well below 1, something else ran too."""
    cpu, wall = (run[name][-1] - run[name][warmup - 1] for name in ("cpu_seconds", "seconds"))
    return cpu / (wall * threads)


def flop(shape: Shape, sentences: Iterable[tuple[int, int]]) -> int:
    """Useful floating-point operations of training on `sentences`, each (source tokens S, target tokens T).

    A product with a weight matrix costs 2 FLOP a weight and token forwards and twice that backwards (gradient of the
    input, gradient of the weight): 6 x weights x tokens.
      encoder layer    4 d^2 (query, key, value, output) + 2 d f (feed-forward)            by source tokens
      decoder layer    4 d^2 (self) + 2 d^2 (cross: query, output) + 2 d f                 by target tokens
                       2 d^2 (cross: key, value of the encoder's output)                   by source tokens
      output           d V                                                                 by target tokens
    Attention multiplies activations: scores and weighted sum are 2 d FLOP each a pair of positions forwards, and twice
    that backwards: 12 d x pairs, with S^2 pairs in an encoder layer, T^2 (the whole square, masked half included) and
    T S in a decoder layer.
    Not counted: padding, embeddings, softmax, normalization, dropout, loss, optimizer. They cost time and so lower the
    share of the peak.
    """
    d, f = shape.d_model, shape.d_ffn
    per_source = shape.encoder_layers * (4 * d * d + 2 * d * f) + shape.decoder_layers * 2 * d * d
    per_target = shape.decoder_layers * (6 * d * d + 2 * d * f) + d * shape.vocabulary
    total = 0
    for source, target in sentences:
        pairs = shape.encoder_layers * source**2 + shape.decoder_layers * (target**2 + target * source)
        total += 6 * (per_source * source + per_target * target) + 12 * d * pairs
    return total


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """Give the update (from 1) at which two sequences part, or None where they are equal."""
    for update, (a, b) in enumerate(zip_longest(ours, theirs), 1):
        if a != b:
            return update
    return None


def peak_of(precision: str, peaks: Iterable[dict[str, float]]) -> float | None:
    """Give the best product of matrices of that number type in all rounds, GFLOP/s; None where none was measured.

    fp32 and fp32_fast are held against the same peak: the fastest way to multiply fp32 numbers, whichever they use.
    """
    kind = precision.partition("_")[0]
    return max((value for found in peaks for name, value in found.items() if name.split()[0] == kind), default=None)


def compare(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Is it the same work? Batches (target tokens an update), parameters, threads, losses of two runs of a round."""
    gaps = [abs(a - b) for a, b in zip(ours["losses"], theirs["losses"], strict=False)]
    return {
        "batches_differ_at_update": first_difference(ours["tokens"], theirs["tokens"]),
        "parameters": [ours["parameters"], theirs["parameters"]],
        "torch_threads": [ours["threads"], theirs["threads"]],
        "first_loss_bits": [ours["losses"][0], theirs["losses"][0]],
        "largest_loss_gap_bits": next((gap for gap in gaps if math.isnan(gap)), max(gaps)),
    }


def faults(check: dict[str, Any]) -> list[str]:
    """Name what makes the comparison unfair; empty = the same work.

    Losses may part by 1% at the first update (order of sums, dropout) and by PART over all: what learns otherwise does
    other work, however fast.
    """
    found = []
    if at := check["batches_differ_at_update"]:
        found.append(f"the batches differ from update {at} on")
    for name in ("parameters", "torch_threads"):
        ours, theirs = check[name]
        if ours != theirs:
            found.append(f"{name.replace('_', ' ')} differ: lnexp {ours:,}, fairseq {theirs:,}")
    ours, theirs = check["first_loss_bits"]
    if not abs(ours - theirs) <= 0.01 * abs(theirs):
        found.append(f"the first losses differ: lnexp {ours:.3f} bits, fairseq {theirs:.3f}")
    elif not check["largest_loss_gap_bits"] <= PART * abs(theirs):
        found.append(f"the losses part by {check['largest_loss_gap_bits']:.3f} bits")
    return found


def all_faults(rounds: Sequence[dict[str, Any]]) -> list[str]:
    """Hold each side against stock in its round, and stock in each round against the first."""
    found = []
    for number, one in enumerate(rounds, 1):
        stock = one["sides"][STOCK]
        for name, side in one["sides"].items():
            found += [f"round {number}, {name}: {fault}" for fault in faults(compare(side, stock))]
        if stock["tokens"] != rounds[0]["sides"][STOCK]["tokens"]:
            found.append(f"round {number}: other batches than in round 1")
    return found


def summary(
    rounds: Sequence[dict[str, Any]], shape: Shape, sentences: Sequence[tuple[int, int]], warmup: int
) -> dict[str, Any]:
    """Put the rounds together; `sentences` are those of the counted updates, the same in every run."""
    runs = {name: [one["sides"][name] for one in rounds] for name in rounds[0]["sides"]}
    rates = {
        name: [tokens_per_second(run["seconds"], run["tokens"], warmup) for run in of] for name, of in runs.items()
    }
    flop_a_token = flop(shape, sentences) / sum(target for _, target in sentences)
    peaks = [one["peaks"] for one in rounds]
    sides = {}
    for name, of in runs.items():
        middle = spread(rates[name])
        gflops = middle.median * flop_a_token / 1e9
        peak = peak_of(of[0]["precision"], peaks)
        by_round = ratios(rates[name], rates[STOCK])
        sides[name] = {
            "precision": of[0]["precision"],
            "rates": rates[name],
            "target_tokens_per_s": middle,
            "ratios": by_round,
            "ratio": spread(by_round),
            "gflops": gflops,
            "gemm_peak_gflops": peak,
            "share_of_gemm_peak": gflops / peak if peak else None,
            "warmup_s": spread([run["seconds"][warmup - 1] for run in of]),
            "core_share": spread([core_share(run, run["threads"], warmup) for run in of]),
            "peak_mib": max(run["peak_mib"] for run in of),
        }
    return {
        "sides": sides,
        "gemm_gflops": {name: spread([found[name] for found in peaks]) for name in peaks[0]},
        "mflop_per_target_token": flop_a_token / 1e6,
    }


FORMULA = (
    "6 x weights x tokens (encoder and cross keys/values by source tokens, decoder and output by target tokens) + "
    "12 x width x attended pairs a layer; padding and all that is not a matrix product left out"
)


def markdown(report: dict[str, Any]) -> str:
    """Write the report as a page: what was compared, the figures, the rounds, whether it was the same work."""
    settings, rounds, found = report["settings"], report["rounds"], report["summary"]
    wrong, check = report["faults"], report["check"]
    parameters = next(iter(check.values()))["parameters"][0]
    lines = [
        f"# Training speed: lnexp and stock fairseq-train, {settings['size']}, {settings['tokens']} tokens a batch",
        "",
        *machine_lines(report["machine"], settings["threads"], [one["steal"] for one in rounds]),
        f"Data {settings['data']}, vocabulary {settings['vocabulary']:,}; {parameters:,} parameters.",
        f"{settings['updates']} updates after {settings['warmup']} of warm-up, rounds: {len(rounds)} of "
        f"{settings['rounds']}, in each every side once, in another order.",
        "",
        "| | target tokens/s, median (lowest to highest) | x stock, median of the rounds (lowest to highest) | "
        "GFLOP/s | share of GEMM peak | CPU time / (threads x time) | peak memory, MiB | start and warm-up, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in found["sides"].items():
        share = "-" if row["share_of_gemm_peak"] is None else f"{row['share_of_gemm_peak']:.0%}"
        ratio = "1" if name == STOCK else f"**{row['ratio'].median:.2f}**" + row["ratio"].text(2)[4:]
        lines.append(
            f"| {side_name(name, row['precision'])} | {row['target_tokens_per_s'].text()} | {ratio} | "
            f"{row['gflops']:.1f} | {share} | {row['core_share'].text(2)} | {row['peak_mib']:,.0f} | "
            f"{row['warmup_s'].text(1)} |"
        )
    lines += ["", "| round | order | " + " | ".join(f"{n} / {STOCK}" for n in check) + " | load |"]
    lines += ["|---|---|" + "---|" * (len(check) + 1)]
    for number, one in enumerate(rounds):
        by_mode = " | ".join(f"{found['sides'][name]['ratios'][number]:.2f}" for name in check)
        lines.append(f"| {number + 1} | {', '.join(one['order'])} | {by_mode} | {one['load']:.1f} |")
    peaks = ", ".join(f"{name} {value.text()}" for name, value in found["gemm_gflops"].items())
    gaps = ", ".join(f"{name} {one['largest_loss_gap_bits']:.3f}" for name, one in check.items())
    first = ", ".join(f"{name} {one['first_loss_bits'][0]:.3f}" for name, one in check.items())
    stock_first = next(iter(check.values()))["first_loss_bits"][1]
    lines += [
        "",
        f"GEMM peaks, GFLOP/s, 2048^3, the same threads, the best of 12 tries a round, median of the rounds (lowest to "
        f"highest): {peaks}. A side's share is of the highest of its number type in all rounds.",
        f"The step needs {found['mflop_per_target_token']:.3g} MFLOP a target token: {FORMULA}.",
        "",
        "Same work: " + ("**no: " + "; ".join(wrong) + "**." if wrong else "yes: the same batches in every run."),
        f"Bits at the first update: {first}, {STOCK} {stock_first:.3f}; largest gap to {STOCK} at any update: {gaps}.",
        "",
        f"Again: `{report['command']}`",
    ]
    return "\n".join(lines) + "\n"


def side_name(name: str, precision: str) -> str:
    """Say whose side it is, and in which precision it ran."""
    if name.startswith(STOCK):
        return f"{STOCK} {precision}"
    return f"lnexp {name}" + (f" ({precision})" if precision != name else "")
