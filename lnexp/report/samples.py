"""Run folders in; the same few test sentences and each run's translations of them out.

A run has as many as it was decoded in ways: by its best checkpoint, by a mean of several, with other settings. Their
files are named by evaluate.py: hyp.SPLIT[.mean-of-N][.DECODING].txt.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lnexp.report.collect import Result
from lnexp.report.wording import plain
from lnexp.rundir import AVERAGED

BEST = "best checkpoint"
SENTENCES = 12
LONGEST = 300
"""Characters of one sentence; of a longer one the middle is left out."""


@dataclass(frozen=True)
class Sample:
    """Which sentences are shown, and what they are."""

    split: str
    at: tuple[int, ...]
    """Their lines, from 0."""
    numbers: list[int]
    """Their lines as people count, from 1."""
    source: list[str] | None
    """None where the prepared data is not at hand."""
    reference: list[str] | None


def choose(results: Sequence[Result]) -> Sample | None:
    """Pick sentences evenly over the test set (the valid set where no run has translated the test set)."""
    for split in ("test", "valid"):
        counts = (len(lines_of(file)) for result in results for file in _files(result.folder, split).values())
        if count := next(filter(None, counts), 0):
            at = tuple(sorted({i * count // SENTENCES for i in range(SENTENCES)}))
            source, reference = (_raw(results, split, side, count, at) for side in ("src", "tgt"))
            return Sample(split, at, [i + 1 for i in at], source, reference)
    return None


def translations(run: Result, sample: Sample) -> dict[str, list[str]]:
    """Give a run's translations of the sample by decoding; of what it has not (yet) there is none."""
    picked = {name: _pick(lines_of(file), sample.at) for name, file in _files(run.folder, sample.split).items()}
    return {name: lines for name, lines in picked.items() if lines}


def _files(folder: Path, split: str) -> dict[str, Path]:
    """Give the files of translations by what made them: "best checkpoint", "mean of 5", "mean of 5, beam4-lp0.6"."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except OSError:
        return {}
    matches = (re.fullmatch(rf"hyp\.{split}(?:\.(.+))?\.txt", name) for name in names)
    return dict(sorted((_decoding(match[1] or ""), folder / match[0]) for match in matches if match))


def _decoding(middle: str) -> str:
    """Name a decoding by what stands in the middle of its file's name; DECODING has points in it, "mean-of-N" none."""
    first, _, rest = middle.partition(".")
    mean = first.replace("-", " ")
    parts = (mean, rest) if mean.startswith(AVERAGED) else (BEST, middle)
    return plain(", ".join(filter(None, parts)), 80)


def _raw(results: Sequence[Result], split: str, side: str, count: int, at: Sequence[int]) -> list[str] | None:
    """Give the sentences as they were before preparation, from the first run's data folder that has as many lines."""
    places = {(str(r.env.get("data_folder") or ""), str(r.flat.get(f"data.{side}") or "")) for r in results}
    for folder, language in sorted(place for place in places if all(place)):
        lines = lines_of(Path(folder) / f"{split}.raw.{Path(language).name}")
        if len(lines) == count:
            return _pick(lines, at)
    return None


def _pick(lines: Sequence[str], at: Sequence[int]) -> list[str] | None:
    return [plain(lines[i], LONGEST) for i in at] if lines and at[-1] < len(lines) else None


def lines_of(path: Path) -> list[str]:
    """Give the lines of a file of sentences; none where it is not there or empty."""
    # Split at line feeds alone: a translation may hold other characters that Python counts as line ends.
    try:
        text = path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""
    except OSError:
        text = ""
    return text.removesuffix("\n").split("\n") if text else []
