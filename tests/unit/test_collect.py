"""Run folders read, grouped and guarded: intervals, missing runs, damage, columns that may not be mixed."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "golden"))
import fake_outputs as fake

from lnexp.cli import main
from lnexp.errors import UserError
from lnexp.report import dashboard, live, table
from lnexp.report.collect import collect, find, flatten, nested
from lnexp.report.column import column
from lnexp.report.frozen import read_config
from lnexp.report.group import factors, group
from lnexp.report.interval import Sample, t_quantile


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    return fake.write_demo(tmp_path / "outputs")


def one(sweep: Path, name: str = "a", norm: str = "post", warmup: int = 200, seed: int = 1, **changes: object) -> Path:
    """Write one small done run."""
    scores = [fake.score(20.0, **changes)]
    return fake.write_run(
        sweep / name, fake.run(norm, warmup, seed), metrics=fake.rows(norm, warmup, seed, 300), scores=scores
    )


# ---- PATH ----
def test_find_takes_run_sweep_and_name(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(demo.parents[1])
    assert find("demo") == Path("outputs/demo")
    assert find("outputs/demo") == Path("outputs/demo")
    assert find(demo) == demo
    assert len(collect(next(demo.glob("pre_ln-*")))) == 1
    assert len(collect("outputs")) == 8  # all sweeps, and what they lack


def test_find_says_what_is_wrong(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(demo.parents[1])
    with pytest.raises(UserError, match=r"^nosuch: no such folder; outputs/ has demo$"):
        find("nosuch")
    Path("empty").mkdir()
    with pytest.raises(UserError, match=r"^empty: no runs here \(no config.yaml below it\)$"):
        find("empty")
    with pytest.raises(UserError, match=r"^outputs/demo/sweep.json: not a folder"):
        find("outputs/demo/sweep.json")
    monkeypatch.chdir("empty")
    with pytest.raises(UserError, match="nothing lies under outputs/ yet"):
        find("demo")


# ---- groups ----
def test_groups_are_configs_minus_seed(demo: Path) -> None:
    groups = group(collect(demo))
    assert [(g.flat["model.norm"], g.flat["schedule.warmup_updates"]) for g in groups] == [
        ("post", 0), ("post", 200), ("pre", 0), ("pre", 200),
    ]  # fmt: skip
    assert [g.states for g in groups] == [
        {"done": 1, "diverged": 1},
        {"done": 2},
        {"done": 2},
        {"done": 1, "missing": 1},
    ]
    assert groups[0].seeds == [1, 2]
    assert factors([g.flat for g in groups]) == ["model.norm", "schedule.warmup_updates"]


def computed_in(folder: Path, ran: str | None, asked: str = "fp32") -> None:
    """Have a run say which precision it ran in; None = it never came to that."""
    config, env = folder / "config.yaml", folder / "env.json"
    before = "precision: fp32\n  max_tokens:"  # that of the training, not of decode
    assert before in config.read_text()
    config.write_text(config.read_text().replace(before, before.replace("fp32", asked)))
    found = json.loads(env.read_text())
    env.write_text(json.dumps(found | {"precision": ran}) if ran else "{}")


def test_runs_of_different_precision_are_never_averaged(tmp_path: Path) -> None:
    """Asked for alike, computed differently: two machines, "auto"."""
    for name, seed, ran in (("a", 1, "fp32"), ("b", 2, "fp32"), ("c", 1, "bf16")):
        computed_in(one(tmp_path / "s", name, seed=seed), ran, "auto")
    results = collect(tmp_path / "s")
    assert [(g.flat["devices.precision"], len(g.runs)) for g in group(results)] == [("bf16", 1), ("fp32", 2)]
    text = table.render(results)
    assert "| precision" in text and "| bf16" in text and "Computed in" not in text


def test_precision_is_a_note_where_all_runs_share_it(tmp_path: Path) -> None:
    """And a run that failed before it was known joins the others of its kind."""
    computed_in(one(tmp_path / "s", "a", seed=1), "bf16", "auto")
    computed_in(fake.write_run(tmp_path / "s" / "b", fake.run("post", 200, 2), "failed"), None, "auto")
    results = collect(tmp_path / "s")
    assert [len(g.runs) for g in group(results)] == [2]
    assert "- Computed in bf16." in table.render(results) and "| precision" not in table.render(results)


def test_asked_for_by_name_and_found_by_auto_are_one_row(tmp_path: Path) -> None:
    computed_in(one(tmp_path / "s", "a", seed=1), "bf16", "bf16")
    computed_in(one(tmp_path / "s", "b", seed=2), "bf16", "auto")
    (row,) = group(collect(tmp_path / "s"))
    assert (row.flat["devices.precision"], row.seeds) == ("bf16", [1, 2])


# ---- one seed, one sample ----
def test_a_seed_counts_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Trained twice under two names: n = 2, and the one that is left out is named."""
    for name, seed, value in (("a", 1, 20.0), ("b", 1, 30.0), ("c", 2, 22.0)):
        one(tmp_path / "s", name, seed=seed)
        (tmp_path / "s" / name / "scores.json").write_text(json.dumps([fake.score(value)]))
    (row,) = table.build(collect(tmp_path / "s"))["rows"]
    assert (row["bleu"]["n"], row["bleu"]["mean"], row["runs"]) == (2, 21.0, ["a", "c"])
    assert main(["table", str(tmp_path / "s")]) == 0
    line = f"lnexp table: left out: {tmp_path}/s/b: the configuration and seed of {tmp_path}/s/a once more\n"
    assert capsys.readouterr().err == line


