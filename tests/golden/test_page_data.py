"""What the page gets from long logs, probes, translations and killed runs."""

from __future__ import annotations

import base64
import hashlib
import re
from itertools import pairwise
from pathlib import Path

import fake_outputs
import pytest

from lnexp.guard import lock
from lnexp.report import content, curves, dashboard, samples
from lnexp.report.collect import collect


def one(folder: Path, **changes: object) -> dict[str, object]:
    fake_outputs.write_run(folder / "run-1", fake_outputs.run("pre", 200, 1), **changes)  # type: ignore[arg-type]
    return content.data(collect(folder))


@pytest.mark.parametrize(("rows", "step"), [(1, 1), (7, 1), (7, 3), (9, 3), (10, 4)])
def test_thinning_keeps_the_last_row_and_even_steps(rows: int, step: int) -> None:
    kept = [row["updates"] for row in curves.every([{"updates": i} for i in range(rows)], step)]
    assert kept[-1] == rows - 1 and kept[0] < step
    assert all(b - a == step for a, b in pairwise(kept))


def test_a_long_log_is_thinned_and_that_is_said(tmp_path: Path) -> None:
    train = [{"split": "train", "updates": i, "epoch": 1.0, "wall_s": i / 9, "loss_bits": 5.0} for i in range(1, 5002)]
    found = one(tmp_path / "s", state="interrupted", metrics=train)
    assert found["thinned"] == 3
    updates = found["runs"][0]["train"]["updates"]  # type: ignore[index]
    assert len(updates) <= 2000 and updates[-1] == 5001


def test_probes(tmp_path: Path) -> None:
    grad = {"decoder.layers.10.fc2": 2.0, "decoder.layers.2.fc2": float("inf"), "decoder.layers.2.fc1": 1.23456789}
    rows = [{"split": "probe", "updates": u, "epoch": 0.0, "wall_s": 1.0, "grad": grad} for u in (0, 100)]
    more = [{"split": "probe", "updates": 7}, {"split": "train", "updates": 1}]
    found = one(tmp_path / "s", state="interrupted", metrics=[*rows, *more])
    assert found["layers"] == ["decoder.layers.2.fc1", "decoder.layers.2.fc2", "decoder.layers.10.fc2"]
    probe = found["runs"][0]["probe"]  # type: ignore[index]
    assert probe["updates"] == [0, 100]
    assert probe["grad"] == [[1.23457, 1.23457], [None, None], [2.0, 2.0]]


def test_translations_are_the_same_lines_everywhere(tmp_path: Path) -> None:
    data = fake_outputs.prepared(tmp_path / "prepared")
    found = one(tmp_path / "s", translations=fake_outputs.sentences("it"), data_folder=data)
    lines = found["samples"]["numbers"]  # type: ignore[index]
    assert lines == [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23]
    for key, speaker in (("source", "the source"), ("reference", "the reference")):
        assert found["samples"][key] == [f"Sentence {i} as {speaker} has it." for i in lines]  # type: ignore[index]
    said = found["runs"][0]["translations"]  # type: ignore[index]
    assert said == {"best checkpoint": [f"Sentence {i} as it has it." for i in lines]}


def test_every_decoding_of_a_run_is_there_under_its_name(tmp_path: Path) -> None:
    """The files' names are those that evaluate.py gives; what is no translation of this split is passed over."""
    files = {"test": "best checkpoint", "test.mean-of-5": "mean of 5",
             "test.beam4-lp0.6": "best checkpoint, beam4-lp0.6", "test.mean-of-5.beam4-lp0.6": "mean of 5, beam4-lp0.6",
             "test.\u202e<b>": "best checkpoint, U+202E<b>",
             "test.short": None, "test.": None, "tests": None, "valid.mean-of-5": None}  # fmt: skip
    run = fake_outputs.write_run(tmp_path / "s" / "run-1", fake_outputs.run("pre", 200, 1))
    for middle, name in files.items():
        lines = fake_outputs.sentences(name or "nobody", 24 if name else 3)
        (run / f"hyp.{middle}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (found,) = content.data(collect(tmp_path / "s"))["runs"]
    names = [name for name in files.values() if name]
    assert list(found["translations"]) == sorted(names)
    assert all(found["translations"][name][-1] == f"Sentence 23 as {name} has it." for name in names)


def test_a_run_may_have_no_translation_but_a_mean_s(tmp_path: Path) -> None:
    for seed in (1, 2):
        run = fake_outputs.write_run(tmp_path / "s" / f"run-{seed}", fake_outputs.run("pre", 200, seed))
    (run / "hyp.test.mean-of-5.txt").write_text("one\ntwo\n")
    found = content.data(collect(tmp_path / "s"))
    assert found["samples"]["numbers"] == [1, 2]
    assert [run["translations"] for run in found["runs"]] == [{}, {"mean of 5": ["one", "two"]}]


@pytest.mark.parametrize("said", [None, []])
def test_without_translations(tmp_path: Path, said: list[str] | None) -> None:
    assert one(tmp_path / "s", translations=said)["samples"] is None


def test_without_the_prepared_data_or_with_another(tmp_path: Path) -> None:
    other = fake_outputs.prepared(tmp_path / "prepared")
    (other / "test.raw.de").write_text("one line\n")
    found = one(tmp_path / "s", translations=fake_outputs.sentences("it"), data_folder=other)
    assert found["samples"]["source"] is None and found["samples"]["reference"]  # type: ignore[index]


def test_line_ends_inside_a_translation_shift_nothing(tmp_path: Path) -> None:
    said = [f"a\u2028b\x0bc\x85 {i}" for i in range(12)]
    found = one(tmp_path / "s", translations=said)
    shown = found["runs"][0]["translations"]["best checkpoint"]  # type: ignore[index]
    assert [text.split()[-1] for text in shown] == [str(i) for i in range(12)]


def test_a_long_sentence_is_cut_in_the_middle(tmp_path: Path) -> None:
    found = one(tmp_path / "s", translations=["x" * 10_000])
    (shown,) = found["runs"][0]["translations"]["best checkpoint"]  # type: ignore[index]
    assert len(shown) == samples.LONGEST + 3 and " … " in shown


def test_a_killed_run_is_no_running_one(tmp_path: Path) -> None:
    sweep = fake_outputs.write_states(tmp_path)
    with lock(sweep / "running-c0ffee"):
        states = {run["name"]: run["state"] for run in content.data(collect(sweep, strict=False))["runs"]}
    assert states["cut-c0ffee"] == "cut" and states["running-c0ffee"] == "running"


def test_the_policy_names_the_code_of_the_page(tmp_path: Path) -> None:
    """A hash of Content Security Policy is the SHA-256 of what stands between the tags, base64."""
    page = dashboard.page(one(tmp_path / "s"))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert "unsafe" not in policy and "connect-src" not in policy
    for tag, name in (("script", "script-src"), ("style", "style-src")):
        texts = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
        assert len(texts) == 2
        hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'" for t in texts]
        assert re.search(rf"{name} ([^;]*)", policy)[1].split() == hashes  # type: ignore[index]


def test_every_file_of_the_page_is_in_it() -> None:
    page = Path(dashboard.__file__).parent / "page"
    listed = {f"{name}.js" for name in dashboard.SCRIPTS} | {f"{name}.css" for name in dashboard.STYLES}
    assert listed == {file.name for file in page.iterdir()}
    assert all(len(file.read_text(encoding="utf-8").splitlines()) <= 200 for file in page.iterdir())
