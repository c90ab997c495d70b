"""The tracker of one run: rows, sample translations and final scores go in, a W&B run comes out, or nothing does.

The run folder is the truth; W&B is a view of it that may fail at any time without training noticing.
wandb's calls wait for its helper process without a limit (measured on 0.31: with that process stopped, the 951st
`run.log` never returned). So one worker thread makes all of them, behind a bounded queue: a row costs training a
few microseconds, and start-up (0.4 s; 30 s where the server is away) happens beside the training.
"""

from __future__ import annotations

import contextlib
import netrc
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from lnexp.config import Run
from lnexp.rundir import Row
from lnexp.track.describe import named, options
from lnexp.track.record import Held, held

FINISH_S = 60.0
"""How long the end of a run waits for the server."""
INIT_S = 20.0
"""How long wandb tries to reach the server (WANDB_INIT_TIMEOUT sets another, at most 30); giving up takes it 10 s."""
_OFFLINE_S = 600.0
_STUCK_S = 15.0

# A server that did not answer is not tried again for a while: the other runs of a sweep would each wait for it.
_offline_until = 0.0
_offline_why = ""


def _wandb() -> str:
    """Name W&B's command as a person can type it: the one beside this Python, which need not be on the path."""
    there = str(Path(sys.executable).with_name("wandb"))
    return min(os.path.relpath(there), there, key=len)


class Sink:
    """The tracker that tracks nothing; what the others have in common. `where` says where the record lies."""

    where: str | None = None

    def log(self, row: Row) -> None:
        """Take one row of metrics."""

    def samples(self, triples: list[tuple[str, str, str]]) -> None:
        """Take (source, reference, hypothesis) of some sentences."""

    def finish(self, state: str, scores: list[dict[str, Any]], more: dict[str, Any] | None = None) -> None:
        """Close with the run's final state, the entries of scores.json and `more`; later calls do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is None:
            self.finish("done", [])
        else:
            self.finish("failed" if issubclass(kind, Exception) else "interrupted", [])


def open_sink(run: Run, run_id: str, folder: Path, env: dict[str, Any], say: Callable[[str], None]) -> Sink:
    """Start the tracker that run.track asks for; `say` gets a line where it cannot be had, on the caller's thread."""
    if run.track.mode == "none":
        return Sink()
    wish = os.environ.get("WANDB_MODE", "")
    if wish == "disabled":
        return Sink()
    # Before the import, which reads them. wandb shall be quiet, report its own errors to nobody, and keep its scratch
    # files with the run instead of in HOME (where the key is looked for, so HOME itself stays).
    scratch = str(folder / "wandb" / ".scratch")
    quiet = {"SILENT": "true", "ERROR_REPORTING": "false", "CACHE_DIR": scratch, "DATA_DIR": scratch}
    for name, value in quiet.items():
        os.environ.setdefault("WANDB_" + name, value)
    try:
        import wandb

        online = run.track.mode != "offline" and wish not in ("offline", "dryrun")
        if online and not _has_key(wandb.setup().settings):
            online = False
            if run.track.mode == "online":
                say("W&B: track.mode=online needs a key (`wandb login`, or WANDB_API_KEY); recording offline")
        return WandbSink(wandb, options(run, run_id, folder, env), online, say)
    except Exception as error:
        say(f"W&B: not tracked ({_line(error)}); everything is in {folder / 'metrics.jsonl'}")
        return Sink()