def test_of_two_folders_with_one_id_one_counts(tmp_path: Path) -> None:
    """Two sweeps that share a run, looked at together."""
    for sweep in ("s", "t"):
        one(tmp_path / sweep, "pre-w200-00c0ffee")
    (only,) = group(collect(tmp_path))
    assert [run.folder for run in only.runs] == [tmp_path / "s" / "pre-w200-00c0ffee"] and len(only.twins) == 1


@pytest.mark.parametrize(
    ("first", "second", "stands"),
    [("running", "done", "b"), ("failed", "diverged", "b"), ("diverged", "done", "a"), ("done", "diverged", "a")],
)
def test_of_twins_one_that_has_ended_stands_whatever_came_of_it(
    tmp_path: Path, first: str, second: str, stands: str
) -> None:
    for name, state in (("a", first), ("b", second)):
        fake.write_run(tmp_path / "s" / name, fake.run("post", 200, 1), state)
    (only,) = group(collect(tmp_path / "s"))
    assert [run.name for run in only.runs] == [stands]


# ---- time and memory ----
def test_costs_of_a_group(tmp_path: Path) -> None:
    """Sums over runs: 100 s and 300 s, 60 of them and 120 in training, 6,000 and 24,000 tokens."""
    parts = {"forward": 40.0, "data": 20.0, "decoding": 40.0}, {"forward": 100.0, "data": 20.0, "startup": 180.0}
    for seed, part, tokens, peak in ((1, parts[0], 6000, 500.0), (2, parts[1], 24000, 400.0)):
        run = one(tmp_path / "s", str(seed), seed=seed)
        (run / "timing.json").write_text(
            json.dumps({"parts": part, "target_tokens": tokens, "peak_rss_mib": peak, "peak_device_mib": 2000.4})
        )
    (row,) = table.build(collect(tmp_path / "s"))["rows"]
    assert row["costs"] == {
        "runs": 2, "tokens_per_s": 166.7, "wall_s": 200.0, "peak_rss_mib": 500.0, "peak_device_mib": 2000.4,
        "share": {"forward": 0.35, "data": 0.1, "decoding": 0.1, "startup": 0.45},
    }  # fmt: skip
    text = table.render(collect(tmp_path / "s"))
    assert "| GPU memory |" in text and "2,000 MiB" in text and "| 55.0% |" in text


@pytest.mark.parametrize("content", ["{", "[]", '{"parts": 3}', '{"parts": {"forward": "x"}}'])
def test_a_spoilt_record_of_time(demo: Path, content: str) -> None:
    """No JSON makes the run damaged; JSON without sense counts as no record."""
    run = next(demo.glob("pre_ln-warmup0-21*"))
    (run / "timing.json").write_text(content)
    if content in ("{", "[]"):
        assert "1 damaged" in table.render(collect(demo))
        dashboard.write(demo)
        assert '"state":"damaged"' in (demo / "dashboard.html").read_text()
    else:
        assert "Where the time went" in table.render(collect(demo))


