"""One W&B run that follows a run folder: its n-th row of history is the n-th row of metrics.jsonl.

So whatever happened before (a kill, a server away, rows written again after a resume), the number of rows that W&B
holds says where to go on: nothing is sent twice and nothing is left out.
wandb's calls wait for its helper process without a limit (measured on 0.31: with that process stopped, the 951st
`run.log` never returned). So one worker thread makes all of them and reads the file itself: a row costs training a
few microseconds, and start-up (0.4 s; 30 s where the server is away) happens beside the training.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lnexp.rundir import Row
from lnexp.track import client
from lnexp.track.describe import named, summary
from lnexp.track.record import Held, drop, held, sent
from lnexp.track.sink import Sink

_OFFLINE_S = 600.0
GRACE_S = 2.0
"""How long the end of a run waits before it says so."""
WRITTEN_S = 3.0
"""How long the last rows may take to be in the offline record; it is complete some milliseconds after finish."""
STUCK_S = 15.0
"""How long the end of a run waits for wandb's helper where no server is asked."""

# A server that did not answer is not tried again for a while: the other runs of a sweep would each wait for it.
_offline_until = 0.0
_offline_why = ""


class Tail:
    """metrics.jsonl, read as it grows; a line that is not whole yet is left for the next look."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "metrics.jsonl"
        self._at = 0
        self.rows = 0
        """Rows given so far."""

    def new(self) -> Iterator[dict[str, Any]]:
        """Give the rows that were not there at the last look, in W&B's names."""
        with contextlib.suppress(FileNotFoundError), open(self._path, "rb") as file:
            file.seek(self._at)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._at += len(line)
                self.rows += 1
                yield named(json.loads(line))


class WandbSink(Sink):
    """One W&B run, driven by a worker thread; what it has to say is passed on at the caller's next call."""

    def __init__(self, wandb: Any, options: dict[str, Any], online: bool, say: Callable[[str], None]) -> None:
        self._wandb = wandb
        self._options = options
        self._online = online
        self._say = say
        self._run_folder = Path(options["dir"])
        self._tail = Tail(self._run_folder)
        self._have = 0  # rows that W&B held before this call
        self._samples: list[tuple[str, str, str]] = []
        self._ending: tuple[str, dict[str, Any]] | None = None
        self._wake = threading.Event()
        self._notes: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._worker = threading.Thread(target=self._work, name="wandb-sink", daemon=True)
        self._worker.start()

    def log(self, row: Row) -> None:
        self._pass_on()
        self._wake.set()

    def samples(self, triples: list[tuple[str, str, str]]) -> None:
        self._samples = triples

    def finish(self, state: str, scores: list[dict[str, Any]], more: dict[str, Any] | None = None) -> None:
        if self._ending:
            return
        self._ending = state, summary(state, scores, more or {})
        self._wake.set()
        self._worker.join(GRACE_S)
        self._pass_on()
        if self._worker.is_alive():
            limit = client.FINISH_S + client.INIT_S + client.ASK_S + 20 if self._online else STUCK_S
            self._say(f"W&B: waiting for it to take the rest, at most {limit:.0f} s")
            self._worker.join(limit)
        if self._worker.is_alive():
            client.kill_core(self._wandb)
            self._worker.join(5)
        self._pass_on()

    def _pass_on(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._say(self._notes.get_nowait())

    def _rest(self) -> str:
        resend = client.command("sync", self._run_folder)
        return f"every row is in {self._run_folder / 'metrics.jsonl'}, to send them: {resend}"

    # What follows runs on the worker thread.

    def _work(self) -> None:
        try:
            live = self._start()
            while True:
                self._wake.wait()
                self._wake.clear()
                ending = self._ending  # before the look at the file, which then holds all rows
                self._follow(live)
                if ending:
                    self._end(live, *ending)
                    return
        except Exception as error:
            self._notes.put(f"W&B: tracking stopped ({client.line(error)}); {self._rest()}")
            client.forget(self._wandb)

    def _start(self) -> Any:
        if self._online and time.monotonic() >= _offline_until:
            try:
                return self._init("online")
            except Exception as error:
                why = client.line(error)
                _stay_offline(why)
                client.forget(self._wandb)
        else:
            why = f"as a moment ago: {_offline_why}"
        live = self._init("offline")
        if self._online:
            self._notes.put(f"W&B: no run online ({why}); recording offline, later: {self._sync()}")
        self._online = False
        return live

    def _sync(self) -> str:
        return client.command("sync", self._run_folder)

    def _init(self, mode: str) -> Any:
        """Start the run; an older offline record is dropped, for the new one (or the server) gets every row again."""
        have = sent(self._run_folder)
        live = client.begin(self._wandb, mode, self._options)
        here = Path(live.settings.sync_dir)
        self._have = live.starting_step if mode == "online" else have
        drop(self._run_folder, but=here)
        self.where = live.url if mode == "online" else str(here)
        if mode == "online":
            self._notes.put(f"W&B: {self.where}")
        return live

    def _follow(self, live: Any) -> None:
        for metrics in self._tail.new():
            if self._tail.rows > self._have:
                live.log(metrics)  # never step=: rows behind W&B's own counter are thrown away

    def _end(self, live: Any, state: str, words: dict[str, Any]) -> None:
        if self._samples:
            try:  # in the summary, for a row of history of its own would shift the count
                live.summary["samples"] = client.table(self._wandb, self._samples)
            except Exception as error:
                self._notes.put(f"W&B: sample translations not taken ({client.line(error)})")
        try:
            client.end(live, state, words)
        except TimeoutError:
            _stay_offline(f"the server did not take everything in {client.FINISH_S:.0f} s")
            self._notes.put(
                f"W&B: the server did not take everything in {client.FINISH_S:.0f} s; the rest: {self._sync()}"
            )
            client.kill_core(self._wandb)  # it would go on trying, and hold up the end of the process
            client.forget(self._wandb)
            return
        (self._check_online if self._online else self._check_offline)(live)

    def _check_online(self, live: Any) -> None:
        """Compare with what the server counts: wandb says nothing where the server refuses rows (seen with 4xx)."""
        rows = self._tail.rows
        try:
            have = client.settled(client.api(self._wandb), live, rows)
        except Exception as error:
            why = client.line(error)
            self._notes.put(f"W&B: the server cannot be asked what it has ({why}); to make sure: {self._sync()}")
            return
        if have != rows:
            self._notes.put(f"W&B: the server has {have} of {rows} rows; the rest: {self._sync()}")

    def _check_offline(self, live: Any) -> None:
        path = Path(live.settings.sync_file)
        whole = Held(max(0, self._tail.rows - self._have), True)
        wait_until = time.monotonic() + WRITTEN_S
        while (have := held(path)) != whole and time.monotonic() < wait_until:
            time.sleep(0.05)
        if have == whole:
            self._notes.put(f"W&B: recorded; to send it: {self._sync()}")
        else:
            self._notes.put(f"W&B: {path.parent} holds {have.rows} of {whole.rows} rows; {self._rest()}")


def _stay_offline(why: str) -> None:
    global _offline_until, _offline_why
    _offline_until, _offline_why = time.monotonic() + _OFFLINE_S, why
