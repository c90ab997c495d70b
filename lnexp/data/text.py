"""From what a model writes back to text: subwords joined to words, then Moses' tokens to running text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sacremoses import MosesDetokenizer


def detokenize(lines: Iterable[str], lang: str) -> Iterator[str]:
    """Undo Moses tokenisation: escapes back to characters, punctuation and @-@ back to their words."""
    detokenizer = MosesDetokenizer(lang)
    for line in lines:
        yield detokenizer.detokenize(line.split())
