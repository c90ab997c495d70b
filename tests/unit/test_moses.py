"""Tokens, text and decisions as the Moses scripts give them: what they printed for hostile lines, and the scripts."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lnexp
from lnexp.data import moses
from lnexp.data.clean import cleaned, keeps
from lnexp.data.moses import Tokenizer, lower, normalize_punctuation, remove_non_printing

Function = Callable[[Any], Any]
CASES = json.loads((Path(__file__).parent / "moses_cases.json").read_text(encoding="utf-8"))
KINDS = sorted({(function, lang) for function, lang, _, _ in CASES})
SETS = Path(lnexp.__file__).parents[2] / "shared" / "data" / "iwslt14-de-en"


def clean(pair: list[str]) -> list[str] | None:
    return None if keeps(pair[0], pair[1], 1, 10, 1.5) else [cleaned(line) for line in pair]


def function(name: str, lang: str) -> Function:
    """Give what is to do the same as a script; the name is the one used in the cases."""
    if name.startswith("tokenize"):
        return Tokenizer(lang, split_hyphens=name == "tokenize -a")
    functions: dict[str, Function] = {
        "lower": lower,
        "remove_non_printing": remove_non_printing,
        "normalize_punctuation": lambda line: normalize_punctuation(line, lang),
        "clean 1 10 1.5": clean,
    }
    return functions[name]


@pytest.mark.parametrize(("name", "lang"), KINDS)
def test_as_the_script_printed(name: str, lang: str) -> None:
    do = function(name, lang)
    cases = [(given, expected) for kind, of, given, expected in CASES if (kind, of) == (name, lang)]
    wrong = [(given, expected, do(given)) for given, expected in cases if do(given) != expected]
    assert wrong == []


@pytest.mark.parametrize(
    ("src", "tgt", "reason"),
    [
        ("a b", "a", None),
        ("", "", "empty"),
        ("|", "a", "empty"),
        ("a b c d e", "", "empty"),
        ("a b c d e", "a b c d", "too_long"),
        ("a", "a b c d e", "too_long"),
        ("a", "a", None),
        ("a b c", "a", "ratio"),
        ("a", "a b c", "ratio"),
        ("x" * 1001, "a", "long_word"),
        ("a", "x" * 1000, None),
    ],
)
def test_reasons(src: str, tgt: str, reason: str | None) -> None:
    assert keeps(src, tgt, 1, 4, 2) == reason


def test_too_short() -> None:
    assert keeps("a b", "a", 2, 4, 2) == "too_short"
    assert keeps("a b", "a b", 2, 4, 1) is None


def test_a_full_store_of_words_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [given for kind, lang, given, _ in CASES if (kind, lang) == ("tokenize", "en")]
    expected = [Tokenizer("en")(line) for line in lines]
    monkeypatch.setattr(moses, "_MOST_FORMS", 3)
    small = Tokenizer("en")
    assert [small(line) for line in lines * 2] == expected * 2


@pytest.mark.parametrize(
    ("lang", "line", "expected"),
    [
        ("fr", "l'eau d'or", "l&apos; eau d&apos; or"),
        ("cs", "A'b, c.", "A &apos; b , c ."),
        ("xx", "Dr. No. 5 No. X.", "Dr. No. 5 No . X ."),  # unknown: the English abbreviations
    ],
)
def test_other_languages(lang: str, line: str, expected: str) -> None:
    assert Tokenizer(lang)(line) == expected


@pytest.mark.parametrize("lang", ["de", "en"])
@pytest.mark.parametrize("name", ["TED.dev2010", "TEDX.dev2012"])
def test_iwslt14_sets_as_prepared_by_the_reference(name: str, lang: str) -> None:
    file = f"IWSLT14.{name}.de-en.{lang}"
    if not SETS.is_dir():
        pytest.skip(f"no {SETS}: the sets may not be passed on with this repository")
    text = (SETS / "orig" / f"{file}.xml").read_text(encoding="utf-8")
    tokenizer = Tokenizer(lang)
    lines = re.findall(r"<seg[^>]*>(.*)</seg>", text)
    done = "".join(f"{lower(tokenizer(line.strip().replace('’', chr(39))))}\n" for line in lines)
    assert done.encode() == (SETS / "expected" / file).read_bytes()


# The same against the scripts themselves, where someone has them.


def script(path: str, arguments: list[str], lines: list[str]) -> list[str]:
    command = ["perl", str(Path(os.environ["LNEXP_MOSES_SCRIPTS"]) / path), *arguments]
    done = subprocess.run(command, input="".join(f"{line}\n" for line in lines).encode(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().removesuffix("\n").split("\n")


def hostile(count: int, seed: int) -> list[str]:
    """Lines from parts of the cases, and from single characters, old ones: perl's Unicode may not be Python's."""
    draw = random.Random(seed)
    parts = sorted({part for _, _, given, _ in CASES if isinstance(given, str) for part in given.split(" ")})
    spaces = [*[" "] * 12, "", "", "", "  ", "\t", "\xa0", "\u2028", "\x85", "\r", "\x01", "\x1c", "\u200b", "\u0301"]
    marks = " .,'-`aA5sé日²Ⅳ"
    codes = [*range(32, 0xD800), *range(0xE000, 0x20000)]
    old = [chr(code) for code in codes if unicodedata.ucd_3_2_0.category(chr(code)) != "Cn"]
    found = []
    for _ in range(count):
        size = draw.randint(1, 12)
        if draw.random() < 0.6:
            found.append("".join(draw.choice(parts) + draw.choice(spaces) for _ in range(size)))
            continue
        found.append("".join(draw.choice((draw.choice(old), *draw.sample(marks, 3))) for _ in range(size)))
    return found


@pytest.mark.parametrize(("name", "lang"), [kind for kind in KINDS if not kind[0].startswith("clean")])
def test_as_the_script_prints(name: str, lang: str) -> None:
    if not shutil.which("perl") or not os.environ.get("LNEXP_MOSES_SCRIPTS"):
        pytest.skip("needs perl, and LNEXP_MOSES_SCRIPTS with the path of mosesdecoder's scripts folder")
    path, arguments = {
        "tokenize": ("tokenizer.perl", ["-q", "-l", lang]),
        "tokenize -a": ("tokenizer.perl", ["-q", "-a", "-l", lang]),
        "lower": ("lowercase.perl", []),
        "remove_non_printing": ("remove-non-printing-char.perl", []),
        "normalize_punctuation": ("normalize-punctuation.perl", ["-l", lang]),
    }[name]
    lines = hostile(5000, 1)
    do = function(name, lang)
    printed = script(f"tokenizer/{path}", arguments, lines)
    differing = [case for case in zip(lines, printed, map(do, lines), strict=True) if case[1] != case[2]]
    assert differing == []


@pytest.mark.parametrize("tokens", [False, True])
def test_pairs_as_the_script_keeps_them(tokens: bool, tmp_path: Path) -> None:
    if not shutil.which("perl") or not os.environ.get("LNEXP_MOSES_SCRIPTS"):
        pytest.skip("needs perl, and LNEXP_MOSES_SCRIPTS with the path of mosesdecoder's scripts folder")
    do = Tokenizer("en") if tokens else str
    sides = [["first", *map(do, hostile(5000, seed))] for seed in (2, 3)]
    for lang, lines in zip(("de", "en"), sides, strict=True):
        (tmp_path / f"in.{lang}").write_bytes("".join(f"{line}\n" for line in lines).encode())
    files = [str(tmp_path / "in"), "de", "en", str(tmp_path / "out")]
    script("training/clean-corpus-n.perl", ["-ratio", "1.5", *files, "1", "10"], [])
    kept = [pair for pair in map(clean, map(list, zip(*sides, strict=True))) if pair]
    assert 500 < len(kept) < 5000
    for place, lang in enumerate(("de", "en")):
        written = (tmp_path / f"out.{lang}").read_bytes().decode()
        assert written == "".join(f"{pair[place]}\n" for pair in kept)
