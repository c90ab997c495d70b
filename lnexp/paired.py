"""Whether a difference in BLEU is one of the test sentences drawn: the part of a verdict that needs sacrebleu and data.

In: the runs of two configurations and the scores that they are compared by (report/judge.py). Out: sacreBLEU's paired
bootstrap p, or in one line why there is none. Apart from the reports, which know neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lnexp.errors import UserError
from lnexp.report.collect import Result
from lnexp.report.column import Column
from lnexp.report.samples import lines_of

if TYPE_CHECKING:
    from lnexp.score import Sentences

MOST = 12
"""Pairs that one table tests, at a quarter of a second each for 1,000 sentences."""
ROUNDED = 0.005
"""scores.json has four digits behind the point; a translation that is off by more is not the one that was scored."""


class Tester:
    """Tests pairs of configurations; keeps each test set, and each translation once shown to be the scored one."""

    def __init__(self) -> None:
        self._sets: dict[tuple[str, str], Sentences] = {}
        self._checked: dict[Path, tuple[str, ...]] = {}
        self._tested = 0

    def __call__(self, a: Sequence[Result], b: Sequence[Result], scores: Column) -> dict[str, str | float] | str:
        """Give {"p", "signature"} for the seeds that both have, or for all where they share none."""
        if self._tested == MOST:
            return f"only the first {MOST} pairs are, to stay quick"
        sides = [[run for run in runs if str(run.folder) in scores.values] for runs in (a, b)]
        shared = {run.seed for run in sides[0]} & {run.seed for run in sides[1]}
        try:
            one, other = ([self._translation(run, scores) for run in side if not shared or run.seed in shared]
                          for side in sides)  # fmt: skip
            p, signature = self._set(sides[0][0], scores).paired(one, other)
        except UserError as error:
            return str(error)
        self._tested += 1
        return {"p": round(p, 4), "signature": signature}

    def _translation(self, run: Result, scores: Column) -> tuple[str, ...]:
        """Read the run's translation of the split, and hold it against its score."""
        if run.folder in self._checked:
            return self._checked[run.folder]
        names = [Path(f"hyp.{scores.split}{middle}.txt").name for middle in (f".{scores.decode}", "")]
        translation = tuple(next((lines for name in names if (lines := lines_of(run.folder / name))), ()))
        if not translation:
            raise UserError(f"{run.name} has no {names[-1]}; `lnexp eval {run.folder}` makes it again")
        value, sentences = scores.values[str(run.folder)], self._set(run, scores)
        if len(translation) != scores.n_sentences or abs((bleu := sentences.bleu(translation)) - value) > ROUNDED:
            gives = f"has {len(translation)} lines" if len(translation) != scores.n_sentences else f"gives {bleu:.2f}"
            raise UserError(
                f"the {scores.split} translation of {run.name} {gives}, scores.json has {value:.2f} over "
                f"{scores.n_sentences}; `lnexp eval {run.folder}` makes both again"
            )
        return self._checked.setdefault(run.folder, translation)

    def _set(self, run: Result, scores: Column) -> Sentences:
        key = scores.data, scores.split
        if key not in self._sets:
            from lnexp.score import Sentences

            references = _references(run, scores)
            data = run.config["data"]
            self._sets[key] = Sentences(references, bool(data.get("lowercase")), str(data.get("tgt")))
        return self._sets[key]


def _references(run: Result, scores: Column) -> list[str]:
    """Read the raw references where the run had its data, else from the cache that its config names."""
    language, folder = str(run.flat.get("data.tgt")), run.env.get("data_folder")
    references = lines_of(Path(str(folder)) / Path(f"{scores.split}.raw.{language}").name) if folder else []
    if not references:
        from lnexp.config import load
        from lnexp.data.prepare import find

        config = load(run.folder / "config.yaml")
        prepared = find(config.data, Path(config.paths.cache).expanduser())
        if prepared is None or prepared.fingerprint != scores.data:
            raise UserError(f"data {scores.data} is not prepared here; `lnexp prepare` with the runs' data.* makes it")
        references = prepared.raw(scores.split, language)
    if len(references) != scores.n_sentences:
        raise UserError(f"data {scores.data} has {len(references)} references here, scored were {scores.n_sentences}")
    return references
