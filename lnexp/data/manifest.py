"""The manifest of prepared data: two of its figures, and all of it in words for a person."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

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


def unigram_bits(train: np.ndarray, valid: np.ndarray) -> float:
    """Bits a token of valid under the word frequencies of train (counts by number), add-one smoothed: what a model that
    has learned nothing but frequencies reaches. A run that stays above it is at chance."""
    smoothed = train + 1.0
    return float(-(valid * np.log2(smoothed / smoothed.sum())).sum() / valid.sum())


def entry(path: Path) -> dict[str, Any]:
    """Give the manifest's entry of a file."""
    with open(path, "rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