def test_a_config_older_than_a_field_has_its_neutral_value(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        one(tmp_path / "s", name, seed=seed)
    file = tmp_path / "s" / "a" / "config.yaml"
    file.write_text(file.read_text().replace("  clip_norm: 0.0\n", ""))
    assert len(group(collect(tmp_path / "s"))) == 1


def test_a_missing_configuration_is_told_from_its_overrides(demo: Path) -> None:
    for run in demo.glob("pre_ln-warmup200-*"):
        shutil.rmtree(run)
    groups = group(collect(demo))
    assert groups[-1].states == {"missing": 2}
    assert (groups[-1].flat["model.norm"], groups[-1].flat["schedule.warmup_updates"]) == ("pre", 200)
    assert factors([g.flat for g in groups]) == ["model.norm", "schedule.warmup_updates"]


def test_a_missing_configuration_is_not_guessed_beyond_its_overrides(demo: Path) -> None:
    content = json.loads((demo / "sweep.json").read_text())
    content["wanted"] += [
        {"folder": "x-00", "overrides": ["size=tiny"]},
        {"folder": "y-00", "overrides": []},
        {"folder": "z-00"},
    ]
    (demo / "sweep.json").write_text(json.dumps(content))
    groups = [g for g in group(collect(demo)) if g.runs[0].name[1:] == "-00"]
    assert [g.flat for g in groups] == [{}, {}, {}]
    assert "missing" in table.render(collect(demo))


def test_wanted_folders_stay_inside_the_sweep(demo: Path) -> None:
    (demo / "sweep.json").write_text(
        json.dumps({"sweep": "demo", "wanted": [{"folder": "../../etc", "overrides": []}]})
    )
    assert all(r.folder.parent == demo for r in collect(demo))


def test_configs_are_read_in_parts_as_they_are_read_whole(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    shared = [1, 2]
    always = "model: {norm: post}\noptim: {lr: 1}\nschedule: {warmup_updates: 0}\nseed: 1\n"
    texts = [
        always
        + yaml.safe_dump(
            {"a": {"b": shared}, "c": shared, "d": "x\ny: 1\n", "e": "q" * 300, "f": None}, sort_keys=False
        ),
        always + "a: |\n  b: 1\n\n  c: 2\nd: 'x\n\n  e: 3'\n",
        f"---\n{always}a: 1\n# a comment\nb: [1,\n  2]\n",
        f"{{a: 1, b: {{c: 2}}, {always.strip().replace(chr(10), ', ')}}}\n",
    ]
    for index, text in enumerate(texts):
        (tmp_path / str(index)).write_text(text)
        assert read_config(tmp_path / str(index)) == yaml.safe_load(text)


def test_flatten_and_back() -> None:
    tree = {"a": {"b": {"c": 1}, "d": [1, 2]}, "e": None}
    assert nested(flatten(tree)) == tree


# ---- statistics ----
@pytest.mark.parametrize(("df", "value"), [(1, 12.706), (2, 4.303), (3, 3.182), (9, 2.262), (30, 2.042), (1000, 1.962)])
def test_student_t(df: int, value: float) -> None:
    assert round(t_quantile(df), 3) == value


def test_student_t_against_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for df in range(1, 60):
        assert math.isclose(t_quantile(df), stats.t.ppf(0.975, df), rel_tol=1e-9)
    values = (31.2, 30.7, 29.9, 31.5)
    low, high = stats.t.interval(0.95, 3, loc=Sample(values).mean, scale=stats.sem(values))
    assert math.isclose(Sample(values).half_width or 0, (high - low) / 2, rel_tol=1e-9)


def test_one_seed_has_no_interval(demo: Path) -> None:
    assert Sample((3.0,)).sd is None and Sample((3.0,)).half_width is None
    row = table.build(collect(demo))["rows"][-1]
    assert row["bleu"]["n"] == 1 and row["bleu"]["half_width"] is None
    assert "31.94 (n=1)" in table.render(collect(demo))


# ---- columns ----
@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"data": "other"}, "data fingerprint '5f0c2a9be1d4' against 'other'"),
        ({"signature": "nrefs:1|case:lc"}, "signature"),
        ({"split": "valid"}, "split 'test' against 'valid'"),
        ({"decode": "greedy"}, "decode 'beam5-lp1.2' against 'greedy'"),
        ({"checkpoint": "last"}, "checkpoint 'best' against 'last'"),
        ({"n_sentences": 999}, "number of sentences 1000 against 999"),
    ],
)
def test_a_column_does_not_mix(tmp_path: Path, change: dict[str, object], word: str) -> None:
    one(tmp_path / "s", "first")
    one(tmp_path / "s", "second", norm="pre", **change)
    with pytest.raises(UserError) as raised:
        table.render(collect(tmp_path / "s"))
    assert str(raised.value).startswith("first and second cannot stand in one column: ")
    assert word in str(raised.value)


