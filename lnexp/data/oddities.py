"""What a person should know about raw text, counted with examples; nothing is changed or dropped here.

In: pairs of raw lines, a chunk at a time. Out: plain dicts that are pickled, merged and written as JSON, and `marks`,
16 bytes a pair, from which repeats and overlaps between splits are counted at the end.
A kind must be rare in clean text to be worth a line, so each rule misses doubtful cases rather than report them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from html.entities import name2codepoint
from typing import Any

import numpy as np

Pairs = Sequence[tuple[str, str]]
Seen = dict[str, dict[str, Any]]
"""Kind -> {"count": pairs, "examples": [[pair number, source, target], ...]}; "shifted" has "stretches" as well:
[[first pair, last pair, offset], ...], where the source of pair i fits the target of pair i + offset."""
EXAMPLES, _MOST_TEXT, _BEFORE = 3, 200, 30  # how many; characters of one; at most so many before what was found

KINDS = {  # what describe() says, most important first
    # One side slipped by a line or two: the model is taught, or judged by, the wrong sentence.
    "shifted": "in stretches where the target one or two lines up or down fits better",
    # Untranslated; a few percent of such pairs teach a model to copy. Names, titles and numbers do not count: it takes
    # four words, half of them without a capital, or ten letters of a script that has no capitals.
    "copied": "with the same text on both sides",
    # UTF-8 taken for Latin-1 or Windows-1252 (Ã¤, â€™): the words are lost to the vocabulary.
    "mojibake": "with letters read in the wrong encoding",
    # A letter was lost when the text was decoded.
    "replacement": "with the replacement character U+FFFD",
    # Tools that cut lines by str.splitlines see two here, and the sides fall out of step.
    "separator": "with a line separator inside (U+2028, U+2029, U+0085)",
    # Never text; some end a line for some tools.
    "control": "with a control character (C0, C1, lone carriage return)",
    # Nothing to learn from; in a test set the other side still counts.
    "empty": "with an empty side",
    # Half is missing, or does not belong to it; measured against what is usual for the two scripts.
    "unequal": "with one side over three times as long as the other",
    # Another sentence, or converted units; 1,000 is 1.000, and 90 is in 1990.
    "numbers": "with numbers on both sides and none in common",
    # Rests of a page, or an escape that the tokeniser escapes again.
    "markup": "with a tag or an entity left over (<b>, &amp;)",
    # Makes two words of one that look the same. Joiners are left out: Persian and emoji need them.
    "invisible": "with an invisible character (zero width, soft hyphen, byte order mark)",
    # Usual in French, noise elsewhere; the tokeniser makes plain spaces of them.
    "spaces": "with an unusual space (no-break, thin, tab)",
}
# What stands for the bytes 80-BF of UTF-8, less those that may follow an upper-case letter in text.
_SECOND = "\x80-\x9f\xa1-\xba\xbc-\xbf€‚ƒ„†‡ˆ‰Š‹ŒŽ•–˜™š›œžŸ"
_ENTITY = "|".join(sorted(name2codepoint))
_PATTERNS = {
    "mojibake": re.compile(
        f"Ã[{_SECOND}]|Â[\x80-\xba\xbc-\xbf]|â[€\x80][^\\s\\w]|â€œ|ðŸ|(?:[ÐÑ][{_SECOND}\xa0\xbb]){{2}}"
    ),
    "replacement": re.compile("\ufffd"),
    "separator": re.compile("[\u2028\u2029\x85]"),
    "control": re.compile("[\x00-\x08\x0a-\x1f\x7f-\x84\x86-\x9f]"),
    "markup": re.compile(
        rf"</?[A-Za-z][\w:-]*(?:\s+[\w:-]+\s*=[^<>]*|\s*/?)>|&(?:{_ENTITY}|apos|#\d{{1,7}}|#x[\da-fA-F]{{1,6}});"
    ),
    "invisible": re.compile("[\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ufff9-\ufffb]"),
    "spaces": re.compile("[\t\xa0\u1680\u2000-\u200a\u202f\u205f]"),
}
# One search for all of them; few lines need a second look.
_ODD = re.compile(
    "[\x00-\x1f\x7f-\xa0\xad\u1680\u2000-\u200b\u200e\u200f\u2028-\u202f\u205f-\u2069\ufeff\ufff9-\ufffdÃÂÐÑ€Ÿ<&]"
)
_TWO_DIGITS = re.compile("[0-9][0-9]")
_NUMBER, _NO_DIGIT = re.compile("[0-9]+(?:[.,'’ \xa0\u2009\u202f][0-9]+)*"), re.compile("[^0-9]+")
_MOST_RATIO, _LEAST_SHORT, _LEAST_LONG, _LEAST_TYPICAL = 3.0, 10, 40, 20  # last: pairs that show the usual ratio


def observe(first: int, pairs: Pairs) -> Seen:
    """Count the oddities of a chunk, whose first pair has the number `first` (from 1)."""
    seen: Seen = {}

    def add(name: str, i: int, at: tuple[int, int] = (0, 0)) -> None:
        entry = seen.setdefault(name, {"count": 0, "examples": []})
        entry["count"] += 1
        if len(entry["examples"]) < EXAMPLES:
            entry["examples"].append([first + i, *map(_cut, pairs[i], at)])

    src_sizes, tgt_sizes = _sizes(pairs)
    short, long = np.minimum(src_sizes, tgt_sizes), np.maximum(src_sizes, tgt_sizes)
    for i in np.flatnonzero((short >= _LEAST_SHORT) & (long >= _LEAST_LONG) & (long > _MOST_RATIO * short)).tolist():
        add("unequal", i)
    for i, (src, tgt) in enumerate(pairs):
        if not src or not tgt or src.isspace() or tgt.isspace():
            add("empty", i)
        elif _copied(src, tgt):
            add("copied", i)
        elif _TWO_DIGITS.search(src) and _TWO_DIGITS.search(tgt) and not _share_a_number(src, tgt):
            add("numbers", i)
        if _ODD.search(src) or _ODD.search(tgt):
            for name, pattern in _PATTERNS.items():
                left, right = pattern.search(src), pattern.search(tgt)
                if left or right:
                    add(name, i, (left.start() if left else 0, right.start() if right else 0))
    for begin, end, offset in _shifted(pairs, src_sizes, tgt_sizes):
        add("shifted", begin)
        seen["shifted"]["count"] += end - begin
        seen["shifted"].setdefault("stretches", []).append([first + begin, first + end, offset])
    return merge([seen])


def merge(parts: Iterable[Seen]) -> Seen:
    """Add chunks up, in order; the first examples stay. A stretch that a chunk's end cut in two is one again."""
    whole: Seen = {}
    for part in parts:
        for name, entry in part.items():
            into = whole.setdefault(name, {"count": 0, "examples": []})
            into["count"] += entry["count"]
            into["examples"] = [*into["examples"], *entry["examples"]][:EXAMPLES]
            for begin, end, offset in entry.get("stretches", []):
                runs = into.setdefault("stretches", [])
                if runs and runs[-1][2] == offset and begin - runs[-1][1] <= _GAP:
                    runs[-1] = [runs[-1][0], end, offset]
                elif len(runs) < _MOST_STRETCHES:
                    runs.append([begin, end, offset])
    return {name: whole[name] for name in KINDS if name in whole}


