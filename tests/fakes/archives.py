"""The published archives in small: their real layout, filled with shipped text (and a little that only they hold)."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from html import escape
from pathlib import Path

from fakes.bitext import shipped

IWSLT_SETS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")


def write_tgz(path: Path, files: Mapping[str, str]) -> Path:
    """Pack texts under their names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            raw = text.encode()
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    return path


def text(split: str, lang: str, start: int, stop: int) -> list[str]:
    return list(shipped().lines(f"{split}.{lang}"))[start:stop]


def iwslt14(talks: int = 4, lines: int = 150, held: int = 12) -> dict[str, str]:
    """Give the members of de-en.tgz: `talks` talks of `lines` sentences, five test sets of `held`."""
    members = {"de-en/README": "Copyright: nobody's, this is a test\n"}
    for lang in ("de", "en"):
        train = []
        for talk in range(talks):
            train += [f"<url>http://example.org/{talk}</url>", f"<keywords>talks, {lang}</keywords>",
                      f"<talkid>{talk}</talkid>", f"<title>{lang.upper()} {talk}: Ein Titel</title>",
                      "<description>TED Talk Subtitles and Transcript: A & B</description>"]  # fmt: skip
            train += [f" {line} " for line in text("train", lang, talk * lines, (talk + 1) * lines)]
        members[f"de-en/train.tags.de-en.{lang}"] = "".join(f"{line}\n" for line in train)
        for number, name in enumerate(IWSLT_SETS):
            rows = text("test", lang, number * held, (number + 1) * held)
            members[f"de-en/IWSLT14.{name}.de-en.{lang}.xml"] = xml(rows, "refset" if lang == "en" else "srcset")
    members["de-en/train.en"] = "not a training side\n"
    return members


def xml(rows: list[str], kind: str) -> str:
    """A test set as IWSLT publishes it."""
    body = "".join(f'<seg id="{number}"> {row} </seg>\n' for number, row in enumerate(rows, 1))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<mteval>\n<{kind} setid="x">\n<doc docid="1">\n' \
           f"<title>A talk</title>\n{body}</doc>\n</{kind}>\n</mteval>\n"  # fmt: skip


def sgm(rows: list[str], kind: str) -> str:
    """A test set as WMT publishes it: segments without blanks around, special characters as entities."""
    body = "".join(f'<seg id="{number}">{escape(row, quote=False)}</seg>\n' for number, row in enumerate(rows, 1))
    return f'<{kind}set setid="newstest" srclang="any">\n<doc docid="1">\n<p>\n{body}</p>\n</doc>\n</{kind}set>\n'


def wmt14(pairs: int = 300, held: int = 20) -> dict[str, dict[str, str]]:
    """Give archive name -> members, all five of WMT14."""
    found: dict[str, dict[str, str]] = {name: {} for name in (
        "training-parallel-europarl-v7.tgz", "training-parallel-commoncrawl.tgz", "training-parallel-nc-v9.tgz",
        "dev.tgz", "test-full.tgz")}  # fmt: skip
    parts = (("training-parallel-europarl-v7.tgz", "training/europarl-v7"), ("training-parallel-commoncrawl.tgz",
             "commoncrawl"), ("training-parallel-nc-v9.tgz", "training/news-commentary-v9"))  # fmt: skip
    for lang in ("de", "en"):
        for number, (archive, name) in enumerate(parts):
            rows = text("train", lang, number * pairs, (number + 1) * pairs)
            found[archive][f"{name}.de-en.{lang}"] = "".join(f"{row}\n" for row in rows)
            found[archive][f"{name}.fr-en.{lang}"] = "another pair of languages\n"
        for role in ("src", "ref"):
            valid, test = text("valid", lang, 0, held), text("test", lang, 0, held)
            test[0] = f"„{test[0]}“ – R&D’s <b>{lang}</b>"
            found["dev.tgz"][f"dev/newstest2013-{role}.{lang}.sgm"] = sgm(valid, role)
            found["dev.tgz"][f"dev/newstest2012-{role}.{lang}.sgm"] = sgm(["another year"], role)
            found["test-full.tgz"][f"test-full/newstest2014-deen-{role}.{lang}.sgm"] = sgm(test, role)
    return found
