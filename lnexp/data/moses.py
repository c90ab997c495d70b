"""The Moses scripts that the reference preparations run, to the byte and without perl.

In and out: one line of text, without its line end. Each function names the script that it equals (mosesdecoder's
master); tests/unit/moses_cases.json holds what the scripts themselves print. sacremoses gives the
abbreviations only: its letters lack Han, Hangul and all beyond U+FFFF, and some of its rules differ.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

_MOST_FORMS = 200_000  # words kept with their tokens; the frequent ones are back at once after a clean-up

# Perl counts a mark as a letter by Unicode's Alphabetic, which Python's unicodedata does not have. Nearly: spacing
# marks (combining class 0) are letters, the others are not. These are the exceptions to either half.
_PLAIN_MARKS = (
    "34f-489 afd-aff b55 c04 e47-e4c e4e ecc f3e-f3f 17b4-17b5 17c9-180f 1abe 1ce1-a672 abec-fe0f 11080-11081"
    " 111c9-111cc 11a33 11a98 16fe4-e01ef"
)
_LETTER_MARKS = (
    "345 5b0-657 659-6dc 6e1-6e8 6ed-73f 816-817 81b-82c 8d4-8df 8e3-8e9 8f0-8ff c55-c56 e38-e3a eb8-eb9 f71-f80 108d"
    " 18a9 1a17-1a18 1abf-1ac0 1acc-1ace 1de7-1df4 2de0-2dff a674-a67b a69e-a69f aab0-aabe fb1e 10376-10a0f"
    " 10d24-10eac 11100-11102 16ff0-1bc9e 1e000-1e02a 1e947"
)
_LETTER_SYMBOLS = "24b6-24e9 1f130-1f149 1f150-1f169 1f170-1f189"  # circled and squared letters


def _within(ranges: str) -> Callable[[int], bool]:
    pairs = [(int(first, 16), int(last or first, 16)) for first, _, last in (r.partition("-") for r in ranges.split())]
    return lambda code: any(first <= code <= last for first, last in pairs)


_is_plain_mark, _is_letter_mark, _is_letter_symbol = map(_within, (_PLAIN_MARKS, _LETTER_MARKS, _LETTER_SYMBOLS))


def _in_word(code: int) -> bool:
    """Perl's IsAlnum: Alphabetic or a decimal digit."""
    kind = unicodedata.category(chr(code))
    if kind[0] == "M":
        return _is_letter_mark(code) if unicodedata.combining(chr(code)) else not _is_plain_mark(code)
    return kind[0] == "L" or kind in ("Nd", "Nl") or (kind == "So" and _is_letter_symbol(code))


class _Spaced(dict[int, str]):
    """For str.translate: what stands in a word stays, any other character gets a space on both sides."""

    def __missing__(self, code: int) -> str:
        self[code] = done = chr(code) if _in_word(code) or chr(code) in " .'`,-" else f" {chr(code)} "
        return done


_SPACED = _Spaced()
_ESCAPED = str.maketrans(
    {
        "&": "&amp;",
        "|": "&#124;",
        "<": "&lt;",
        ">": "&gt;",
        "'": "&apos;",
        '"': "&quot;",
        "[": "&#91;",
        "]": "&#93;",
    }
)

# The classes below hold for text whose other characters stand between spaces already.
_N = "\\d\u16ee-\u16f0\u2160-\u2182\u2185-\u2188\u3007\u3021-\u3029\u3038-\u303a\ua6e6-\ua6ef"
_N += "\U00010140-\U00010174\U00010341\U0001034a\U000103d1-\U000103d5\U00012400-\U0001246e"  # perl's IsN
_NO_LETTER = r"[ .'`,\-\d]"
_LETTER = r"[^ .'`,\-\d]"

