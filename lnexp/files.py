"""Files written whole or not at all: into a temporary file beside, then fsync and rename."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open what takes the place of `path` when the block ends well; else `path` is as before and nothing is left.

    An OSError names `path`: those of writing and fsync name no file at all, that of opening the temporary one.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()  # on a full disk it holds the room that others need
        if isinstance(error, OSError) and error.strerror:
            error.filename = str(path)
        raise


def write_text(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode())


def words(error: Exception) -> str:
    """Name an error as a person would: a full disk by its file and reason."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'a file'}: {error.strerror}"
    return f"{type(error).__name__}: {error} (traceback in train.log)"
