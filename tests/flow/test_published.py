"""IWSLT14 and WMT14 from archives of the real layout to scores, offline; and what the recipes do to text, in small."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest
from fakes import archives
from fakes.http_server import Reply, Server

from lnexp.cli import main
from lnexp.config import Data
from lnexp.data import published
from lnexp.data.fetch import Remote
from lnexp.data.prepare import Prepared, prepare
from lnexp.data.published import Bundle, Copy
from lnexp.errors import UserError
from lnexp.launch import plan
from lnexp.rundir import read_json

SMALL = ["size=tiny", "track=none", "devices.threads=1", "max_updates=3", "tokens_per_update=400", "decode.beam=2",
         "schedule.warmup_updates=1", "data.bpe_merges=150", "data.standard=false"]  # fmt: skip


def quiet(_: str) -> None:
    """Say nothing."""


@pytest.fixture
def iwslt(tmp_path: Path) -> Path:
    folder = tmp_path / "archives"
    archives.write_tgz(folder / "de-en.tgz", archives.iwslt14())
    return folder


@pytest.fixture
def wmt(tmp_path: Path) -> Path:
    folder = tmp_path / "archives"
    for name, members in archives.wmt14().items():
        archives.write_tgz(folder / name, members)
    return folder


def config(*arguments: str) -> Data:
    return plan([*SMALL, *arguments]).jobs[0].run.data


def prepared(cache: Path, *arguments: str) -> Prepared:
    return prepare(config(*arguments), cache, quiet)


def test_iwslt14_end_to_end(iwslt: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = ["data=iwslt14_deen", f"data.local={iwslt}", *SMALL]
    assert main(["train", *command]) == 0
    run = plan(command).jobs[0].folder
    scores = read_json(run / "scores.json")
    assert {(s["split"], s["metric"], s["n_sentences"]) for s in scores} == {
        (split, metric, n) for split, n in (("valid", 25), ("test", 60)) for metric in ("sacrebleu", "tokenized_bleu")
    }
    assert len((run / "hyp.test.txt").read_text(encoding="utf-8").splitlines()) == 60
    assert read_json(run / "env.json")["data_standard"] is None
    assert main(["table", str(run)]) == 0
    table = capsys.readouterr().out
    assert "not a target for iwslt14_deen (not the standard set)" in table
    assert main(["eval", str(run), "decode=greedy"]) == 0
    capsys.readouterr()


def test_iwslt14_text(iwslt: Path, tmp_path: Path) -> None:
    made = prepared(tmp_path / "cache", "data=iwslt14_deen", f"data.local={iwslt}")
    train = made.manifest["splits"]["train"]
    assert train["read"] == 4 * (150 + 2)  # each talk has its title and description as sentences
    kept = train["pairs"] + made.manifest["splits"]["valid"]["pairs"]
    assert kept == train["read"] - sum(train["dropped"].values()) and set(train["dropped"]) <= {"ratio", "too_long"}
    assert made.manifest["splits"]["valid"]["pairs"] == kept // 23
    # The five sets in the recipe's order; references raw, tokens lower-cased.
    assert made.raw("test", "en") == archives.text("test", "en", 0, 60)
    tokens = made.tokenized("test", "en")
    assert tokens == [line.lower() for line in tokens] != made.raw("test", "en") and len(tokens) == 60


def test_packed_unpacked_nested_and_either_direction_are_the_same(iwslt: Path, tmp_path: Path) -> None:
    members = archives.iwslt14()
    unpacked = tmp_path / "unpacked"
    for name, text in members.items():
        path = unpacked / "deep" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = text.encode()
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(raw)) if "train" in name else path.write_bytes(raw)
    year = tmp_path / "year"
    inner = (iwslt / "de-en.tgz").read_bytes().decode("latin-1")
    archives.write_tgz(year / "2014-01.tgz", {"2014-01/texts/de/en/README": "x"})
    with tarfile.open(year / "2014-01.tgz", "w:gz") as tar:
        info = tarfile.TarInfo("2014-01/texts/de/en/de-en.tgz")
        info.size = len(inner)
        tar.addfile(info, io.BytesIO(inner.encode("latin-1")))
    one = prepared(tmp_path / "1", "data=iwslt14_deen", f"data.local={iwslt}")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "de-en.tgz").symlink_to(iwslt / "de-en.tgz")
    assert prepared(tmp_path / "1", "data=iwslt14_deen", f"data.local={tmp_path / 'linked'}").folder == one.folder
    for number, place in enumerate((unpacked, year)):
        other = prepared(tmp_path / f"other{number}", "data=iwslt14_deen", f"data.local={place}")
        assert other.manifest["files"] == one.manifest["files"] and other.manifest["raw"] == one.manifest["raw"]
    back = prepared(tmp_path / "back", "data=iwslt14_deen", f"data.local={iwslt}", "data.src=en", "data.tgt=de")
    assert back.manifest["files"]["codes.bpe"] == one.manifest["files"]["codes.bpe"]
    assert back.raw("valid", "de") == one.raw("valid", "de")


def test_wmt14_end_to_end(wmt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["data=wmt14_ende", f"data.local={wmt}", *SMALL]
    assert main(["train", *command]) == 0
    scores = read_json(plan(command).jobs[0].folder / "scores.json")
    assert {s["split"]: s["n_sentences"] for s in scores} == {"valid": 20, "test": 20}
    capsys.readouterr()


def test_wmt14_text(wmt: Path, tmp_path: Path) -> None:
    made = prepared(tmp_path / "cache", "data=wmt14_ende", f"data.local={wmt}")
    assert made.manifest["splits"]["train"]["read"] == 900
    # References stay as the sgm has them, entities too; the model's side has straight apostrophes and cut hyphens.
    assert made.raw("test", "de")[0].endswith("– R&amp;D’s &lt;b&gt;de&lt;/b&gt;")
    assert made.tokenized("test", "en")[0].endswith(
        "– R &amp; amp ; D &apos;s &amp; lt ; b &amp; gt ; en &amp; lt ; / b &amp; gt ;"
    )
    assert made.manifest["recipe"]["split_hyphens"] and made.manifest["recipe"]["normalize_punctuation"]


@pytest.mark.parametrize("corpus", ["iwslt14_deen", "wmt14_ende"])
def test_what_is_not_the_standard_set_is_refused(
    corpus: str, iwslt: Path, wmt: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prepare", f"data={corpus}", f"data.local={iwslt}"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "data.standard=false" in error
    assert ("de-en.tgz" in error and "19,982,877" in error) or "europarl" in error


def test_unpacked_files_with_other_counts_are_refused(tmp_path: Path) -> None:
    for name, text in archives.iwslt14().items():
        path = tmp_path / "x" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    data = config("data=iwslt14_deen", f"data.local={tmp_path / 'x'}", "data.standard=true")
    with pytest.raises(UserError, match=r"data=iwslt14_deen: test has 60 pairs, the standard set 6,750: .*standard=fa"):
        prepare(data, tmp_path / "cache", quiet)
    assert not list((tmp_path / "cache").glob(".*.work"))


def test_missing_archives_are_named(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(
        UserError,
        match=r"data\.local=.*missing de-en\.tgz or 2014-01\.tgz \(or unpacked train\.tags.* and 10 more\): put",
    ):
        prepared(tmp_path / "cache", "data=iwslt14_deen", f"data.local={tmp_path / 'none'}")
    with pytest.raises(
        UserError, match=r"missing training-parallel-europarl.*; training-parallel-comm.*; test-full\.tgz"
    ):
        prepared(tmp_path / "cache", "data=wmt14_ende", f"data.local={tmp_path / 'none'}")


def test_a_run_refuses_data_that_came_out_otherwise(iwslt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same raw text and recipe, but another dictionary: as when a library cuts words otherwise after an update."""
    command = ["data=iwslt14_deen", f"data.local={iwslt}", *SMALL]
    assert main(["train", *command]) == 0
    job = plan(command).jobs[0]
    folder = next(Path(job.run.paths.cache).glob("iwslt14_deen-*"))
    manifest = read_json(folder / "manifest.json")
    manifest["files"]["dict.de.txt"]["sha256"] = "0" * 64
    (folder / "manifest.json").write_text(json.dumps(manifest))
    capsys.readouterr()
    assert main(["eval", str(job.folder)]) == 2
    error = capsys.readouterr().err
    assert "trained on data" in error and "changed: dictionary (" in error and "test (" not in error


