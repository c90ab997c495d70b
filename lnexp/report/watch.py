"""`lnexp dashboard PATH --watch`: the page from a server on this machine, which asks for new data while a sweep runs.

It answers two addresses, `/` and `/data.json`, to this machine only, and keeps nothing on the disk.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from lnexp.errors import UserError
from lnexp.report import dashboard
from lnexp.report.collect import Result, find
from lnexp.report.column import Column
from lnexp.report.live import held

LOOPBACK = "127.0.0.1"
OWN_NAMES = ("127.0.0.1", "localhost", "[::1]")
"""What a browser of this machine calls it; another name in Host is a foreign page's (DNS rebinding)."""
_FILES = ("sweep.json", "config.yaml", "metrics.jsonl", "status.json", "scores.json", "timing.json", "env.json",
          "probe.json", "hyp.test.txt", "hyp.valid.txt")  # fmt: skip
_IDLE = 10
"""At most one part in this many of the time goes into reading folders anew."""

# With the policy in the page, which names the code it may run. No other site may frame or read what is here.
_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def _print(text: str) -> None:
    print(text, flush=True)


def watch(
    path: Path | str, outputs: Path | str = "outputs", port: str = "0", say: Callable[[str], None] = _print
) -> None:
    """Serve the dashboard until Ctrl-C; without a port a free one is taken. `say` gets the address."""
    server = serve(find(path, outputs), _number(port))
    with server:
        say(f"http://{LOOPBACK}:{server.server_address[1]}/  (Ctrl-C ends it)")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            say("")


def _number(port: str) -> int:
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise UserError(f"--port {port}: need a whole number from 1 to 65535; without --port a free one is taken")
    return int(port)


def serve(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """Open the port on loopback. UserError where it cannot be had, or where the folder cannot be shown."""
    source = Source(folder)
    source.data()  # what cannot be shown is said now, in one line

    class Bound(_Handler):
        content = source

    try:
        server = ThreadingHTTPServer((LOOPBACK, port), Bound)
    except OSError as error:
        raise UserError(f"--port {port}: {error.strerror}; without --port a free one is taken") from None
    server.daemon_threads = True
    return server


def _untested(a: Sequence[Result], b: Sequence[Result], scores: Column) -> str:
    """Say why a live page tests no difference over sentences: that takes seconds, and it is made anew all the time."""
    return "which takes seconds: left to `lnexp dashboard` without --watch"


class Source:
    """The data of a folder, read again only where a file has changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._stamp, self._next = "", 0.0
        self._content: dict[str, Any] = {}

    def data(self) -> tuple[str, dict[str, Any]]:
        """Give the state of the files as a short text, and the page's data. UserError where they cannot be shown."""
        with self._lock:
            begun = time.monotonic()
            if begun >= self._next and (stamp := self._look()) != self._stamp:
                self._content, self._stamp = dashboard.read(self._folder, _untested), stamp
                now = time.monotonic()
                self._next = now + _IDLE * (now - begun)
            return self._stamp, self._content

    def _look(self) -> str:
        seen = hashlib.sha256()
        runs = [file.parent for depth in ("", "*/", "*/*/") for file in self._folder.glob(f"{depth}config.yaml")]
        sweeps = [file.parent for depth in ("", "*/") for file in self._folder.glob(f"{depth}sweep.json")]
        for folder in sorted({*runs, *sweeps}):
            for name in _FILES:
                try:
                    stat = os.stat(folder / name)
                except OSError:
                    continue
                seen.update(f"{folder}/{name} {stat.st_mtime_ns} {stat.st_size}\n".encode())
            seen.update(b"held" if held(folder) else b"free")
        return seen.hexdigest()[:16]


class _Handler(BaseHTTPRequestHandler):
    content: Source
    server_version, sys_version = "lnexp", ""
    timeout = 10  # seconds for a request's head: a silent connection keeps no thread for ever

    def do_GET(self) -> None:
        # The port is not compared: through `ssh -L 9000:localhost:8000` it is another.
        if re.sub(r":\d+$", "", self.headers.get("Host", "")) not in OWN_NAMES:
            return self._answer(421, "text/plain", "This server answers to localhost alone.\n")
        if self.path not in ("/", "/data.json"):
            return self._answer(404, "text/plain", "Only / and /data.json are here.\n")
        try:
            stamp, content = self.content.data()
        except UserError as error:  # a folder that was taken away, or a run on other data; the page asks again
            return self._answer(503, "text/plain", f"{error}\n")
        if self.path == "/":
            return self._answer(200, "text/html", dashboard.page(content, live=True))
        if self.headers.get("If-None-Match") == f'"{stamp}"':
            return self._answer(304, "application/json", "", stamp)
        return self._answer(200, "application/json", dashboard.block({**content, "live": True}), stamp)

    do_HEAD = do_GET

    def _answer(self, status: int, kind: str, text: str, stamp: str = "") -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if stamp:
            self.send_header("ETag", f'"{stamp}"')
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and status != 304:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal keeps the address in sight."""