def test_losses_of_two_data_sets_do_not_mix_either(tmp_path: Path) -> None:
    for name, fingerprint in (("a", "one"), ("b", "two")):
        fake.write_run(tmp_path / "s" / name, fake.run("post", 0, 1), "failed", fingerprint=fingerprint)
    with pytest.raises(UserError, match="a and b cannot stand in one column: data fingerprint 'one' against 'two'"):
        table.render(collect(tmp_path / "s"))


def test_a_second_way_of_decoding_is_left_aside(tmp_path: Path) -> None:
    for name, norm in (("a", "post"), ("b", "pre")):
        folder = one(tmp_path / "s", name, norm=norm)
        extra = [fake.score(1.0, decode="greedy")] if name == "b" else []
        (folder / "scores.json").write_text(json.dumps([*extra, fake.score(20.0), fake.score(21.0)]))
    found = column(collect(tmp_path / "s"))
    assert found and found.decode == "beam5-lp1.2"
    assert set(found.values.values()) == {21.0}  # evaluated twice: the later one


def test_a_diverged_run_may_lack_the_score(tmp_path: Path) -> None:
    one(tmp_path / "s", "a")
    fake.write_run(
        tmp_path / "s" / "b", fake.run("post", 0, 1), "diverged", 40, scores=[fake.score(0.1, checkpoint="last")]
    )
    rows = table.build(collect(tmp_path / "s"))["rows"]
    assert rows[0]["bleu"] is None and rows[0]["state"] == "diverged at update 40"


# ---- damage ----
@pytest.mark.parametrize(
    "name", ["status.json", "scores.json", "env.json", "config.yaml", "metrics.jsonl", "sweep.json"]
)
@pytest.mark.parametrize("content", ["{", "[1, 2", '"text"', "\x00\xff: [", "17", '[{"a": 1}]'])
def test_damage_costs_the_damaged_run_alone(
    demo: Path, capsys: pytest.CaptureFixture[str], name: str, content: str
) -> None:
    """Its seed is in no number, its file is named, the rest is the table of the rest; the command ends with 1."""
    before = {row["name"]: row for row in table.build(collect(demo))["rows"]}
    run = demo / "pre_ln-warmup0-21c0ffee"
    file = (demo if name == "sweep.json" else run) / name
    file.write_bytes((content + "\n").encode("latin-1"))
    after = {row["name"]: row for row in table.build(collect(demo))["rows"]}
    hit = before.pop("Pre-LN, no warm-up")
    if name == "sweep.json":  # what was asked for and is missing is then not known
        assert after["Pre-LN, no warm-up"] == hit
    else:
        assert (hit["bleu"]["values"], after["Pre-LN, no warm-up"]["bleu"]["values"]) == ([31.12, 30.71], [30.71])
        assert after["Pre-LN, no warm-up"]["valid_loss_bits"]["n"] == 1
        assert after["Pre-LN, no warm-up"]["state"] == "1 done, 1 damaged"
        assert all(after[other] == row for other, row in before.items())
    for verb in ("table", "figure") if content == "{" else ("table",):
        assert main([verb, str(demo)]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"lnexp {verb}: left out: {file}")
    text = table.status(demo)
    assert "1 damaged" in text and name in text
    page = dashboard.write(demo).read_text()
    assert '"state":"damaged"' in page and ("30.91" in page) == (name == "sweep.json")


def test_where_every_run_is_damaged_there_is_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (one(tmp_path / "s") / "status.json").write_text("{")
    for verb in ("table", "figure"):
        assert main([verb, str(tmp_path / "s")]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"lnexp {verb}: {tmp_path}/s/a/status.json: cannot be read as JSON")