def hostile(name: str, kind: bytes, link: str = "") -> bytes:
    """An archive of the real layout with one entry that must not be there."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for member, text in archives.iwslt14().items():
            info = tarfile.TarInfo(member)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        tar.addfile(info)
    return packed.getvalue()


BROKEN = {
    "cut": (lambda raw: raw[: len(raw) // 2], "damaged or cut short"),
    "no archive": (lambda _: b"<html>gone</html>" * 99, "damaged or cut short"),
    "empty": (lambda _: b"", "damaged or cut short"),
    "climbs out": (lambda _: hostile("../../evil", tarfile.REGTYPE), "not safe to unpack"),
    "absolute": (lambda _: hostile("/tmp/evil", tarfile.REGTYPE), "not safe to unpack"),
    "link": (lambda _: hostile("de-en/x", tarfile.SYMTYPE, "/etc/passwd"), "not safe to unpack"),
    "hard link": (lambda _: hostile("de-en/x", tarfile.LNKTYPE, "/etc/passwd"), "not safe to unpack"),
    "device": (lambda _: hostile("de-en/x", tarfile.CHRTYPE), "not safe to unpack"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_archive_is_one_line(
    iwslt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    spoil, words = BROKEN[fault]
    path = iwslt / "de-en.tgz"
    path.write_bytes(spoil(path.read_bytes()))
    assert main(["prepare", "data=iwslt14_deen", f"data.local={iwslt}", "data.standard=false"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and words in error and "de-en.tgz" in error
    left = [p for p in (tmp_path / "cache").rglob("*") if p.is_file() and p.suffix != ".lock"]
    assert left == [] and not (tmp_path / "evil").exists() and not Path("/tmp/evil").exists()


def test_from_a_server_cut_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first mirror knows nothing, the second breaks off once; the archive is fetched once and stays."""
    raw = archives.write_tgz(tmp_path / "made" / "de-en.tgz", archives.iwslt14()).read_bytes()
    found = published.CORPORA["iwslt14_deen"]("de", "en")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        server.replies["/b.tgz"] = [Reply(raw, stop_after=9_000), Reply(raw)]
        remote = Remote("de-en.tgz", (server.url("/a.tgz"), server.url("/b.tgz")), len(raw))
        counts = {"read": {"train": 608, "test": 60}, "kept": {}, "codes_sha256": None}
        mine = dataclasses.replace(found, bundles=(Bundle((Copy(remote),), found.bundles[0].files),), **counts)
        monkeypatch.setitem(published.CORPORA, "iwslt14_deen", lambda *_: mine)
        assert main(["prepare", "data=iwslt14_deen", "data.bpe_merges=50"]) == 0
        assert [r for r in server.ranges() if r] == ["bytes=9000-"]
        asked = len(server.asked)
        assert main(["prepare", "data=iwslt14_deen", "data.bpe_merges=60"]) == 0  # another recipe, the same archive
        assert len(server.asked) == asked
    out = capsys.readouterr().out
    assert "/a.tgz: " in out and "404" in out and "CC BY-NC-ND 3.0" in out and "standard set: iwslt14 de-en" in out


