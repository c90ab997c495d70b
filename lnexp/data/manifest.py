"""A manifest in words: what a prepared corpus holds, what was left out and what a person should know about it."""

from __future__ import annotations

from typing import Any

from lnexp.data import oddities
from lnexp.data.published import CORPORA


def describe(manifest: dict[str, Any]) -> dict[str, str]:
    """Give {label: line}: a line a split, the vocabulary, the hashes."""
    src, tgt = manifest["src"], manifest["tgt"]
    lines = {}
    for split, found in manifest["splits"].items():
        dropped = ", ".join(f"{n:,} {reason.replace('_', ' ')}" for reason, n in found["dropped"].items())
        tokens = f"{found['tokens'][src]:,} + {found['tokens'][tgt]:,} tokens"
        unknown = max(found["unknown_rate"].values())
        lines[split] = f"{found['pairs']:,} pairs, {tokens}, {unknown:.3%} unknown" + (
            f" ({found['read']:,} read; left out: {dropped})" if dropped else ""
        )
    lines["vocabulary"] = f"{manifest['vocabulary']:,}, joined"
    if manifest["source"] in CORPORA:
        lines["standard set"] = manifest["standard"] or "no: data.standard=false, nothing was held against it"
    return lines


def notes(manifest: dict[str, Any]) -> list[str]:
    """Give what a person should know about the raw text, a line each; the standard set is left as it is."""
    found = []
    if manifest.get("reference_codes") is False:
        found.append("the BPE codes are not those that the reference preparation learned from this corpus")
    for split, counts in manifest["splits"].items():
        found += oddities.describe(split, counts["seen"], manifest["repeats"].get(split), counts["read"])
    return found