def _cut(text: str, at: int) -> str:
    begin = max(0, min(at - _BEFORE, len(text) - _MOST_TEXT))
    return text[begin : begin + _MOST_TEXT]


def _sizes(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """Count the characters of either side, on the scale of the script that needs more of them (Chinese needs few)."""
    src, tgt = (np.fromiter((len(pair[side]) for pair in pairs), float, len(pairs)) for side in (0, 1))
    both = (src > 0) & (tgt > 0)
    typical = float(np.median(tgt[both] / src[both])) if both.sum() >= _LEAST_TYPICAL else 1.0
    return src * max(typical, 1.0), tgt * max(1 / typical, 1.0)


def _copied(src: str, tgt: str) -> bool:
    if src != tgt and (abs(len(src) - len(tgt)) > 2 or src.split() != tgt.split()):
        return False
    words = [word for word in src.split() if any(map(str.isalpha, word))]
    small = sum(word[0].islower() for word in words)
    no_case = sum(char.isalpha() and char.lower() == char.upper() for char in src)
    return (len(words) >= 4 and 2 * small >= len(words)) or no_case >= 10


def _share_a_number(src: str, tgt: str) -> bool:
    """Say whether a number fits one of the other side: 1.5 million is 1.500.000, 90 is in 1990."""
    left, right = _numbers(src), _numbers(tgt)
    tens = [{number.rstrip("0") for number in side} for side in (left, right)]
    ends = [{number[-2:] for number in side} for side in (left, right)]
    return bool(left & right or tens[0] & tens[1] or left & ends[1] or ends[0] & right)


def _numbers(text: str) -> set[str]:
    """Give the digits of every number, with those beside its separators joined and apart; leading zeros go."""
    found = {_NO_DIGIT.sub("", number) for number in _NUMBER.findall(text)} | set(_NO_DIGIT.split(text))
    return {number.lstrip("0") for number in found if len(number) > 1} - {""}


# Alignment over neighbours. `fit` is about a log likelihood of two lines being a pair; what a stretch gains by a shift
# is summed up over its lines. Measured: clean text (190,000 pairs) gains under 6 anywhere, real shifts 34 and more.
_OFFSETS = (0, -2, -1, 1, 2)
_LEAST_GAIN, _LEAST_PAIRS = 15.0, 5
_MARGIN = 7.5  # gain over every other shift: else the lines fit nothing
_LEAST_EACH, _LEAST_FIT = 0.75, -1.5  # a line, on average: sides in different order gain by chance, but little
_CANDIDATE, _AROUND = 5.0, 30  # by lengths alone: where words are looked at, and how far around
_GAP, _MOST_STRETCHES = 10, 100  # lines that a chunk's end may hide; stretches kept in a report
_WORD, _QUESTION, _CLOSING = re.compile(r"\w+"), ("?", "？", "؟"), " \"'”’“»«)]"


def shifted(pairs: Pairs, first: int = 1) -> list[list[int]]:
    """Give stretches, [first pair, last, offset], where source i fits target i + offset better than its own."""
    return [[first + begin, first + end, offset] for begin, end, offset in _shifted(pairs, *_sizes(pairs))]


def _shifted(pairs: Pairs, src: np.ndarray, tgt: np.ndarray) -> list[tuple[int, int, int]]:
    """Lengths, which are cheap, say where to look; with the words counted as well a stretch must still stand out."""
    if len(pairs) <= _LEAST_PAIRS:
        return []
    lengths, found = _length_fit(src, tgt), []
    hot = (np.array([_rise(row - lengths[0])[1:] for row in lengths[1:]]) >= _CANDIDATE).any(axis=0)
    near = np.convolve(hot, np.ones(2 * _AROUND + 1))[_AROUND:-_AROUND] > 0
    edges = np.flatnonzero(np.diff(np.concatenate([[0], near.astype(int), [0]]))).tolist()
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        fit = lengths[:, begin:end] + _word_fit(pairs[begin:end])
        gain = fit - fit[0]
        while True:
            most, a, b, k = max((*_best(row), k) for k, row in enumerate(gain))
            if most < _LEAST_GAIN:
                break
            margin = np.delete(fit[k, a:b] - fit[:, a:b], k, axis=0).sum(axis=1).min()
            each, fits = most / (b - a), lengths[k, begin + a : begin + b].mean()
            if b - a >= _LEAST_PAIRS and margin >= _MARGIN and each >= _LEAST_EACH and fits >= _LEAST_FIT:
                found.append((begin + a, begin + b - 1, _OFFSETS[k]))
            gain[:, a:b] = -1e9  # neither again, nor across it
    return sorted(found)


def _length_fit(src: np.ndarray, tgt: np.ndarray) -> np.ndarray:
    """Give a row an offset: a heavy-tailed likelihood of the difference in length (Gale and Church's measure)."""
    rows = np.empty((len(_OFFSETS), len(src)))
    for row, (here, there) in zip(rows, _slices(len(src)), strict=True):
        row[:] = rows[0]  # no neighbour there: no gain
        a, b = src[here], tgt[there]
        row[here] = -2.5 * np.log1p((b - a) ** 2 / (8 * (a + b) + 16))
    return rows


def _word_fit(pairs: Pairs) -> np.ndarray:
    """The same from what languages share: names and numbers (by their first five letters), and question marks."""
    names = [[{w[:5].lower() for w in _WORD.findall(x) if not w[0].islower()} for x in pair] for pair in pairs]
    asks = np.array([[x.rstrip(_CLOSING).endswith(_QUESTION) for x in pair] for pair in pairs])
    rows = np.empty((len(_OFFSETS), len(pairs)))
    for row, (here, there) in zip(rows, _slices(len(pairs)), strict=True):
        row[:] = rows[0]
        shared = [min(len(a & b), 2) for (a, _), (_, b) in zip(names[here], names[there], strict=True)]
        a, b = asks[here, 0], asks[there, 1]
        row[here] = 2 * np.array(shared) + (a & b) - 1.0 * (a ^ b)
    return rows


def _slices(size: int) -> list[tuple[slice, slice]]:
    """Give, an offset, the lines that have a neighbour there, and these neighbours."""
    return [(slice(max(0, -k), size - max(0, k)), slice(max(0, k), size - max(0, -k))) for k in _OFFSETS]


def _rise(gain: np.ndarray) -> np.ndarray:
    """Give how far the running sum (one longer than `gain`) stands above its lowest point so far."""
    total = np.concatenate([[0.0], np.cumsum(gain)])
    return total - np.minimum.accumulate(total)


def _best(gain: np.ndarray) -> tuple[float, int, int]:
    """Give the run with the largest sum: sum, begin, end."""
    rise = _rise(gain)
    end = int(rise.argmax())
    return float(rise[end]), int(np.flatnonzero(rise[: end + 1] == 0)[-1]), end


def marks(pairs: Pairs) -> np.ndarray:
    """Hash either side, white space squeezed, to 64 bits that are the same everywhere; 0 is an empty side."""
    sides = (" ".join(x.split()).encode("utf-8", "surrogatepass") for pair in pairs for x in pair)
    digests = b"".join(blake2b(x, digest_size=8).digest() if x else bytes(8) for x in sides)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64).reshape(-1, 2)


