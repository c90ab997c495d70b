"""Joint BPE: exactly the codes and the cuts of subword-nmt 0.3.8, in a fraction of its time and memory.

In: lines of space-separated words, or their counts. Out: the lines of a codes file; lines cut into subwords.
Three ideas carry the learner:

- One code point is one symbol. Characters stand for themselves, each merge takes a code point that the text does not
  use; so a word is a `str`, a pair a `str` of two, and a merge is `str.replace`.
- The places where a pair stands are grouped by neighbour, and all words of a group are booked at once. Each pair has
  its words as packed int32: maybe some that have lost it, but all that have it.
- subword-nmt's own bookkeeping is not exact: it prunes, and its count of a pair in a word can go wrong where symbols
  repeat or white space stands inside. Its codes may rest on that. So `_Tally` prunes alike; and a word in which it can
  go wrong is "odd" from then on: booked on its own, in subword-nmt's way, with what that believes to be in it.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from heapq import heapify, heappop, heappush, heapreplace
from itertools import pairwise

from lnexp.errors import UserError

SEPARATOR = "@@"
_HEADER = "#version: 0.2"  # first line of a codes file; 0.2 = the end-of-word mark belongs to the last character
_END = "</w>"
_LEAST = 2  # times that a pair must stand in the text to be merged
_PRUNE_EVERY = 100  # merges
_CACHE = 1_000_000  # words that a Segmenter remembers: some 300 MB at most


def count_words(lines: Iterable[str]) -> Counter[str]:
    """Count words as subword-nmt reads them: split at " " alone, so that a no-break space stays inside its word."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line.strip("\r\n ").split(" "))
    counts.pop("", None)
    return counts


def learn(counts: Mapping[str, int], merges: int, progress: Callable[[int], None] | None = None) -> list[str]:
    """Give the lines of a codes file: header, then at most `merges` pairs, best first.

    counts: word -> times, from `count_words`. progress is told the merges done so far, after each.
    """
    codes = [_HEADER]
    words = _Words(counts)
    tally = _Tally(words.index_pairs(), words.names)
    for done in range(merges):
        pair, times = tally.best(done)
        if times < _LEAST:
            break
        codes.append(f"{words.names[pair[0]]} {words.names[pair[1]]}")
        words.merge(pair, tally)
        if done % _PRUNE_EVERY == 0:
            tally.prune()
        if progress:
            progress(done + 1)
    return codes


class _Falling(tuple[str, str]):
    """Sorts from the last to the first: a heap gives its least, and of equal pairs the greatest is wanted."""

    __slots__ = ()
    __lt__ = tuple.__gt__


class _Tally:
    """Pair -> times in the text, and the best pair.

    Two books, as in subword-nmt: `live` has pairs at or above `floor` and whatever changed since the last pruning,
    `full` has what each pair had when it was last pruned. A pruned pair that changes starts again from 0 in `live`.
    """

    def __init__(self, totals: dict[str, int], names: dict[str, str]) -> None:
        self.live, self.full, self.names = dict(totals), totals, names
        self.floor = max(totals.values(), default=0) / 10
        self._fill_queue()

    def add(self, pair: str, change: int) -> None:
        self.live[pair] = times = self.live.get(pair, 0) + change
        if change > 0 and times >= self.floor:  # one that lost some is put right when its turn comes
            heappush(self._queue, self._entry(pair, times))

    def best(self, done: int) -> tuple[str, int]:
        """Give the most frequent pair, of equals the one whose symbols sort last; ("", 0) if there is none."""
        found = self._pop()
        if not found[1]:  # the best may be a pruned one: go back to the full book
            self.prune()
            self.floor = max(self.full.values(), default=0) * done / (done + 10000.0)
            self.live = {pair: times for pair, times in self.full.items() if times >= self.floor}
            self._fill_queue()
            found = self._pop()
        return found

    def prune(self) -> None:
        """Move pairs below the floor to the full book. One without a positive count there is as good as absent."""
        for pair, times in [entry for entry in self.live.items() if entry[1] < self.floor]:
            del self.live[pair]
            if times < 0:
                times += self.full.get(pair, 0)
            if times > 0:
                self.full[pair] = times
            else:
                self.full.pop(pair, None)

    def _fill_queue(self) -> None:
        self._queue = [self._entry(pair, times) for pair, times in self.live.items() if times >= self.floor]
        heapify(self._queue)

    def _entry(self, pair: str, times: int) -> tuple[int, _Falling, str]:
        return -times, _Falling((self.names[pair[0]], self.names[pair[1]])), pair

    def _pop(self) -> tuple[str, int]:
        """Give the head of the queue, whose entries have what their pairs had when they came in, or more than now."""
        while self._queue:
            pair, then = self._queue[0][2], -self._queue[0][0]
            now = self.live.get(pair, 0)
            if self.floor <= now < then:
                heapreplace(self._queue, self._entry(pair, now))
                continue
            heappop(self._queue)
            if now == then:
                return pair, now
        return "", 0


