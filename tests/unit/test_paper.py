"""The paper's facts: what is shown beside a run, and what may never be shown."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from lnexp import paper
from lnexp.config import Data, Decode, Model, Optim, Run, Schedule, Size


def run(
    norm: str,
    warmup: int,
    lr: float = 5e-4,
    optim: str = "adam",
    schedule: str = "inverse_sqrt",
    data: str = "iwslt14_deen",
    **changes: Any,
) -> dict[str, Any]:
    src, tgt = ("en", "de") if data == "wmt14_ende" else ("de", "en")
    parts: dict[str, Any] = {
        "data": Data(data, src, tgt),
        "model": Model(norm),
        "size": Size(6, 6, 512, 1024, 4, dropout=0.1),
        "optim": Optim(optim, lr, label_smoothing=0.1),
        "schedule": Schedule(schedule, warmup),
        "decode": Decode(5, 1.2),
        "tokens_per_update": 4096,
    }
    return asdict(Run(**{**parts, **changes}))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (run("post", 0), "8.45 BLEU (lr_max not stated)"),
        (run("post", 1), "8.45 BLEU (lr_max not stated)"),  # the paper's own word for none
        (run("post", 4000), "around 34 BLEU (T = 4000)"),
        (run("post", 500), "31.16 BLEU"),
        (run("post", 500, 1e-3), "2.77 BLEU"),
        (run("post", 500, 7e-4), "not reported"),
        (run("post", 2000), "not reported"),
        (run("pre", 0, schedule="step_drop"), "about 34 BLEU, valid loss about 4 (unit not stated)"),
        (run("pre", 4000), "not reported"),
        (run("post", 0, 5e-3, "sgd"), "BLEU just above zero in 15 epochs"),
        (run("post", 4000, 5e-3, "sgd"), "far below Adam (no number printed)"),
        (run("post", 0, optim="radam", schedule="linear"), "trains well without warm-up (no number printed)"),
        (run("post", 0, 1e-4, schedule="constant"), "valid loss about 4.3 after 27 epochs (unit not stated)"),
        (run("post", 4000, data="wmt14_ende"), "drawn, not printed"),
    ],
)
def test_words_at_home(config: dict[str, Any], words: str) -> None:
    assert paper.words(config) == words


def test_words_on_another_corpus_name_the_papers_own() -> None:
    away = {"data": "tatoeba_deen"}
    assert (
        paper.words(run("post", 0, **away)) == "Post-LN without warm-up: 8.45 BLEU against about 34 with it (IWSLT14)"
    )
    assert paper.words(run("post", 200, **away)).endswith("(IWSLT14)")
    # T = 500 collapses at 1e-3 on IWSLT14; what 500 updates are elsewhere depends on the corpus.
    assert "2.77" not in paper.words(run("post", 500, 1e-3, **away))
    assert "4.3" not in paper.words(run("post", 0, 1e-4, schedule="constant", **away))
    assert paper.words(run("pre", 200, **away)) == "not reported"


CPU = {"updates": 11.0, "lr": 3.0, "suffix": "-cpu"}


@pytest.mark.parametrize(
    ("config", "claim"),
    [
        (run("post", 0, 1.5e-3), "fig2.adam.none"),
        (run("post", 45, 1.5e-3), "fig2.adam.500.low"),
        (run("post", 45, 3e-3), "fig2.adam.500.high"),
        (run("post", 364, 3e-3), "fig2.adam.4000"),
        (run("post", 0, 3e-4, schedule="constant"), "fig6.constant"),
        (run("post", 0, 1.5e-3, schedule="constant"), None),
        (run("post", 200, 1.5e-3), None),  # no T of the paper's
        (run("post", 45, 2e-3), None),
        (run("pre", 0, 1.5e-3, schedule="step_drop"), "fig4.pre.none"),
    ],
)
def test_a_scaled_run_is_the_papers(config: dict[str, Any], claim: str | None) -> None:
    """Counts over 11, rates times 3: 364 is T = 4000, 45 is T = 500, 3e-3 is 1e-3; but a BLEU is another corpus's."""
    config["data"]["name"], config["scale"] = "tatoeba_deen", CPU
    found = paper.claim_for(config)
    assert (found.id if found else None) == claim
    assert paper.words(config) == (f"{found.statement} (IWSLT14)" if found else "not reported")
    assert paper.difference(config, 30.0) is None


def test_a_scaled_run_from_english_stands_for_wmt14() -> None:
    config = run("post", 364, 2.1e-3)
    config["data"].update(name="tatoeba_deen", src="en", tgt="de")
    config["scale"] = CPU
    found = paper.claim_for(config)
    assert found and found.id == "wmt.post"


def test_a_scale_that_is_none() -> None:
    for scale in (None, {}, {"updates": "x", "lr": -1}):
        assert paper.standing({**run("post", 4000), "scale": scale}).per_update == 1.0


def test_the_other_direction_is_another_corpus() -> None:
    turned = run("post", 0)
    turned["data"].update(src="en", tgt="de")
    assert paper.words(turned).endswith("(IWSLT14)")


def test_nothing_uncertain_has_a_value() -> None:
    assert len({c.id for c in paper.CLAIMS}) == len(paper.CLAIMS)
    for claim in paper.CLAIMS:
        assert claim.certainty in paper.CERTAINTIES
        assert claim.locus and claim.statement and claim.short
        if claim.certainty in ("figure-only", "recalled"):
            assert claim.value is None and claim.tolerance is None, claim.id
            assert not any(c.isdigit() for c in claim.short), claim.id
        if claim.tolerance is not None:
            assert claim.value is not None, claim.id


def test_difference_only_at_the_papers_settings() -> None:
    assert paper.difference(run("post", 4000), 33.5) == -0.5
    assert paper.difference(run("post", 4000), None) is None
    assert paper.difference(run("post", 4000, size=Size(6, 6, 512, 1024, 4, dropout=0.3)), 33.5) is None
    assert paper.difference(run("post", 200, data="tatoeba_deen"), 33.5) is None
    assert paper.difference(run("post", 0, 1e-4, schedule="constant"), 20.0) is None  # its claim is a loss
    assert paper.difference(run("pre", 4000), 33.5) is None


def test_departures_are_named_with_the_papers_value() -> None:
    assert paper.departures(run("post", 4000)) == []
    found = paper.departures(run("post", 200, data="tatoeba_deen", tokens_per_update=800))
    assert found == ["data.name=tatoeba_deen (iwslt14_deen)", "tokens_per_update=800 (4096)"]


@pytest.mark.parametrize(
    "config", [{}, {"model": None}, {"model": {"norm": "post"}}, {"schedule": {"warmup_updates": "x"}}]
)
def test_half_a_config_is_not_reported(config: dict[str, Any]) -> None:
    assert paper.words(config) == "not reported"


def test_the_swapped_names_are_an_erratum_not_a_claim() -> None:
    assert any("500k" in e.printed and "Pre-LN at 500k" in e.meant for e in paper.ERRATA)
    assert not any("500k" in c.statement for c in paper.CLAIMS)
