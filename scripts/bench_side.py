"""One side of the benchmark, in a process of its own: python bench_side.py lnexp|fairseq|gemm WORK_FOLDER UPDATES.

In: WORK_FOLDER/config.yaml, a frozen run. Out: WORK_FOLDER/result.json: for each update the second (from the start of
the process) at which it ended, the CPU seconds spent until then, its target tokens and its loss. The stopwatch is all
that is added to either program; lists are filled while it runs, and turned into numbers once it has stopped.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()
GEMM = 2048


def lnexp_side(folder: Path, updates: int) -> dict[str, Any]:
    """What `lnexp train` does between two validations: updates from its Session."""
    import torch

    from lnexp.backend import open_session
    from lnexp.config import load
    from lnexp.data.prepare import prepare

    run = load(folder / "config.yaml")
    data = prepare(run.data, Path(run.paths.cache).expanduser())
    session = open_session(run, data, run.devices.threads)
    seconds, cpu, rows = [], [], []
    for row in session.updates_stream():
        seconds.append(time.perf_counter() - STARTED)
        cpu.append(time.process_time())
        rows.append(row)
        if len(rows) == updates:
            break
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "tokens": [int(row["tokens"]) for row in rows],
        "losses": [row["loss_bits"] for row in rows],
        "parameters": session.parameters,
        "threads": torch.get_num_threads(),
    }


def fairseq_side(folder: Path, updates: int) -> dict[str, Any]:
    """Stock fairseq-train by its own entry point; Trainer.train_step notes when it returned."""
    import torch
    from fairseq.trainer import Trainer
    from fairseq_cli.train import cli_main  # type: ignore[import-untyped]

    from lnexp.config import load
    from lnexp.data.prepare import prepare

    run = load(folder / "config.yaml")
    data = prepare(run.data, Path(run.paths.cache).expanduser())
    train_step = Trainer.train_step
    seconds, cpu, batches, rows, parameters = [], [], [], [], 0

    def timed(trainer: Any, samples: list[dict[str, Any]], *rest: Any, **named: Any) -> Any:
        nonlocal parameters
        row = train_step(trainer, samples, *rest, **named)
        seconds.append(time.perf_counter() - STARTED)
        cpu.append(time.process_time())
        batches.append(samples)
        rows.append(row)
        if not parameters:
            parameters = sum(p.numel() for p in trainer.model.parameters())
        return row

    Trainer.train_step = timed
    sys.argv = ["fairseq-train", *stock_arguments(run, data.folder, updates, folder / "checkpoints")]
    cli_main()
    pad = 1  # fairseq's number for padding, in every dictionary
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "tokens": [sum(int(sample["ntokens"]) for sample in samples) for samples in batches],
        "losses": [float(row["loss"]) for row in rows],
        "parameters": parameters,
        "threads": torch.get_num_threads(),
        "sentences": [
            list(zip(s["net_input"]["src_lengths"].tolist(), s["target"].ne(pad).sum(1).tolist(), strict=True))
            for samples in batches
            for s in samples
        ],
    }


def stock_arguments(run: Any, data: Path, updates: int, save_dir: Path) -> list[str]:
    """Say in fairseq's words what `run` says in ours; what is not named here stays at fairseq's default."""
    size, optim = run.size, run.optim
    words: dict[str, Any] = {
        "source-lang": run.data.src,
        "target-lang": run.data.tgt,
        "arch": "transformer",
        "dropout": size.dropout,
        "attention-dropout": size.attention_dropout,
        "activation-dropout": size.activation_dropout,
        "criterion": "label_smoothed_cross_entropy",
        "label-smoothing": optim.label_smoothing,
        "optimizer": "adam",
        "adam-betas": str(tuple(optim.betas)),
        "adam-eps": optim.eps,
        "weight-decay": optim.weight_decay,
        "clip-norm": optim.clip_norm,
        "lr-scheduler": "fixed",
        "lr": optim.lr,
        "max-tokens": run.tokens_per_update,
        "required-batch-size-multiple": 1,  # ours; fairseq's default of 8 makes other batches
        "max-update": updates,
        "seed": run.seed,
        "log-format": "simple",
        "save-dir": save_dir,
    }
    for side, layers in (("encoder", size.encoder_layers), ("decoder", size.decoder_layers)):
        words |= {
            f"{side}-layers": layers,
            f"{side}-embed-dim": size.d_model,
            f"{side}-ffn-embed-dim": size.d_ffn,
            f"{side}-attention-heads": size.heads,
        }
    flags = ["cpu", "no-save", "disable-validation", "no-progress-bar"]
    flags += {"all": ["share-all-embeddings"], "decoder": ["share-decoder-input-output-embed"]}.get(
        size.share_embeddings, []
    )
    if run.model.norm == "pre":
        flags += ["encoder-normalize-before", "decoder-normalize-before"]
    options = [part for name, value in words.items() for part in (f"--{name}", str(value))]
    return [str(data), *options, *(f"--{flag}" for flag in flags)]


def gemm_side(folder: Path, updates: int) -> dict[str, Any]:
    """The best of some products of two 2048 x 2048 matrices in fp32: what this machine can do at most."""
    import torch

    a, b = torch.randn(GEMM, GEMM), torch.randn(GEMM, GEMM)
    out = torch.empty(GEMM, GEMM)
    best = float("inf")
    for _ in range(12):
        began = time.perf_counter()
        torch.mm(a, b, out=out)
        best = min(best, time.perf_counter() - began)
    return {"gflops": 2 * GEMM**3 / best / 1e9}


SIDES = {"lnexp": lnexp_side, "fairseq": fairseq_side, "gemm": gemm_side}

if __name__ == "__main__":
    work = Path(sys.argv[2])
    result = SIDES[sys.argv[1]](work, int(sys.argv[3]))
    # Linux counts in KiB, macOS in bytes.
    result["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        2**10 if sys.platform == "linux" else 2**20
    )
    (work / "result.json").write_text(json.dumps(result), encoding="utf-8")
