"""Raw text: shipped, generated, the user's own; and each fault as one line that names the thing."""

import gzip
import hashlib
import time
from pathlib import Path

import pytest

from lnexp.config import Data
from lnexp.data import corpora
from lnexp.data.corpora import SPLITS, open_corpus, source_digest
from lnexp.errors import UserError

GOOD = {f"{split}.{lang}": f"{lang} eins\n{lang} zwei\n".encode() for split in SPLITS for lang in ("de", "en")}


def local(folder: Path, files: dict[str, bytes] | None = None, **more: bytes) -> Data:
    folder.mkdir(exist_ok=True)
    for name, raw in {**(GOOD if files is None else files), **more}.items():
        (folder / name).write_bytes(raw)
    return Data(name="mine", src="de", tgt="en", local=str(folder))


def read_all(data: Data) -> None:
    corpus = open_corpus(data)
    for split in SPLITS:
        corpus.lines(split)


def test_shipped_both_directions() -> None:
    there = open_corpus(Data(name="tatoeba_deen", src="de", tgt="en"))
    back = open_corpus(Data(name="tatoeba_deen", src="en", tgt="de"))
    for split, size in (("train", 20_000), ("valid", 1_000), ("test", 1_000)):
        src, tgt = there.lines(split)
        assert (len(src), len(tgt)) == (size, size)
        assert back.lines(split) == (tgt, src)
    assert there.lines("valid")[0][0] == "Dort kann man sehr gut essen."
    assert there.lines("valid")[1][0] == "You can eat very well there."


def test_shipped_digest_is_stable_and_cheap() -> None:
    begin = time.perf_counter()
    digests = {source_digest(Data(name="tatoeba_deen", src=s, tgt=t)) for s, t in (("de", "en"), ("en", "de"))}
    assert time.perf_counter() - begin < 0.5  # measured: 9 ms each
    assert digests == {"f3bb8f1dfae736b617e0ce38d92fc4b61eb2a846fbbf9d30947014266581ec08"}


def test_shipped_notice() -> None:
    notice = (Path(corpora.__file__).parent / "shipped" / "tatoeba_deen" / "NOTICE.md").read_text(encoding="utf-8")
    for words in ("www.manythings.org/anki and tatoeba.org", "licenses/by/2.0/", "2018-05-13", "normalised"):
        assert words in notice


def test_toy_copy() -> None:
    corpus = open_corpus(Data(name="toy_copy", src="aa", tgt="bb"))
    sets = {}
    for split, size in (("train", 6000), ("valid", 200), ("test", 200)):
        src, tgt = corpus.lines(split)
        assert src == tgt and len(src) == size
        assert all(4 <= len(line.split(" ")) <= 10 and set(line) <= set("0123456789 ") for line in src)
        sets[split] = set(src)
    assert len(sets["train"] | sets["valid"] | sets["test"]) == 6400
    assert {len(line.split()) for line in sets["train"]} == set(range(4, 11))
    # The text is the same for ever: runs trained on it keep their id.
    assert corpus.digest == "58169ce5d968251540e7116bd7ad0b1dcf9cecc8a0e8e5881240c0ea736bece4"


def test_digest_is_of_the_content(tmp_path: Path) -> None:
    plain = local(tmp_path / "plain")
    packed = local(tmp_path / "packed", {f"{name}.gz": gzip.compress(raw) for name, raw in GOOD.items()})
    other = local(tmp_path / "other", {**GOOD, "test.en": b"en eins\nen drei\n"})
    assert source_digest(plain) == source_digest(packed) != source_digest(other)
    text = "".join(f"{name} {len(raw)}\n{raw.decode()}" for name, raw in sorted(GOOD.items()))
    assert source_digest(plain) == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\n\n", ["a", ""]),
        ("a\u2028x\n\x85b\x0c\x1cy\x0bz\n".encode(), ["a\u2028x", "\x85b\x0c\x1cy\x0bz"]),
        (b"a\rx\nb\n", ["a\rx", "b"]),
    ],
    ids=["CRLF", "BOM", "no last newline", "empty line", "Unicode separators", "lone CR"],
)
@pytest.mark.parametrize("packed", [False, True])
def test_lines_end_at_newline_only(tmp_path: Path, raw: bytes, lines: list[str], packed: bool) -> None:
    data = local(tmp_path, **{"train.de": raw})
    if packed:
        (tmp_path / "train.de").unlink()
        (tmp_path / "train.de.gz").write_bytes(gzip.compress(raw))
    assert open_corpus(data).lines("train") == (lines, ["en eins", "en zwei"])