class _Words:
    """The distinct words with their counts, as strings of symbols, and how merges change them."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        whole = [word for word in counts if len(word) > 1]  # one character has no pair
        alphabet = set("".join(whole))
        self.names = {char: char for char in alphabet}  # symbol -> its text
        self._symbols = dict(self.names)  # the reverse
        self._free = (chr(n) for n in range(1, 0x110000) if chr(n) not in alphabet)
        self.words = [word[:-1] + self._symbol(word[-1] + _END) for word in whole]
        self.times = [counts[word] for word in whole]
        self._index: dict[str, bytes] = {}  # pair -> numbers of words, int32
        # Odd word -> pair -> its count in subword-nmt's eyes. Odd from the start are words with white space in them:
        # subword-nmt merges by a regular expression, for which that ends a symbol.
        spaces = [char for char in alphabet if char.isspace()]
        odd = [number for number, word in enumerate(whole) if any(space in word for space in spaces)]
        self._odd = {number: Counter(_pairs(self.words[number])) for number in odd}

    def index_pairs(self) -> dict[str, int]:
        """Fill the index from the words as they stand; give each pair's times in the text."""
        found: defaultdict[str, array[int]] = defaultdict(lambda: array("i"))
        for number, word in enumerate(self.words):
            for pair in _pairs(word):
                found[pair].append(number)
        self._index = {pair: numbers.tobytes() for pair, numbers in found.items()}
        return {pair: sum(map(self.times.__getitem__, numbers)) for pair, numbers in found.items()}

    def merge(self, pair: str, tally: _Tally) -> None:
        """Make one symbol of the pair, in every word where subword-nmt finds it, and book what that changes."""
        first, second = tuple(pair)
        name = self.names[first] + self.names[second]
        signs = [first * 3] if first == second else []  # of words that turn odd
        if name in self._symbols:
            signs.append(self._symbols[name])
        merged = self._symbol(name)
        odd: set[int] = set()
        before: defaultdict[str, list[int]] = defaultdict(list)  # neighbour -> words; "" where there is none
        after: defaultdict[str, list[int]] = defaultdict(list)
        for number in array("i", self._index.pop(pair, b"")):
            old = self.words[number]
            if number in self._odd or (signs and any(sign in old for sign in signs)):
                odd.add(number)
            elif (new := old.replace(pair, merged)) != old:  # equal: the pair has gone, or the word was here before
                self.words[number] = new
                at = new.find(merged)
                while at >= 0:
                    before[new[at - 1 : at]].append(number)
                    at += 1
                    after[new[at : at + 1]].append(number)
                    at = new.find(merged, at)
        for left, numbers in before.items():
            if left:
                self._book((second if left == merged else left) + first, left + merged, numbers, tally)
        for right, numbers in after.items():
            if right and right != merged:  # the latter is booked above, seen from its right
                self._book(second + right, merged + right, numbers, tally)
        met: defaultdict[str, list[int]] = defaultdict(list)  # pair -> odd words that may have it only now
        for number in odd:
            for other in self._merge_oddly(number, pair, merged, tally):
                met[other].append(number)
        for other, numbers in met.items():
            self._add_to_index(other, numbers)
        tally.live[pair] = 0

    def _book(self, gone: str, come: str, numbers: list[int], tally: _Tally) -> None:
        times = sum(map(self.times.__getitem__, numbers))
        tally.add(gone, -times)
        tally.add(come, times)
        self._add_to_index(come, numbers)

    def _merge_oddly(self, number: int, pair: str, merged: str, tally: _Tally) -> Iterator[str]:
        """Merge in one word, if subword-nmt does; give the pairs for which the word may be missing in the index."""
        old = self.words[number]
        if number not in self._odd:
            self._odd[number] = Counter(_pairs(old))
        believed = self._odd[number]
        if believed.pop(pair, 0) < 1:
            return
        first, second = (self.names[symbol] for symbol in pair)
        pattern = rf"(?<!\S){re.escape(first)} {re.escape(second)}(?!\S)"
        text = re.sub(pattern, lambda _: first + second, " ".join(self.names[symbol] for symbol in old))
        self.words[number] = new = "".join(map(self._symbol, text.split(" ")))
        for other, change in _booked_changes(old, new, pair, merged).items():
            tally.add(other, change * self.times[number])
            if not believed[other]:
                yield other
            believed[other] += change

    def _add_to_index(self, pair: str, numbers: list[int]) -> None:
        self._index[pair] = self._index.get(pair, b"") + array("i", numbers).tobytes()

    def _symbol(self, name: str) -> str:
        if name not in self._symbols:
            self._symbols[name] = symbol = next(self._free)
            self.names[symbol] = name
        return self._symbols[name]