def test_damage_far_from_the_end_of_the_rows(demo: Path) -> None:
    """`status`, which reads the end of long logs alone, sees what the table sees."""
    file = demo / "pre_ln-warmup0-21c0ffee" / "metrics.jsonl"
    first, *rest = file.read_text().splitlines(keepends=True)
    file.write_text("".join([first[:20] + "\n", *rest, *rest, *rest, *rest]))
    assert file.stat().st_size > 2 * live.TAIL
    assert f"{file}, line 1: not a row of JSON; delete this line" in table.status(demo)
    assert "1 damaged" in table.status(demo) and "1 damaged" in table.render(collect(demo))


def test_a_torn_last_row_is_passed_over(demo: Path) -> None:
    with open(demo / "pre_ln-warmup0-21c0ffee" / "metrics.jsonl", "a") as file:
        file.write('{"split": "tra')
    assert "30.91" in table.render(collect(demo))


ABSENT = {
    "scores.json": "holds no score of a run that is done; `lnexp eval ",
    "metrics.jsonl": "is missing of a run that is done; put it back, or delete the folder",
    "config.yaml": "is missing; put it back, or delete the run folder",
    "status.json": "is missing beside metrics.jsonl; the command that trained it goes on",
}


@pytest.mark.parametrize("content", [None, "", "[]"])
@pytest.mark.parametrize("name", ABSENT)
def test_what_a_done_run_has_written_and_is_gone_is_damage(demo: Path, name: str, content: str | None) -> None:
    """Its seed would leave a mean, or stay in it, without a word."""
    file = demo / "pre_ln-warmup0-21c0ffee" / name
    file.unlink()
    if content is not None:
        file.write_text(content)
    (row,) = (r for r in table.build(collect(demo))["rows"] if r["name"] == "Pre-LN, no warm-up")
    assert (row["state"], row["bleu"]["values"]) == ("1 done, 1 damaged", [30.71])
    assert "1 damaged" in table.status(demo)
    if content is None:
        (result,) = (r for r in collect(demo) if r.state == "damaged")
        assert (result.reason or "").startswith(f"{file}: {ABSENT[name]}")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"loss_bits": -4.0}, "valid loss_bits -4.0 at update 300"),
        ({"loss_bits": "x"}, "valid loss_bits 'x' at update 300"),
        ({"bleu": 400}, "valid bleu 400 at update 300"),
        ({"bleu": "30.9"}, "valid bleu '30.9' at update 300"),
        ({"updates": 150}, "ends with a validation at update 150 of 300"),
        ({"updates": "q"}, "ends with a validation at update 150 of 300"),
    ],
)
def test_a_validation_that_is_none_is_damage(tmp_path: Path, row: dict[str, Any], words: str) -> None:
    one(tmp_path / "s", "a")
    file = one(tmp_path / "s", "b", seed=2) / "metrics.jsonl"
    first, last = (json.loads(line) for line in file.read_text().splitlines() if '"valid"' in line)
    file.write_text("".join(json.dumps(each) + "\n" for each in (first, {**last, **row})))
    (damaged,) = (r for r in collect(tmp_path / "s") if r.state == "damaged")
    assert damaged.reason == f"{file}: {words}; put it back, or delete the folder to have the run made again"


@pytest.mark.parametrize(("name", "value"), [("updates", "x"), ("updates", -3), ("updates", 1.5), ("wall_s", "x")])
def test_a_count_that_is_none_is_damage(tmp_path: Path, name: str, value: object) -> None:
    one(tmp_path / "s", "a")
    file = one(tmp_path / "s", "b", seed=2) / "status.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {name: value}))
    (damaged,) = (r for r in collect(tmp_path / "s") if r.state == "damaged")
    assert damaged.reason == f"{file}: {name}: {value!r}: need a number >= 0; put it back as it was"


def test_other_files_may_be_absent(demo: Path) -> None:
    (demo / "pre_ln-warmup0-21c0ffee" / "env.json").unlink()
    assert "Pre-LN" in table.render(collect(demo))
    assert "damaged" not in table.status(demo)
    dashboard.write(demo)


