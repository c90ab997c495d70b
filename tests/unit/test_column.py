"""Columns of a table: the best checkpoints in one, means of checkpoints in another, and what may not be mixed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "golden"))
import fake_outputs as fake

from lnexp.cli import main
from lnexp.errors import UserError
from lnexp.report import content
from lnexp.report.collect import collect
from lnexp.report.column import averaged, column
from lnexp.track.describe import summary

Entry = dict[str, object]


def write(tmp_path: Path, runs: dict[str, list[Entry]], states: dict[str, str] | None = None) -> Path:
    """Write a sweep: run -> the entries of its scores.json, each as changes to a test score of the best checkpoint."""
    for seed, (name, entries) in enumerate(runs.items(), 1):
        folder = tmp_path / "outputs" / "s" / name
        scores = [fake.score(**{"value": 20.0 + seed, **entry}) for entry in entries]
        rows = fake.rows("pre", 200, 1, 300)
        fake.write_run(
            folder, fake.run("pre", 200, seed), (states or {}).get(name, "done"), metrics=rows, scores=scores
        )
    return tmp_path / "outputs" / "s"


def mean(count: int, value: float = 30.0, **changes: object) -> Entry:
    return {"checkpoint": f"mean of {count}", "value": value, **changes}


# ---- which number stands where ----
def test_single_and_averaged_are_columns_of_their_own(tmp_path: Path) -> None:
    valid: Entry = {"split": "valid", "value": 1.0}
    results = collect(
        write(tmp_path, {"a": [mean(5, 31.0), valid, {}], "b": [{}, mean(5, 32.0), mean(5, 3.0, split="valid")]})
    )
    single, means = column(results), averaged(results)
    assert single and means
    assert (single.checkpoint, sorted(single.values.values())) == ("best", [21.0, 22.0])
    assert (means.checkpoint, sorted(means.values.values())) == ("mean of 5", [31.0, 32.0])
    assert (means.split, means.data, means.n_sentences) == ("test", fake.FINGERPRINT, 1000)


def test_without_a_mean_there_is_no_such_column(tmp_path: Path) -> None:
    assert averaged(collect(write(tmp_path, {"a": [{}], "b": [{}]}))) is None


def test_means_alone_are_no_single_checkpoints(tmp_path: Path) -> None:
    results = collect(write(tmp_path, {"a": [mean(5)], "b": [mean(5)]}))
    assert column(results) is None
    assert averaged(results)


def test_a_run_without_a_mean_has_an_empty_cell(tmp_path: Path) -> None:
    results = collect(write(tmp_path, {"a": [{}], "b": [{}, mean(5, 32.0)]}))
    single, means = column(results), averaged(results)
    assert single and len(single.values) == 2
    assert means and list(means.values.values()) == [32.0]


def test_of_several_means_the_one_that_all_have(tmp_path: Path) -> None:
    found = averaged(collect(write(tmp_path, {"a": [mean(3, 1.0), mean(5, 2.0)], "b": [mean(5, 3.0)]})))
    assert found and (found.checkpoint, sorted(found.values.values())) == ("mean of 5", [2.0, 3.0])


def test_a_run_cut_short_does_not_say_what_is_compared(tmp_path: Path) -> None:
    """Diverged after two validations, it stands first and has a mean of 2; the table is of those that are done."""
    runs = {"a": [{}, mean(2, 1.0)], "b": [{}, mean(5, 32.0)], "c": [{}, mean(5, 33.0)]}
    found = averaged(collect(write(tmp_path, runs, {"a": "diverged"})))
    assert found and (found.checkpoint, sorted(found.values.values())) == ("mean of 5", [32.0, 33.0])


# ---- what is refused ----
OTHER = {
    "data": ({"data": "other"}, f"data fingerprint '{fake.FINGERPRINT}' against 'other'"),
    "split": ({"split": "valid"}, "split 'test' against 'valid'"),
    "signature": ({"signature": "nrefs:1|case:lc"}, f"signature '{fake.SIGNATURE}' against 'nrefs:1|case:lc'"),
    "sentences": ({"n_sentences": 999}, "number of sentences 1000 against 999"),
    "decode": ({"decode": "greedy"}, "decode 'beam5-lp1.2' against 'greedy'"),
    "averaging": (mean(5), "averaging 'best' against 'mean of 5'"),
}
MEND = "; give one of the folders, or score both alike with `lnexp eval"


@pytest.mark.parametrize("form", ["md", "csv", "latex", "json"])
@pytest.mark.parametrize("kind", OTHER)
def test_the_command_refuses_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, form: str
) -> None:
    change, reason = OTHER[kind]
    folder = write(tmp_path, {"one": [{}], "two": [change]})
    assert main(["table", str(folder), "--format", form]) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"lnexp table: one and two cannot stand in one column: {reason}{MEND}") and out == ""
    assert err.count("\n") == 1 and not list(folder.glob("table.*"))


@pytest.mark.parametrize("best", [[], [{}]], ids=["alone", "beside the best"])
def test_the_command_refuses_two_ways_of_averaging(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], best: list[Entry]
) -> None:
    folder = write(tmp_path, {"one": [*best, mean(5)], "two": [*best, mean(3)]})
    assert main(["table", str(folder)]) == 2
    assert (
        "one and two cannot stand in one column: averaging 'mean of 5' against 'mean of 3'" in capsys.readouterr().err
    )


@pytest.mark.parametrize("kind", set(OTHER) - {"averaging"})
def test_a_column_of_means_refuses_the_same(tmp_path: Path, kind: str) -> None:
    change, reason = OTHER[kind]
    results = collect(write(tmp_path, {"one": [{}, mean(5)], "two": [{}, {**mean(5), **change}]}))
    assert column(results)  # the best checkpoints compare
    with pytest.raises(UserError) as raised:
        averaged(results)
    assert str(raised.value).startswith(f"one and two cannot stand in one column: {reason}{MEND}")


def test_means_of_different_numbers_of_checkpoints_do_not_mix(tmp_path: Path) -> None:
    results = collect(write(tmp_path, {"one": [{}, mean(5)], "two": [{}, mean(3)]}))
    assert column(results)
    with pytest.raises(UserError) as raised:
        averaged(results)
    assert str(raised.value) == (
        "one and two cannot stand in one column: averaging 'mean of 5' against 'mean of 3'; give one of the folders, "
        "or score both alike with `lnexp eval RUN [--average N]`"
    )


# ---- who else shows scores ----
def test_the_dashboard_names_a_mean(tmp_path: Path) -> None:
    page = content.data(collect(write(tmp_path, {"a": [mean(5, 31.0), {}]})))
    assert [score[:3] for score in page["runs"][0]["scores"]] == [
        ["test", "sacrebleu, mean of 5", 31.0],
        ["test", "sacrebleu", 21.0],
    ]


@pytest.mark.parametrize("first", [True, False])
def test_a_mean_takes_no_score_s_place_in_wandb(first: bool) -> None:
    scores = [fake.score(21.0), fake.score(31.0, checkpoint="mean of 5")]
    words = summary("done", scores if first else scores[::-1], {})
    assert words["final/test_sacrebleu"] == 21.0 and words["final/test_sacrebleu_mean_of_5"] == 31.0
    assert words["final/test_sacrebleu_mean_of_5_signature"] == fake.SIGNATURE
    assert json.dumps(words)
