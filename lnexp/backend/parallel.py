"""One run on several processes of one machine: the first leads, the others do as it does, each with its own batches.

The leader is the process that train.py runs in. Before it updates, validates, translates or takes a state over it
tells the others, which follow with the same call; the sums that this needs are in group.py. Training then takes the
path of one process with gradient accumulation, up to the order in which gradients are added.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch.distributed as dist

from lnexp.backend import NonFinite
from lnexp.backend.devices import check_devices, device_of
from lnexp.backend.group import Processes
from lnexp.backend.session import Session
from lnexp.config import Decode, Run, load
from lnexp.data.prepare import Prepared, prepare

_HOST = "127.0.0.1"


class Leader(Session):
    """The session of the first process; starts the others and ends them when it is closed."""

    def __init__(self, run: Run, data: Prepared, threads: int, folder: Path) -> None:
        size = run.devices.processes
        each = max(1, threads // size)
        check_devices(run)
        device = device_of(run, 0)
        store = dist.TCPStore(_HOST, 0, size, is_master=True, wait_for_workers=False)
        command = [sys.executable, "-m", __name__, str(folder), str(store.port), str(each)]
        with open(folder / "train.log", "ab") as log:
            self._others = [
                # A signal of the terminal is the leader's business alone, hence a session of their own.
                subprocess.Popen([*command, str(rank)], stdout=log, stderr=log, start_new_session=True)
                for rank in range(1, size)
            ]
        try:
            super().__init__(run, data, each, Processes(0, size, store, device))
        except BaseException:
            self._end_others()
            raise

    def _update(self, samples: list[Any]) -> dict[str, float]:
        with self._together("update"):
            return super()._update(samples)

    def validate(self, split: str = "valid") -> dict[str, float]:
        with self._together("validate", split):
            return super().validate(split)

    def translate(self, split: str, decode: Decode) -> list[str]:
        with self._together("translate", split, decode):
            return super().translate(split, decode)

    def load_state(self, state: dict[str, Any], optimizer: bool = True) -> None:
        with self._together("load_state", state, optimizer):
            super().load_state(state, optimizer)

    @contextmanager
    def _together(self, name: str, *arguments: Any) -> Iterator[None]:
        """Tell the others what to do; where a connection breaks, say which of them is gone."""
        try:
            self._group.tell((name, arguments))
            yield
        except RuntimeError:
            time.sleep(1)  # a broken connection is seen sooner than the end of the process behind it
            gone = [rank for rank, other in enumerate(self._others, 2) if other.poll() is not None]
            if not gone:
                raise
            raise RuntimeError(f"process {gone[0]} of {self._group.size} ended, see train.log") from None

    def close(self) -> None:
        """End the other processes, wherever they are: they hold nothing that the leader has not."""
        self._end_others()
        with suppress(RuntimeError):
            self._group.close()

    def _end_others(self) -> None:
        for other in self._others:
            other.kill()
        for other in self._others:
            other.wait()


def follow(session: Session) -> None:
    """Do as the leader says, for as long as it says something."""
    stream: Iterator[Any] = session.updates_stream()
    while True:
        name, arguments = session.heard()
        try:
            if name == "update":
                next(stream)
            else:
                getattr(session, name)(*arguments)
        except NonFinite:  # the leader sees the same and decides
            stream = session.updates_stream()


def main(folder: str, port: str, threads: str, rank: str) -> None:
    """Be one of the other processes of the run in `folder`."""
    run = load(Path(folder) / "config.yaml")
    data = prepare(run.data, Path(run.paths.cache).expanduser())
    size = run.devices.processes
    store = dist.TCPStore(_HOST, int(port), size, is_master=False)
    group = Processes(int(rank), size, store, device_of(run, int(rank)))
    session = Session(run, data, int(threads), group)
    # Where the leader is gone the connection breaks; that is its end, not a fault of this process.
    with suppress(RuntimeError, KeyboardInterrupt):
        follow(session)


if __name__ == "__main__":
    main(*sys.argv[1:])
