"""One side of a training benchmark, in a process of its own: python bench_side.py WORK_FOLDER.

In: WORK_FOLDER/config.yaml, a frozen run, and job.json: {"program": "lnexp" | "fairseq" | "peaks", "mode": precision,
"updates": those that count and those before, "warmup": those before, "syncs": updates more, to count in}.
Out: result.json: for each update the second (from the start of the process) at which it ended, the CPU seconds spent
until then, its target tokens and its loss. The stopwatch is all that is added to either program; lists are filled while
it runs, and turned into numbers once it has stopped.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()
PAD = 1
"""fairseq's number for padding, in every dictionary."""
Job = dict[str, Any]


def opened(folder: Path, job: Job) -> tuple[Any, Any]:
    """Give (run in the mode of the job, its prepared data)."""
    from lnexp.config import load
    from lnexp.data.prepare import prepare

    run = load(folder / "config.yaml")
    run.devices.precision = job["mode"]
    return run, prepare(run.data, Path(run.paths.cache).expanduser())


class Stopwatch:
    """Notes when each update ended. A GPU works on after a call has returned: it is waited for where the time counts,
    after the warm-up and at the end."""

    def __init__(self, job: Job, wait: Callable[[], None] | None) -> None:
        self.seconds: list[float] = []
        self.cpu_seconds: list[float] = []
        self._counted, self._wait = (job["warmup"], job["updates"]), wait

    def note(self) -> None:
        if self._wait and len(self.seconds) + 1 in self._counted:
            self._wait()
        self.seconds.append(time.perf_counter() - STARTED)
        self.cpu_seconds.append(time.process_time())


def lnexp_side(folder: Path, job: Job) -> dict[str, Any]:
    """What `lnexp train` does between two validations: updates from its Session."""
    import torch

    from lnexp.backend import open_session

    run, data = opened(folder, job)
    session = open_session(run, data, run.devices.threads)
    cuda = session.device.type == "cuda"
    watch, rows = Stopwatch(job, torch.cuda.synchronize if cuda else None), []
    stream = session.updates_stream()
    for row in stream:
        watch.note()
        rows.append(row)
        if len(rows) == job["updates"]:
            break
    return {
        "seconds": watch.seconds,
        "cpu_seconds": watch.cpu_seconds,
        "tokens": [int(row["tokens"]) for row in rows],
        "losses": [float(row["loss_bits"]) for row in rows],
        "parameters": session.parameters,
        "threads": torch.get_num_threads(),
        "precision": getattr(session, "precision", run.devices.precision),
        "cuda_peak_mib": torch.cuda.max_memory_allocated() / 2**20 if cuda else None,
        "syncs": synchronizations(stream, job["syncs"]) if cuda and job.get("syncs") else None,
    }


def synchronizations(stream: Any, updates: int) -> float:
    """Count, an update, how often the CPU waits for the GPU: torch warns of each such call."""
    import torch

    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(updates):
            next(stream)
    torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in caught) / updates


def fairseq_side(folder: Path, job: Job) -> dict[str, Any]:
    """Stock fairseq-train by its own entry point; Trainer.train_step notes when it returned."""
    import torch
    from fairseq.trainer import Trainer
    from fairseq_cli.train import cli_main  # type: ignore[import-untyped]

    run, data = opened(folder, job)
    cuda = run.devices.device != "cpu"
    train_step = Trainer.train_step
    watch = Stopwatch(job, torch.cuda.synchronize if cuda else None)
    batches, rows, parameters = [], [], 0

    def timed(trainer: Any, samples: list[dict[str, Any]], *rest: Any, **named: Any) -> Any:
        nonlocal parameters
        row = train_step(trainer, samples, *rest, **named)
        if row is None:  # --fp16: the gradient overflowed, and fairseq does not count the update
            return row
        watch.note()
        batches.append(samples)
        rows.append(row)
        if not parameters:
            parameters = sum(p.numel() for p in trainer.model.parameters())
        return row

    Trainer.train_step = timed
    half = ["--fp16"] if job["mode"] == "fp16" else []
    sys.argv = ["fairseq-train", *stock_arguments(run, data.folder, job["updates"], folder / "checkpoints"), *half]
    cli_main()
    return {
        "seconds": watch.seconds,
        "cpu_seconds": watch.cpu_seconds,
        "tokens": [sum(int(sample["ntokens"]) for sample in samples) for samples in batches],
        "losses": [float(row["loss"]) for row in rows],
        "parameters": parameters,
        "threads": torch.get_num_threads(),
        "precision": job["mode"],
        "cuda_peak_mib": torch.cuda.max_memory_allocated() / 2**20 if cuda else None,
        "sentences": [
            list(zip(s["net_input"]["src_lengths"].tolist(), s["target"].ne(PAD).sum(1).tolist(), strict=True))
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
    flags = ["no-save", "disable-validation", "no-progress-bar"] + ["cpu"] * (run.devices.device == "cpu")
    flags += {"all": ["share-all-embeddings"], "decoder": ["share-decoder-input-output-embed"]}.get(
        size.share_embeddings, []
    )
    if run.model.norm == "pre":
        flags += ["encoder-normalize-before", "decoder-normalize-before"]
    options = [part for name, value in words.items() for part in (f"--{name}", str(value))]
    return [str(data), *options, *(f"--{flag}" for flag in flags)]


def peaks_side(folder: Path, job: Job) -> dict[str, Any]:
    """What this machine does at most, in GFLOP/s: the best of some products of two n x n matrices, a way and a number
    type. The first word of each name is the type."""
    import torch
    from torch import Tensor

    cuda = job["mode"] == "cuda"
    n = job.get("side") or (8192 if cuda else 2048)

    def best(product: Callable[[], Tensor]) -> float:
        times = []
        for _ in range(12):
            began = time.perf_counter()
            product()
            if cuda:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
        return 2 * n**3 / min(times) / 1e9

    a, b = (torch.randn(n, n, device="cuda" if cuda else "cpu") for _ in range(2))
    out = torch.empty_like(a)
    found = {"fp32 torch.mm": best(lambda: torch.mm(a, b, out=out))}
    if not cuda and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        linear = torch.ops.mkldnn._linear_pointwise
        found["fp32 oneDNN"] = best(lambda: linear(a, b, None, "none", [], ""))
    for name, kind in [("bf16", torch.bfloat16)] + [("fp16", torch.float16)] * cuda:
        c, d = a.to(kind), b.to(kind)
        found[f"{name} torch.mm"] = best(lambda c=c, d=d: torch.mm(c, d))  # type: ignore[misc]
    return {"gflops": found, "side": n}


SIDES = {"lnexp": lnexp_side, "fairseq": fairseq_side, "peaks": peaks_side}


def serve(folder: Path, sides: dict[str, Any]) -> None:
    """Be the side that job.json names; write what it found, and its peak memory."""
    from lnexp.memory import peak_rss_mib

    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    result = sides[job["program"]](folder, job)
    result["peak_mib"] = peak_rss_mib()
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    serve(Path(sys.argv[1]), SIDES)
