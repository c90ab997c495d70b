"""Given hypotheses score as the sacrebleu command line and multi-bleu.perl's formula say, for both corpora."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from fakes import archives
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

from lnexp.data.prepare import Prepared, prepare
from lnexp.data.text import detokenize
from lnexp.launch import plan
from lnexp.score import Bleu, sacrebleu, tokenized_bleu

ORIGINAL = Path(__file__).parents[3] / "shared" / "data" / "iwslt14-de-en" / "orig"


def multi_bleu(hypotheses: list[str], references: list[str]) -> float:
    """BLEU of the tokens as they stand (Papineni et al., 2002): four n-gram precisions, unsmoothed, brevity penalty."""
    right, total = [0] * 4, [0] * 4
    for pair in zip(hypotheses, references, strict=True):
        ours, theirs = ([Counter(zip(*(w[i:] for i in range(n)), strict=False)) for n in (1, 2, 3, 4)]
                        for w in (side.split() for side in pair))  # fmt: skip
        for n in range(4):
            total[n] += ours[n].total()
            right[n] += (ours[n] & theirs[n]).total()
    hyp_len, ref_len = (sum(len(line.split()) for line in side) for side in (hypotheses, references))
    penalty = min(1.0, math.exp(1 - ref_len / hyp_len))
    return 100 * penalty * math.exp(sum(math.log(r / t) for r, t in zip(right, total, strict=True)) / 4)


def worse(lines: list[str], seed: int = 7) -> list[str]:
    """Spoil a translation as a model would: words lost, doubled, swapped, one in another's place; one line empty."""
    draw = random.Random(seed)
    pool = [word for line in lines for word in line.split()]
    spoilt = []
    for line in lines:
        words = [w for w in line.split() if draw.random() > 0.08]
        words = [draw.choice(pool) if draw.random() < 0.08 else w for w in words]
        if len(words) > 2 and draw.random() < 0.3:
            words[0], words[1] = words[1], words[0]
        spoilt.append(" ".join(words))
    return ["", *spoilt[1:]]


def command_line(tmp_path: Path, hypotheses: list[str], references: list[str], *options: str) -> float:
    for name, lines in (("hyp", hypotheses), ("ref", references)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "sacrebleu", tmp_path / "ref", "-i", tmp_path / "hyp", "-m", "bleu", "-b", "-w", "6",
         *options], capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(done.stdout)


def prepared(tmp_path: Path, corpus: str) -> Prepared:
    folder = tmp_path / "archives"
    if corpus == "wmt14_ende":
        for name, members in archives.wmt14().items():
            archives.write_tgz(folder / name, members)
    else:
        members = archives.iwslt14(held=60)
        if ORIGINAL.is_dir():  # the real dev2010 and TEDX.dev2012 where they are at hand
            members |= {f"de-en/{path.name}": path.read_text(encoding="utf-8") for path in ORIGINAL.glob("*.xml")}
        archives.write_tgz(folder / "de-en.tgz", members)
    words = [f"data={corpus}", f"data.local={folder}", "data.standard=false", "data.bpe_merges=100"]
    return prepare(plan(words, bound=False).jobs[0].run.data, tmp_path / "cache", lambda _: None)


@pytest.mark.parametrize(("corpus", "lang", "lowercase"), [("iwslt14_deen", "en", True), ("wmt14_ende", "de", False)])
def test_both_scores(tmp_path: Path, corpus: str, lang: str, lowercase: bool) -> None:
    data = prepared(tmp_path, corpus)
    tokens = worse(data.tokenized("test", lang))
    text = list(detokenize(tokens, lang))
    raw: Bleu = sacrebleu(text, data.raw("test", lang), lowercase)
    assert raw.value == pytest.approx(
        command_line(tmp_path, text, data.raw("test", lang), *["-lc"] * lowercase), abs=5e-6
    )
    tokenized = tokenized_bleu(tokens, data.tokenized("test", lang))
    assert tokenized.value == pytest.approx(multi_bleu(tokens, data.tokenized("test", lang)), abs=5e-6)
    assert 20 < raw.value < 90 and 20 < tokenized.value < 90 and raw.value != tokenized.value
    assert f"case:{'lc' if lowercase else 'mixed'}" in raw.signature and "tok:13a" in raw.signature


@pytest.mark.parametrize(("lang", "name"), [("en", "13a"), ("zh", "zh"), ("ja", "char")])
def test_the_tokeniser_is_the_language_s(tmp_path: Path, lang: str, name: str) -> None:
    lines = ["他们去了学校。", "今天天气很好,我们走吧。"] * 9
    other = ["他们去过学校。", "今天天气好,我们走吧。"] * 9
    scored = sacrebleu(other, lines, lang=lang)
    assert f"tok:{name}" in scored.signature
    assert scored.value == pytest.approx(command_line(tmp_path, other, lines, "--tokenize", name), abs=5e-6)


def test_references_of_sgm_are_those_that_sacrebleu_reads(tmp_path: Path) -> None:
    data = prepared(tmp_path, "wmt14_ende")
    raw = archives.wmt14()["test-full.tgz"]["test-full/newstest2014-deen-ref.de.sgm"]
    (tmp_path / "ref.sgm").write_text(raw, encoding="utf-8")
    FakeSGMLDataset("x")._convert_format(str(tmp_path / "ref.sgm"), str(tmp_path / "ref.txt"))
    assert data.raw("test", "de") == (tmp_path / "ref.txt").read_text(encoding="utf-8").splitlines()
