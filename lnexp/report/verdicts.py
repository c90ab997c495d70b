"""Verdicts and open points as tables, and as a sentence: what stands under a sweep's results.

In: verdicts (judge.py), and the configs that were run. Out: grids for Markdown and LaTeX, CSV of the verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lnexp import paper, unstated
from lnexp.report import markup, wording
from lnexp.report.judge import FAILS, HOLDS, OPEN
from lnexp.report.markup import Grid

Verdicts = Sequence[Mapping[str, Any]]


def grid(verdicts: Verdicts) -> Grid | None:
    """Give the table of verdicts, in full; None where there are none."""
    if not verdicts:
        return None
    headers = ["verdict", "at", "A", "B", "B − A", "95% interval", "must be", "seeds", "sentences", "the paper's claim"]
    rows = [
        [
            _verdict(v),
            v["at"],
            _side(v["a"]),
            _side(v["b"]),
            _difference(v),
            _interval(v),
            _bounds(v),
            _seeds(v["seeds"]),
            _sentences(v["sentences"]),
            f"{v['statement']} ({v['locus']})",
        ]
        for v in verdicts
    ]
    return Grid(_title(verdicts), headers, rows, _notes(verdicts), {4, 5})


def narrow(verdicts: Verdicts) -> Grid | None:
    """Give the table of verdicts for a page of LaTeX; how surely, is left to the interval and the notes."""
    if not verdicts:
        return None
    rows = [
        [
            v["statement"] + (f"; at {v['at']}" if v["at"] else ""),
            _side(v["a"]),
            _side(v["b"]),
            f"{_difference(v)} ({_interval(v)})" if v["interval"] else _difference(v),
            _bounds(v),
            _verdict(v),
        ]
        for v in verdicts
    ]
    headers = ["the paper's claim", "A", "B", "B − A (95%)", "must be", "verdict"]
    widths = {0: 3.3, 1: 1.9, 2: 1.9, 3: 1.6, 4: 1.2, 5: 1.0}
    return Grid(_title(verdicts), headers, rows, _notes(verdicts), widths=widths)


def open_points(configs: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Give what the paper leaves open of these runs as plain data: point, paper, here, change."""
    if not any(paper.claim_for(config) for config in configs):
        return []
    return [
        {"point": point.name, "paper": point.says, "here": _here(point, its), "change": point.change}
        for point, its in unstated.points(configs)
    ]


def open_grid(points: Sequence[Mapping[str, str]]) -> Grid | None:
    """Give the table of open points; None where there are none."""
    if not points:
        return None
    headers = ["point", "in the paper", "here", "to change it"]
    rows = [[p["point"], p["paper"], p["here"], p["change"]] for p in points]
    title = "What the paper leaves open, or says otherwise than the common recipe, and what was chosen here."
    return Grid(title, headers, rows, widths={0: 1.7, 1: 3.1, 2: 3.1, 3: 3.4})


def comma_separated(verdicts: Verdicts) -> str:
    """Give the verdicts as CSV, a row each, numbers bare of units."""
    plain = ("claim", "verdict", "how", "at", "metric")
    side = ("name", "mean", "sd", "half_width", "n")
    headers = [*plain, *(f"{s}_{k}" for s in "ab" for k in side), "difference", "interval_low", "interval_high",
               "needs_low", "needs_high", "seeds_share", "seeds_resamples", "seeds_exact", "seeds_low", "seeds_high",
               "sentences_p", "sentences_signature", "statement", "locus", "certainty"]  # fmt: skip
    rows = []
    for v in verdicts:
        seeds = v["seeds"] or {}
        tested = v["sentences"] if isinstance(v["sentences"], Mapping) else {}
        rows.append([
            *(v[k] for k in plain), *((v[s] or {}).get(k) for s in "ab" for k in side), v["difference"],
            *(v["interval"] or (None, None)), *v["needs"], *(seeds.get(k) for k in ("share", "resamples", "exact")),
            *seeds.get("interval", (None, None)), tested.get("p"), tested.get("signature"),
            v["statement"], v["locus"], v["certainty"],
        ])  # fmt: skip
    return markup.comma_separated(headers, rows)


def sentence(verdicts: Verdicts) -> str:
    """Say what was judged, each claim by name and once, however many pairs of configurations it was judged by."""
    by_claim: dict[str, list[str]] = {}
    for v in verdicts:
        by_claim.setdefault(v["short"], []).append(v["verdict"])
    names: dict[str, list[str]] = {}
    for short, found in by_claim.items():
        word = found[0] if len(set(found)) == 1 else _PARTLY
        part = f" ({found.count(HOLDS)} of {_comparisons(len(found))})" if word == _PARTLY else ""
        names.setdefault(word, []).append(short + part)
    ordered = [(word, names[word]) for word in _COUNTED if word in names]
    parts = [f"{_count(word, shorts)}: {', '.join(shorts)}" for word, shorts in ordered]
    return f"Judged by these runs, of the paper's claims {'; '.join(parts)}."


