"""The only door to fairseq. Nothing outside this package imports it, and importing it here waits for first use.

`open_session(run, data, threads)` gives a Session: one model in training, or one checkpoint to translate with.
`open_prober(run, data, threads)` gives a Prober, which measures models at initialisation and from checkpoints.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lnexp.errors import UserError

if TYPE_CHECKING:
    from lnexp.backend.probing import Prober
    from lnexp.backend.session import Session
    from lnexp.config import Run
    from lnexp.data.prepare import Prepared


class NonFinite(Exception):
    """The loss or the gradient of an update is not finite: the run has diverged."""


def open_session(run: Run, data: Prepared, threads: int, folder: Path | None = None) -> Session:
    """Build model, batches and optimizer of `run` on its prepared data, at update 0.

    In its run folder a run may have several processes (devices.processes), which share its threads.
    """
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        rule = "another launcher would train the same run several times; set devices.processes instead"
        raise UserError(f"WORLD_SIZE={os.environ['WORLD_SIZE']}: {rule}")
    if folder and run.devices.processes > 1:
        from lnexp.backend.parallel import Leader

        return Leader(run, data, threads, folder)
    from lnexp.backend.session import Session

    return Session(run, data, threads)


def open_prober(run: Run, data: Prepared, threads: int) -> Prober:
    """Load what `lnexp probe` measures models of `run` with."""
    from lnexp.backend.probing import Prober

    return Prober(run, data, threads)


__all__ = ["NonFinite", "open_prober", "open_session"]
