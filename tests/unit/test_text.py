"""Text functions against Moses output known by heart and against subword-nmt itself."""

import io

import pytest
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe as reference_learn

from lnexp.config import Data
from lnexp.data.corpora import open_corpus
from lnexp.data.text import apply_bpe, detokenize, learn_bpe, tokenize, undo_bpe

ODD_LINES = [
    "",
    " ",
    "\x01\x02",
    "a\u2028b",
    "x\x0cy",
    "\u00a0",
    "z\r",
    "@@",
    "a @@ b",
    "日本語",
    "</s>",
    "\ud83d\ude00"[:0],
]


@pytest.fixture(scope="module")
def shipped() -> dict[str, list[str]]:
    corpus = open_corpus(Data(name="tatoeba_deen", src="de", tgt="en"))
    sides = [corpus.lines(split) for split in ("valid", "test")]
    return {"de": sides[0][0] + sides[1][0], "en": sides[0][1] + sides[1][1]}


@pytest.fixture(scope="module")
def tokens(shipped: dict[str, list[str]]) -> list[str]:
    return [line for lang in ("de", "en") for line in tokenize(shipped[lang], lang)]


@pytest.mark.parametrize(
    ("lang", "line", "expected"),
    [
        ("en", "Don't", "Don &apos;t"),
        ("en", "Tom's dog isn't 5's.", "Tom &apos;s dog isn &apos;t 5 &apos;s ."),
        ("en", "Dr. Smith paid $5,300.50 (in 1999).", "Dr. Smith paid $ 5,300.50 ( in 1999 ) ."),
        ("en", "[a|b] <c> & d...", "&#91; a &#124; b &#93; &lt; c &gt; &amp; d ..."),
        ("en", "Wait... what?!", "Wait ... what ? !"),
        ("en", "Mr. Smith met No. 5 at 5 p.m. today", "Mr. Smith met No. 5 at 5 p.m. today"),
        ("en", "He said 'no.'", "He said &apos; no . &apos;"),
        ("de", '"Hallo", sagte er.', "&quot; Hallo &quot; , sagte er ."),
        ("de", "Das kostet z. B. 3,50 €.", "Das kostet z. B. 3,50 € ."),
        ("de", "„Ja“-Sager", "„ Ja “ -Sager"),
        ("fr", "l'eau d'or", "l&apos; eau d&apos; or"),
        # tokenizer.perl splits the last period whatever the word before it is; sacremoses alone does not.
        ("de", "in den U.S.A.", "in den U.S.A ."),
        ("de", "Er kam usw.", "Er kam usw ."),
        ("en", "we could do b.", "we could do b ."),
    ],
)
def test_tokenize_as_moses(lang: str, line: str, expected: str) -> None:
    assert list(tokenize([line], lang)) == [expected]


@pytest.mark.parametrize("lang", ["aa", "src", "zh", "ja", "ko", "yue", "fi", "cs"])
def test_other_languages_do_not_crash(lang: str) -> None:
    lines = ['He said: "yes", 日本語 한국어 3:15.', "", "'s"]
    done = list(tokenize(lines, lang))
    assert len(done) == 3 and done[1] == "" and done[0]
    assert len(list(detokenize(done, lang))) == 3


def test_lines_are_preserved() -> None:
    lines = ODD_LINES * 3
    done = list(tokenize(lines, "en"))
    assert len(done) == len(lines)
    assert [line for line, token in zip(lines, done, strict=True) if not line.strip() and token] == []
    # No separator is left inside a line that any later reader could take for a line's end or for two spaces.
    assert all(line == " ".join(line.split()) for line in done)
    codes = learn_bpe(done, 5)
    cut = list(apply_bpe(done, codes))
    assert len(cut) == len(list(undo_bpe(cut))) == len(list(detokenize(cut, "en"))) == len(lines)
    assert [i for i, line in enumerate(done) if not line] == [i for i, line in enumerate(cut) if not line]


@pytest.mark.parametrize(("lang", "exact"), [("de", 1993), ("en", 1996)])
def test_round_trip_on_shipped_text(shipped: dict[str, list[str]], lang: str, exact: int) -> None:
    # What is lost is known: "13:30" comes back as "13: 30", a typographic apostrophe inside a word as its own word.
    back = detokenize(tokenize(shipped[lang], lang), lang)
    same = [line.split() == again.split() for line, again in zip(shipped[lang], back, strict=True)]
    assert sum(same) == exact


def _reference_codes(lines: list[str], merges: int) -> list[str]:
    codes = io.StringIO()
    reference_learn(lines, codes, merges)
    return codes.getvalue().rstrip("\n").split("\n")


def test_bpe_as_subword_nmt(tokens: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    codes = learn_bpe(iter(tokens), 400)
    assert capfd.readouterr() == ("", "")  # no progress bar of the library
    assert len(codes) == 401
    assert codes == _reference_codes(tokens, 400)
    reference = BPE(io.StringIO("\n".join(codes) + "\n"))
    cut = list(apply_bpe(tokens, codes))
    assert cut == [reference.segment(line) for line in tokens]
    assert list(undo_bpe(cut)) == tokens


def test_bpe_stops_where_pairs_run_out(capfd: pytest.CaptureFixture[str]) -> None:
    lines = ["low low lower", "low"]
    codes = learn_bpe(lines, 50)
    assert capfd.readouterr() == ("", "")
    assert codes == _reference_codes(lines, 50)
    assert 1 < len(codes) < 51
    assert list(apply_bpe(["low slower"], codes)) == ["low s@@ lo@@ w@@ e@@ r"]


@pytest.mark.parametrize(
    "lines", [[], [""], ["1 2 3"], ["ab cd"]], ids=["nothing", "empty", "characters", "no pair twice"]
)
def test_bpe_with_nothing_to_merge(lines: list[str]) -> None:
    codes = learn_bpe(lines, 10)
    assert codes == ["#version: 0.2"]
    assert list(apply_bpe(["1 2", "", "no merge"], codes)) == ["1 2", "", "n@@ o m@@ e@@ r@@ g@@ e"]


def test_undo_bpe_of_a_cut_off_line() -> None:
    assert list(undo_bpe(["lo@@ w lo@@", "", "a b"])) == ["low lo", "", "a b"]
