"""One side of the decoding benchmark, in a process of its own: python bench_decode_side.py WORK_FOLDER.

In: WORK_FOLDER/config.yaml (a frozen run), stock.pt (its checkpoint for fairseq) and job.json: {"program": "lnexp" |
"fairseq" | "export", "mode": decode.precision, "checkpoint": best.pt of the run, "split": what to translate}.
Out: result.json: hypotheses by their place as subword tokens, and the seconds they took. Loading is left out.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from bench_export import export
from bench_side import Job, opened, serve

STOCK_CHECKPOINT = "stock.pt"


def export_side(folder: Path, job: Job) -> dict[str, Any]:
    """Write the run's best parameters as fairseq wants them."""
    from lnexp.backend.checkpoint import read

    run, data = opened(folder, job)
    export(run, read(Path(job["checkpoint"]))["model"], data.folder, folder / STOCK_CHECKPOINT)
    return {}


def lnexp_side(folder: Path, job: Job) -> dict[str, Any]:
    """All of Session.translate, the call behind BLEU in training and `lnexp eval`: batching, search, tokens to text."""
    import torch

    from lnexp.backend import open_session
    from lnexp.backend.checkpoint import read

    run, data = opened(folder, job | {"mode": "fp32"})
    run.decode.precision = job["mode"]
    session = open_session(run, data, run.devices.threads)
    session.load_state(read(Path(job["checkpoint"])), optimizer=False)
    cpu, began = time.process_time(), time.perf_counter()
    hypotheses = session.translate(job["split"], run.decode)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {
        "seconds": seconds,
        "search_seconds": seconds,
        "cpu_seconds": cpu,
        "hypotheses": hypotheses,
        "threads": torch.get_num_threads(),
        "precision": run.decode.precision,
    }


def fairseq_side(folder: Path, job: Job) -> dict[str, Any]:
    """Stock fairseq-generate by its own entry point; inference_step notes when it began and returned.

    "search_seconds" add up what was spent in inference_step: fairseq's own printed "Translated ... in" time. "seconds"
    go from the first call of it to the end of the last one, with what fairseq-generate does for a batch in between:
    references, scores of each token, printing.
    """
    import torch
    from fairseq.tasks.fairseq_task import FairseqTask
    from fairseq_cli.generate import cli_main  # type: ignore[import-untyped]

    run, data = opened(folder, job)
    step = FairseqTask.inference_step
    spans: list[tuple[float, float]] = []
    cpu: list[float] = []
    found: list[tuple[list[int], Any]] = []
    dictionary: Any = None

    def timed(task: Any, generator: Any, models: Any, sample: Any, *rest: Any, **named: Any) -> Any:
        nonlocal dictionary
        cpu.append(time.process_time())
        began = time.perf_counter()
        hypotheses = step(task, generator, models, sample, *rest, **named)
        spans.append((began, time.perf_counter()))
        cpu.append(time.process_time())
        dictionary = task.target_dictionary
        found.append((sample["id"].tolist(), [best[0]["tokens"] for best in hypotheses]))
        return hypotheses

    FairseqTask.inference_step = timed
    sys.argv = ["fairseq-generate", *generate_arguments(run, data.folder, folder / STOCK_CHECKPOINT, job["split"])]
    cli_main()
    texts = {i: dictionary.string(t.int().cpu()) for ids, tokens in found for i, t in zip(ids, tokens, strict=True)}
    return {
        "seconds": spans[-1][1] - spans[0][0],
        "search_seconds": sum(end - began for began, end in spans),
        "cpu_seconds": cpu[-1] - cpu[0],
        "hypotheses": [texts[i] for i in range(len(texts))],
        "threads": torch.get_num_threads(),
        "precision": "fp32",
    }


def generate_arguments(run: Any, data: Path, path: Path, split: str) -> list[str]:
    """Say the run's decoding in fairseq's words; what is not named here stays at fairseq's default."""
    decode = run.decode
    words = {
        "path": path,
        "source-lang": run.data.src,
        "target-lang": run.data.tgt,
        "gen-subset": split,
        "beam": decode.beam,
        "lenpen": decode.lenpen,
        "max-len-a": decode.max_len_a,
        "max-len-b": decode.max_len_b,
        "max-tokens": decode.max_tokens,
        "required-batch-size-multiple": 1,  # ours; fairseq's default of 8 makes other batches
    }
    options = [part for name, value in words.items() for part in (f"--{name}", str(value))]
    return [str(data), *options, "--no-progress-bar", "--cpu"]


if __name__ == "__main__":
    serve(Path(sys.argv[1]), {"lnexp": lnexp_side, "fairseq": fairseq_side, "export": export_side})
