"""What training has written into a run folder, and what it cannot have written: that is damage, and is named.

In: what the files hold, as read. Out: the values, or UserError (a fault in words for rows). A number that is none would
stay in a mean, and one that is gone would leave it, without a word.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lnexp.errors import UserError
from lnexp.rundir import Row

MEND = "put it back, or delete the folder to have the run made again"
_AGAIN = "makes it again while the checkpoints are there"


@dataclass(frozen=True)
class Score:
    """One entry of scores.json: a number and everything that says which number it is."""

    split: str
    metric: str
    value: float
    signature: str
    checkpoint: str
    n_sentences: int
    decode: str
    data: str


def score(entry: Any, path: Path) -> Score:
    """Read an entry of scores.json."""
    try:
        text = {k: str(entry[k]) for k in ("split", "metric", "signature", "checkpoint", "decode", "data")}
        value, sentences = entry["value"], entry["n_sentences"]
        if type(value) not in (int, float) or not 0 <= value <= 100:  # nan fails this, too
            raise ValueError(f"value (found {value!r}, need a BLEU of 0 to 100)")
        if type(sentences) is not int or sentences < 1:
            raise ValueError(f"n_sentences (found {sentences!r})")
        return Score(value=float(value), n_sentences=sentences, **text)
    except (TypeError, KeyError, ValueError) as error:
        raise UserError(f"{path}: a score lacks or misspells {error}; `lnexp eval {path.parent}` {_AGAIN}") from None


def counts(status: Mapping[str, Any], path: Path) -> tuple[int, float]:
    """Give updates and wall_s of status.json."""
    for name, kinds in (("updates", (int,)), ("wall_s", (int, float))):
        value = status.get(name) or 0
        if type(value) not in kinds or value < 0:
            raise UserError(f"{path}: {name}: {value!r}: need a number >= 0; put it back as it was")
    return status.get("updates") or 0, float(status.get("wall_s") or 0)


def expect_whole(folder: Path, scores: Sequence[Score]) -> None:
    """Raise UserError where a run that is done lacks its scores or its rows."""
    if not scores:
        again = f"`lnexp eval {folder}` {_AGAIN}, or put it back"
        raise UserError(f"{folder / 'scores.json'}: holds no score of a run that is done; {again}")
    if not (folder / "metrics.jsonl").is_file():
        raise UserError(f"{folder / 'metrics.jsonl'}: is missing of a run that is done; {MEND}")


def fault_of(validations: Sequence[Row], ended: int | None) -> str | None:
    """Say what no training has written into these rows; of a run that is done, which `ended` after so many updates,
    the last is of its end."""
    for row in validations:
        for name, most in (("loss_bits", math.inf), ("bleu", 100)):
            value = row.get(name)
            if value is None or (isinstance(value, float) and not math.isfinite(value)):  # what a run may come to
                continue
            if type(value) not in (int, float) or not 0 <= value <= most:
                return f"valid {name} {value!r} at update {row['updates']}"
    if ended is None:
        return None
    last = max((row["updates"] for row in validations), default=None)
    if last is None:
        return "holds no validation of a run that is done"
    return None if last == ended else f"ends with a validation at update {last} of {ended}"
