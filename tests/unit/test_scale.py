"""conf/scale: the paper's numbers at another scale, and what cannot be one."""

from __future__ import annotations

import pytest

from lnexp.cli import main
from lnexp.config import Scale
from lnexp.launch import plan
from lnexp.scale import scaled_lr, scaled_updates


def test_counts_are_divided_and_rates_multiplied() -> None:
    scale = Scale(updates=11, lr=3)
    assert [scaled_updates(n, scale) for n in (0, 1, 500, 4000, 16500)] == [0, 1, 45, 364, 1500]
    assert [scaled_lr(rate, scale) for rate in (5e-4, 7e-4, 1e-3)] == [1.5e-3, 2.1e-3, 3e-3]
    assert (scaled_updates(4000, Scale()), scaled_lr(7e-4, Scale())) == (4000, 7e-4)


@pytest.mark.parametrize("setting", ["scale.updates=0", "scale.updates=nan", "scale.lr=-1", "scale.lr=inf"])
@pytest.mark.parametrize("words", [["sweep=fig2_warmup", "scale=cpu"], ["experiment=iwslt14_post_warmup"]])
def test_a_scale_that_is_none_is_named(setting: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", *words, setting]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"lnexp show: {setting.partition('=')[0]}=") and "need a finite number > 0" in said


@pytest.mark.parametrize("sweep", ["demo", "fig2_warmup", "fig4_wmt"])
def test_the_runs_of_two_scales_go_to_two_folders(sweep: str) -> None:
    folders = {plan([f"sweep={sweep}", f"scale={scale}"]).jobs[0].folder.parent.name for scale in ("paper", "cpu")}
    assert folders == {sweep, f"{sweep}-cpu"}
