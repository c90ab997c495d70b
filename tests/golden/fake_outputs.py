"""A synthetic outputs/ tree for the reports: no training, every number a formula, the same on every machine."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from lnexp import rundir
from lnexp.config import Data, Decode, Model, Optim, Run, Schedule, Size

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.5.1"
FINGERPRINT = "5f0c2a9be1d4"
UPDATES, PER_EPOCH = 1200, 300
CHECKPOINTS = ("best.pt", "last.pt", "previous.pt")

# (norm, warm-up) -> test BLEU of seed 1 and seed 2.
BLEU = {
    ("post", 0): (1.31, 0.94),
    ("post", 200): (29.46, 29.98),
    ("pre", 0): (31.12, 30.71),
    ("pre", 200): (31.94, 31.4),
}


def run(norm: str, warmup: int, seed: int, **changes: Any) -> Run:
    """Give the config of one run of the tree; `changes` replace whole parts."""
    name = f"{norm}_ln-warmup{warmup}"
    parts: dict[str, Any] = {
        "data": Data("tatoeba_deen", "de", "en", bpe_merges=3000, max_length=100),
        "model": Model(norm),
        "size": Size(5, 5, 128, 512, 4, dropout=0.1),
        "optim": Optim("adam", 1.5e-3, label_smoothing=0.1),
        "schedule": Schedule("linear", warmup, total_updates=UPDATES),
        "decode": Decode(5, 1.2, 1.2, 10),
        "seed": seed, "tokens_per_update": 800, "max_updates": UPDATES, "run_name": name, "sweep_name": "demo",
        **changes,
    }  # fmt: skip
    return Run(**parts)


def rows(norm: str, warmup: int, seed: int, until: int = UPDATES, broken: bool = False) -> list[dict[str, Any]]:
    """Give the rows of one run: loss falls, or stays at chance where Post-LN lacks its warm-up."""
    stuck = norm == "post" and warmup == 0
    found: list[dict[str, Any]] = []
    for update in range(50, until + 1, 50):
        share = update / UPDATES
        floor = 9.2 - 0.05 * seed if stuck else 4.3 + 0.4 * (norm == "post") + 0.2 * (warmup == 0) + 0.03 * seed
        loss = floor + (11.5 - floor) * math.exp(-7 * share)
        lr = 1.5e-3 * (update / warmup if update <= warmup else (UPDATES - update) / (UPDATES - warmup))
        common = {
            "updates": update,
            "epoch": round(update / PER_EPOCH, 4),
            "wall_s": round(0.21 * update + 3 * seed, 2),
        }
        gnorm = 0.4 + (6.0 if stuck else 1.5) * math.exp(-9 * share) + 0.08 * math.sin(update * seed)
        broke = broken and update > until - 100
        train = {"lr": lr, "loss_bits": round(loss + 0.1 * math.sin(update * (1 + seed)), 4), "gnorm": round(gnorm, 4)}
        found.append(
            {"split": "train", **common, **train, "tokens_per_s": 3800.0} | ({"gnorm": "inf"} if broke else {})
        )
        if update % 150 == 0:
            bleu = BLEU[norm, warmup][seed - 1] * (1 - math.exp(-5 * share))
            valid = {"loss_bits": round(loss + 0.2, 4), "nll_bits": round(loss - 1.4, 4), "bleu": round(bleu, 2)}
            found.append({"split": "valid", **common, **valid} | ({"loss_bits": "nan"} if broke else {}))
    return found


def score(value: float, **changes: Any) -> dict[str, Any]:
    entry = {
        "split": "test", "metric": "sacrebleu", "value": value, "signature": SIGNATURE, "checkpoint": "best",
        "n_sentences": 1000, "decode": "beam5-lp1.2", "data": FINGERPRINT,
    }  # fmt: skip
    return {**entry, **changes}


def probes(norm: str, seed: int) -> list[dict[str, Any]]:
    """Give probe rows at the start, the middle and the end: Post-LN's norms grow with depth, Pre-LN's stay."""
    found = []
    for update in (0, UPDATES // 2, UPDATES):
        scale = (1 + 0.1 * seed) / (1 + update / UPDATES)
        layers = {layer: scale * (0.2 * 1.8**layer if norm == "post" else 0.4) for layer in range(5)}
        grad = {f"decoder.layers.{i}.{part}": round(v * (1 + (part == "fc1")), 4) for i, v in layers.items()
                for part in ("fc1", "fc2")}  # fmt: skip
        along = {"updates": update, "epoch": update / PER_EPOCH, "wall_s": 0.21 * update}
        found.append({"split": "probe", **along, "grad": grad})
    return found


def sentences(speaker: str, count: int = 24) -> list[str]:
    return [f"Sentence {i} as {speaker} has it." for i in range(1, count + 1)]


def prepared(folder: Path) -> Path:
    """Write the raw test set as prepared data has it."""
    folder.mkdir(parents=True)
    for language, speaker in (("de", "the source"), ("en", "the reference")):
        (folder / f"test.raw.{language}").write_text("".join(f"{s}\n" for s in sentences(speaker)), encoding="utf-8")
    return folder


def timing(seed: int, wall_s: float = 250.0) -> dict[str, Any]:
    """Give a timing.json: 80% of the time in forward, backward, optimizer and decoding, 4.1% of it in data."""
    share = {"startup": 0.02, "data": 0.041, "forward": 0.2, "backward": 0.4, "optimizer": 0.1, "validation": 0.08,
             "decoding": 0.1, "scoring": 0.03, "tracking": 0.01, "checkpointing": 0.015, "other": 0.004}  # fmt: skip
    return {"wall_s": wall_s, "parts": {part: round(value * wall_s, 3) for part, value in share.items()},
            "share": share, "updates": UPDATES, "target_tokens": 700_000 + 1000 * seed, "tokens_per_s": 3800.0,
            "peak_rss_mib": 700.0 + seed, "peak_device_mib": None}  # fmt: skip


def write_run(
    folder: Path,
    config: Run,
    state: str = "done",
    updates: int | None = None,
    reason: str | None = None,
    metrics: list[dict[str, Any]] | None = None,
    scores: list[dict[str, Any]] | None = None,
    fingerprint: str = FINGERPRINT,
    checkpoints: tuple[str, ...] = (),
    costs: dict[str, Any] | None = None,
    translations: list[str] | None = None,
    data_folder: Path | None = None,
) -> Path:
    """Write one run folder by the contract; checkpoints are holes of a realistic size, which take no room. A run that
    is done has a validation and a score, these where none are given."""
    if updates is None:
        validated = [row["updates"] for row in metrics or () if row["split"] == "valid"] if state == "done" else []
        updates = max(validated, default=UPDATES)
    if state == "done" and metrics is None:
        metrics = [{"split": "valid", "updates": updates, "epoch": updates / PER_EPOCH, "wall_s": 0.2 * updates,
                    "loss_bits": 5.0, "nll_bits": 3.5, "bleu": 20.0}]  # fmt: skip
    if state == "done" and scores is None:
        scores = [score(20.0)]
    folder.mkdir(parents=True)
    dump = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    (folder / "config.yaml").write_text(yaml.dump(asdict(config), Dumper=dump, sort_keys=False, allow_unicode=True))
    env = {"data_fingerprint": fingerprint, "parameters": 3_181_568, "threads": 1, "target_unigram_bits": 9.31,
           "updates_per_epoch": PER_EPOCH, "precision": "fp32", "torch": "2.13.0", "fairseq": "0.12.3"}  # fmt: skip
    status = {"state": state, "updates": updates, "wall_s": round(0.21 * updates, 3), "reason": reason}
    if data_folder is not None:
        env["data_folder"] = str(data_folder)
    (folder / "env.json").write_text(json.dumps(env))
    if translations is not None:
        (folder / "hyp.test.txt").write_text("".join(f"{line}\n" for line in translations), encoding="utf-8")
    (folder / "status.json").write_text(json.dumps(status))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(rundir.finite(r)) + "\n" for r in metrics or []))
    if costs is not None:
        (folder / "timing.json").write_text(json.dumps(costs))
    if scores is not None:
        (folder / "scores.json").write_text(json.dumps(scores))
    for name in checkpoints:
        (folder / "checkpoints").mkdir(exist_ok=True)
        with open(folder / "checkpoints" / name, "wb") as file:
            file.truncate(38_190_000)
    return folder


def write_demo(outputs: Path) -> Path:
    """Write 4 configurations x 2 seeds: one diverged, one asked for and missing. Gives the sweep folder."""
    sweep, wanted = outputs / "demo", []
    data_folder = prepared(outputs.parent / "prepared")
    for index, (norm, warmup) in enumerate(BLEU):
        for seed in (1, 2):
            name = f"{norm}_ln-warmup{warmup}-{index}{seed}c0ffee"
            asked = [f"model={norm}_ln", f"schedule.warmup_updates={warmup}", f"seed={seed}"]
            wanted.append({"folder": name, "overrides": asked})
            if (norm, warmup, seed) == ("pre", 200, 2):
                continue
            config, bleu = run(norm, warmup, seed), BLEU[norm, warmup][seed - 1]
            scores = [score(bleu + 0.4, split="valid"), score(bleu), score(bleu + 0.9, metric="tokenized_bleu")]
            if (norm, warmup, seed) == ("post", 0, 2):
                reason = "gradient norm not finite at update 851"
                metrics = rows(norm, warmup, seed, 900, broken=True)
                write_run(sweep / name, config, "diverged", 900, reason, metrics, scores, checkpoints=CHECKPOINTS,
                          translations=sentences("nobody"), data_folder=data_folder)  # fmt: skip
            else:
                metrics = rows(norm, warmup, seed) + (probes(norm, seed) if warmup else [])
                costs = timing(seed) if norm == "pre" else None
                said = sentences("the reference" if norm == "pre" else name)
                write_run(sweep / name, config, metrics=metrics, scores=scores, checkpoints=CHECKPOINTS, costs=costs,
                          translations=said, data_folder=data_folder)  # fmt: skip
    (sweep / "sweep.json").write_text(json.dumps({"sweep": "demo", "wanted": wanted}))
    return sweep


def write_states(outputs: Path) -> Path:
    """Write a run of every state, each with checkpoints and a left-over; whoever wants "running" to run locks it."""
    sweep, wanted = outputs / "states", []
    reasons = {"diverged": "gradient norm not finite at update 451", "failed": "RuntimeError: No space left on device",
               "interrupted": "stopped by a signal; the same command goes on from the last checkpoint"}  # fmt: skip
    states = {"done": UPDATES, "running": 550, "cut": 300, "damaged": UPDATES, "missing": 0}
    for seed, (state, updates) in enumerate((states | dict.fromkeys(reasons, 450)).items(), 1):
        wanted.append({"folder": f"{state}-c0ffee", "overrides": []})
        if state == "missing":
            continue
        scores = [score(31.4)] if state in ("done", "diverged", "damaged") else None
        folder = write_run(
            sweep / f"{state}-c0ffee", run("pre", 200, seed), {"cut": "running", "damaged": "done"}.get(state, state),
            updates, reasons.get(state), rows("pre", 200, 1, updates + 50 * (state == "running")), scores,
            checkpoints=(*CHECKPOINTS, "last.pt.tmp"),
        )  # fmt: skip
        if state == "damaged":
            (folder / "scores.json").write_text("[")
    (sweep / "sweep.json").write_text(json.dumps({"sweep": "states", "wanted": wanted}))
    return sweep


def probe_rows(norm: str, depth: int, seeds: int = 3, **changes: Any) -> list[dict[str, Any]]:
    """Give W1 and W2 of every decoder layer: layer + seed / 10, and a hundredth of it for W1."""
    return [
        {"at": "init", "updates": 0, "seed": seed, "module": f"decoder.layers.{layer}.{matrix}",
         "quantity": "grad_norm_of_mean", "value": scale * (layer + 1 + seed / 10), "setting": "4 batches", **changes}
        for seed in range(1, seeds + 1) for layer in range(depth) for matrix, scale in (("fc1", 0.01), ("fc2", 1.0))
    ]  # fmt: skip


def write_probed(outputs: Path, depths: tuple[int, ...] = (6, 8), **changes: Any) -> Path:
    """Write a sweep over depth that was probed and never trained."""
    for norm in ("post", "pre"):
        for depth in depths:
            folder = outputs / "fig3" / f"{norm}-{depth}"
            folder.mkdir(parents=True)
            config = run(norm, 400, 1, size=Size(depth, depth, 512, 1024, 4, dropout=0.1), sweep_name="fig3")
            (folder / "config.yaml").write_text(yaml.safe_dump(asdict(config), sort_keys=False))
            (folder / "probe.json").write_text(json.dumps(probe_rows(norm, depth, **changes)))
    return outputs / "fig3"
