"""One model in training: batches, updates, validation, translation and checkpoints, through fairseq's Trainer.

In: a Run, its prepared data, a thread count. Out: plain dicts and strings; nothing of fairseq's gets out.
A session decides nothing: when to validate, keep or stop is train.py's business.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from fairseq import utils
from fairseq.data import iterators
from fairseq.dataclass.configs import FairseqConfig
from fairseq.logging import metrics
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

from lnexp.backend import NonFinite
from lnexp.backend.generate import translate
from lnexp.backend.loss import LabelSmoothedLoss
from lnexp.backend.memory import keep_freed_memory
from lnexp.backend.model import MAX_POSITIONS, build_model, parameter_count
from lnexp.backend.optim import NAME
from lnexp.config import Decode, Run
from lnexp.data.prepare import Prepared
from lnexp.errors import UserError
from lnexp.schedule import lr


def _device(run: Run) -> torch.device:
    cuda = torch.cuda.is_available()
    if run.devices.device == "cuda" and not cuda:
        raise UserError("devices.device=cuda: torch sees no CUDA device here; use devices=cpu or install a CUDA torch")
    return torch.device("cuda" if cuda and run.devices.device != "cpu" else "cpu")


class _Trainer(Trainer):
    def save_checkpoint(self, filename: str, extra_state: Any) -> None:
        """Write nothing: fairseq would leave a crash.pt in the working folder; our checkpoints are train.py's."""


