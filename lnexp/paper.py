"""Published facts of "On Layer Normalization in the Transformer Architecture" (Xiong et al., ICML 2020) as data.

In: the nested config of a run. Out: the claim of the paper that speaks about such a run, and its wording for a report.
Kept as data so that no number of the paper is typed twice, and each carries where it stands and how surely it is known.

certainty: "verified" = read in two or more independent copies of the paper's text; "read" = in one full copy;
"figure-only" = drawn but printed nowhere, so it never has a value here; "recalled" = from memory, never shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isclose
from typing import Any

CERTAINTIES = ("verified", "read", "figure-only", "recalled")
TITLE = "On Layer Normalization in the Transformer Architecture (Xiong et al., ICML 2020, arXiv 2002.04745v2)"
IWSLT, WMT = "iwslt14_deen", "wmt14_ende"
CORPUS_NAMES = {IWSLT: "IWSLT14", WMT: "WMT14"}


@dataclass(frozen=True)
class Claim:
    """One statement of the paper, and which runs it speaks about."""

    id: str
    locus: str
    statement: str
    """In words that stand alone, as shown beside runs on another corpus."""
    short: str
    """The same for a run of the paper's own setting."""
    metric: str
    certainty: str
    value: float | None = None
    tolerance: float | None = None
    """How far a faithful run may lie from `value`; None where the claim is a collapse or an ordering."""
    corpus: str = IWSLT
    norm: str = ""
    optim: str = ""
    warmup: int | None = None
    """0 = none (the paper writes it T = 1), n = exactly n (on another corpus: any), None = any above zero."""
    lr: float | None = None
    schedules: tuple[str, ...] = ()
    """Asked for only where counts and rates are the paper's; elsewhere a run has the schedule that fits its length."""
    transfers: bool = True
    """False: bound to the paper's own update counts or rates, says nothing about runs that have not those."""
    judged_by_run: bool = True
    """False: an ordering or a probe, not the result of one run."""


@dataclass(frozen=True)
class Erratum:
    """A slip in the paper that a replication must know and not repeat."""

    locus: str
    printed: str
    meant: str
    why: str


_FIG2, _FIG4 = "Section 3.2, Figure 2", "Section 4, Figure 4"

