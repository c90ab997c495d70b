"""Translate a split and score it: one path for validation in training, the final scores and `lnexp eval`.

In: a session (or a run folder) and a Decode. Out: text, hyp.*.txt and scores.json entries that carry their identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lnexp import rundir
from lnexp.config import Decode, Run, identity, load
from lnexp.errors import UserError

if TYPE_CHECKING:
    from lnexp.backend.session import Session
    from lnexp.data.prepare import Prepared

FINAL_SPLITS = ("valid", "test")


@dataclass(frozen=True)
class Translation:
    """One split, translated: detokenised lines and their two scores (sacreBLEU first)."""

    lines: list[str]
    scores: list[Any]


def label(decode: Decode) -> str:
    """Name a decoding in few characters: beam5-lp1.2-len1x+50, with -bf16 where it is not in fp32."""
    suffix = "" if decode.precision == "fp32" else f"-{decode.precision}"
    return f"beam{decode.beam}-lp{decode.lenpen:g}-len{decode.max_len_a:g}x+{decode.max_len_b}{suffix}"


def translate(session: Session, data: Prepared, run: Run, split: str, decode: Decode) -> Translation:
    """Translate `split` with the session's parameters and score it against raw and tokenised references."""
    from lnexp import score
    from lnexp.data.subwords import join
    from lnexp.data.text import detokenize

    lang = run.data.tgt
    with session.clock("decoding"):
        found = session.translate(split, decode)
    tokens = join(found, run.data)
    lines = list(detokenize(tokens, lang)) if run.data.tokenizer == "moses" else tokens
    # Lower-cased models can only be scored without case; the signature says so (case:lc).
    scores = [
        score.sacrebleu(lines, data.raw(split, lang), lowercase=run.data.lowercase, lang=lang),
        score.tokenized_bleu(tokens, data.tokenized(split, lang)),
    ]
    return Translation(lines, scores)


def entries(translation: Translation, split: str, decode: Decode, checkpoint: str, data: Prepared) -> list[dict]:
    """Give the scores.json entries of a translated split."""
    return [
        {
            "split": split,
            "metric": bleu.metric,
            "value": round(bleu.value, 4),
            "signature": bleu.signature,
            "checkpoint": checkpoint,
            "n_sentences": bleu.n_sentences,
            "decode": label(decode),
            "data": data.fingerprint,
        }
        for bleu in translation.scores
    ]


def write(
    folder: Path, found: dict[str, Translation], run: Run, decode: Decode, checkpoint: str, data: Prepared
) -> list[dict]:
    """Put hypotheses and scores into the run folder and give the new entries of scores.json.

    A decoding scored before is replaced, others stay.
    """
    path = folder / "scores.json"
    old = rundir.read_json(path) if path.exists() else []
    new = [entry for split, done in found.items() for entry in entries(done, split, decode, checkpoint, data)]
    key = ("split", "metric", "checkpoint", "decode")
    taken = {tuple(entry[k] for k in key) for entry in new}
    own = decode == run.decode
    for split, done in found.items():
        name = f"hyp.{split}.txt" if own else f"hyp.{split}.{label(decode)}.txt"
        rundir.write_text(folder / name, "".join(line + "\n" for line in done.lines))
    rundir.write_json(path, [e for e in old if tuple(e.get(k) for k in key) not in taken] + new)
    return new


def check_data(folder: Path, data: Prepared) -> None:
    """Raise UserError where a run folder's checkpoints were trained on other data."""
    env = rundir.read_json(folder / "env.json")
    if not isinstance(env, dict) or "data_fingerprint" not in env:
        raise UserError(f"{folder / 'env.json'}: names no data_fingerprint; delete the run folder to train it anew")
    before, now = env["data_fingerprint"], data.fingerprint
    old, new = env.get("data", {}), data.content
    parts = [f"{name} ({old[name]}, now {new[name]})" for name in new if name in old and old[name] != new[name]]
    if before != now or parts:
        what = f"{data.manifest['source']} is now {now}" + (f"; changed: {', '.join(parts)}" if parts else "")
        rule = "give the old data, or delete the folder to train it anew"
        raise UserError(f"{folder}: trained on data {before}, but {what}: {rule}")


def evaluate(folder: Path, decode: Decode | None, cache: Path, threads: int, say: Callable[[str], None]) -> list[dict]:
    """Translate valid and test again from a run folder's best checkpoint; gives what was written to scores.json."""
    run = load(folder / "config.yaml")
    checkpoint = folder / "checkpoints" / "best.pt"
    if not checkpoint.exists():
        raise UserError(
            f"{folder}: no checkpoints/best.pt to translate with; train the run first (or it was deleted: keep, clean)"
        )
    from lnexp.backend import open_session
    from lnexp.backend.checkpoint import read
    from lnexp.data.prepare import prepare

    data = prepare(run.data, cache, say, threads)
    check_data(folder, data)
    session = open_session(run, data, threads)
    trained = identity(run) | {f"data ({name})": digest for name, digest in data.content.items()}
    session.load_state(read(checkpoint, trained), optimizer=False)
    chosen = decode or run.decode
    found = {}
    for split in FINAL_SPLITS:
        say(f"translating {split} with {label(chosen)}")
        found[split] = translate(session, data, run, split, chosen)
    return write(folder, found, run, chosen, "best", data)
