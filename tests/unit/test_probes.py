"""probe.json as the reports read it: what is damaged, layers from 1, mean and band over seeds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "golden"))
import fake_outputs as fake

from lnexp.errors import UserError
from lnexp.report import content, probes
from lnexp.report.collect import collect

ROW = {"at": "init", "updates": 0, "seed": 1, "module": "decoder.layers.0.fc2", "quantity": "grad_norm_of_mean",
       "value": 2.0, "setting": "4 batches"}  # fmt: skip


@pytest.mark.parametrize(
    "content",
    ["{}", "[{}]", "[", "[1]", "null", '"text"', json.dumps([ROW | {"value": None}]), json.dumps([ROW | {"at": "end"}]),
     json.dumps([ROW | {"updates": "0"}]), json.dumps([{k: v for k, v in ROW.items() if k != "module"}])],
)  # fmt: skip
def test_damage_is_named_with_its_mend(content: str, tmp_path: Path) -> None:
    (tmp_path / "probe.json").write_text(content)
    with pytest.raises(UserError, match=r"probe\.json: .*delete it to have it made again"):
        probes.read(tmp_path / "probe.json")


def test_nothing_and_numbers_that_are_not_finite_are_no_damage(tmp_path: Path) -> None:
    assert probes.read(tmp_path / "probe.json") == []
    (tmp_path / "probe.json").write_text(json.dumps([ROW | {"value": "nan"}, ROW]))
    assert [list(layers.values()) for layers in probes.by_layer(probes.read(tmp_path / "probe.json")).values()] == [
        [[2.0]]
    ]


def test_layers_count_from_1_and_of_checkpoints_the_latest_counts() -> None:
    rows = [ROW, *(ROW | {"at": "checkpoint", "updates": u, "module": "encoder.layers.10.fc1"} for u in (200, 400))]
    found = probes.by_layer([*rows, ROW | {"module": "encoder.embed_tokens"}])
    assert [(s.at, s.updates, s.stack, s.module, list(layers)) for s, layers in found.items()] == [
        ("init", 0, "decoder", "fc2", [1]),
        ("checkpoint", 400, "encoder", "fc1", [11]),
    ]


def test_lines_are_mean_and_band_over_seeds() -> None:
    found = probes.lines([fake.probe_rows("post", 2, 3), [], fake.probe_rows("pre", 2, 1)])
    assert [s["module"] for s in found["series"]] == ["fc1", "fc2"]
    assert [q[0] for q in found["quantities"]] == ["grad_norm_of_mean"]
    assert found["lines"][1] == [0, 1, [1.2, 2.2], [1.1, 2.1], [1.3, 2.3], 3]
    assert found["lines"][3] == [2, 1, [1.1, 2.1], None, None, 1]


def page(sweep: Path) -> dict[str, Any]:
    return content.data([run.forgive() for run in collect(sweep, strict=False)])


def test_a_sweep_that_was_only_probed(tmp_path: Path) -> None:
    found = page(fake.write_probed(tmp_path))
    assert {run["state"] for run in found["runs"]} == {"probed"}
    assert [row["state"] for row in found["table"]["rows"]] == ["probed"] * 4
    assert found["summary"] == "Nothing was trained here: 4 of 4 models were probed as training would start."
    assert [family["name"] for family in found["probed"]["families"]] == [
        "Post-LN, warm-up 400", "Pre-LN, warm-up 400"]  # fmt: skip
    assert found["probed"]["places"] == [
        {"family": f, "encoder": depth, "decoder": depth} for f in (0, 1) for depth in (6, 8)
    ]


def test_a_run_that_is_missing_is_not_called_probed(tmp_path: Path) -> None:
    sweep = fake.write_probed(tmp_path)
    (sweep / "pre-8" / "probe.json").unlink()
    assert [run["state"] for run in page(sweep)["runs"]] == ["probed"] * 3 + ["missing"]


def test_a_trained_sweep_keeps_its_states(tmp_path: Path) -> None:
    sweep = fake.write_demo(tmp_path / "outputs")
    before = page(sweep)
    run = next(sweep.glob("post_ln-warmup200-11*"))
    (run / "probe.json").write_text(json.dumps(fake.probe_rows("post", 5, 1)))
    after = page(sweep)
    assert before["probed"] is None and len(after["probed"]["lines"]) == 2
    assert {**after, "probed": None} == before


def test_a_damaged_probe_makes_its_run_damaged_and_stops_nothing(tmp_path: Path) -> None:
    sweep = fake.write_probed(tmp_path)
    (sweep / "post-6" / "probe.json").write_text("{}")
    found = page(sweep)
    assert [run["state"] for run in found["runs"]] == ["damaged", "probed", "probed", "probed"]
    assert "post-6/probe.json: not the rows of a probe; delete it" in found["runs"][0]["reason"]
