"""Unpacking: the wanted files to their places, whole; nothing at all out of an archive that is hostile or damaged."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import random
import stat
import tarfile
import tracemalloc
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lnexp.data import archive as archives
from lnexp.data.archive import extract, find
from lnexp.errors import UserError

Entry = tuple[str | tarfile.TarInfo, bytes]

NOISE = random.Random(1).randbytes(30_000)
FILES: list[Entry] = [
    ("de-en/README", b"read me\n"),
    ("de-en/train.tags.de-en.de", b"eins\n" * 1000),
    ("de-en/._train.tags.de-en.en", b"Mac OS X"),
    ("de-en/train.tags.de-en.en", NOISE),
    ("de-en/empty", b""),
    ("de-en/old/README", b"older\n"),
]
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "tar": bytes,
    "tar.gz": gzip.compress,
    "tar.xz": lzma.compress,
    "tar.bz2": bz2.compress,
}
KINDS = [*PACKERS, "zip"]


def info(name: str, size: int = 0, **more: Any) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size = size
    for key, value in more.items():
        setattr(made, key, value)
    return made


def tar(entries: list[Entry], form: int = tarfile.GNU_FORMAT) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=form) as file:
        file.addfile(info("de-en", type=tarfile.DIRTYPE))
        for name, body in entries:
            file.addfile(info(name, len(body)) if isinstance(name, str) else name, io.BytesIO(body))
    return raw.getvalue()


def zipped(entries: list[Entry], **more: Any) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", **{"compression": zipfile.ZIP_DEFLATED, **more}) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are there twice
        file.writestr("de-en/", b"")
        for name, body in entries:
            file.writestr(name, body)  # type: ignore[arg-type]
    return raw.getvalue()


def pack(kind: str, entries: list[Entry]) -> bytes:
    return zipped(entries) if kind == "zip" else PACKERS[kind](tar(entries))


class Place:
    """An archive in one folder, and another folder for what comes out of it."""

    def __init__(self, tmp_path: Path) -> None:
        self.archive = tmp_path / "in" / "some.file"
        self.out = tmp_path / "out"
        self.archive.parent.mkdir()
        self.out.mkdir()

    def extract(self, raw: bytes, *wanted: str, most_bytes: int = 100_000, most_entries: int = 99) -> dict[str, bytes]:
        self.archive.write_bytes(raw)
        targets = {name: self.out / f"{number}.txt" for number, name in enumerate(wanted)}
        extract(self.archive, targets, most_bytes=most_bytes, most_entries=most_entries)
        assert {path.name for path in self.out.iterdir()} == {target.name for target in targets.values()}
        assert [path.name for path in self.archive.parent.iterdir()] == [self.archive.name]
        return {name: target.read_bytes() for name, target in targets.items()}

    def refuse(self, raw: bytes, *wanted: str, **limits: int) -> str:
        """Extract what must not be: one line that names the archive, and nothing is left."""
        before = {path: path.read_bytes() for path in self.out.iterdir()}
        with pytest.raises(UserError) as caught:
            self.extract(raw, *(wanted or ("de-en/README", "train.tags.de-en.de")), **limits)
        message = str(caught.value)
        assert message.startswith(f"{self.archive}: ") and message.isprintable()
        assert {path: path.read_bytes() for path in self.out.iterdir()} == before
        return message.removeprefix(f"{self.archive}: ")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_formats_and_names(place: Place, kind: str) -> None:
    wanted = ("train.tags.de-en.en", "de-en/train.tags.de-en.de", "empty", "old/README")
    bodies = [NOISE, b"eins\n" * 1000, b"", b"older\n"]
    assert list(place.extract(pack(kind, FILES), *wanted).values()) == bodies
    # Again: what is there is replaced.
    assert list(place.extract(pack(kind, FILES), *wanted).values()) == bodies


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_and_odd_ones(place: Place, form: int) -> None:
    deep = "/".join(["a" * 90] * 4)
    entries: list[Entry] = [(f"./{deep}/tür.de", b"1"), (deep, b"2"), ("./x/.//y.de", b"3")]
    assert place.extract(tar(entries, form), "tür.de", "x/y.de") == {"tür.de": b"1", "x/y.de": b"3"}


def test_more_than_one_read(place: Place) -> None:
    """Members and paddings around the sizes at which reads begin anew, in one stream."""
    sizes = [0, 1, 511, 512, 513, (1 << 20) - 512, (1 << 20), (1 << 20) + 1, 5_000_000]
    entries: list[Entry] = [(f"{size}.txt", bytes([65 + n % 9]) * size) for n, size in enumerate(sizes)]
    for raw in (tar(entries), gzip.compress(tar(entries), 1)):
        got = place.extract(raw, *(str(name) for name, _ in entries), most_bytes=5_000_000)
        assert list(got.values()) == [body for _, body in entries]


def test_packed_in_parts_and_padded(place: Place) -> None:
    raw = tar(FILES)
    parts = gzip.compress(raw[:5000]) + gzip.compress(raw[5000:] + bytes(20_000))
    assert place.extract(parts, "de-en/README") == {"de-en/README": b"read me\n"}


def test_a_folder_of_the_wanted_name_is_not_it(place: Place) -> None:
    entries: list[Entry] = [(info("x/README", type=tarfile.DIRTYPE), b""), *FILES[:1]]
    assert place.extract(tar(entries), "README") == {"README": b"read me\n"}
    assert place.extract(zipped([("x/README/", b""), *FILES[:1]]), "README") == {"README": b"read me\n"}


HOSTILE: dict[str, tuple[Entry, str]] = {
    "absolute": (("/etc/passwd", b"x"), "entry '/etc/passwd' has an absolute path"),
    "up": (("de-en/../../x", b"x"), "entry 'de-en/../../x' leads out of its folder"),
    "only up": (("..", b"x"), "entry '..' leads out"),
    "backslash": (("de-en\\..\\x", b"x"), "entry 'de-en\\\\..\\\\x' leads out of its folder"),
    "drive": (("C:\\x", b"x"), "entry 'C:\\\\x' has an absolute path"),
    "newline": (("de-en/a\nb", b"x"), "entry 'de-en/a\\nb' has control characters"),
    "escape": (("de-en/a\x1b[2J", b"x"), "entry 'de-en/a\\x1b[2J' has control characters"),
    "link": ((info("a", type=tarfile.SYMTYPE, linkname="README"), b""), "entry 'a' is a symbolic link"),
    "hard link": ((info("a", type=tarfile.LNKTYPE, linkname="de-en/README"), b""), "entry 'a' is a hard link"),
    "pipe": ((info("a", type=tarfile.FIFOTYPE), b""), "entry 'a' is neither file nor folder"),
    "character device": ((info("a", type=tarfile.CHRTYPE), b""), "entry 'a' is neither file nor folder"),
    "block device": ((info("a", type=tarfile.BLKTYPE), b""), "entry 'a' is neither file nor folder"),
    "unknown": ((info("a", type=b"Z"), b""), "entry 'a' is neither file nor folder"),
    "large": (("a", bytes(100_001)), "entry 'a' has 100,001 bytes, over 100,000"),
}


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_tar(place: Place, kind: str, last: bool) -> None:
    """Also behind everything that is wanted."""
    entry, words = HOSTILE[kind]
    message = place.refuse(gzip.compress(tar([*FILES, entry] if last else [entry, *FILES])))
    assert message.startswith(f"is not safe to unpack: {words}"), message


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("kind", [kind for kind, (entry, _) in HOSTILE.items() if isinstance(entry[0], str)])
def test_hostile_zip(place: Place, kind: str, last: bool) -> None:
    entry, words = HOSTILE[kind]
    message = place.refuse(zipped([*FILES, entry] if last else [entry, *FILES]))
    assert message.startswith("is not safe to unpack: ") and words in message, message


@pytest.mark.parametrize(
    ("mode", "words"), [(stat.S_IFLNK, "a symbolic link"), (stat.S_IFIFO, "no plain file"), (stat.S_IFBLK, "no plain")]
)
def test_hostile_zip_kinds(place: Place, mode: int, words: str) -> None:
    odd = zipfile.ZipInfo("de-en/odd")
    odd.create_system, odd.external_attr = 3, (mode | 0o777) << 16
    message = place.refuse(zipped([*FILES, (odd, b"/etc/passwd")]))  # type: ignore[list-item]
    assert message.startswith(f"is not safe to unpack: entry 'de-en/odd' is {words}")


def test_nul_in_names(place: Place) -> None:
    """A name that looks different to whoever stops at the NUL."""
    raw = zipped([*FILES, ("de-en/xREADME", b"evil")]).replace(b"de-en/xREADME", b"de-en/\0README")
    assert "entry 'de-en/\\x00README' has control characters" in place.refuse(raw)
    pax = tar([(info("a", pax_headers={"path": "de-en/README\0x"}), b"")], tarfile.PAX_FORMAT)
    assert "control characters" in place.refuse(pax)


def test_sparse(place: Place) -> None:
    """A few bytes that stand for a huge file."""
    headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": "5000", "GNU.sparse.numblocks": "1"}
    raw = tar([(info("README", 1, pax_headers=headers), b"x")], tarfile.PAX_FORMAT)
    assert "entry 'README' is neither file nor folder" in place.refuse(raw, "README")
    headers["GNU.sparse.map"] = "not,numbers"
    raw = tar([(info("README", 1, pax_headers=headers), b"x")], tarfile.PAX_FORMAT)
    assert "is damaged" in place.refuse(raw, "README")


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    return info(name, size, type=kind).tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (header("bomb", 1 << 40), "entry 'bomb' has 1,099,511,627,776 bytes, over 100,000"),
        (header("de-en/README", 1 << 40), "entry 'de-en/README' has 1,099,511,627,776 bytes"),
        (header("x", 50 << 20, tarfile.XHDTYPE) + bytes(50 << 20), "over 2,097,152 bytes that belong to no entry"),
        (header("x", 50 << 20, tarfile.GNUTYPE_LONGNAME) + bytes(50 << 20), "over 2,097,152 bytes that belong to"),
        (header("x", 1 << 40, tarfile.XGLTYPE) + bytes(50 << 20), "over 2,097,152 bytes that belong to no entry"),
        (tar(FILES) + bytes(50 << 20), "over 2,097,152 bytes that belong to no entry"),
        (header("x", -1), "entry 'x' has -1 bytes"),
    ],
    ids=["declared", "declared and wanted", "pax", "long name", "pax for all", "behind the end", "negative"],
)
@pytest.mark.parametrize("packer", [bytes, lambda raw: gzip.compress(raw, 1)], ids=["plain", "packed"])
def test_tar_bombs(place: Place, packer: Callable[[bytes], bytes], raw: bytes, words: str) -> None:
    packed = packer(raw)
    tracemalloc.start()
    try:
        assert words in place.refuse(packed)
        assert tracemalloc.get_traced_memory()[1] - len(packed) < 16 << 20
    finally:
        tracemalloc.stop()


def test_zip_bomb_that_understates_its_size(place: Place) -> None:
    body = bytes(5_000_000)
    raw = zipped([("de-en/README", body)])
    honest, lie = (size.to_bytes(4, "little") for size in (len(body), 1000))
    assert raw.count(honest) == 2
    message = place.refuse(raw, "README", most_bytes=2_000_000)
    assert "entry 'de-en/README' has 5,000,000 bytes, over 2,000,000" in message
    message = place.refuse(raw.replace(honest, lie), "README", most_bytes=2_000_000)
    assert message.startswith("is damaged or cut short (Bad CRC-32")


def test_zip_that_overstates_a_size(place: Place) -> None:
    raw = zipped([("de-en/README", bytes(1000))])
    honest, lie = (size.to_bytes(4, "little") for size in (1000, 1500))
    assert raw.count(honest) == 2
    assert "(de-en/README ends after 1,000 of 1,500 bytes)" in place.refuse(raw.replace(honest, lie), "README")


def test_many_folders(place: Place) -> None:
    """What is said of entries is bounded for each, not for all of them."""
    entries: list[Entry] = [(info(f"{n}", type=tarfile.DIRTYPE), b"") for n in range(5000)]
    assert place.extract(tar([*entries, *FILES]), "empty", most_entries=5010) == {"empty": b""}


@pytest.mark.parametrize("kind", KINDS)
def test_too_many_entries(place: Place, kind: str) -> None:
    raw = pack(kind, FILES)
    place.extract(raw, "de-en/README", most_entries=len(FILES) + 1)
    assert "not safe to unpack: more than 6 entries" in place.refuse(raw, most_entries=len(FILES))


@pytest.mark.parametrize("kind", KINDS)
def test_missing_and_twice(place: Place, kind: str) -> None:
    raw = pack(kind, FILES)
    message = place.refuse(raw, "de-en/README", "de-en/none.de", "en/README", "none.en")
    assert message.startswith("holds no de-en/none.de, en/README, none.en: ")
    assert "'de-en/README' and 'de-en/old/README' both are README" in place.refuse(raw, "README")
    for both in (("README", "de-en/README"), ("de-en/README", "README")):  # the longer name knows its entry best
        assert place.extract(raw, *both) == {"README": b"older\n", "de-en/README": b"read me\n"}
    twice = pack(kind, [*FILES, ("./de-en/README", b"other")])
    assert "'de-en/README' and './de-en/README' both are de-en/README" in place.refuse(twice, "de-en/README")


@pytest.mark.parametrize("kind", KINDS)
def test_cut_short(place: Place, kind: str) -> None:
    raw = pack(kind, FILES)
    # A plain tar ends with zeros of which one block is enough; all others need their last byte.
    end = len(tar(FILES).rstrip(b"\0")) // 512 * 512 + 512 if kind == "tar" else len(raw)
    cuts = {1, 2, 5, 20, 100, 511, 512, 513, 1024, 5000, 10_240, end - 1000, end - 512, end - 8, end - 1}
    for cut in sorted(cut for cut in cuts if 0 < cut < end):
        message = place.refuse(raw[:cut])
        assert message.startswith("is damaged or cut short ("), (cut, message)
        assert message.endswith("): fetch it again")


@pytest.mark.parametrize("kind", KINDS)
def test_flipped_bytes(place: Place, kind: str) -> None:
    """Never anything but a UserError; and with a checksum over all, never a file."""
    raw = pack(kind, FILES)
    draw = random.Random(2)
    for at in [*range(0, 600, 13), *(draw.randrange(len(raw)) for _ in range(40))]:
        spoilt = raw[:at] + bytes([raw[at] ^ (1 << draw.randrange(8))]) + raw[at + 1 :]
        try:
            got = place.extract(spoilt, "train.tags.de-en.en")
        except UserError as error:
            assert "\n" not in str(error)
            assert {path.name for path in place.out.iterdir()} <= {"0.txt"}
        else:
            # A plain tar has no checksum over its bodies.
            assert kind == "tar" or got == {"train.tags.de-en.en": NOISE}, at


def test_a_header_damaged_midway_is_not_the_end(place: Place) -> None:
    """tarfile stops at one without a word; what is wanted may have come before."""
    raw = tar(FILES)
    at = raw.rindex(b"de-en/old/README")
    message = place.refuse(raw[:at] + b"X" + raw[at + 1 :], "de-en/README")
    assert message.startswith("is damaged or cut short (unexpected end)")


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "empty file"),
        (b"<!DOCTYPE html><p>moved", ""),
        (NOISE, ""),
        (gzip.compress(NOISE), ""),
        (gzip.compress(b""), ""),
        (b"PK\3\4" + NOISE, "File is not a zip file"),
        (zipped(FILES)[:20] + zipped(FILES)[200:], ""),
        (zipped([*FILES, ("nameless", b"x")]).replace(b"nameless", b"\0ameless"), ""),
        (gzip.compress(tar(FILES))[:-8] + bytes(8), "CRC check failed"),
        (gzip.compress(tar(FILES)) + b"tail", ""),
        (b"\x1f\x8b\x08\0" + NOISE, ""),
        (b"BZh9" + NOISE, "Invalid data stream"),
        (b"\xfd7zXZ\0" + NOISE, ""),
        ((header("x", 0, tarfile.XHDTYPE)) * 3000, ""),
    ],
)
def test_no_archive(place: Place, raw: bytes, words: str) -> None:
    message = place.refuse(raw)
    assert message.startswith(f"is damaged or cut short ({words}") and "()" not in message


def test_locked_zip(place: Place) -> None:
    raw = bytearray(zipped(FILES[:1]))
    at = raw.rindex(b"PK\1\2")  # the last entry of the directory; its flags are at byte 8
    raw[at + 8] |= 1
    assert place.refuse(bytes(raw)).startswith("is damaged or cut short (de-en/README is locked with a password)")


def test_zip_in_an_unknown_packing(place: Place) -> None:
    raw = bytearray(zipped(FILES[:1]))
    for mark, offset in ((b"PK\1\2", 10), (b"PK\3\4", 8)):
        raw[raw.rindex(mark) + offset] = 77
    assert "damaged" in place.refuse(bytes(raw))


def test_unreadable(place: Place) -> None:
    for path in (place.archive, place.archive.parent):
        with pytest.raises(UserError, match=rf"^{path}: cannot be read \("):
            extract(path, {"x": place.out / "x"}, most_bytes=1, most_entries=1)


def test_unwritable(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.archive.write_bytes(pack("tar.gz", FILES))
    with pytest.raises(UserError, match=r"none/x: cannot be written \(No such file or directory\)"):
        extract(place.archive, {"de-en/README": place.out / "none" / "x"}, most_bytes=99_999, most_entries=99)
    real, calls = os.replace, []

    def full(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target)

    monkeypatch.setattr(archives.os, "replace", full)
    targets = {"de-en/README": place.out / "a", "empty": place.out / "b", "train.tags.de-en.en": place.out / "c"}
    with pytest.raises(UserError, match=r"out/c: cannot be written \(No space left on device\)"):
        extract(place.archive, targets, most_bytes=99_999, most_entries=99)
    assert list(place.out.iterdir()) == [] and len(calls) == 2


def test_interrupted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(archives.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        place.extract(pack("tar.gz", FILES), "de-en/README")
    assert list(place.out.iterdir()) == []


def test_other_damage_of_the_checksum(place: Place) -> None:
    """The checksum of gzip is behind the last file; a stream that is only read as far as needed would miss it."""
    raw = bytearray(gzip.compress(tar(FILES)))
    assert int.from_bytes(raw[-8:-4], "little") == zlib.crc32(tar(FILES))
    raw[-5] ^= 1
    assert "CRC" in place.refuse(bytes(raw), "de-en/README")


def put(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(path.encode())


def test_find(tmp_path: Path) -> None:
    assert find(tmp_path, "x.de") is None and find(tmp_path / "none", "x.de") is None
    put(tmp_path, "a/x.de.xz", "a/._x.de", "a/xx.de", "x.de/other", "1/2/3/4/5/x.de")
    assert find(tmp_path, "x.de") == tmp_path / "a/x.de.xz"
    put(tmp_path, "z/x.de.gz")
    assert find(tmp_path, "x.de") == tmp_path / "z/x.de.gz"
    put(tmp_path, "1/2/3/4/x.de")
    assert find(tmp_path, "x.de") == tmp_path / "1/2/3/4/x.de"
    assert find(tmp_path / "1/2/3/4/5", "x.de") == tmp_path / "1/2/3/4/5/x.de"


def test_find_two(tmp_path: Path) -> None:
    put(tmp_path, "b/x.de", "a/x.de")
    with pytest.raises(UserError, match=rf"^{tmp_path}: a/x\.de and b/x\.de differ"):
        find(tmp_path, "x.de")
    for path in ("a/x.de", "b/x.de"):  # the same size and time
        os.utime(tmp_path / path, (1, 1))
    with pytest.raises(UserError, match="differ"):
        find(tmp_path, "x.de")
    (tmp_path / "b/x.de").write_bytes((tmp_path / "a/x.de").read_bytes())
    assert find(tmp_path, "x.de") == tmp_path / "a/x.de"
    put(tmp_path, "a/y.gz", "b/y.gz")
    with pytest.raises(UserError, match="differ"):
        find(tmp_path, "y")


def test_find_and_links(tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    put(folder, "real/x.de")
    put(outside, "u.de", "y.de")
    (folder / "b").symlink_to(folder)
    (folder / "y.de").symlink_to(outside / "y.de")
    (folder / "z.de").symlink_to("real/x.de")
    (folder / "w.de").symlink_to("w.de")
    (folder / "real" / "c").symlink_to(folder / "real")
    assert find(folder, "x.de") == folder / "real/x.de"
    (folder / "store").symlink_to(outside)
    assert find(folder, "y.de") == folder / "y.de" and find(folder, "w.de") is None
    assert find(folder, "u.de") == folder / "store/u.de"
    assert find(folder, "z.de") == folder / "z.de"
    (tmp_path / "link").symlink_to(folder)
    assert find(tmp_path / "link", "x.de") == tmp_path / "link/real/x.de"