# The more special claim stands first: `claim_for` takes the first that fits.
CLAIMS = (
    Claim("fig6.constant", "Appendix H, Figure 6",
          "Post-LN without warm-up at a constant rate of 1e-4: validation loss about 4.3 after 27 epochs, "
          "better than without warm-up at a large rate, worse than the best",
          "valid loss about 4.3 after 27 epochs (unit not stated)", "valid loss", "read", 4.3,
          norm="post", optim="adam", warmup=0, lr=1e-4, schedules=("constant",), transfers=False),
    Claim("fig2.adam.500.low", _FIG2, "Post-LN with T = 500 at lr_max 5e-4: 31.16 BLEU", "31.16 BLEU",
          "BLEU", "verified", 31.16, 1.0, norm="post", optim="adam", warmup=500, lr=5e-4, transfers=False),
    Claim("fig2.adam.500.high", _FIG2, "Post-LN with T = 500 at lr_max 1e-3: 2.77 BLEU", "2.77 BLEU",
          "BLEU", "verified", 2.77, norm="post", optim="adam", warmup=500, lr=1e-3, transfers=False),
    Claim("fig2.adam.4000", _FIG2, "Post-LN with warm-up: around 34 BLEU, against 8.45 without it",
          "around 34 BLEU (T = 4000)", "BLEU", "verified", 34.0, 1.0, norm="post", optim="adam", warmup=4000),
    Claim("fig2.adam.none", _FIG2, "Post-LN without warm-up: 8.45 BLEU against about 34 with it",
          "8.45 BLEU (lr_max not stated)", "BLEU", "verified", 8.45, norm="post", optim="adam", warmup=0,
          schedules=("inverse_sqrt", "flat_inverse_sqrt")),
    Claim("fig2.sgd.none", _FIG2, "Post-LN by SGD without warm-up: BLEU just above zero in 15 epochs",
          "BLEU just above zero in 15 epochs", "BLEU", "verified", norm="post", optim="sgd", warmup=0),
    Claim("fig2.sgd.warmup", _FIG2, "Post-LN by SGD with warm-up: far below Adam",
          "far below Adam (no number printed)", "BLEU", "verified", norm="post", optim="sgd"),
    Claim("fig4.radam.post", _FIG4, "RAdam trains Post-LN without warm-up well",
          "trains well without warm-up (no number printed)", "BLEU", "read", norm="post", optim="radam", warmup=0),
    Claim("fig4.radam.pre", _FIG4, "Pre-LN: little difference between RAdam and Adam",
          "little difference from Adam (no number printed)", "BLEU", "read", norm="pre", optim="radam", warmup=0),
    Claim("fig4.pre.none", _FIG4, "Pre-LN without warm-up: about 34 BLEU, as Post-LN with it",
          "about 34 BLEU, valid loss about 4 (unit not stated)", "BLEU", "verified", 34.0, 1.0,
          norm="pre", optim="adam", warmup=0),
    Claim("fig4.faster", _FIG4, "Pre-LN's 9th checkpoint is about as good as Post-LN's 15th, at the same lr_max",
          "9th Pre-LN checkpoint about as good as the 15th Post-LN one", "checkpoints", "read", judged_by_run=False),
    Claim("wmt.post", _FIG4, "Post-LN with warm-up on WMT14: BLEU drawn, not printed", "drawn, not printed",
          "BLEU", "figure-only", corpus=WMT, norm="post", optim="adam", warmup=4000),
    Claim("wmt.pre", _FIG4, "Pre-LN without warm-up on WMT14 converges faster than Post-LN, as on IWSLT14",
          "converges faster than Post-LN (BLEU drawn, not printed)", "BLEU", "read",
          corpus=WMT, norm="pre", optim="adam", warmup=0),
    Claim("fig3.last_layer.post", "Section 3.4, Figure 3",
          "Post-LN at initialisation: gradient norm of the last FFN matrix around 1.6 from 6-6 to 14-14 layers; "
          "Pre-LN's falls with depth",
          "around 1.6 at every depth", "gradient norm", "verified", 1.6, norm="post", judged_by_run=False),
)  # fmt: skip

ERRATA = (
    Erratum(
        "Section 4, Figure 5(a)",
        "Post-LN reaches validation loss 1.69 at 500k updates, Pre-LN a similar one at 700k",
        "Pre-LN at 500k, Post-LN at 700k",
        "the same sentence claims a 40% speed-up of Pre-LN, and the figure shows it: the two names are swapped",
    ),
)

# Section 4 and Appendix A. What stands here is stated; weight decay, clipping, Adam's eps and WMT's dropout are not.
SETTINGS: dict[str, dict[str, Any]] = {
    IWSLT: {
        "size.encoder_layers": 6, "size.decoder_layers": 6, "size.d_model": 512, "size.d_ffn": 1024, "size.heads": 4,
        "size.dropout": 0.1, "optim.label_smoothing": 0.1, "tokens_per_update": 4096,
        "decode.beam": 5, "decode.lenpen": 1.2,
    },
    WMT: {
        "size.encoder_layers": 6, "size.decoder_layers": 6, "size.d_model": 512, "size.heads": 8,
        "optim.label_smoothing": 0.1, "tokens_per_update": 16 * 8192,
    },
}  # fmt: skip


def setting(config: Mapping[str, Any], name: str) -> Any:
    """Give "group.field" of a nested config; None where there is none."""
    value: Any = config
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def on_paper_corpus(config: Mapping[str, Any]) -> bool:
    """Say whether the run translates one of the paper's corpora, the standard set of it, in the paper's direction."""
    directions = {IWSLT: ("de", "en"), WMT: ("en", "de")}
    name, standard = setting(config, "data.name"), setting(config, "data.standard") is not False
    return standard and directions.get(name) == (setting(config, "data.src"), setting(config, "data.tgt"))


def corpus_name(config: Mapping[str, Any]) -> str:
    """Name the run's corpus, and say where a published one was taken without holding it against its standard."""
    name = str(setting(config, "data.name"))
    return name if setting(config, "data.standard") is not False else f"{name} (not the standard set)"


