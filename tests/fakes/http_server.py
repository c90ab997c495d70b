"""A web server on loopback that answers as it is told, also badly: short, late, with the wrong bytes, or not at all."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """What to send for one request."""

    body: bytes = b""
    status: int = 200
    kind: str = "application/x-gzip"
    etag: str = '"one"'
    modified: str = ""
    ranges: bool = True
    """Whether Range is heeded."""
    length: bool = True
    """Whether Content-Length is sent."""
    stop_after: int | None = None
    """Bytes of the body after which nothing more comes."""
    then: str = "close"
    """What happens there: close, reset, or stall (the connection stays, silent)."""
    location: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    """Instead of those that would be sent by the same name."""


class Server:
    """Replies by path, in order; the last one again and again. `asked` holds (path, headers) of every request."""

    def __init__(self) -> None:
        self.replies: dict[str, list[Reply]] = {}
        self.asked: list[tuple[str, Any]] = []
        self._over = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append((self.path, self.headers))
                replies = server.replies.get(self.path, [Reply(status=404, kind="text/html", body=b"<html>no</html>")])
                with contextlib.suppress(ConnectionError):
                    server._send(self, replies.pop(0) if len(replies) > 1 else replies[0])

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._http.shutdown()
        self._http.server_close()

    def url(self, path: str = "/file.tgz") -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}{path}"

    def ranges(self) -> list[str | None]:
        """Give the Range of each request."""
        return [headers["Range"] for _, headers in self.asked]

    def _send(self, handler: BaseHTTPRequestHandler, reply: Reply) -> None:
        status, body = reply.status, reply.body
        headers = {"Content-Type": reply.kind, "ETag": reply.etag, "Last-Modified": reply.modified}
        wanted, same = handler.headers["Range"], handler.headers["If-Range"]
        if status == 200 and wanted and reply.ranges and same in (None, reply.etag, reply.modified):
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            status = 206 if start < len(body) else 416
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}" if status == 206 else "bytes */1"
            body = body[start:] if status == 206 else b""
        if reply.length:
            headers["Content-Length"] = str(len(body))
        headers |= {"Location": reply.location} | reply.headers
        handler.send_response(status)
        for name, value in headers.items():
            if value:
                handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body if reply.stop_after is None else body[: reply.stop_after])
        handler.wfile.flush()
        if reply.stop_after is not None and reply.then == "stall":
            self._over.wait(5)
        if reply.then == "reset":
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.connection.close()
