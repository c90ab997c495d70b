"""The paired bootstrap over sentences is that of sacrebleu's command line; seeds are pooled by sentence."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from lnexp.score import Sentences, sacrebleu

REFERENCES = [f"The {a} of {b} is near the {c} number {i} ." for i, (a, b, c) in enumerate(
    (x, y, z) for x in ("house", "garden", "bridge", "river") for y in ("my aunt", "Berlin", "our town")
    for z in ("old church", "wide lake", "third gate", "last tree", "market"))]  # fmt: skip


def spoilt(seed: int, share: float) -> tuple[str, ...]:
    """Give the references with this share of the words lost or put in another's place."""
    draw = random.Random(seed)
    pool = [word for line in REFERENCES for word in line.split()]
    lines = []
    for line in REFERENCES:
        words = [
            draw.choice(pool) if draw.random() < share / 2 else w for w in line.split() if draw.random() > share / 2
        ]
        lines.append(" ".join(words))
    return tuple(lines)


def command_line(tmp_path: Path, *systems: tuple[str, ...]) -> list[dict[str, float]]:
    """Give what `sacrebleu --paired-bs` says of each system after the first, the baseline."""
    (tmp_path / "ref").write_text("".join(f"{line}\n" for line in REFERENCES))
    for i, lines in enumerate(systems):
        (tmp_path / f"sys{i}").write_text("".join(f"{line}\n" for line in lines))
    files = [str(tmp_path / f"sys{i}") for i in range(len(systems))]
    done = subprocess.run(
        [sys.executable, "-m", "sacrebleu", str(tmp_path / "ref"), "-i", *files, "-m", "bleu", "--paired-bs",
         "--format", "json", "-w", "6"], capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [entry["BLEU"] for entry in json.loads(done.stdout)[1:]]


def test_p_is_the_command_lines(tmp_path: Path) -> None:
    base, others = spoilt(1, 0.30), [spoilt(2, 0.31), spoilt(3, 0.34), spoilt(4, 0.6)]
    tests = Sentences(REFERENCES)
    theirs = command_line(tmp_path, base, *others)
    for other, its in zip(others, theirs, strict=True):
        p, signature = tests.paired([base], [other])
        assert p == pytest.approx(its["p_value"], abs=1e-6)
        assert signature.startswith("nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a")
        assert tests.bleu(other) == pytest.approx(its["score"], abs=1e-4)
        assert tests.bleu(other) == pytest.approx(sacrebleu(list(other), REFERENCES).value, abs=1e-9)
    ps = [its["p_value"] for its in theirs]
    assert ps[0] > 0.05 and ps[-1] < 0.002  # one pair of each kind


def test_a_second_seed_is_no_second_test_set() -> None:
    """Were a seed's translations further sentences, the same ones twice would make a chance difference a sure one."""
    a, b = spoilt(1, 0.30), spoilt(3, 0.34)
    tests = Sentences(REFERENCES)
    once = tests.paired([a], [b])
    assert tests.paired([a] * 3, [b] * 3)[0] == pytest.approx(once[0], abs=1e-6)
    doubled = Sentences(REFERENCES * 3)
    assert doubled.paired([a * 3], [b * 3])[0] < once[0]


def test_seeds_are_pooled_by_sentence() -> None:
    """The pooled score is that of all translations as one text, whose references stand there as often."""
    seeds = [spoilt(1, 0.3), spoilt(2, 0.5)]
    tests = Sentences(REFERENCES)
    rows = tests._metric._extract_corpus_statistics(list(zip(*seeds, strict=True)), None)
    whole = sacrebleu([*seeds[0], *seeds[1]], REFERENCES * 2).value
    assert tests._metric._aggregate_and_compute(rows).score == pytest.approx(whole, abs=1e-9)


def test_lower_case_and_the_languages_tokeniser() -> None:
    upper = tuple(line.upper() for line in REFERENCES)
    assert Sentences(REFERENCES).bleu(upper) < 5 < 99 < Sentences(REFERENCES, lowercase=True).bleu(upper)
    _, signature = Sentences(REFERENCES, lang="zh").paired([upper], [spoilt(1, 0.3)])
    assert "tok:zh" in signature


def test_a_short_translation_is_refused() -> None:
    with pytest.raises(ValueError, match=f"2 hypotheses against {len(REFERENCES)} references"):
        Sentences(REFERENCES).paired([("one", "two")], [spoilt(1, 0.3)])
