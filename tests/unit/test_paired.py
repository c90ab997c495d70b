"""The test over sentences takes the translations that were scored, against the references they were scored with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "golden"))
import fake_outputs as fake

from lnexp import paired
from lnexp.config import Data
from lnexp.data.prepare import prepare
from lnexp.paired import Tester
from lnexp.report import table
from lnexp.report.collect import collect
from lnexp.report.column import column
from lnexp.report.judge import judge
from lnexp.score import Sentences, sacrebleu

REFERENCES = fake.sentences("the reference", 40)


def said(norm: str, seed: int) -> list[str]:
    """Post-LN says little that is right, Pre-LN most of it; every seed errs elsewhere."""
    every = 2 if norm == "post" else 7
    return [line if (i + seed) % every else line.replace("reference", "speaker") for i, line in enumerate(REFERENCES)]


def write(sweep: Path, norm: str, warmup: int, seed: int, data_folder: Path | None, value: float | None = None) -> Path:
    bleu = sacrebleu(said(norm, seed), REFERENCES).value if value is None else value
    return fake.write_run(
        sweep / f"{norm}-{warmup}-{seed}", fake.run(norm, warmup, seed), data_folder=data_folder,
        translations=said(norm, seed), scores=[fake.score(round(bleu, 4), n_sentences=40)],
    )  # fmt: skip


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    folder = tmp_path / "prepared"
    folder.mkdir()
    (folder / "test.raw.en").write_text("".join(f"{line}\n" for line in REFERENCES))
    for seed in (1, 2):
        write(tmp_path / "s", "post", 200, seed, folder)
        write(tmp_path / "s", "pre", 0, seed, folder)
    return tmp_path / "s"


def ask(sweep: Path, tester: Tester | None = None) -> object:
    results = collect(sweep)
    scores = column(results)
    assert scores
    sides = [[r for r in results if r.flat["model.norm"] == norm] for norm in ("post", "pre")]
    return (tester or Tester())(*sides, scores)


def test_it_is_the_pooled_test_of_the_seeds(sweep: Path) -> None:
    one, other = ([tuple(said(norm, seed)) for seed in (1, 2)] for norm in ("post", "pre"))
    p, signature = Sentences(REFERENCES).paired(one, other)
    assert ask(sweep) == {"p": round(p, 4), "signature": signature}


def test_seeds_that_both_have(sweep: Path) -> None:
    folder = sweep.parent / "prepared"
    write(sweep, "post", 200, 3, folder)
    assert ask(sweep) == ask_of(sweep, (1, 2))
    for run in sweep.glob("pre-*"):
        config = (run / "config.yaml").read_text()
        (run / "config.yaml").write_text(config.replace("\nseed: ", "\nseed: 9"))
    assert ask(sweep) == ask_of(sweep, (1, 2, 3))  # none in common: all there are


def ask_of(sweep: Path, post: tuple[int, ...]) -> dict[str, str | float]:
    sides = [[tuple(said("post", seed)) for seed in post], [tuple(said("pre", seed)) for seed in (1, 2)]]
    p, signature = Sentences(REFERENCES).paired(*sides)
    return {"p": round(p, 4), "signature": signature}


def test_a_translation_that_was_not_scored(sweep: Path) -> None:
    (sweep / "pre-0-2" / "hyp.test.txt").write_text("".join(f"{line}\n" for line in said("post", 1)))
    assert "the test translation of pre-0-2 gives " in str(ask(sweep))
    assert "`lnexp eval " in str(ask(sweep))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda sweep: (sweep / "pre-0-1" / "hyp.test.txt").unlink(), "pre-0-1 has no hyp.test.txt; `lnexp eval "),
        (lambda sweep: (sweep / "pre-0-1" / "hyp.test.txt").write_text("one\n"), "pre-0-1 has 1 lines, scores.json "),
        (lambda sweep: (sweep.parent / "prepared" / "test.raw.en").write_text("one\n"), "has 1 references here"),
        (lambda sweep: (sweep.parent / "prepared" / "test.raw.en").unlink(), "is not prepared here; `lnexp prepare`"),
    ],
)  # fmt: skip
def test_why_there_is_none_is_one_line(sweep: Path, change: object, reason: str) -> None:
    change(sweep)  # type: ignore[operator]
    answer = ask(sweep)
    assert isinstance(answer, str) and reason in answer and "\n" not in answer
    text = table.render(collect(sweep), "md", Tester())
    assert "sentences: not tested, " in text and reason in text.replace("\\", "")


def test_references_from_the_cache(tmp_path: Path) -> None:
    """Copied to another machine, the folder of env.json is gone; data prepared here is found by its fingerprint."""
    cache = tmp_path / "cache"
    data = Data("toy_copy", "aa", "bb")
    prepared = prepare(data, cache, say=lambda _: None)
    references = prepared.raw("test", "bb")
    for norm, share in (("post", 2), ("pre", 5)):
        lines = [line if i % share else "0 0 0" for i, line in enumerate(references)]
        run = fake.run(norm, 200 if norm == "post" else 0, 1, data=data)
        run.paths.cache = str(cache)
        score = fake.score(
            round(sacrebleu(lines, references, lang="bb").value, 4),
            n_sentences=len(references), data=prepared.fingerprint,
        )  # fmt: skip
        fake.write_run(tmp_path / "s" / norm, run, scores=[score], translations=lines, data_folder=tmp_path / "gone",
                       fingerprint=prepared.fingerprint)  # fmt: skip
    answer = ask(tmp_path / "s")
    assert isinstance(answer, dict) and answer["p"] == 0.001


def test_a_table_tests_so_many_pairs_and_no_more(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paired, "MOST", 1)
    tester = Tester()
    assert isinstance(ask(sweep, tester), dict)
    assert ask(sweep, tester) == "only the first 1 pairs are, to stay quick"


def test_the_verdict_carries_it(sweep: Path) -> None:
    (verdict,) = judge(collect(sweep), Tester())
    assert verdict["claim"] == "pre-close-to-post" and verdict["sentences"] == ask(sweep)
    text = table.render(collect(sweep), "md", Tester())
    assert "| p = 0.0" in text and "nrefs:1|bs:1000|seed:12345" in text
