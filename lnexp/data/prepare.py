"""Corpus to a folder that training (ours, or stock fairseq-train) reads; made once, then found again by content.

In: the data part of the config and the cache folder. Out: `Prepared`, a view of
<cache>/<name>-<src>-<tgt>-<fingerprint>/
  dict.{lang}.txt  {split}.{src}-{tgt}.{lang}.bin/.idx   numbers, one joined vocabulary
  codes.bpe                                              the joint BPE (where there is one)
  {valid,test}.raw.{lang}   {valid,test}.tok.{lang}      references: as they came; tokenised, without BPE
  manifest.json                                          counts, recipe and sha256 of every file
The folder appears whole, by one rename; a lock keeps two processes from making the same one side by side.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lnexp.config import Data
from lnexp.data.corpora import Corpus, open_corpus
from lnexp.errors import UserError
from lnexp.rundir import read_json

# Goes up whenever the same raw text would come out different; old folders are then left alone, not misread.
RECIPE = 1
_RECIPE_FIELDS = ("src", "tgt", "lowercase", "tokenizer", "bpe_merges", "max_length")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """A prepared corpus on disk."""

    folder: Path
    fingerprint: str
    """12 hex digits: what went in (raw bytes, recipe), hence what came out."""
    manifest: dict[str, Any]

    def raw(self, split: str, lang: str) -> list[str]:
        """Lines of valid or test as they came: the references of sacreBLEU."""
        return _lines(self.folder / f"{split}.raw.{lang}")

    def tokenized(self, split: str, lang: str) -> list[str]:
        """Lines of valid or test as the model sees them, but without BPE: the references of tokenised BLEU."""
        return _lines(self.folder / f"{split}.tok.{lang}")


def prepare(data: Data, cache: Path, say: Say = print) -> Prepared:
    """Find the prepared corpus in the cache, or make it; `say` gets a line a stage."""
    corpus = open_corpus(data)
    mark = fingerprint(data, corpus)
    folder = cache / f"{data.name}-{data.src}-{data.tgt}-{mark}"
    if found := _found(folder, mark):
        return found
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _lock(cache / f".{folder.name}.lock", say) as alone:
            if found := _found(folder, mark):  # made by another process while this one waited
                return found
            if folder.exists():
                say(f"data: {folder} is damaged; making it again")
            if alone:  # then what lies about is of killed processes
                for left in cache.glob(f".{folder.name}.*.tmp"):
                    shutil.rmtree(left, ignore_errors=True)
            return _make(data, corpus, folder, mark, say)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"paths.cache={cache}: cannot be written ({reason}): set paths.cache=DIR") from None


def fingerprint(data: Data, corpus: Corpus) -> str:
    """Hash of the recipe and of the raw bytes; where the files lie does not count."""
    text = json.dumps([RECIPE, recipe(data), corpus.digest], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def recipe(data: Data) -> dict[str, Any]:
    """Give the settings that decide what raw text is turned into."""
    return {name: getattr(data, name) for name in _RECIPE_FIELDS}


def _found(folder: Path, mark: str) -> Prepared | None:
    """Give the folder if it is whole: its manifest is the right one and every file has its size."""
    try:
        manifest = read_json(folder / "manifest.json")
        sizes = {name: entry["bytes"] for name, entry in manifest["files"].items()}
        whole = manifest["fingerprint"] == mark and all((folder / n).stat().st_size == s for n, s in sizes.items())
    except (UserError, OSError, KeyError, TypeError, AttributeError):
        return None
    return Prepared(folder, mark, manifest) if whole else None


@contextlib.contextmanager
def _lock(path: Path, say: Say) -> Iterator[bool]:
    """Hold an advisory lock, which the system frees however the process ends; gives whether it is held."""
    alone = True
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("data: another process prepares this corpus; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            alone = False  # a file system without locks: work is done twice at worst, the rename still decides
        yield alone


def _make(data: Data, corpus: Corpus, folder: Path, mark: str, say: Say) -> Prepared:
    """Build in a temporary sibling, then rename."""
    # Imported here: tokeniser and numpy cost half a second that a second run, which only reads a manifest, saves.
    from lnexp.data.build import build

    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent))
    try:
        work.chmod(0o755)  # mkdtemp's 0700 would shut others out of a shared cache
        build(data, corpus, work, {"recipe": {"version": RECIPE, **recipe(data)}, "fingerprint": mark}, say)
        _publish(work, folder, mark)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    made = _found(folder, mark)
    if made is None:
        raise UserError(f"{folder}: changed while it was being made: run the command again")
    say(f"data: {folder}: vocabulary {made.manifest['vocabulary']:,}")
    return made


def _publish(work: Path, folder: Path, mark: str) -> None:
    """Rename into place; a whole folder that is already there stays, a damaged one goes."""
    try:
        os.rename(work, folder)
    except OSError:
        if not folder.exists():
            raise
        if _found(folder, mark) is None:
            aside = work.with_name(f"{work.name}.old.tmp")
            os.rename(folder, aside)
            os.rename(work, folder)
            if aside.is_dir():
                shutil.rmtree(aside, ignore_errors=True)
            else:
                aside.unlink()


def _lines(path: Path) -> list[str]:
    # Not splitlines(), which also splits at form feeds and other separators inside a sentence.
    return path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