@pytest.mark.parametrize(
    ("name", "raw", "words"),
    [
        ("train.de", b"a\n", ["train.de has 1 lines and train.en has 2", "as many"]),
        ("valid.en", b"", ["valid.en is empty"]),
        ("test.en", b"\xef\xbb\xbf", ["test.en is empty"]),
        ("valid.de", b"gut\nschlecht \xff\n", ["valid.de, line 2", "UTF-8"]),
        ("valid.de", "gut\nböse\n".encode("latin-1"), ["valid.de, line 2", "UTF-8"]),
        ("valid.de", "gut\nböse\n".encode("utf-16"), ["valid.de, line 1"]),
        ("test.de", b"a\nb\0c\n", ["test.de, line 2", "NUL"]),
    ],
)
def test_faulty_text(tmp_path: Path, name: str, raw: bytes, words: list[str]) -> None:
    data = local(tmp_path, **{name: raw})
    with pytest.raises(UserError) as caught:
        read_all(data)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(f"data.local={tmp_path}: ")
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    "damage", [b"not gzip\n", gzip.compress(b"a\nb\n" * 99)[:-12], b"\x1f\x8b\x08\x00" + bytes(20)]
)
def test_damaged_gzip(tmp_path: Path, damage: bytes) -> None:
    data = local(tmp_path)
    (tmp_path / "train.en").rename(tmp_path / "away")
    (tmp_path / "train.en.gz").write_bytes(damage)
    for attempt in (read_all, source_digest):
        with pytest.raises(UserError, match=r"train\.en\.gz is a damaged gzip file"):
            attempt(data)


def test_missing_files_are_listed(tmp_path: Path) -> None:
    data = local(tmp_path)
    for name in ("train.en", "test.de"):
        (tmp_path / name).unlink()
    (tmp_path / "test.de").mkdir()
    with pytest.raises(UserError, match=r"missing train\.en, test\.de: put these files there"):
        source_digest(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (Data("mine", "de", "en", "/nowhere/at/all"), ["data.local=/nowhere/at/all", "no such folder"]),
        (Data("mine", "de", "en", __file__), ["not a folder"]),
        (Data("mine", "de", "en", "x" * 999), ["data.local=xxx", "cannot be looked into"]),
        (Data("mine", "de", "en", "~nobody-here/x"), ["data.local=~nobody-here/x", "cannot be looked into"]),
        (Data("tatoeba_deen", "de", "fr"), ["data.tgt=fr", "only de and en"]),
        (Data("tatoeba_deen", "xx", "en"), ["data.src=xx"]),
        (Data("iwslt14_deen", "de", "en"), ["data=iwslt14_deen", "not part of this version", "data.local=DIR"]),
        (Data("wmt14_ende", "en", "de"), ["data=wmt14_ende", "data.local=DIR", "train/valid/test.{en,de}"]),
        (Data("tatoba", "de", "en"), ["data.name=tatoba", "tatoeba_deen", "data.local=DIR"]),
        (Data("../up", "de", "en"), ["data.name=../up"]),
        (Data("", "de", "en"), ["data.name="]),
    ],
)
def test_wrong_settings(data: Data, words: list[str]) -> None:
    # A published corpus has a digest (its name) before it is there, so that its runs can be shown.
    published = data.name in ("iwslt14_deen", "wmt14_ende")
    for attempt in (open_corpus,) if published else (open_corpus, source_digest):
        with pytest.raises(UserError) as caught:
            attempt(data)
        assert "\n" not in str(caught.value)
        assert all(word in str(caught.value) for word in words), str(caught.value)


def test_local_takes_any_name(tmp_path: Path) -> None:
    data = local(tmp_path)
    data.name = "iwslt14_deen"
    assert open_corpus(data).lines("valid")[0] == ["de eins", "de zwei"]