_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f]")
_HYPHEN = re.compile(r"([^ .'`,\-])-(?=[^ .'`,\-])")
_DOTS = re.compile(r"\.{2,}")
_DOTS_MARK = re.compile(r"(?:DOT)+MULTI")
_HAS_LETTER = re.compile(r"[^.'`,\-\d@]")
_COMMAS = [
    (re.compile(f"([^{_N}]),"), r"\1 , "),
    (re.compile(f",([^{_N}])"), r" , \1"),
    (re.compile(f"([{_N}]),$"), r"\1 ,"),
]
_ANY_APOSTROPHE = [(re.compile("'"), " ' ")]
_TO_THE_RIGHT = [  # it's -> it 's
    (re.compile(f"({_NO_LETTER})'({_NO_LETTER})"), r"\1 ' \2"),
    (re.compile(f"([ .'`,\\-])'({_LETTER})"), r"\1 ' \2"),
    (re.compile(f"({_LETTER})'({_NO_LETTER})"), r"\1 ' \2"),
    (re.compile(f"({_LETTER})'({_LETTER})"), r"\1 '\2"),
    (re.compile(f"([{_N}])'(s)"), r"\1 '\2"),
]
_TO_THE_LEFT = [  # l'eau -> l' eau
    (re.compile(f"({_NO_LETTER})'({_NO_LETTER})"), r"\1 ' \2"),
    (re.compile(f"({_NO_LETTER})'({_LETTER})"), r"\1 ' \2"),
    (re.compile(f"({_LETTER})'({_NO_LETTER})"), r"\1 ' \2"),
    (re.compile(f"({_LETTER})'({_LETTER})"), r"\1' \2"),
]
_APOSTROPHES = {"en": _TO_THE_RIGHT, "fr": _TO_THE_LEFT, "it": _TO_THE_LEFT, "ga": _TO_THE_LEFT}


def _prefixes(lang: str) -> dict[str, bool]:
    """Word that keeps its period -> whether only in front of a number."""
    from sacremoses.corpus import NonbreakingPrefixes  # here: the import takes half a second

    found = {}
    for item in NonbreakingPrefixes().words(lang):
        word, _, mark = item.rpartition(" ")
        numeric = mark == "#NUMERIC_ONLY#"
        found[word if numeric else item] = numeric
    return found


class _Forms(dict[str, str]):
    """Word between spaces -> its tokens, worked out once: running text repeats its words."""

    def __init__(self, make: Callable[[str], str]) -> None:
        self._make = make

    def __missing__(self, word: str) -> str:
        self[word] = form = self._make(word)
        return form


class Tokenizer:
    """tokenizer.perl -l LANG, with `split_hyphens` -a.

    Not there: what perl does for ca, fi, so, sv and tdt alone; these get the general rules.
    """

    def __init__(self, lang: str, *, split_hyphens: bool = False) -> None:
        self._split_hyphens = split_hyphens
        self._apostrophes = _APOSTROPHES.get(lang, _ANY_APOSTROPHE)
        self._prefixes = _prefixes(lang)
        self._forms = _Forms(self._one)
        self._at_period: dict[str, str] = {}  # words that end in a period which the next word may hold to them

    def __call__(self, line: str) -> str:
        """Give the tokens with one space between; a line of white space comes back as it is, as from the script."""
        text = line if line.isprintable() else _CONTROLS.sub("", line)
        words = text.split()
        if not words:
            return line if text == line else ""
        # Words do not depend on their neighbours but for these cases, and for the periods below.
        if words[0][0] in "'," or words[-1][-1] in "'," or ("'" in text and "' '" in " ".join(words)):
            return self._whole(" ".join(words))
        if len(self._forms) > _MOST_FORMS:
            self._forms.clear()
            self._at_period.clear()
        tokens = [self._forms[word] for word in words]
        last = words.pop()
        if not self._at_period.keys().isdisjoint(words):
            for place, (word, following) in enumerate(zip(words, [*words[1:], last], strict=True)):
                if word in self._at_period and self._holds(self._at_period[word], following):
                    tokens[place] = f"{tokens[place][:-2]}."
        return " ".join(tokens)

    def _holds(self, stem: str, following: str) -> bool:
        """Say whether a word keeps its period, given the next word."""
        if ("." in stem and _HAS_LETTER.search(stem)) or following[0].islower():
            return True
        numeric = self._prefixes.get(stem)
        return numeric is False or (numeric is True and "0" <= following[0] <= "9")

    def _split(self, text: str) -> list[str]:
        """Apply the rules to text with single spaces, all but that of the periods."""
        text = text.translate(_SPACED)
        if self._split_hyphens and "-" in text:
            text = _HYPHEN.sub(r"\1 @-@ ", text)
        if "DOTMULTI" in text:  # the script's own mark, met in a text: go its long way
            text = re.sub(r"\.(\.+)", r" DOTMULTI\1", text)
            while "DOTMULTI." in text:
                text = re.sub(r"DOTMULTI\.([^.])", r"DOTDOTMULTI \1", text).replace("DOTMULTI.", "DOTDOTMULTI")
        elif ".." in text:
            text = _DOTS.sub(lambda dots: f" {'DOT' * len(dots.group())}MULTI ", text)
        for mark, rules in ((",", _COMMAS), ("'", self._apostrophes)):
            if mark in text:
                for pattern, replacement in rules:
                    text = pattern.sub(replacement, text)
        words = text.split()
        for place in range(len(words) - 1):
            word = words[place]
            if word[-1] == "." and len(word) > 1 and not self._holds(word[:-1], words[place + 1]):
                words[place] = f"{word[:-1]} ."
        return words

    def _one(self, word: str) -> str:
        words = self._split(f" {word} ")
        stem = words[-1].removesuffix(".")
        if stem and stem != words[-1]:
            self._at_period[word] = stem
            words[-1] = f"{stem} ."
        return _finished(" ".join(words))

    def _whole(self, text: str) -> str:
        words = self._split(text)
        stem = words[-1].removesuffix(".")
        if stem and stem != words[-1]:
            words[-1] = f"{stem} ."
        text = " ".join(words)
        # The script leaves these spaces there, at the end too.
        return _finished(f"{text[:-2]} . ' " if text.endswith(".'") else text)