def repeats(marks: Mapping[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """Count what comes again: split -> "repeated_pair", "in_train_source", ... -> {"count", "numbers" of the first}.

    Repeated: stood earlier in the same split. Valid is held against train, test against both. Empty sides never count.
    """
    found: dict[str, dict[str, Any]] = {}
    known: dict[tuple[str, str], np.ndarray] = {}
    for split in (name for name in ("train", "valid", "test") if name in marks):
        src, tgt = marks[split][:, 0], marks[split][:, 1]
        pair = np.where((src == 0) | (tgt == 0), np.uint64(0), src * np.uint64(0x9E3779B97F4A7C15) + tgt)
        masks = {}
        for side, mine in (("pair", pair), ("source", src), ("target", tgt)):
            values, firsts = np.unique(mine, return_index=True)
            masks[f"repeated_{side}"] = again = mine != 0
            again[firsts] = False
            for old in found:  # by bisection: np.isin would sort millions of lines for each small set
                place = np.searchsorted(known[old, side], mine)
                masks[f"in_{old}_{side}"] = (mine != 0) & (known[old, side].take(place, mode="clip") == mine)
            known[split, side] = values if len(values) else np.zeros(1, np.uint64)
        found[split] = {
            name: {"count": int(mask.sum()), "numbers": (np.flatnonzero(mask)[:EXAMPLES] + 1).tolist()}
            for name, mask in masks.items()
        }
    return found


def describe(split: str, seen: Seen, repeated: Mapping[str, Any] | None = None, pairs: int = 0) -> list[str]:
    """Say it in a line a kind, most important first; `repeated` is the split's part of `repeats`, `pairs` its size."""
    found = []
    for name, entry in seen.items():
        number, *sides = entry["examples"][0]
        where = f"pair {number}: {' | '.join(_printable(text[:60]) for text in sides)}"
        if name == "shifted":
            runs = [f"{a}-{b}: {abs(k)} {'up' if k < 0 else 'down'}" for a, b, k in entry["stretches"][:EXAMPLES]]
            where = f"pairs {', '.join(runs)}{', ...' if len(entry['stretches']) > EXAMPLES else ''}"
        found.append((0 if name == "shifted" else 2, entry["count"], f"pair* {KINDS[name]}", where))
    for name, entry in ((n, e) for n, e in (repeated or {}).items() if e["count"]):
        how, _, side = name.rpartition("_")
        which = "pair*" if side == "pair" else f"{side} sentence*"
        what = "that came before" if how == "repeated" else f"that {how.removeprefix('in_')} has too"
        where = f"pair {', '.join(map(str, entry['numbers']))}{', ...' if entry['count'] > EXAMPLES else ''}"
        found.append((3 if how == "repeated" else 1, entry["count"], f"{which} {what}", where))
    lines = []
    for _, count, what, where in sorted(found, key=lambda x: x[0]):
        share = f"{count / pairs:.2%}, " if pairs else ""
        lines.append(f"{split}: {count:,} {what.replace('*', '' if count == 1 else 's', 1)} ({share}{where})")
    return lines


def _printable(text: str) -> str:
    return "".join(x if x.isprintable() else x.encode("unicode_escape").decode() for x in text)
