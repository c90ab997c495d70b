"""Subwords: learned once from the training text, then every line is cut with them, and translations joined again.

bpe            joint BPE exactly as subword-nmt learns and applies it (bpe.py); codes.bpe
sentencepiece  the unigram model of that library, on the text as it stands; sentencepiece.model
none           words as they are
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from lnexp.config import Data
from lnexp.data import bpe
from lnexp.data.lines import read_lines
from lnexp.errors import UserError
from lnexp.files import write_text

# sentencepiece draws its sample from at most so many sentences; more cost memory and hardly change the pieces.
_SENTENCES = 1_000_000


def kind(data: Data) -> str:
    """Name what the recipe asks for: bpe, sentencepiece or none."""
    return data.subwords if data.subwords != "bpe" or data.bpe_merges or data.codes else "none"


def file_name(data: Data) -> str | None:
    """Name the file that holds what was learned."""
    return {"bpe": "codes.bpe", "sentencepiece": "sentencepiece.model", "none": None}[kind(data)]


def own_codes(path: str) -> list[str]:
    """Read a codes file of the user's; UserError where it is not one."""
    codes = list(read_lines(Path(path).expanduser()))
    try:
        bpe.Segmenter(codes)
    except UserError as error:
        raise UserError(f"data.codes={path}: {error}: give a codes file as subword-nmt writes it") from None
    return codes


def learn_bpe(data: Data, counts: dict[str, int], path: Path, progress: Callable[[int], None] | None = None) -> int:
    """Write codes.bpe from the counted words of the training text; gives the number of merges."""
    codes = bpe.learn(counts, data.bpe_merges, progress)
    write_text(path, "".join(f"{line}\n" for line in codes))
    return len(codes) - 1


def learn_sentencepiece(data: Data, lines: Iterable[str], path: Path) -> None:
    """Write sentencepiece.model from the training text, both sides; one thread, so that it comes out the same."""
    import sentencepiece

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=model, vocab_size=data.pieces, model_type="unigram",
            character_coverage=1.0, input_sentence_size=_SENTENCES, shuffle_input_sentence=False, num_threads=1,
            minloglevel=2,
        )  # fmt: skip
    except RuntimeError as error:
        raise UserError(f"data.pieces={data.pieces}: {_pieces(str(error))}") from None
    path.write_bytes(model.getvalue())


def _pieces(refusal: str) -> str:
    """Say what sentencepiece says of a number of pieces, in words."""
    if most := re.search(r"value <= (\d+)", refusal):
        return f"this text has room for {most[1]} pieces at most"
    if least := re.search(r"required_chars\. (\d+) vs (\d+)", refusal):
        return f"need more than the {least[2]} characters of this text"
    return f"sentencepiece refuses ({' '.join(refusal.split())[-200:]}); another number may do"


@cache
def cutter(data_kind: str, path: str) -> Callable[[str], str]:
    """Give what cuts one line; kept for the process, since its table of words grows with use."""
    if data_kind == "none":
        return str
    if data_kind == "bpe":
        return bpe.Segmenter(list(read_lines(Path(path)))).line
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor(model_file=path)
    return lambda line: " ".join(model.encode(line, out_type=str))


def join(lines: Iterable[str], data: Data) -> list[str]:
    """Undo the cutting: words again; a word that was cut short keeps what there is."""
    if kind(data) == "sentencepiece":
        return ["".join(line.split(" ")).replace("▁", " ").strip() for line in lines]
    return [bpe.undo(line) for line in lines] if kind(data) == "bpe" else list(lines)
