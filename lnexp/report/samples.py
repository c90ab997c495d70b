"""Run folders in; the same few test sentences and each run's translation of them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lnexp.report.collect import Result
from lnexp.report.wording import plain

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
        for result in results:
            count = len(lines_of(result.folder / f"hyp.{split}.txt"))
            if count:
                at = tuple(sorted({i * count // SENTENCES for i in range(SENTENCES)}))
                source, reference = (_raw(results, split, side, count, at) for side in ("src", "tgt"))
                return Sample(split, at, [i + 1 for i in at], source, reference)
    return None


def translations(run: Result, sample: Sample) -> list[str] | None:
    """Give a run's translations of the sample; None where it has none yet."""
    return _pick(lines_of(run.folder / f"hyp.{sample.split}.txt"), sample.at)


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