_PARTLY = "holds in part"
# Of one, of several.
_COUNTED = {HOLDS: ("holds", "hold"), _PARTLY: (_PARTLY, "hold in part"), FAILS: ("does not hold", "do not hold"),
            OPEN: ("cannot be said", "cannot be said")}  # fmt: skip


def _count(word: str, found: Sequence[object]) -> str:
    return f"{len(found)} {_COUNTED[word][len(found) != 1]}"


def _comparisons(count: int) -> str:
    return wording.plural(count, "comparison")


def _title(verdicts: Verdicts) -> str:
    found = [v["verdict"] for v in verdicts]
    counts = [_count(word, [word] * found.count(word)) for word in _COUNTED if word in found]
    return f"The paper's claims, judged by these runs in {_comparisons(len(found))}: {', '.join(counts)}."


def _verdict(verdict: Mapping[str, Any]) -> str:
    one_seed = verdict["difference"] is not None and verdict["interval"] is None
    return str(verdict["verdict"]) + (" (one seed)" if one_seed else "")


def _side(side: Mapping[str, Any] | None) -> str:
    if side is None:
        return wording.NOTHING
    value = f"{side['mean']:.2f} (n={side['n']})" if side["n"] else str(side["state"])
    return f"{side['name']}: {value}" if side["name"] else value


def _difference(verdict: Mapping[str, Any]) -> str:
    known = verdict["b"] and verdict["difference"] is not None
    return f"{verdict['difference']:+.2f}".replace("-", "−") if known else wording.NOTHING


def _interval(verdict: Mapping[str, Any]) -> str:
    if verdict["interval"] is None:
        return wording.NOTHING
    return " to ".join(f"{value:.2f}".replace("-", "−") for value in verdict["interval"])


def _bounds(verdict: Mapping[str, Any]) -> str:
    low, high = verdict["needs"]
    unit = "BLEU" if verdict["metric"] == "BLEU" else "bits"
    if low is not None and high is not None:
        return f"−{high:g} to {high:g} {unit}"
    return f"≥ {low:g} {unit}" if high is None else f"≤ {high:g} {unit}"


def _seeds(seeds: Mapping[str, Any] | None) -> str:
    if seeds is None:
        return wording.NOTHING
    of = wording.count(seeds["resamples"])
    return f"{100 * seeds['share']:.3g}% of {of}{'' if seeds['exact'] else ' drawn'}"


def _sentences(tested: Mapping[str, Any] | str | None) -> str:
    return f"p = {tested['p']:.3f}" if isinstance(tested, Mapping) else wording.NOTHING


def _notes(verdicts: Verdicts) -> list[str]:
    notes = [
        "Where there is no B, A alone is judged. 95% interval: over seeds, Welch's t of B − A (Student's of A). A "
        "claim holds, or does not, where all of the interval does; else it cannot be said.",
        "seeds: of all ways to draw the seeds anew with replacement, the share in which the claim holds; three seeds a "
        "side have few, and what no seed showed is in none.",
    ]
    tests = [v["sentences"] for v in verdicts if v["sentences"] is not None]
    signatures = sorted({str(t["signature"]) for t in tests if isinstance(t, Mapping)})
    if signatures:
        notes.append(
            "sentences: p of no difference in BLEU by sacreBLEU's paired bootstrap over the test sentences, a drawn "
            f"sentence with its translations by all seeds; {wording.plain('; '.join(signatures), 200)}."
        )
    reasons = list(dict.fromkeys(t for t in tests if isinstance(t, str)))
    if reasons:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        notes.append(f"sentences: not tested, {wording.plain(reasons[0], 300)}{more}.")
    kinds = {v["kind"]: v for v in verdicts}
    notes += [f"{v['reads']}: {_bounds(v)}; {v['why']}." for v in kinds.values()]
    return notes


def _here(point: unstated.Point, configs: Sequence[Mapping[str, Any]]) -> str:
    """Write the choice made here: "size.dropout=0.1", with every value that these runs have."""
    parts = [point.here] if point.here else []
    for name in point.fields:
        found = [paper.setting(config, name) for config in configs]
        values = sorted({wording.level("", value) for value in found if value or not name.startswith("max_")})
        parts += [f"{name}={', '.join(values)}"] if values else []  # max_updates=0 is no bound
    return "; ".join(parts)
