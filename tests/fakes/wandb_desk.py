"""What the W&B tests share: an untouched environment, a run to track, rows, and looks at what wandb has written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from lnexp import rundir
from lnexp.config import Run, freeze
from lnexp.rundir import RowFile
from lnexp.track import choose, client, live, sink

SCORES = [
    {"split": "test", "metric": "sacrebleu", "value": 31.5, "signature": "nrefs:1|v:2", "checkpoint": "best",
     "n_sentences": 1000},
]  # fmt: skip


@contextmanager
def untouched(home: Path, **environment: str) -> Iterator[None]:
    """Run with a HOME of its own, no W&B settings but those given, and a wandb that remembers nothing."""
    import wandb

    home.mkdir(parents=True, exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_") and k != "NETRC"}
    with mock.patch.dict(os.environ, kept | {"HOME": str(home)} | environment, clear=True):
        live._offline_until = 0.0
        client.forget(wandb)
        yield
        client.forget(wandb)


def a_run(mode: str = "offline", norm: str = "post", warmup: int = 200) -> Run:
    run = Run(run_name=f"{norm}_ln-w{warmup}-s1", sweep_name="demo")
    run.model.norm, run.schedule.warmup_updates = norm, warmup
    run.optim.lr = 1e-3
    run.track.mode, run.track.tags = mode, ["demo", "cpu"]
    run.data.local = "/home/someone/secret/corpus"
    return run


def rows(n: int) -> list[dict[str, Any]]:
    """Give n training rows and a validation row; the last losses are not finite."""
    train = [
        {"split": "train", "updates": i, "epoch": 1, "wall_s": i / 8, "lr": 1e-3 / (i + 1), "gnorm": 1.5, "bleu": None,
         "loss_bits": [9.0, float("nan"), float("inf")][max(0, i - n + 3)], "tokens_per_s": 4e3}
        for i in range(n)
    ]  # fmt: skip
    return [*train, {"split": "valid", "updates": n - 1, "epoch": 1, "wall_s": n / 8, "loss_bits": 7.5, "bleu": 3.25}]


def in_wandb_words(row: dict[str, Any]) -> dict[str, Any]:
    """Say by hand what W&B is to hold of a row."""
    own = {"loss_bits", "nll_bits", "bleu", "tokens_per_s"}
    return {
        f"{row['split']}/{k}" if k in own else k: {"nan": "NaN", "inf": "Infinity"}.get(str(v), v)
        for k, v in row.items()
        if k != "split" and v is not None
    }


def open_in(folder: Path, run: Run, run_id: str, said: list[str]) -> sink.Sink:
    """Open the tracker of a run; `log` of what is given writes the row to metrics.jsonl first, as training does."""
    folder.mkdir(parents=True, exist_ok=True)
    tracker = choose.open_sink(run, run_id, folder, {"torch": "2.13.0", "data": "f00d"}, said.append)
    file, note = RowFile(folder), tracker.log

    def log(row: dict[str, Any]) -> None:
        file.write(row)
        note(row)

    tracker.log = log  # type: ignore[method-assign]
    return tracker


def keep(folder: Path, run: Run, state: str = "done", scores: list[dict[str, Any]] | None = None) -> Path:
    """Write what training leaves in a run folder beside metrics.jsonl."""
    folder.mkdir(parents=True, exist_ok=True)
    rundir.write_text(folder / "config.yaml", freeze(run))
    rundir.write_json(folder / "env.json", {"torch": "2.13.0", "data_fingerprint": "f00d", "data_folder": "/home/me/c"})
    rundir.write_status(folder, state, 7, 1.5, None if state == "done" else f"{state} for a reason")
    if scores is not None:
        rundir.write_json(folder / "scores.json", scores)
    return folder


def write_rows(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Append to metrics.jsonl."""
    folder.mkdir(parents=True, exist_ok=True)
    file = RowFile(folder)
    for row in rows:
        file.write(row)
    file.close()


def leet(folder: str | Path, *options: str) -> list[dict[str, Any]]:
    """Read an offline run's folder with wandb's own reader."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", *options, str(folder)]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return [json.loads(text)] if "--summary" in options else [json.loads(line) for line in text.splitlines()]


def history(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give the rows among leet's records, without wandb's own fields and the samples table."""
    items = [record["history"]["item"] for record in records if record["type"] == "history"]
    return [
        {k: v for k, v in item.items() if not k.startswith("_")}
        for item in items
        if not any(key.startswith("samples") for key in item)
    ]


def core() -> int:
    """Give the process id of this process's wandb-core."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            if name == "wandb-core" and int(rest.split()[1]) == os.getpid() and rest.split()[0] != "Z":
                return int(stat.parent.name)
    raise AssertionError("no wandb-core runs")
