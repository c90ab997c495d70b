"""Text to tokens to subwords and back: Moses tokenisation and joint BPE.

In and out: iterables of lines; each function gives exactly one line for each it takes, and "" for "".
The rules are those of tokenizer.perl (through sacremoses) and of subword-nmt, since published numbers rest on them.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable, Iterator

from sacremoses import MosesDetokenizer, MosesTokenizer
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe as _subword_nmt_learn

SEPARATOR = "@@"
_HEADER = "#version: 0.2"  # first line of a codes file; 0.2 = the end-of-word mark belongs to the last character
_ENDS_IN_PERIOD = re.compile(r"(\S+)\.$")


class _Tokenizer(MosesTokenizer):
    """sacremoses, with the rule of tokenizer.perl that it lacks: the last word is never a non-breaking prefix.

    Perl gives "in the u.s ." where sacremoses gives "in the u.s."; the IWSLT14 texts have such lines.
    """

    def handles_nonbreaking_prefixes(self, text: str) -> str:
        done: str = super().handles_nonbreaking_prefixes(text)
        last = _ENDS_IN_PERIOD.search(text)
        if last and done.endswith(last.group()):
            return f"{done.removesuffix('.')} ."
        return done


def tokenize(lines: Iterable[str], lang: str) -> Iterator[str]:
    """Split by the Moses rules of a language (unknown: the generic ones); & < > [ ] | ' " come out escaped."""
    tokenizer = _Tokenizer(lang)
    for line in lines:
        yield " ".join(tokenizer.tokenize(line))


def detokenize(lines: Iterable[str], lang: str) -> Iterator[str]:
    """Undo `tokenize`: escapes back to characters, punctuation back to its word."""
    detokenizer = MosesDetokenizer(lang)
    for line in lines:
        yield detokenizer.detokenize(line.split())


def learn_bpe(lines: Iterable[str], merges: int) -> list[str]:
    """Give the lines of a codes file as subword-nmt writes it: header, then at most `merges` pairs, best first."""
    lines = list(lines)
    if not any(len(word) > 1 for line in lines for word in line.split(" ")):
        return [_HEADER]  # subword-nmt fails where there is no pair of characters
    codes = io.StringIO()
    # The library draws its own bar and warns when it runs out of pairs; neither belongs into a run's log.
    with contextlib.redirect_stderr(io.StringIO()):
        _subword_nmt_learn(lines, codes, merges)
    return codes.getvalue().removesuffix("\n").split("\n")


class _Segments(dict[str, str]):
    """Word -> its subwords, worked out once a word: running text repeats its words."""

    def __init__(self, codes: list[str]) -> None:
        # The library exits on a codes file without pairs. A pair of whole words never matches single characters.
        whole = codes if len(codes) > 1 else [_HEADER, "no merge"]
        self._bpe = BPE(io.StringIO("\n".join(whole) + "\n"), separator=SEPARATOR)

    def __missing__(self, word: str) -> str:
        self[word] = segments = self._bpe.segment(word)
        return segments


def apply_bpe(lines: Iterable[str], codes: list[str]) -> Iterator[str]:
    """Cut words into subwords; every part but a word's last ends in "@@"."""
    segments = _Segments(codes)
    for line in lines:
        yield " ".join(segments[word] for word in line.split(" ") if word)


def undo_bpe(lines: Iterable[str]) -> Iterator[str]:
    """Join subwords to words again; a last part whose word was cut short keeps what there is."""
    for line in lines:
        yield f"{line} ".replace(f"{SEPARATOR} ", "").rstrip(" ")