def _finished(text: str) -> str:
    if "DOTMULTI" in text:
        text = _DOTS_MARK.sub(lambda mark: "." * (len(mark.group()) // 3 - 1), text)
    return text.translate(_ESCAPED)


def lower(line: str) -> str:
    """lowercase.perl: as str.lower, but a sigma at the end of a word is like any other."""
    return line.replace("Σ", "σ").lower()


def remove_non_printing(line: str) -> str:
    """remove-non-printing-char.perl: a space for each control, format, private or unassigned character, tabs too."""
    if line.isprintable():
        return line
    return "".join(" " if unicodedata.category(c)[0] == "C" else c for c in line)


_Step = tuple[str, str] | tuple[re.Pattern[str], str]
_PUNCTUATION: list[_Step] = [
    ("\r", ""),
    ("(", " ("),
    (")", ") "),
    (re.compile("  +"), " "),
    (re.compile(r"\) ([.!:?;,])"), r")\1"),
    ("( ", "("),
    (" )", ")"),
    (re.compile("([0-9]) %"), r"\1%"),
    (" :", ":"),
    (" ;", ";"),
    ("`", "'"),
    ("''", ' " '),
    ("„", '"'),
    ("“", '"'),
    ("”", '"'),
    ("–", "-"),
    ("—", " - "),
    (re.compile("  +"), " "),
    ("´", "'"),
    (re.compile("([A-Za-z])’([A-Za-z])"), r"\1'\2"),
    ("‘", "'"),
    ("‚", "'"),
    ("’", '"'),
    ("''", '"'),
    ("…", "..."),
    ("\xa0«\xa0", ' "'),
    ("«\xa0", '"'),
    ("«", '"'),
    ("\xa0»\xa0", '" '),
    ("\xa0»", '"'),
    ("»", '"'),
    ("\xa0%", "%"),
    ("nº\xa0", "nº "),
    ("\xa0:", ":"),
    ("\xa0ºC", " ºC"),
    ("\xa0cm", " cm"),
    ("\xa0?", "?"),
    ("\xa0!", "!"),
    ("\xa0;", ";"),
    (",\xa0", ", "),
    (re.compile("  +"), " "),
]
_QUOTE_FIRST: list[_Step] = [(re.compile(r'"([,.]+)'), r'\1"')]
# \s and \d of ASCII alone: the script reads bytes. It also reads the line end, which stands for the "any character".
_QUOTE_LAST: list[_Step] = [(',"', '",'), (re.compile(r'(\.+)"([ \t-\r]*[^<])'), r'"\1\2')]


def normalize_punctuation(line: str, lang: str) -> str:
    """normalize-punctuation.perl LANG (since November 2019, when ‘ and ‚ became ' instead of a double quote)."""
    quotes = _QUOTE_FIRST if lang == "en" else [] if lang in ("cs", "cz") else _QUOTE_LAST
    group = "," if lang in ("de", "es", "cz", "cs", "fr") else "."
    numbers: _Step = (re.compile("([0-9])\xa0([0-9])"), rf"\1{group}\2")
    line += "\n"
    for old, new in (*_PUNCTUATION, *quotes, numbers):
        line = line.replace(old, new) if isinstance(old, str) else old.sub(new, line)
    return line[:-1]
