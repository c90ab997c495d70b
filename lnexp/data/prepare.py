"""Corpus to a folder that training (ours, or stock fairseq-train) reads; made once, then found again by content.

In: the data part of the config and the cache folder. Out: `Prepared`, a view of
<cache>/<name>-<src>-<tgt>-<fingerprint>/
  dict.{lang}.txt  {split}.{src}-{tgt}.{lang}.bin/.idx   numbers, one joined vocabulary
  codes.bpe or sentencepiece.model                       the joint subwords (where there are any)
  {valid,test}.raw.{lang}  .tok.{lang}  .sub.{lang}      as they came; tokenised; cut into subwords
  manifest.json                                          counts, oddities, recipe and sha256 of every file
The folder appears whole, by one rename. Until then the work lies beside it in .<folder>.work, where the same command
goes on after a kill; a lock keeps two processes from making the same one side by side.
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
from lnexp.data import lines
from lnexp.data.corpora import Source, open_corpus
from lnexp.errors import UserError
from lnexp.rundir import read_json

# Goes up whenever the same raw text would come out different; old folders are then left alone, not misread.
RECIPE = 2
_RECIPE_FIELDS = ("src", "tgt", "normalize_punctuation", "tokenizer", "split_hyphens", "lowercase", "subwords",
                  "bpe_merges", "pieces", "max_length", "max_ratio", "limits_on", "valid_every")  # fmt: skip

Say = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """A prepared corpus on disk."""

    folder: Path
    fingerprint: str
    """12 hex digits: what went in (raw text, recipe)."""
    manifest: dict[str, Any]

    def raw(self, split: str, lang: str) -> list[str]:
        """Lines of valid or test as they came: the references of sacreBLEU."""
        return _lines(self.folder / f"{split}.raw.{lang}")

    def tokenized(self, split: str, lang: str) -> list[str]:
        """Lines of valid or test as the model sees them, but without subwords: the references of tokenised BLEU."""
        return _lines(self.folder / f"{split}.tok.{lang}")

    @property
    def content(self) -> dict[str, str]:
        """What came out, as 12 hex digits a part: raw text, recipe, subwords, dictionary and the three splits."""

        def digest(value: Any) -> str:
            return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]

        files = {name: entry["sha256"] for name, entry in self.manifest["files"].items()}
        models = ("codes.bpe", "sentencepiece.model")
        parts = {"raw text": self.manifest["raw"], "recipe": self.manifest["recipe"]}
        parts["subwords"] = {name: files[name] for name in models if name in files}
        parts["dictionary"] = {name: sha for name, sha in files.items() if name.startswith("dict.")}
        for split in ("train", "valid", "test"):
            parts[split] = {name: sha for name, sha in files.items() if name.startswith(f"{split}.")}
        return {name: digest(part) for name, part in parts.items()}


def find(data: Data, cache: Path) -> Prepared | None:
    """Find the prepared corpus, if it is there."""
    mark = fingerprint(data)
    return _found(_folder(data, cache, mark), mark)


def prepare(data: Data, cache: Path, say: Say = print, workers: int = 1) -> Prepared:
    """Find the prepared corpus in the cache, or make it with so many processes; `say` gets a line a stage."""
    source = open_corpus(data)
    mark = fingerprint(data, source)
    folder = _folder(data, cache, mark)
    if found := _found(folder, mark):
        return found
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _lock(cache / f".{folder.name}.lock", say) as alone:
            if found := _found(folder, mark):  # made by another process while this one waited
                return found
            if folder.exists():
                say(f"data: {folder} is damaged; making it again")
            return _make(data, source, folder, mark, say, workers, alone)
    except ChildProcessError as error:
        raise UserError(str(error)) from None
    except BrokenPipeError:  # of whoever reads what is said
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"paths.cache={cache}: cannot be written ({reason}): make room or set paths.cache=DIR, then run it again"
        ) from None


def fingerprint(data: Data, source: Source | None = None) -> str:
    """Hash of the recipe and of the raw text; where the files lie does not count."""
    text = json.dumps([RECIPE, recipe(data), (source or open_corpus(data)).digest], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def recipe(data: Data) -> dict[str, Any]:
    """Give the settings that decide what raw text is turned into."""
    chosen = {name: getattr(data, name) for name in _RECIPE_FIELDS}
    if data.codes:
        chosen |= {"bpe_merges": 0, "codes": lines.sha256(Path(data.codes).expanduser())}
    return chosen


def _folder(data: Data, cache: Path, mark: str) -> Path:
    return cache / f"{data.name}-{data.src}-{data.tgt}-{mark}"


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


def _make(data: Data, source: Source, folder: Path, mark: str, say: Say, workers: int, alone: bool) -> Prepared:
    """Build in a sibling, then rename. What was done stays there when the process is killed or the disk full."""
    # Imported here: tokeniser and numpy cost half a second that a second run, which only reads a manifest, saves.
    from lnexp.data.build import Builder
    from lnexp.data.pool import Pool

    cache = folder.parent
    if alone:
        work = cache / f".{folder.name}.work"
        if work.exists():
            say("data: going on where an earlier attempt was cut")
        work.mkdir(exist_ok=True)
    else:
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".work", dir=cache))
    try:
        corpus = source.get(cache / "archives", work / "raw", say)
        with Pool(workers) as pool:
            builder = Builder(data, corpus, work, pool, say)
            builder.build({"recipe": {"version": RECIPE, **recipe(data)}, "fingerprint": mark})
        _publish(builder.folder, folder, mark)
    except UserError:
        shutil.rmtree(work, ignore_errors=True)  # the input has to change, and with it all that was made of it
        raise
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
            aside = work.with_name("damaged")
            os.rename(folder, aside)
            os.rename(work, folder)
            if aside.is_dir():
                shutil.rmtree(aside, ignore_errors=True)
            else:
                aside.unlink()


def _lines(path: Path) -> list[str]:
    # Not splitlines(), which also splits at form feeds and other separators inside a sentence.
    return path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
