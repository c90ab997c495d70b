"""What ran: versions, machine, data and model of a run, for env.json and for whoever compares two results."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lnexp.config import Run

if TYPE_CHECKING:
    from lnexp.backend.session import Session
    from lnexp.data.prepare import Prepared

PACKAGES = ("lnexp", "torch", "ve-fairseq", "hydra-core", "omegaconf", "sacrebleu", "wandb", "numpy")


def environment(run: Run, session: Session, data: Prepared, threads: int) -> dict[str, Any]:
    """Give what env.json records: what ran, on what, with which data."""

    def installed(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "absent"

    return {
        "data_fingerprint": data.fingerprint,
        "data": data.content,
        "data_folder": str(data.folder),
        "data_standard": data.manifest["standard"],
        "target_unigram_bits": data.manifest["target_unigram_bits"],
        "vocabulary": data.manifest["vocabulary"],
        "parameters": session.parameters,
        "updates_per_epoch": session.updates_per_epoch,
        "tokens_per_update": run.tokens_per_update,
        "device": str(session.device),
        "precision": getattr(session, "precision", run.devices.precision),
        "threads": threads,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "processor": _processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "commit": commit(),
        **{package.replace("ve-fairseq", "fairseq"): installed(package) for package in PACKAGES},
    }


def commit() -> str | None:
    """Give the git commit of the code that runs, with -dirty where files differ from it; None outside a checkout."""
    root = Path(__file__).parent.parent
    if not (root / ".git").exists():
        return None
    describe = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--match", ""]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(describe, capture_output=True, text=True, check=True, timeout=10).stdout.strip() or None
    return None


def _processor() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()