ORIGINAL = Path(__file__).parents[3] / "shared" / "data" / "iwslt14-de-en"


@pytest.mark.skipif(not ORIGINAL.is_dir(), reason="the original IWSLT14 sets may not be shipped and are not here")
def test_the_original_sets_come_out_as_the_reference_preparation_makes_them(tmp_path: Path) -> None:
    """dev2010 and TEDX.dev2012, 2,052 lines a side: tokens and, with the published codes, subwords, to the byte."""
    members = archives.iwslt14()
    sets = ("TED.dev2010", "TEDX.dev2012")
    for name in sets:
        for lang in ("de", "en"):
            file = f"IWSLT14.{name}.de-en.{lang}.xml"
            members[f"de-en/{file}"] = (ORIGINAL / "orig" / file).read_text(encoding="utf-8")
    archives.write_tgz(tmp_path / "archives" / "de-en.tgz", members)
    codes = ORIGINAL / "expected" / "bpe10k.codes"
    made = prepared(
        tmp_path / "cache", "data=iwslt14_deen", f"data.local={tmp_path / 'archives'}", f"data.codes={codes}"
    )
    for lang in ("de", "en"):
        expected = b"".join((ORIGINAL / "expected" / f"IWSLT14.{name}.de-en.{lang}").read_bytes() for name in sets)
        assert expected.count(b"\n") == 2052
        assert (made.folder / f"test.tok.{lang}").read_bytes().startswith(expected)
        subwords = (ORIGINAL / "expected" / f"dev2010+dev2012.bpe10k.{lang}").read_bytes()
        assert (made.folder / f"test.sub.{lang}").read_bytes().startswith(subwords)
