"""Translate a split and score it: one path for validation in training, the final scores and `lnexp eval`.

In: a session (or a run folder) and a Decode. Out: text, hyp.*.txt and scores.json entries that carry their identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lnexp import averaging, rundir
from lnexp.averaging import Mean
from lnexp.config import Decode, Run, identity, load
from lnexp.errors import UserError
from lnexp.guard import lock

if TYPE_CHECKING:
    from lnexp.backend.session import Session
    from lnexp.data.prepare import Prepared

FINAL_SPLITS = ("valid", "test")
BEST = "best"
"""What the `checkpoint` of a score says where the parameters are those of the lowest validation loss."""


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
    folder: Path, found: dict[str, Translation], run: Run, decode: Decode, data: Prepared, mean: Mean | None = None
) -> list[dict]:
    """Put hypotheses and scores into the run folder and give the new entries of scores.json.

    Of the best checkpoint, or of `mean`. The same parameters decoded so before are replaced, others stay.
    """
    path = folder / "scores.json"
    old = rundir.read_json(path) if path.exists() else []
    checkpoint, more = (mean.label, mean.more) if mean else (BEST, {})
    new = [entry | more for split, done in found.items() for entry in entries(done, split, decode, checkpoint, data)]
    for split, done in found.items():
        which = [checkpoint.replace(" ", "-")] if mean else []
        how = [] if decode == run.decode else [label(decode)]
        name = ".".join(["hyp", split, *which, *how, "txt"])
        rundir.write_text(folder / name, "".join(line + "\n" for line in done.lines))
    key = ("split", "metric", "checkpoint", "decode")
    rundir.write_json(path, list({tuple(entry.get(k) for k in key): entry for entry in [*old, *new]}.values()))
    return new


def final(
    session: Session, data: Prepared, folder: Path, valid: Translation | None, check: Callable[[], None],
    say: Callable[[str], None],
) -> tuple[list[dict], list[str]]:  # fmt: skip
    """Score a trained run by its best checkpoint, and beside it by the mean of the last where `average` asks for one.

    `valid`: the best checkpoint's translation of valid, where it is made already; `check` is called before results
    are written. Gives the entries of scores.json and the best checkpoint's translation of test; nothing of either
    where a run broke down before there was one.
    """
    from lnexp.backend import checkpoint

    best, run, trained = folder / "checkpoints" / checkpoint.BEST, session.run, trained_on(session.run, data)
    if not best.exists():
        return [], []
    with session.clock("checkpointing"):
        session.load_state(checkpoint.read(best, trained), optimizer=False)
    made = {"valid": valid} if valid else {}
    found = {s: made.get(s) or translate(session, data, run, s, run.decode) for s in FINAL_SPLITS}
    check()
    scores = write(folder, found, run, run.decode, data)
    if mean := averaging.at_end(session, folder, trained, say):
        averaged = {s: translate(session, data, run, s, run.decode) for s in FINAL_SPLITS}
        check()
        scores += write(folder, averaged, run, run.decode, data, mean)
    return scores, found["test"].lines


def trained_on(run: Run, data: Prepared) -> dict[str, Any]:
    """Give what a run's checkpoints are of, as they record it: its identity and its data."""
    return identity(run) | {f"data ({name})": digest for name, digest in data.content.items()}


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


def evaluate(
    folder: Path, decode: Decode | None, cache: Path, threads: int, say: Callable[[str], None], average: int = 0
) -> list[dict]:
    """Translate valid and test again from a run folder; says and gives what was written to scores.json.

    With its best checkpoint, or with the mean of the last `average`.
    """
    run = load(folder / "config.yaml")
    _checkpoints(folder, average)  # before the lock, whose file would stay in a folder that is refused
    from lnexp.backend import open_session
    from lnexp.backend.checkpoint import read
    from lnexp.data.prepare import prepare

    data = prepare(run.data, cache, say, threads)
    check_data(folder, data)
    trained, mean, chosen = trained_on(run, data), None, decode or run.decode
    with lock(folder):  # not beside a training, whose checkpoints are still moving
        files = _checkpoints(folder, average)
        session = open_session(run, data, threads)
        if average:
            mean = averaging.load(session, files, trained)
        else:
            session.load_state(read(files[0], trained), optimizer=False)
        found = {}
        for split in FINAL_SPLITS:
            say(f"translating {split} with {label(chosen)}, {mean.label if mean else BEST}")
            found[split] = translate(session, data, run, split, chosen)
        written = write(folder, found, run, chosen, data, mean)
    line = "{split} {metric} {value:.2f}  ({checkpoint}, {n_sentences} sentences, {decode}, data {data}, {signature})"
    for entry in written:
        say(line.format(**entry))
    return written


def _checkpoints(folder: Path, average: int) -> list[Path]:
    """Give the files to translate with: best.pt, or the last `average`; UserError where they are not there."""
    if average:
        return averaging.choose(folder, average)
    best = folder / "checkpoints" / "best.pt"
    if not best.exists():
        what = "no checkpoints/best.pt to translate with"
        raise UserError(f"{folder}: {what}; train the run first (or it was deleted: keep, clean)")
    return [best]
