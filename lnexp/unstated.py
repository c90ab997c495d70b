"""What the paper leaves open, or says otherwise than the common recipe, as data: shown under a table of such runs.

In: nested configs. Out: the points that matter to them, each with the settings in which the choice made here stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lnexp import paper


@dataclass(frozen=True)
class Point:
    """One open point. It matters to a run if all that is asked for below holds of it."""

    name: str
    says: str
    """What the paper says of it."""
    change: str
    """What sets it otherwise, as typed on a command line."""
    fields: tuple[str, ...] = ()
    """Settings that hold the choice made here."""
    here: str = ""
    """The choice in words, where no setting says it all."""
    corpora: tuple[str, ...] = (paper.IWSLT, paper.WMT)
    """Corpora of the paper that the run is on or stands for."""
    at_home: bool = False
    """Only of runs on that corpus itself."""
    exact: bool = False
    """Only of runs whose counts and rates are the paper's, on its corpus or at a scale."""
    where: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Settings, and the values that they must have."""

    def matters_to(self, config: Mapping[str, Any]) -> bool:
        run = paper.standing(config)
        if run.corpus not in self.corpora or (self.exact and not run.exact):
            return False
        if self.at_home and not paper.on_paper_corpus(config):
            return False
        return all(paper.setting(config, name) in values for name, values in self.where.items())


POINTS = (
    Point("meaning of T = 1", "its word for no warm-up; the rate is lr_max/sqrt(t), or lr_max until update 4,000",
          "schedule=inverse_sqrt or schedule=flat_inverse_sqrt", ("schedule.name",), exact=True,
          where={"model.norm": ("post",), "schedule.warmup_updates": (0, 1),
                 "schedule.name": ("inverse_sqrt", "flat_inverse_sqrt")}),
    Point("drop on WMT14", "the rate is decayed at the 6-th epoch, by a factor that is not given",
          "schedule.drop_factor=0.5", ("schedule.drop_factor",), corpora=(paper.WMT,), exact=True,
          where={"schedule.name": ("step_drop",)}),
    Point("training pairs", "about 153K; fairseq's preparation script gives 160,239",
          "data=bitext data.train=... (text of your own)", here="160,239, as the script", corpora=(paper.IWSLT,),
          at_home=True),
    Point("dropout", "0.1; fairseq's recipe for the same set has 0.3", "size.dropout=0.3", ("size.dropout",),
          corpora=(paper.IWSLT,)),
    Point("dropout", "not stated for WMT14", "size.dropout=0.3", ("size.dropout",), corpora=(paper.WMT,)),
    Point("length penalty", "1.2; fairseq's recipe for the same set has 1.0", "decode.lenpen=1.0", ("decode.lenpen",),
          corpora=(paper.IWSLT,)),
    Point("beam and length penalty", "not stated for WMT14", "decode=beam5_lp12", ("decode.beam", "decode.lenpen"),
          corpora=(paper.WMT,)),
    Point("Adam's eps, weight decay, clipping", "not stated",
          "optim.eps=1e-6 optim.weight_decay=1e-4 optim.clip_norm=1",
          ("optim.eps", "optim.weight_decay", "optim.clip_norm"), where={"optim.name": ("adam", "radam")}),
    Point("momentum of SGD", "vanilla SGD, no momentum stated", "no setting", here="none",
          where={"optim.name": ("sgd",)}),
    Point("end of training", "Figure 2's last epoch is not stated; the text speaks of 15", "max_epochs=20",
          ("max_epochs", "max_updates"), corpora=(paper.IWSLT,), exact=True),
    Point("averaging of checkpoints", "not mentioned; a model an epoch is scored", "average=5, a column of its own",
          here="one checkpoint, of the lowest validation loss"),
    Point("BLEU", "neither the tool nor the split is named", "scores.json has tokenized_bleu and the valid split too",
          here="sacreBLEU on the test split"),
)  # fmt: skip


def points(configs: Sequence[Mapping[str, Any]]) -> list[tuple[Point, list[Mapping[str, Any]]]]:
    """Give the points that matter to any of these runs, each with those runs."""
    found = [(point, [config for config in configs if point.matters_to(config)]) for point in POINTS]
    return [(point, its) for point, its in found if its]
