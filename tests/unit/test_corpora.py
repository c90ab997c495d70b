"""Raw text: shipped, generated, the user's own; and each fault as one line that names the thing."""

import gzip
import hashlib
import lzma
import time
from pathlib import Path

import pytest
from fakes.bitext import own

from lnexp.config import Data
from lnexp.data import corpora
from lnexp.data.corpora import SPLITS, Corpus, open_corpus
from lnexp.errors import UserError

GOOD = {f"{split}.{lang}": f"{lang} eins\n{lang} zwei\n".encode() for split in SPLITS for lang in ("de", "en")}


def local(folder: Path, files: dict[str, bytes] | None = None, **more: bytes) -> Data:
    folder.mkdir(exist_ok=True)
    for name, raw in {**(GOOD if files is None else files), **more}.items():
        (folder / name).write_bytes(raw)
    return own(folder)


def corpus_of(data: Data) -> Corpus:
    return open_corpus(data).get(Path("archives"), Path("raw"), print)


def sides(data: Data, split: str) -> tuple[list[str], list[str]]:
    src, tgt = zip(*corpus_of(data).pairs(split), strict=True)
    return list(src), list(tgt)


def digest(data: Data) -> str:
    return open_corpus(data).digest


def read_all(data: Data) -> None:
    for split in SPLITS:
        sides(data, split)


def test_shipped_both_directions() -> None:
    there = Data(name="tatoeba_deen", src="de", tgt="en")
    back = Data(name="tatoeba_deen", src="en", tgt="de")
    for split, size in (("train", 20_000), ("valid", 1_000), ("test", 1_000)):
        src, tgt = sides(there, split)
        assert (len(src), len(tgt)) == (size, size)
        assert sides(back, split) == (tgt, src)
    src, tgt = sides(there, "valid")
    assert (src[0], tgt[0]) == ("Dort kann man sehr gut essen.", "You can eat very well there.")


def test_shipped_digest_is_stable_and_cheap() -> None:
    begin = time.perf_counter()
    digests = {digest(Data(name="tatoeba_deen", src=s, tgt=t)) for s, t in (("de", "en"), ("en", "de"))}
    assert time.perf_counter() - begin < 0.5  # measured: 9 ms each
    assert digests == {"2c48fe94b661ec67a8d0ef5025ba7728d16272751d0de13a25f1141c8fa4b2cd"}


def test_shipped_notice() -> None:
    notice = (Path(corpora.__file__).parent / "shipped" / "tatoeba_deen" / "NOTICE.md").read_text(encoding="utf-8")
    for words in ("www.manythings.org/anki and tatoeba.org", "licenses/by/2.0/", "2018-05-13", "normalised"):
        assert words in notice


def test_toy_copy() -> None:
    data = Data(name="toy_copy", src="aa", tgt="bb")
    sets = {}
    for split, size in (("train", 6000), ("valid", 200), ("test", 200)):
        src, tgt = sides(data, split)
        assert src == tgt and len(src) == size
        assert all(4 <= len(line.split(" ")) <= 10 and set(line) <= set("0123456789 ") for line in src)
        sets[split] = set(src)
    assert len(sets["train"] | sets["valid"] | sets["test"]) == 6400
    assert {len(line.split()) for line in sets["train"]} == set(range(4, 11))
    # The text is the same for ever: runs trained on it keep their id.
    assert digest(data) == "03252ac4eed48fd5d4d5b6732fe6030182f249618477650e7d5c276305a02b7e"


def test_digest_is_of_the_content(tmp_path: Path) -> None:
    plain = local(tmp_path / "plain")
    packed = local(tmp_path / "packed", {f"{name}.gz": gzip.compress(raw) for name, raw in GOOD.items()})
    other = local(tmp_path / "other", {**GOOD, "test.en": b"en eins\nen drei\n"})
    squeezed = local(tmp_path / "squeezed", {f"{name}.xz": lzma.compress(raw) for name, raw in GOOD.items()})
    assert digest(plain) == digest(packed) == digest(squeezed) != digest(other)
    text = "".join(f"{name} {hashlib.sha256(raw).hexdigest()}\n" for name, raw in sorted(GOOD.items()))
    assert digest(plain) == hashlib.sha256(text.encode()).hexdigest()


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
@pytest.mark.parametrize("packed", ["", ".gz", ".xz"])
def test_lines_end_at_newline_only(tmp_path: Path, raw: bytes, lines: list[str], packed: str) -> None:
    data = local(tmp_path)
    (tmp_path / "train.de").unlink()
    pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[packed]
    (tmp_path / f"train.de{packed}").write_bytes(pack(raw))
    wanted = ["en eins", "en zwei", "en drei"][: len(lines)]
    (tmp_path / "train.en").write_text("".join(f"{line}\n" for line in wanted))
    assert sides(data, "train") == (lines, wanted)