@pytest.mark.parametrize("value", ["24.0", "nan", True, None, -0.1, 100.5, float("nan"), float("inf"), 10**400])
def test_a_score_that_is_no_bleu_is_damage(tmp_path: Path, value: object) -> None:
    one(tmp_path / "s", "a")
    file = one(tmp_path / "s", "b", seed=2) / "scores.json"
    file.write_text(json.dumps([fake.score(20.0), fake.score(20.0, split="valid") | {"value": value}]))
    (damaged,) = (r for r in collect(tmp_path / "s") if r.state == "damaged")
    assert (damaged.reason or "").startswith(f"{file}: a score lacks or misspells value (found ")
    assert "need a BLEU of 0 to 100" in (damaged.reason or "")


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("  lr: 0.0015\n", "  lr: abc\n", "optim.lr: abc: need a number"),
        ("  lr: 0.0015\n", "  lr: true\n", "optim.lr: True: need a number"),
        ("  lr: 0.0015\n", "  lr: .nan\n", "optim.lr: nan: need a number"),
        ("  lr: 0.0015\n", "  lr:\n", "optim.lr: None: need a number"),
        ("  lr: 0.0015\n", "", "optim.lr: is missing"),
        ("  norm: post\n", "  norm: 3\n", "model.norm: 3: need text"),
        ("  warmup_updates: 200\n", "  warmup_updates: 2.5\n", "schedule.warmup_updates: 2.5: need a whole number"),
        ("seed: 1\n", "seed: one\n", "seed: one: need a whole number"),
        ("  d_model: ", "  d_model: [1]\n  old: ", "size.d_model: [1]: need a whole number"),
        ("optim:\n", "optim: 3\nelse:\n", "optim: 3: need a mapping"),
        ("optim:\n", "else:\n", "optim.lr: is missing"),
        ("  norm: post\n", "  norm: foo\n", "model.norm: foo: need post or pre"),
    ],
)
def test_a_setting_that_is_none_is_damage(tmp_path: Path, before: str, after: str, words: str) -> None:
    one(tmp_path / "s", "a", seed=2)
    file = one(tmp_path / "s", "b") / "config.yaml"
    text = file.read_text()
    assert text.count(before) == 1
    file.write_text(text.replace(before, after))
    (damaged,) = (r for r in collect(tmp_path / "s") if r.state == "damaged")
    assert (damaged.reason or "").startswith(f"{file}: {words}; "), damaged.reason
    assert table.build(collect(tmp_path / "s"))["rows"][0]["bleu"]["values"] == [20.0]


def test_a_folder_that_cannot_be_written(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, text: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("lnexp.rundir.write_text", refuse)
    for write in (table.write, dashboard.write):
        with pytest.raises(UserError, match=r"cannot be written \(Permission denied\)"):
            write(demo)


def test_a_table_that_cannot_be_written_is_shown(
    demo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path, text: str) -> None:
        raise PermissionError(13, "Permission denied")

    expected = table.render(collect(demo), "csv")
    monkeypatch.setattr("lnexp.rundir.write_text", refuse)
    assert main(["table", str(demo), "--format", "csv"]) == 2
    out, err = capsys.readouterr()
    assert out == expected + "\n" and err == f"lnexp table: {demo}/table.csv: cannot be written (Permission denied)\n"


def test_unknown_format(demo: Path) -> None:
    with pytest.raises(UserError, match=r"^--format xls: need one of md, csv, latex, json$"):
        table.write(demo, "xls")


# ---- start-up ----
def test_reports_load_nothing_heavy() -> None:
    code = (
        "import sys; from lnexp.report import dashboard, table; "
        "print([m for m in ('torch','fairseq','wandb','hydra','omegaconf','numpy','yaml') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"


def test_what_follows_from_the_schedule_is_no_factor_of_its_own() -> None:
    warm: dict[str, Any] = {"schedule.name": "inverse_sqrt", "schedule.warmup_updates": 4000, "max_epochs": 15}
    drop = {"schedule.name": "step_drop", "schedule.warmup_updates": 0, "max_epochs": 15, "schedule.drop_epoch": 8}
    line = {"schedule.name": "linear", "schedule.warmup_updates": 0, "max_updates": 16500}
    told = ["model.norm", "schedule.warmup_updates", "schedule.name"]
    assert factors([warm, drop, line]) == told
    assert factors([warm, drop, drop | {"schedule.drop_epoch": 6}]) == [*told, "schedule.drop_epoch"]
    assert factors([warm, warm | {"max_epochs": 30}]) == [*told[:2], "max_epochs"]
