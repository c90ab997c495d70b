"""The command as a process of its own: started as a person would, or forked in milliseconds from one that has torch
and fairseq loaded already."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

from fakes import moments

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["lnexp.launch", "lnexp.sweep", "lnexp.score", "lnexp.data.build", "lnexp.track.choose",
                               "lnexp.backend.session", "lnexp.backend.checkpoint", "sacrebleu"])  # fmt: skip


def patience(seconds: float) -> float:
    """Seconds on an idle machine, as seconds of this one."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class Command:
    """`lnexp ...` at work in the current folder; `moment` is one of moments.py."""

    def __init__(self, arguments: list[str], moment: str = "", fresh: bool = False) -> None:
        self._out = Path.cwd() / f"out.{time.monotonic_ns()}"
        self._out.touch()
        if fresh:
            path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
            with open(self._out, "w") as out:
                self._process: subprocess.Popen | multiprocessing.process.BaseProcess = subprocess.Popen(
                    [sys.executable, "-m", "fakes.moments", moment, *arguments],
                    stdout=out, stderr=out, env={**os.environ, "PYTHONPATH": path})  # fmt: skip
        else:
            given = (arguments, moment, dict(os.environ), str(Path.cwd()), str(self._out))
            self._process = _FORKS.Process(target=_forked, args=given)
            self._process.start()
        self.pid = self._process.pid or 0

    @property
    def said(self) -> str:
        return self._out.read_text()

    def reach(self) -> None:
        """Wait until the process stands at its moment."""
        until = time.monotonic() + patience(60)
        while not Path("reached").exists():
            assert self.code is None and time.monotonic() < until, self.said
            time.sleep(0.01)

    def strike(self, number: int) -> None:
        os.kill(self.pid, number)
        Path("struck").touch()

    @property
    def code(self) -> int | None:
        """The exit code, -N where signal N ended it, None while it lives."""
        return self._process.poll() if isinstance(self._process, subprocess.Popen) else self._process.exitcode

    def end(self, within_s: float) -> int:
        """Wait for the end; give the exit code."""
        until = time.monotonic() + patience(within_s)
        while (code := self.code) is None:
            if time.monotonic() > until:
                os.kill(self.pid, 9)
                raise AssertionError(f"no end within {within_s} s: {self.said}")
            time.sleep(0.01)
        return code


def _forked(arguments: list[str], moment: str, environment: dict[str, str], folder: str, out: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    handle = os.open(out, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(handle, stream)
    sys.stdout, sys.stderr = (open(stream, "w", closefd=False, buffering=1) for stream in (1, 2))
    moments.main(moment, arguments)