@pytest.mark.parametrize(
    ("name", "raw", "words"),
    [
        ("train.de", b"a\n", ["train.de has 1 lines and ", "train.en has 2", "as many"]),
        ("train.en", b"a\n" * 9, ["train.de has 2 lines and ", "train.en has 9", "as many"]),
        ("train.en", b"a" * (2 << 20), ["train.en, line 1: over 1,048,576 bytes", "one sentence a line"]),
        ("valid.en", b"", ["valid.en is empty"]),
        ("test.en", b"\xef\xbb\xbf", ["test.en is empty"]),
        ("valid.de", b"gut\nschlecht \xff\n", ["valid.de, line 2", "UTF-8"]),
        ("valid.de", "gut\nböse\n".encode("latin-1"), ["valid.de, line 2", "UTF-8"]),
        ("valid.de", "gut\nböse\n".encode("utf-16"), ["valid.de: looks like UTF-16"]),
        ("valid.de", gzip.compress(b"gut\nschlecht\n"), ["valid.de: is packed with gzip", ".gz"]),
        ("valid.de", lzma.compress(b"gut\nschlecht\n"), ["valid.de: is packed with xz", ".xz"]),
        ("test.de", b"a\nb\0c\n", ["test.de, line 2", "NUL"]),
    ],
)
def test_faulty_text(tmp_path: Path, name: str, raw: bytes, words: list[str]) -> None:
    data = local(tmp_path, **{name: raw})
    with pytest.raises(UserError) as caught:
        read_all(data)
    message = str(caught.value)
    assert "\n" not in message
    assert " has " in words[0] or message.startswith(str(tmp_path / name))
    assert all(word in message for word in words), message


WHOLE = b"a\nb\n" * 99
DAMAGED = [
    (".gz", b"not gzip\n"), (".gz", gzip.compress(WHOLE)[:-12]), (".gz", b"\x1f\x8b\x08\x00" + bytes(20)),
    (".xz", b"not xz at all\n"), (".xz", lzma.compress(WHOLE)[:-12]),
]  # fmt: skip


@pytest.mark.parametrize(("end", "damage"), DAMAGED)
def test_damaged_packing(tmp_path: Path, end: str, damage: bytes) -> None:
    data = local(tmp_path)
    (tmp_path / "train.en").unlink()
    (tmp_path / f"train.en{end}").write_bytes(damage)
    for attempt in (read_all, digest):
        with pytest.raises(UserError, match=rf"train\.en\{end} is a damaged (gzip|xz) file"):
            attempt(data)


@pytest.mark.parametrize("name", ["train.en", "test.de"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    data = local(tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    split = name.partition(".")[0]
    with pytest.raises(UserError, match=rf"data\.{split}={tmp_path / split}: no file {tmp_path / name}, nor with .gz"):
        digest(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (own(Path("/nowhere")), ["data.train=/nowhere/train", "no file /nowhere/train.de", ".gz"]),
        (own(Path("x" * 999)), ["data.train=xxx", "cannot be looked into"]),
        (own(Path("~nobody-here/x")), ["data.train=~nobody-here/x", "cannot be looked into"]),
        (own(Path("/x"), local="/x"), ["data.local=/x", "only for iwslt14_deen and wmt14_ende", "data=bitext"]),
        (own(Path("/x"), valid_every=5), ["data.valid_every=5", "data.valid=/x/valid"]),
        (Data("tatoeba_deen", "de", "fr"), ["data.tgt=fr", "only de and en"]),
        (Data("tatoeba_deen", "xx", "en"), ["data.src=xx"]),
        (Data("tatoeba_deen", "de", "en", train="/x"), ["data.train=/x", "has its own text", "data=bitext"]),
        (Data("iwslt14_deen", "de", "fr", valid_every=23), ["data.tgt=fr", "only de and en"]),
        (Data("iwslt14_deen", "de", "en", local="/nowhere", valid_every=23), ["data.local=/nowhere", "no such folder"]),
        (Data("wmt14_ende", "en", "de", local=__file__), ["data.local=", "not a folder"]),
        (Data("wmt14_ende", "en", "de", test="/x"), ["data.test=/x", "archives", "data=bitext"]),
        (Data("iwslt14_deen", "de", "en"), ["data.valid_every=0", "no validation set of its own", "23"]),
        (Data("wmt14_ende", "en", "de", valid_every=9), ["data.valid_every=9", "a validation set of its own"]),
        (Data("tatoeba_deen", "de", "en", valid_every=9), ["data.valid_every=9", "need 0"]),
        (Data("tatoba", "de", "en"), ["data.name=tatoba: no such corpus", "tatoeba_deen", "data=bitext"]),
        (Data("bitext", "de", "en"), ["data.train is not set", "DIR/train.de and DIR/train.en", ".xz"]),
        (Data("mine", "de", "en", train=__file__[:-3]), ["data.valid is not set"]),
        (Data("../up", "de", "en"), ["data.name=../up"]),
        (Data("", "de", "en"), ["data.name="]),
    ],
)
def test_wrong_settings(data: Data, words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        open_corpus(data)
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_published_corpus_has_a_digest_before_it_is_there() -> None:
    names = [Data("iwslt14_deen", *pair, valid_every=23) for pair in (("de", "en"), ("en", "de"))]
    names.append(Data("wmt14_ende", "en", "de"))
    digests = [digest(data) for data in names]
    assert digests[0] == digests[1] != digests[2]
