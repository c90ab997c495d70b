"""Parallel text for tests: some files of a user's own, and the head of the shipped corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lnexp.config import Data
from lnexp.data.corpora import SPLITS, Corpus, open_corpus


def shipped() -> Corpus:
    """The shipped German-English corpus."""
    return open_corpus(Data(name="tatoeba_deen", src="de", tgt="en")).get(Path(), Path(), print)


def own(folder: Path, src: str = "de", tgt: str = "en", **more: Any) -> Data:
    """The config of a folder with {train,valid,test}.{src,tgt}."""
    files = {split: str(folder / split) for split in SPLITS}
    return Data(**{"name": "mine", "src": src, "tgt": tgt, **files, **more})


def write_head(folder: Path, train: int, valid: int, test: int) -> Path:
    """Write the first pairs of each shipped split."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in (("train", train), ("valid", valid), ("test", test)):
        for lang in ("de", "en"):
            lines = list(shipped().lines(f"{split}.{lang}"))[:size]
            (folder / f"{split}.{lang}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder
