"""The arithmetic of the benchmark and its table: pure functions on what the two sides recorded.

In: time stamps, tokens and losses of single updates. Out: rates, ratios, spreads, FLOP and Markdown.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any


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
    """Divide pair by pair: the two runs of a pair stand next to each other in time, and share the machine's mood."""
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


def compare(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Is it the same work? Batches (target tokens an update), parameters, threads, losses of one pair of runs."""
    gaps = [abs(a - b) for a, b in zip(ours["losses"], theirs["losses"], strict=False)]
    return {
        "batches_differ_at_update": first_difference(ours["tokens"], theirs["tokens"]),
        "parameters": [ours["parameters"], theirs["parameters"]],
        "torch_threads": [ours["threads"], theirs["threads"]],
        "first_loss_bits": [ours["losses"][0], theirs["losses"][0]],
        "largest_loss_gap_bits": max(gaps),
    }


def faults(check: dict[str, Any]) -> list[str]:
    """Name what makes the comparison unfair; empty = the same work. Losses may part by 1% (order of sums, dropout)."""
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
    return found


def all_faults(pairs: Sequence[dict[str, Any]]) -> list[str]:
    """Hold the sides of each pair against each other, and each pair against the first."""
    found = []
    for number, pair in enumerate(pairs, 1):
        found += [f"pair {number}: {fault}" for fault in faults(compare(pair["lnexp"], pair["fairseq"]))]
        if pair["lnexp"]["tokens"] != pairs[0]["lnexp"]["tokens"]:
            found.append(f"pair {number}: other batches than in pair 1")
    return found


def summary(
    pairs: Sequence[dict[str, Any]], shape: Shape, sentences: Sequence[tuple[int, int]], warmup: int
) -> dict[str, Any]:
    """Put the pairs together; `sentences` are those of the counted updates, the same in every run."""
    rates = {
        side: [tokens_per_second(p[side]["seconds"], p[side]["tokens"], warmup) for p in pairs]
        for side in ("lnexp", "fairseq")
    }
    flop_a_token = flop(shape, sentences) / sum(target for _, target in sentences)
    peak = max(p["gemm_gflops"] for p in pairs)
    result: dict[str, Any] = {
        "ratios": ratios(rates["lnexp"], rates["fairseq"]),
        "ratio": spread(ratios(rates["lnexp"], rates["fairseq"])),
        "gemm_gflops": spread([p["gemm_gflops"] for p in pairs]),
        "mflop_per_target_token": flop_a_token / 1e6,
    }
    for side, values in rates.items():
        middle = spread(values)
        gflops = middle.median * flop_a_token / 1e9
        result[side] = {
            "rates": values,
            "target_tokens_per_s": middle,
            "gflops": gflops,
            "share_of_gemm_peak": gflops / peak,
            "warmup_s": spread([p[side]["seconds"][warmup - 1] for p in pairs]),
            "core_share": spread([core_share(p[side], p[side]["threads"], warmup) for p in pairs]),
            "peak_mib": max(p[side]["peak_mib"] for p in pairs),
        }
    return result


def markdown(report: dict[str, Any]) -> str:
    """Write the report as a page: what was compared, the figures, the pairs, whether it was the same work."""
    settings, machine, found, check = (report[k] for k in ("settings", "machine", "summary", "check"))
    wrong = report["faults"]
    lines = [
        f"# Training speed: lnexp and stock fairseq-train, {settings['size']}, {settings['tokens']} tokens a batch",
        "",
        f"{machine['processor']}, {machine['cores']} cores; threads {settings['threads']}; fairseq fp32, "
        f"lnexp {settings['precision']}, {settings['updates']} updates after {settings['warmup']} of warm-up, "
        f"pairs of runs in alternation: {len(found['ratios'])}; load before the first {machine['load_before']:.1f}.",
        "Versions: " + ", ".join(f"{name} {value}" for name, value in machine["versions"].items()) + ".",
        f"Data {settings['data']}, vocabulary {settings['vocabulary']:,}; {check['parameters'][0]:,} parameters.",
        "",
        "| | target tokens/s, median (lowest to highest) | GFLOP/s | share of GEMM peak | "
        "CPU time / (threads x time) | peak memory, MiB | start and warm-up, s |",
        "|---|---|---|---|---|---|---|",
    ]
    for side in ("lnexp", "fairseq"):
        row = found[side]
        lines.append(
            f"| {side} | {row['target_tokens_per_s'].text()} | {row['gflops']:.1f} | {row['share_of_gemm_peak']:.0%} | "
            f"{row['core_share'].text(2)} | {row['peak_mib']:,.0f} | {row['warmup_s'].text(1)} |"
        )
    by_pair = ", ".join(f"{r:.2f}" for r in found["ratios"])
    first = " and ".join(f"{x:.3f}" for x in check["first_loss_bits"])
    lines += [
        "",
        f"**lnexp / fairseq: {found['ratio'].text(2)}**, pair by pair {by_pair}.",
        "",
        f"GEMM peak: {found['gemm_gflops'].high:.0f} GFLOP/s (2048^3, fp32, the same threads, best of all tries; each "
        f"pair's best {found['gemm_gflops'].text()}). The step needs {found['mflop_per_target_token']:.3g} MFLOP a "
        "target token: 6 x weights x tokens (encoder and cross keys/values by source tokens, decoder and output by "
        "target tokens) + 12 x width x attended pairs a layer; padding and all that is not a matrix product left out.",
        "",
        "Same work: " + ("**no: " + "; ".join(wrong) + "**." if wrong else "yes: the same batches in every run."),
        f"Loss at the first update {first} bits; largest gap over all updates {check['largest_loss_gap_bits']:.3f}.",
        "",
        f"Again: `{report['command']}`",
    ]
    return "\n".join(lines) + "\n"
