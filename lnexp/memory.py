"""What a run takes of main memory at its peak, and what is said where memory does not suffice."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Of torch's allocators (CPU, CUDA), which raise RuntimeError.
_SIGNS = ("out of memory", "can't allocate memory", "not enough memory")


def forget_peak() -> None:
    """Begin a new peak, where Linux allows it: a process that trains several runs has a peak for each."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_rss_mib() -> float:
    """Give the most resident memory of this process, in MiB; other processes of the run are not in it."""
    # Not from getrusage where it can be helped: a child process begins with its parent's peak, for ever.
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def smaller_passes(tokens_per_update: int, passes: int) -> str:
    """Say how an update takes less memory."""
    most = -(-tokens_per_update // passes)
    return f"set devices.max_tokens below {most} (gradients are accumulated, tokens_per_update stays as it is)"


@contextmanager
def bounded(what: str, mend: str) -> Iterator[None]:
    """Turn a failed allocation in the block into a MemoryError that says `what` was done and how to `mend` it."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, RuntimeError) and not any(sign in str(error) for sign in _SIGNS):
            raise
        raise MemoryError(f"{what} is out of memory; {mend}") from error