def _pairs(word: str) -> Iterator[str]:
    return map("".join, pairwise(word))


def _booked_changes(old: str, new: str, pair: str, merged: str) -> Counter[str]:
    """Pair -> change of its count in a word, as subword-nmt books it; with the entries that come to 0."""
    booked: Counter[str] = Counter()
    at = old.find(pair)
    while at >= 0:
        if at:
            booked[old[at - 1 : at + 1]] -= 1
        following = old[at + 2 : at + 4]
        if following and following != pair:
            booked[old[at + 1 : at + 3]] -= 1
        at = old.find(pair, at + 2)
    at = new.find(merged)
    while at >= 0:  # also stops at a symbol that stood there before: its neighbours are booked once more
        if at:
            booked[new[at - 1 : at + 1]] += 1
        if new[at + 1 : at + 2] not in ("", merged):
            booked[new[at : at + 2]] += 1
        at = new.find(merged, at + 1)
    return booked


class Segmenter:
    """Cuts words by a codes file (its lines, of version 0.1 or 0.2), and remembers them: text repeats its words."""

    def __init__(self, codes: list[str]) -> None:
        header = codes[:1] if codes and codes[0].startswith("#version:") else []
        version = re.sub(r"(\.0+)*$", "", header[0].split()[-1]) if header else "0.1"
        if version not in ("0.1", "0.2"):
            raise UserError(f"codes line 1: {header[0]!r}: need version 0.1 or 0.2")
        self._mark_apart = version == "0.1"  # the end-of-word mark is a symbol of its own
        lines = codes[len(header) :]
        while lines and not lines[-1]:
            lines.pop()
        self._ranks: dict[tuple[str, str], int] = {}
        for place, line in enumerate(lines, 1 + len(header)):
            symbols = line.strip("\r\n ").split(" ")
            if len(symbols) != 2:
                raise UserError(f"codes line {place}: {line!r}: need two symbols, one space between")
            self._ranks.setdefault((symbols[0], symbols[1]), len(self._ranks))  # of equals the first counts
        self.word = lru_cache(_CACHE)(self._cut)

    def line(self, text: str) -> str:
        """Cut a line: every part but a word's last ends in "@@"; runs of spaces become one."""
        return " ".join(map(self.word, filter(None, text.strip("\r\n ").split(" "))))

    def _cut(self, word: str) -> str:
        if len(word) < 2:
            return word
        parts = [*word, _END] if self._mark_apart else [*word[:-1], word[-1] + _END]
        rank, never = self._ranks.get, len(self._ranks)
        ranks = [rank(pair, never) for pair in pairwise(parts)]
        while ranks and (best := min(ranks)) < never:
            while best in ranks:  # everywhere, from the left, before a pair that this makes has its turn
                at = ranks.index(best)
                parts[at : at + 2] = [parts[at] + parts[at + 1]]
                del ranks[at]
                if at:
                    ranks[at - 1] = rank((parts[at - 1], parts[at]), never)
                if at < len(ranks):
                    ranks[at] = rank((parts[at], parts[at + 1]), never)
        parts[-1] = parts[-1].removesuffix(_END)
        return f"{SEPARATOR} ".join(parts if parts[-1] else parts[:-1])


def undo(line: str) -> str:
    """Join subwords to words again; a last part whose word was cut short keeps what there is."""
    return f"{line} ".replace(f"{SEPARATOR} ", "").rstrip(" ")
