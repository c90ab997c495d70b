"""Which pairs of lines clean-corpus-n.perl (mosesdecoder's master) keeps, and the text that it writes for them.

As with any corpus whose first pair has no "|": there the script takes "|" for the mark between factors instead.
"""

from __future__ import annotations

import re

_LONGEST_WORD = 1000
_SPACES = re.compile("[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")  # perl's \s: no \x1c-\x1f


def cleaned(line: str) -> str:
    """Give the text of a kept line: no "|", single spaces, none at the ends."""
    line = line.replace("|", "")
    return " ".join(line.split()) if line.isprintable() else _SPACES.sub(" ", line).strip(" ")


def keeps(src: str, tgt: str, least: int, most: float, ratio: float) -> str | None:
    """Give None for a pair that is kept, else why it is not: empty, too_long, too_short, ratio or long_word."""
    pair = cleaned(src), cleaned(tgt)
    if "" in pair:
        return "empty"
    low, high = sorted(line.count(" ") + 1 for line in pair)
    if high > most:
        return "too_long"
    if low < least:
        return "too_short"
    if high / low > ratio:
        return "ratio"
    if any(len(word) > _LONGEST_WORD for line in pair if len(line) > _LONGEST_WORD for word in line.split(" ")):
        return "long_word"
    return None