class Session:
    def __init__(self, run: Run, data: Prepared, threads: int) -> None:
        logging.getLogger("fairseq").setLevel(logging.WARNING)
        torch.set_num_threads(threads)
        keep_freed_memory()
        metrics.reset()
        self.run = run
        self.device = _device(run)
        self._passes = run.passes
        self._task = self._open_task(data)
        utils.set_torch_seed(run.seed)
        model = build_model(run.size, run.model, self._task)
        self.parameters = parameter_count(model)
        config = self._fairseq_config()
        self._trainer = _Trainer(config, self._task, model, LabelSmoothedLoss(self._task, run.optim.label_smoothing))
        self._epochs = self._trainer.get_train_iterator(epoch=1, load_dataset=False)
        self.check: Callable[[], None] = lambda: None
        """Called between the batches of validation and the steps of decoding; may raise to stop them."""
        self._batches: Any = None
        self._position: Any = None  # in the data, as loaded; until an update makes it the iterator's own
        self.updates_per_epoch = math.ceil(len(self._epochs) / self._passes)
        config.lr_scheduler.updates_per_epoch = self.updates_per_epoch

    def _open_task(self, data: Prepared) -> TranslationTask:
        task = TranslationTask.setup_task(
            TranslationConfig(
                data=str(data.folder),
                source_lang=self.run.data.src,
                target_lang=self.run.data.tgt,
                max_source_positions=MAX_POSITIONS,
                max_target_positions=MAX_POSITIONS,
                train_subset="train",
                dataset_impl="mmap",
                required_seq_len_multiple=1,
            )
        )
        for split in ("train", "valid", "test"):
            task.load_dataset(split, combine=False)
        return task

    def _fairseq_config(self) -> Any:
        run = self.run
        config = OmegaConf.structured(FairseqConfig)
        OmegaConf.set_struct(config, False)
        config.common.seed = run.seed
        config.common.cpu = self.device.type == "cpu"
        config.common.tensorboard_logdir = None
        config.dataset.max_tokens = math.ceil(run.tokens_per_update / self._passes)
        config.dataset.max_tokens_valid = max(config.dataset.max_tokens, MAX_POSITIONS)
        config.dataset.num_workers = 0
        config.dataset.required_batch_size_multiple = 1
        config.distributed_training.distributed_world_size = 1
        config.optimization.clip_norm = run.optim.clip_norm
        config.optimization.lr = [run.optim.lr]
        optim = run.optim
        config.optimizer = {"_name": NAME, "name": optim.name, "lr": [optim.lr], "betas": list(optim.betas),
                            "eps": optim.eps, "weight_decay": optim.weight_decay}  # fmt: skip
        config.lr_scheduler = {"_name": NAME, "lr_max": optim.lr, "schedule": vars(run.schedule),
                               "updates_per_epoch": 0}  # fmt: skip
        return config

    @property
    def updates(self) -> int:
        """Updates done."""
        return self._trainer.get_num_updates()

    @property
    def epoch(self) -> float:
        """Epochs done, with fraction: 2.5 = in the middle of the third."""
        return self.updates / self.updates_per_epoch

    @property
    def lr(self) -> float:
        """Rate of the last update (of the first one before any is done)."""
        return lr(self.run.schedule, self.run.optim.lr, max(self.updates, 1), self.updates_per_epoch)

    def updates_stream(self) -> Iterator[dict[str, float]]:
        """Train for ever, one update a step; gives loss and nll in bits a token, target tokens, gradient norm.

        Raises NonFinite where loss or gradient is not a number; the parameters are then as before the update.
        """
        while True:
            if self._batches is None:
                epoch = self._epochs.next_epoch_itr(fix_batches_to_gpus=False, shuffle=True)
                self._batches = iterators.GroupedIterator(epoch, self._passes) if self._passes > 1 else epoch
                self._trainer.begin_epoch(self._epochs.epoch)
            for samples in self._batches:
                yield self._update(samples if self._passes > 1 else [samples])
            self._batches, self._position = None, self._epochs.state_dict()

    def _update(self, samples: list[dict[str, Any]]) -> dict[str, float]:
        out = self._trainer.train_step(samples)
        if out is None or not math.isfinite(out["loss"]):
            raise NonFinite("loss is not finite")
        return {
            "loss_bits": float(out["loss"]),
            "nll_bits": float(out["nll_loss"]),
            "tokens": float(out["sample_size"]),
            "gnorm": float(self._trainer.optimizer.last_norm),
        }

    def validate(self, split: str = "valid") -> dict[str, float]:
        """Give loss and nll of a split in bits a token, dropout off."""
        totals = {"loss": 0.0, "nll_loss": 0.0}
        tokens = 0.0
        batches = self._trainer.get_valid_iterator(split, disable_iterator_cache=True)
        for sample in batches.next_epoch_itr(shuffle=False, set_dataset_epoch=False):
            self.check()
            out = self._trainer.valid_step(sample)
            tokens += float(out["sample_size"])
            for name in totals:
                totals[name] += float(out[name]) * float(out["sample_size"])
        return {"loss_bits": totals["loss"] / tokens, "nll_bits": totals["nll_loss"] / tokens}

    def translate(self, split: str, decode: Decode) -> list[str]:
        """Give one translation a source sentence, as BPE tokens, in corpus order."""
        model = self._trainer.get_model()
        model.eval()
        return translate(model, self._task, split, decode, self.device, self.check)

    def state(self) -> dict[str, Any]:
        """Give everything that training needs to go on bit for bit: tensors and plain values only.

        No generator state is among it: fairseq seeds dropout by seed + update, and batch order by seed + epoch.
        """
        return {
            "model": self._trainer.get_model().state_dict(),
            "optimizer": self._trainer.optimizer.state_dict(),
            "updates": self.updates,
            "batches": self._position if self._batches is None else self._epochs.state_dict(),
        }

    def load_state(self, state: dict[str, Any], optimizer: bool = True) -> None:
        """Take `state` over; without `optimizer` only the parameters, for translation."""
        self._trainer.get_model().load_state_dict(state["model"])
        if not optimizer:
            return
        self._trainer.optimizer.load_state_dict(state["optimizer"])
        self._batches, self._position = None, state["batches"]
        if self._position is not None:
            self._epochs.load_state_dict(self._position)
        self._trainer.set_num_updates(state["updates"])
