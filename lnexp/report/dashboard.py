"""Results in, one self-contained dashboard.html out: it opens from file://, without network or server.

The page is a fixed template; all that changes is one block of JSON, which the page shows as text only.
A run folder's words therefore never meet HTML or JavaScript on the way.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

from lnexp import rundir
from lnexp.errors import UserError
from lnexp.report.collect import Result, collect, find
from lnexp.report.content import data as data
from lnexp.report.judge import Paired

# The page's own code, in the order in which the browser reads it; each file is one idea.
SCRIPTS = ("text", "view", "colour", "curves", "chart", "panels", "layers", "probed", "controls", "tables", "compare",
           "watch", "main")  # fmt: skip
STYLES = ("page", "tables", "print")


def write(path: Path | str, outputs: Path | str = "outputs", paired: Paired | None = None) -> Path:
    """Write dashboard.html into PATH and give the file. A damaged run is shown as damaged."""
    folder = find(path, outputs)
    return save(folder, read(folder, paired))


def save(folder: Path, content: dict[str, Any]) -> Path:
    """Write the page of a folder into it and give the file."""
    file = folder / "dashboard.html"
    text = page(content)
    try:
        rundir.write_text(file, text)
    except OSError as error:
        raise UserError(f"{file}: cannot be written ({error.strerror})") from None
    return file


def read(folder: Path, paired: Paired | None = None) -> dict[str, Any]:
    """Give all that the page of a folder shows, as plain data."""
    return data(runs(folder), paired)


def runs(folder: Path) -> list[Result]:
    """Read every run of a folder with all of its rows; one that cannot be read is damaged, be it the only one."""
    return [result.forgive() for result in collect(folder, strict=False)]


def block(content: dict[str, Any]) -> str:
    """Give JSON that may stand inside a script element: nothing in it can end the element or open another."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def page(content: dict[str, Any], live: bool = False) -> str:
    """Give the whole page; a live one asks the server that it came from for new data."""
    here = resources.files("lnexp.report")

    def text(*names: str) -> str:
        return "\n".join((here / name).read_text(encoding="utf-8") for name in names)

    parts = {
        "uplot.css": text("vendor/uPlot.min.css"),
        "page.css": text(*(f"page/{name}.css" for name in STYLES)),
        "uplot.js": text("vendor/uPlot.iife.min.js"),
        "page.js": text(*(f"page/{name}.js" for name in SCRIPTS)),
        "uplot.licence": text("vendor/LICENSE"),
        "data.json": block({**content, "live": live}),
    }
    parts["policy"] = _policy(parts, live)
    # One pass: what is put in is never itself searched for places.
    return re.sub(r"/\*\{([a-z.]+)\}\*/", lambda match: parts[match[1]], text("dashboard.html"))


def _policy(parts: dict[str, str], live: bool) -> str:
    """Let the browser run the code that is in the page now and no other, and fetch nothing.

    The hashes are those of Content Security Policy level 2: SHA-256 of an element's text.
    """

    def hashes(kind: str) -> str:
        digests = (hashlib.sha256(text.encode()).digest() for name, text in parts.items() if name.endswith(kind))
        return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)

    return (
        f"default-src 'none'; img-src data:; style-src {hashes('.css')}; script-src {hashes('.js')}; "
        f"base-uri 'none'; form-action 'none'{'; connect-src ' + repr('self') if live else ''}"
    )
