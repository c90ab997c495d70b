"""The only door to fairseq. Nothing outside this package imports it, and importing it here waits for first use.

`open_session(run, data, threads)` gives a Session: one model in training, or one checkpoint to translate with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lnexp.backend.session import Session
    from lnexp.config import Run
    from lnexp.data.prepare import Prepared


class NonFinite(Exception):
    """The loss or the gradient of an update is not finite: the run has diverged."""


def open_session(run: Run, data: Prepared, threads: int) -> Session:
    """Build model, batches and optimizer of `run` on its prepared data, at update 0."""
    from lnexp.backend.session import Session

    return Session(run, data, threads)


__all__ = ["NonFinite", "open_session"]