class WandbSink(Sink):
    """One W&B run, driven by a worker thread; what it has to say is passed on at the caller's next call."""

    def __init__(self, wandb: Any, options: dict[str, Any], online: bool, say: Callable[[str], None]) -> None:
        self._wandb = wandb
        self._options = options
        self._online = online
        self._say = say
        self._folder: Path | None = None
        self._rows = 0
        self._dropped = 0
        self._closed = self._ended = self._refused = False
        self._notes: queue.SimpleQueue[str] = queue.SimpleQueue()
        # Far more than a start that takes 30 s lets pile up: a row comes every log_every updates.
        self._jobs: queue.Queue[Callable[[Any], None]] = queue.Queue(maxsize=10_000)
        self._worker = threading.Thread(target=self._work, name="wandb-sink", daemon=True)
        self._worker.start()

    def log(self, row: Row) -> None:
        metrics = named(row)
        self._put(lambda live: self._log(live, metrics))

    def samples(self, triples: list[tuple[str, str, str]]) -> None:
        data = [list(triple) for triple in triples]
        columns = ["source", "reference", "hypothesis"]
        self._put(lambda live: self._log(live, {"samples": self._wandb.Table(columns=columns, data=data)}))

    def finish(self, state: str, scores: list[dict[str, Any]], more: dict[str, Any] | None = None) -> None:
        if self._closed:
            return
        with contextlib.suppress(queue.Full):
            self._jobs.put(lambda live: self._end(live, state, scores, more or {}), timeout=1)
        self._closed = True
        self._worker.join(2)
        self._pass_on()
        if self._worker.is_alive():
            limit = FINISH_S + INIT_S + 20 if self._online else _STUCK_S
            self._say(f"W&B: waiting for it to take the rest, at most {limit:.0f} s")
            self._worker.join(limit)
        if self._worker.is_alive():
            _kill_core(self._wandb)
            self._worker.join(5)
        self._pass_on()

    def _put(self, job: Callable[[Any], None]) -> None:
        self._pass_on()
        if self._closed or not self._worker.is_alive():
            return
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            if not self._dropped:
                self._say(f"W&B: does not keep up, rows are left out; {self._rest()}")
            self._dropped += 1

    def _pass_on(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._say(self._notes.get_nowait())

    def _rest(self) -> str:
        return f"every row is in {Path(self._options['dir']) / 'metrics.jsonl'}"

    # What follows runs on the worker thread.

    def _work(self) -> None:
        try:
            live = self._start()
            while not self._ended:
                self._try(self._jobs.get(), live)
        except Exception as error:
            self._notes.put(f"W&B: tracking stopped ({_line(error)}); {self._rest()}")
            _forget(self._wandb)

    def _try(self, job: Callable[[Any], None], live: Any) -> None:
        """Do one job; a refused one (a table the server will not have) is told once, the helper's death raises."""
        try:
            job(live)
        except Exception as error:
            if self._ended or isinstance(error, ConnectionError):
                raise
            if not self._refused:
                self._notes.put(f"W&B: not all was taken ({_line(error)}); {self._rest()}")
            self._refused = True

    def _start(self) -> Any:
        global _offline_until, _offline_why
        if self._online and time.monotonic() >= _offline_until:
            try:
                return self._init("online")
            except Exception as error:
                why = _line(error)
                _offline_until, _offline_why = time.monotonic() + _OFFLINE_S, f"as a moment ago: {why}"
                _forget(self._wandb)
        else:
            why = _offline_why
        live = self._init("offline")
        if self._online:
            self._notes.put(f"W&B: no run online ({why}); recording offline, later: {_wandb()} sync {self._folder}")
        self._online = False
        return live

    def _init(self, mode: str) -> Any:
        wanted = {
            "silent": True,
            "console": "off",
            "init_timeout": min(30.0, float(os.environ.get("WANDB_INIT_TIMEOUT", INIT_S))),
            "finish_timeout": FINISH_S,
            "finish_timeout_raises": True,
            # A killed run loses a second of rows, not 15.
            "x_transaction_log_flush_interval": 1,
            # Machine and versions are in config.env already; these cost a second process and tell paths and names.
            "x_disable_stats": True,
            "x_disable_meta": True,
            "x_disable_machine_info": True,
            "x_save_requirements": False,
            "disable_git": True,
            "disable_code": True,
        }
        known = {name: value for name, value in wanted.items() if name in self._wandb.Settings.model_fields}
        settings = self._wandb.Settings(**known)
        live = self._wandb.init(mode=mode, resume="allow", reinit="create_new", settings=settings, **self._options)
        live.define_metric("updates")
        live.define_metric("wall_s")
        live.define_metric("*", step_metric="updates")
        self._folder = Path(live.settings.sync_dir)
        self.where = live.url if mode == "online" else str(self._folder)
        if mode == "online":
            self._notes.put(f"W&B: {self.where}")
        return live

    def _log(self, live: Any, metrics: dict[str, Any]) -> None:
        live.log(metrics)  # never step=: rows behind W&B's own counter are thrown away
        self._rows += 1

    def _end(self, live: Any, state: str, scores: list[dict[str, Any]], more: dict[str, Any]) -> None:
        self._ended = True
        live.summary["state"] = state
        for score in scores:
            name = f"final/{score['split']}_{score['metric']}"
            live.summary[name] = score["value"]
            live.summary[name + "_signature"] = score["signature"]
            live.summary[name + "_sentences"] = score["n_sentences"]
        live.summary.update(more)
        if state == "diverged":  # a result, not a failure
            live.tags = (*(live.tags or ()), "diverged")
        if state == "interrupted":
            live.mark_preempting()
        try:
            live.finish(exit_code=0 if state in ("done", "diverged") else 1)
        except TimeoutError:
            self._notes.put(
                f"W&B: the server did not take everything in {FINISH_S:.0f} s; "
                f"the rest: {_wandb()} sync --include-online {self._folder}"
            )
            return
        if self._online:
            return
        path = live.settings.sync_file
        wait_until = time.monotonic() + 3  # the file is complete some milliseconds after finish
        while (have := held(Path(path))) != Held(self._rows, True) and time.monotonic() < wait_until:
            time.sleep(0.05)
        if have == Held(self._rows, True):
            self._notes.put(f"W&B: recorded; to send it: {_wandb()} sync {self._folder}")
        else:
            self._notes.put(f"W&B: {self._folder} holds {have.rows} of {self._rows} rows; {self._rest()}")


def _has_key(settings: Any) -> bool:
    """Say whether wandb would find a key, looking where it looks; `wandb.login` would ask the network (5 s)."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE") or settings.api_key:
        return True
    named_file = os.environ.get("NETRC")
    for path in [Path(named_file)] if named_file else [Path("~/.netrc"), Path("~/_netrc")]:
        with contextlib.suppress(OSError, netrc.NetrcParseError):
            known = netrc.netrc(str(path.expanduser()))
            # The public server's older name, under which most keys were stored, counts too.
            hosts = [urlsplit(settings.base_url).netloc]
            if hosts[0].endswith(".forge.coreweave.com"):
                hosts.append("api.wandb.ai")
            return any(known.authenticators(host) for host in hosts)
    return False


def _kill_core(wandb: Any) -> None:
    """End wandb's helper process where it is ours: calls that wait for it return, and the exit hook does not hang."""
    with contextlib.suppress(Exception):
        wandb.setup().ensure_service()._proc._process.kill()


def _forget(wandb: Any) -> None:
    """Have wandb start anew with its next run, after one that failed.

    A dead helper process fails every later run and makes the exit hook print a traceback; a living one holds the id
    of the run that it could not start. SystemExit is what teardown raises where the helper was killed.
    """
    with contextlib.suppress(Exception, SystemExit):
        wandb.teardown()


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
