"""The process that launched a worker: where it is killed, the worker must not train on with nobody waiting for it.

A loky worker (Hydra's joblib launcher) notices nothing when its parent dies, keeps the cores, and would go on with the
jobs that are queued. SIGTERM to itself makes the run at hand save and end as interrupted; an idle worker just ends.
"""

from __future__ import annotations

import os
import signal
import threading
import time

# Set by the process that launches, inherited by its workers.
VARIABLE = "LNEXP_PARENT"
_EVERY_S = 1.0
_watched: list[int] = []


def announce() -> None:
    """Name this process as the parent of the workers it will start."""
    os.environ[VARIABLE] = str(os.getpid())


def watch() -> None:
    """Follow the parent that announced itself; once a process, and not where that is this very process."""
    parent = int(os.environ.get(VARIABLE) or os.getpid())
    if parent == os.getpid() or _watched:
        return
    _watched.append(parent)
    threading.Thread(target=_follow, args=(parent,), name="parent", daemon=True).start()


def gone() -> bool:
    """Tell whether the watched parent has died: whatever the worker does next, nobody asked for it."""
    return bool(_watched) and os.getppid() != _watched[0]


def _follow(parent: int) -> None:
    # The id of the parent changes when it dies: the system gives its children to another.
    while os.getppid() == parent:
        time.sleep(_EVERY_S)
    os.kill(os.getpid(), signal.SIGTERM)
