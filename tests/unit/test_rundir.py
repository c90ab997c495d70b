"""The run folder's files: whole or absent, valid JSON, and readable after a kill."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from fakes import disk

from lnexp import rundir
from lnexp.errors import UserError


def row(updates: int, **more: object) -> rundir.Row:
    return {"split": "train", "updates": updates, "loss_bits": 7.5, **more}


def written(folder: Path, *rows: rundir.Row) -> Path:
    file = rundir.RowFile(folder)
    for r in rows:
        file.write(r)
    file.close()
    return folder / "metrics.jsonl"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    path = tmp_path / "status.json"
    rundir.write_text(path, "old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="disk full"):
        rundir.write_text(path, "new and longer")
    assert path.read_text() == "old"


@pytest.mark.parametrize("line", ["garbage{", "[1]", "{}", '{"updates": 1}', "\0"])
def test_a_line_that_is_no_row_is_named(tmp_path: Path, line: str) -> None:
    path = written(tmp_path, row(1), row(2))
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    for read in (lambda: list(rundir.rows(tmp_path)), lambda: rundir.cut_rows(tmp_path, 1)):
        with pytest.raises(UserError, match=r"metrics\.jsonl, line 3: not a row of JSON; delete this line"):
            read()
    assert path.read_text(encoding="utf-8").count("\n") == 3


def test_a_write_leaves_nothing_beside_it(tmp_path: Path) -> None:
    rundir.write_text(tmp_path / "a.txt", "grün\n")
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_bytes() == "grün\n".encode()


def test_rows_are_on_disk_before_the_file_is_closed(tmp_path: Path) -> None:
    file = rundir.RowFile(tmp_path)
    file.write(row(1))
    assert list(rundir.rows(tmp_path)) == [row(1)]
    file.close()


@pytest.mark.parametrize("torn", ['{"split": "train", "upd', '{"split": "train", "updates": 3}', "\0\0\0"])
def test_a_torn_last_line_is_passed_over_and_cut_on_reopening(tmp_path: Path, torn: str) -> None:
    path = written(tmp_path, row(1), row(2))
    with open(path, "ab") as file:
        file.write(torn.encode("utf-8"))
    assert list(rundir.rows(tmp_path)) == [row(1), row(2)]
    written(tmp_path, row(3))
    assert list(rundir.rows(tmp_path)) == [row(1), row(2), row(3)]
    assert len(path.read_text().splitlines()) == 3


def test_non_finite_numbers_are_strings_on_disk_and_numbers_again(tmp_path: Path) -> None:
    path = written(tmp_path, row(1, gnorm=math.inf, lr=-math.inf, nll_bits=math.nan, bleu=None))
    strict = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert (strict["gnorm"], strict["lr"], strict["nll_bits"], strict["bleu"]) == ("inf", "-inf", "nan", None)
    (back,) = rundir.rows(tmp_path)
    assert back["gnorm"] == math.inf and back["lr"] == -math.inf and math.isnan(back["nll_bits"])


def test_non_finite_numbers_in_depth(tmp_path: Path) -> None:
    rundir.write_json(tmp_path / "a.json", {"x": [1.0, (math.nan,)], "y": {"z": -math.inf}})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": [1.0, ["nan"]], "y": {"z": "-inf"}}


def test_an_unknown_field_is_refused_and_nothing_written(tmp_path: Path) -> None:
    file = rundir.RowFile(tmp_path)
    with pytest.raises(ValueError, match="perplexity"):
        file.write(row(1, perplexity=3.0))
    file.close()
    assert list(rundir.rows(tmp_path)) == []


@pytest.mark.parametrize(("updates", "kept"), [(-1, []), (0, []), (4, [2, 4]), (5, [2, 4]), (9, [2, 4, 6])])
def test_cut_rows(tmp_path: Path, updates: int, kept: list[int]) -> None:
    written(tmp_path, row(2, gnorm=math.inf), row(4), row(6))
    rundir.cut_rows(tmp_path, updates)
    assert [r["updates"] for r in rundir.rows(tmp_path)] == kept
    assert all(r["gnorm"] == math.inf for r in rundir.rows(tmp_path) if r["updates"] == 2)


def test_no_rows_yet(tmp_path: Path) -> None:
    rundir.cut_rows(tmp_path, 3)
    assert list(rundir.rows(tmp_path)) == [] == list(tmp_path.iterdir())


def test_status(tmp_path: Path) -> None:
    assert rundir.read_status(tmp_path) is None
    rundir.write_status(tmp_path, "diverged", 12, 3.14159, "loss not finite")
    want = {"state": "diverged", "updates": 12, "wall_s": 3.142, "reason": "loss not finite"}
    assert rundir.read_status(tmp_path) == want == json.loads((tmp_path / "status.json").read_text())
    with pytest.raises(AssertionError):
        rundir.write_status(tmp_path, "finished", 1, 1.0)


@pytest.mark.parametrize("content", ["", '{"state', "[]", "{}", '{"state": "finished"}', "null"])
def test_a_damaged_status_is_one_line_with_a_mend(tmp_path: Path, content: str) -> None:
    (tmp_path / "status.json").write_text(content)
    with pytest.raises(UserError, match=r"status\.json: .*delete it") as caught:
        rundir.read_status(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_that_could_be_made_is_not_made(tmp_path: Path) -> None:
    assert rundir.check_writable(tmp_path / "a" / "b") == tmp_path
    assert rundir.check_writable(tmp_path) == tmp_path
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["file", "link"])
def test_a_folder_that_could_not_be_made_is_one_line(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    refused = rf"^paths\.outputs: .*/{place}/demo cannot be written \(N.*; set paths.outputs"
    with pytest.raises(UserError, match=refused):
        rundir.check_writable(tmp_path / place / "demo")


def test_a_read_only_place_is_one_line(tmp_path: Path) -> None:
    with (
        disk.read_only(tmp_path),
        pytest.raises(UserError, match=r"cannot be written \(Read-only file system\); set paths"),
    ):
        rundir.check_writable(tmp_path / "demo")