@dataclass(frozen=True)
class Standing:
    """What a run is in the paper's terms, its counts and rates turned back by its scale (conf/scale)."""

    corpus: str
    """The paper's corpus that it is run on, or that it stands for."""
    exact: bool
    """Counts and rates are the paper's: on its corpus, or at a scale. Elsewhere a warm-up is there or not there."""
    norm: Any
    optim: Any
    schedule: Any
    warmup: int | None
    lr: float | None
    per_update: float
    """The paper's updates in one of this run's."""
    per_lr: float

    def has_warmup(self, updates: int) -> bool:
        """Say whether its warm-up is this one of the paper's, up to the rounding of a scaled count."""
        return self.warmup is not None and abs(self.warmup * self.per_update - updates) <= self.per_update / 2

    def has_lr(self, rate: float) -> bool:
        """Say whether its peak rate is this one of the paper's."""
        return self.lr is not None and isclose(self.lr / self.per_lr, rate, rel_tol=1e-4)


def standing(config: Mapping[str, Any]) -> Standing:
    """Give a run in the paper's terms. At a scale, En-De plays the part of WMT14, all else that of IWSLT14."""
    at_home = on_paper_corpus(config)
    per_update, per_lr = (_positive(setting(config, f"scale.{name}")) for name in ("updates", "lr"))
    scaled = (per_update, per_lr) != (1.0, 1.0)
    turned = scaled and (setting(config, "data.src"), setting(config, "data.tgt")) == ("en", "de")
    warmup, lr = setting(config, "schedule.warmup_updates"), setting(config, "optim.lr")
    return Standing(
        corpus=setting(config, "data.name") if at_home else WMT if turned else IWSLT,
        exact=at_home or scaled,
        norm=setting(config, "model.norm"),
        optim=setting(config, "optim.name"),
        schedule=setting(config, "schedule.name"),
        warmup=warmup if isinstance(warmup, int) else None,
        lr=float(lr) if isinstance(lr, int | float) else None,
        per_update=per_update,
        per_lr=per_lr,
    )


def _positive(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else 1.0


def claim_for(config: Mapping[str, Any]) -> Claim | None:
    """Give the paper's claim about such a run, or None where the paper reports no such run.

    At a scale the run's counts and rates are turned back into the paper's: T = 364 of 1,500 updates is its 4,000. On
    another corpus without a scale only claims that do not hang on counts or rates are given, and warm-up counts as
    there or not there: T = 200 of 1,000 updates plays the part of T = 4000 of 16,000.
    """
    run = standing(config)
    if run.warmup is None:
        return None
    none = run.warmup <= 1  # the paper's "T = 1" is its word for no warm-up
    for claim in CLAIMS:
        if not claim.judged_by_run or (claim.corpus, claim.norm, claim.optim) != (run.corpus, run.norm, run.optim):
            continue
        if (claim.warmup == 0) != none or not (run.exact or claim.transfers):
            continue
        if run.exact and not none and claim.warmup is not None and not run.has_warmup(claim.warmup):
            continue
        if claim.lr is not None and not run.has_lr(claim.lr):
            continue
        if run.exact and claim.schedules and run.schedule not in claim.schedules:
            continue
        return claim
    return None


def words(config: Mapping[str, Any]) -> str:
    """Give the paper's word for a run, for one cell of a table; away from its corpus always with the corpus' name."""
    claim = claim_for(config)
    if claim is None:
        return "not reported"
    return claim.short if on_paper_corpus(config) else f"{claim.statement} ({CORPUS_NAMES[claim.corpus]})"


def departures(config: Mapping[str, Any]) -> list[str]:
    """Name every stated setting of the paper in which this run differs, the paper's in brackets: "size.heads=8 (4)"."""
    at_home = on_paper_corpus(config)
    found = [] if at_home else [f"data.name={corpus_name(config)} ({IWSLT})"]
    stated = SETTINGS[setting(config, "data.name") if at_home else IWSLT]
    return found + [f"{k}={setting(config, k)} ({v})" for k, v in stated.items() if setting(config, k) != v]


def difference(config: Mapping[str, Any], bleu: float | None) -> float | None:
    """Give ours minus the paper's BLEU, only where the run is one of the paper's: its corpus and its settings."""
    claim = claim_for(config)
    if bleu is None or claim is None or claim.value is None or claim.metric != "BLEU" or departures(config):
        return None
    return round(bleu - claim.value, 2)
