"""fairseq's translation task and Trainer, with the few steps that are ours: dropout's seeds, the clock, the sums of
several processes, the optimizer on a flat model."""

from __future__ import annotations

from typing import Any

from fairseq import trainer, utils
from fairseq.optim.lr_scheduler import build_lr_scheduler
from fairseq.tasks.translation import TranslationTask

from lnexp.backend.flat import Flat
from lnexp.backend.group import Group
from lnexp.backend.optim import LossScale, TorchOptimizer
from lnexp.backend.pairs import Pairs
from lnexp.timing import Clock

_FAR = 1_000_003
"""Between the seeds of two passes of an update: further than any run has updates, so that no two ever meet."""


class Task(TranslationTask):
    """Draws the dropout of each pass of an update from a seed of its own, so that it does not matter which process
    does the pass; the first pass has the seed that fairseq's Trainer sets."""

    next_pass, step = 0, 1
    clock: Clock

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **more: Any) -> None:
        super().load_dataset(split, epoch, combine, **more)
        self.datasets[split] = Pairs.of(self.datasets[split])

    def train_step(
        self, sample: Any, model: Any, criterion: Any, optimizer: Any, update_num: int, ignore_grad: bool = False
    ) -> Any:
        if self.next_pass:
            utils.set_torch_seed(self.seed + update_num + self.next_pass * _FAR)
        self.next_pass += self.step
        with self.clock("forward"):
            loss, sample_size, logging_output = criterion(model, sample)
        if ignore_grad:
            loss *= 0
        with self.clock("backward"):
            optimizer.backward(loss)
        return loss, sample_size, logging_output


class Trainer(trainer.Trainer):
    group = Group()
    flat: Flat
    scale: LossScale

    def _build_optimizer(self) -> None:
        self._optimizer = TorchOptimizer(self.cfg.optimizer, self.flat, self.scale)
        self._lr_scheduler = build_lr_scheduler(self.cfg.lr_scheduler, self.optimizer)

    def _sync_stats(self) -> bool:
        return self.group.size > 1

    def _aggregate_logging_outputs(self, logs: list[dict[str, Any]], *sums: Any, ignore: bool = False) -> Any:
        """Sum what the passes of all processes logged; a pass that only fills up counts nothing."""
        names = ("loss", "nll_loss", "ntokens", "nsentences", "sample_size")
        own = [0.0 if ignore else sum(float(log[name]) for log in logs) for name in names]
        total = self.group.total(*own, *map(float, sums))
        return [dict(zip(names, total, strict=False))], total[len(names) :]

    def save_checkpoint(self, filename: str, extra_state: Any) -> None:
        """Write nothing: fairseq would leave a crash.pt in the working folder; our checkpoints are train.py's."""
