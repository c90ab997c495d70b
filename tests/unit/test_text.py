"""From raw text to subwords and back: nothing is lost that is not known to be, and no line goes missing."""

import pytest
from fakes.bitext import shipped

from lnexp.config import Data
from lnexp.data import bpe
from lnexp.data.moses import Tokenizer
from lnexp.data.subwords import join
from lnexp.data.text import detokenize

ODD_LINES = ["", " ", "\x01\x02", "a\u2028b", "x\x0cy", "\u00a0", "z\r", "@@", "a @@ b", "日本語", "</s>"]


@pytest.mark.parametrize("lang", ["aa", "src", "zh", "ja", "ko", "yue", "fi", "cs"])
def test_other_languages_do_not_crash(lang: str) -> None:
    lines = ['He said: "yes", 日本語 한국어 3:15.', "", "'s"]
    done = [Tokenizer(lang)(line) for line in lines]
    assert done[1] == "" and done[0]
    assert len(list(detokenize(done, lang))) == 3


def test_lines_are_preserved() -> None:
    lines = ODD_LINES * 3
    done = [Tokenizer("en")(line) for line in lines]
    assert [line for line, token in zip(lines, done, strict=True) if not line.strip() and token.strip()] == []
    # No separator is left inside a line that any later reader could take for a line's end or for two spaces.
    assert all(line == " ".join(line.split()) for line in done if line.strip())
    cut = [bpe.Segmenter(bpe.learn(bpe.count_words(done), 5)).line(line) for line in done]
    data = Data(bpe_merges=5)
    assert len(join(cut, data)) == len(list(detokenize(cut, "en"))) == len(lines)
    assert [not line.strip() for line in done] == [not line.strip() for line in cut]


@pytest.mark.parametrize(("lang", "exact"), [("de", 1993), ("en", 1996)])
def test_round_trip_on_shipped_text(lang: str, exact: int) -> None:
    # What is lost is known: "13:30" comes back as "13: 30", a typographic apostrophe inside a word as its own word.
    lines = [line for split in ("valid", "test") for line in shipped().lines(f"{split}.{lang}")]
    back = detokenize(map(Tokenizer(lang), lines), lang)
    same = [line.split() == again.split() for line, again in zip(lines, back, strict=True)]
    assert sum(same) == exact


@pytest.mark.parametrize("lang", ["de", "en"])
def test_cut_hyphens_are_joined_again(lang: str) -> None:
    line = "A well-known, state-of-the-art E-Mail."
    cut = Tokenizer(lang, split_hyphens=True)(line)
    assert "well @-@ known" in cut and "@-@ the @-@ art" in cut
    assert list(detokenize([cut], lang)) == [line]


@pytest.mark.parametrize(
    ("data", "cut", "joined"),
    [
        (Data(bpe_merges=9), ["lo@@ w lo@@", "", "a b"], ["low lo", "", "a b"]),
        (Data(codes="codes"), ["lo@@ w"], ["low"]),
        (Data(), ["lo@@ w"], ["lo@@ w"]),
        (Data(subwords="sentencepiece", pieces=9), ["▁lo w ▁a", "", "w ▁lo"], ["low a", "", "w lo"]),
    ],
)
def test_join(data: Data, cut: list[str], joined: list[str]) -> None:
    assert join(cut, data) == joined
