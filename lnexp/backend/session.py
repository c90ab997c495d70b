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
from fairseq.tasks.translation import TranslationConfig
from omegaconf import OmegaConf

from lnexp.backend import NonFinite
from lnexp.backend.devices import device_of
from lnexp.backend.fast import FastTransformer
from lnexp.backend.flat import Flat
from lnexp.backend.generate import translate
from lnexp.backend.group import Group
from lnexp.backend.loss import LabelSmoothedLoss
from lnexp.backend.memory import keep_freed_memory
from lnexp.backend.model import build_model, parameter_count
from lnexp.backend.optim import NAME, LossScale, Overflow
from lnexp.backend.precision import fast_type, resolve
from lnexp.backend.room import MAX_POSITIONS, check_room
from lnexp.backend.trainer import Task, Trainer
from lnexp.backend.watch import Watch
from lnexp.config import Decode, Optim, Run
from lnexp.data.prepare import Prepared
from lnexp.errors import UserError
from lnexp.schedule import lr
from lnexp.timing import Clock


def open_task(run: Run, data: Prepared, processes: int = 1) -> Task:
    """Load the prepared data into fairseq's translation task."""
    task = Task.setup_task(
        TranslationConfig(
            data=str(data.folder),
            source_lang=run.data.src,
            target_lang=run.data.tgt,
            max_source_positions=MAX_POSITIONS,
            max_target_positions=MAX_POSITIONS,
            train_subset="train",
            dataset_impl="mmap",
            required_seq_len_multiple=1,
        )
    )
    task.seed, task.step, task.clock = run.seed, processes, Clock()
    for split in ("train", "valid", "test"):
        task.load_dataset(split, combine=False)
    return task


def optimizer_config(optim: Optim) -> dict[str, Any]:
    """Give what TorchOptimizer reads."""
    return {"_name": NAME, "name": optim.name, "lr": [optim.lr], "betas": list(optim.betas), "eps": optim.eps,
            "weight_decay": optim.weight_decay}  # fmt: skip


class Session:
    def __init__(self, run: Run, data: Prepared, threads: int, group: Group | None = None) -> None:
        logging.getLogger("fairseq").setLevel(logging.WARNING)
        torch.set_num_threads(threads)
        keep_freed_memory()
        metrics.reset()
        self.run = run
        self._group = group or Group()
        self.device = device_of(run, self._group.rank)
        self.precision = resolve(run.devices.precision, self.device)
        self._passes = run.passes
        check_room(run, data)
        self._task = open_task(run, data, self._group.size)
        utils.set_torch_seed(run.seed)
        model = build_model(run.size, run.model, self._task)
        self.parameters = parameter_count(model)
        config = self._fairseq_config()
        model = model.to(self.device)
        kind = fast_type(self.precision)
        flat = Flat(model)
        loss = LabelSmoothedLoss(
            self._task, run.optim.label_smoothing, FastTransformer(model, flat, kind) if kind else None
        )
        self._trainer = Trainer(config, self._task, model, loss)
        self._trainer.flat, self._trainer.scale = flat, LossScale(self.precision == "fp16")
        self._trainer.group = self._trainer.optimizer.group = self._group
        self._trainer.cuda_env = None  # with it each update would forget the peak of the device's memory
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        self.probed: dict[str, dict[str, float]] | None = None
        """What was measured of the last update, where probe.every asks for it: "grad" and the like by module."""
        watched = run.probe.every and self._group.rank == 0
        self._watch = Watch(run.probe.every, model, flat, self._task) if watched else None
        self._epochs = self._trainer.get_train_iterator(epoch=1, load_dataset=False)
        self.check: Callable[[], None] = lambda: None
        """Called between the batches of validation and the steps of decoding; may raise to stop them."""
        self._batches: Any = None
        self._position: Any = None  # in the data, as loaded; until an update makes it the iterator's own
        self.updates_per_epoch = run.updates_per_epoch or math.ceil(len(self._epochs) / self._passes)
        config.lr_scheduler.updates_per_epoch = self.updates_per_epoch

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
        config.dataset.data_buffer_size = 0  # its reader thread outlives the run, with its files
        config.dataset.required_batch_size_multiple = 1
        config.distributed_training.distributed_world_size = 1
        config.optimization.clip_norm = run.optim.clip_norm
        config.optimization.lr = [run.optim.lr]
        optim = run.optim
        config.optimizer = optimizer_config(optim)
        config.lr_scheduler = {"_name": NAME, "lr_max": optim.lr, "schedule": vars(run.schedule),
                               "updates_per_epoch": 0}  # fmt: skip
        return config

    @property
    def clock(self) -> Clock:
        """Times the parts of an update; who times the whole run puts that clock here."""
        return self._task.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self._task.clock = clock

    @property
    def peak_device_mib(self) -> float | None:
        """Most memory that tensors took on the GPU at once, in MiB; None on a CPU."""
        return torch.cuda.max_memory_allocated(self.device) / 2**20 if self.device.type == "cuda" else None

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
                with self.clock("data"):
                    epoch = self._epochs.next_epoch_itr(fix_batches_to_gpus=False, shuffle=True)
                self._batches = iterators.GroupedIterator(epoch, self._passes) if self._passes > 1 else epoch
                self._trainer.begin_epoch(self._epochs.epoch)
            while samples := self._next_batch():
                yield self._update(samples)
            self._batches, self._position = None, self._epochs.state_dict()

    def _next_batch(self) -> list[Any]:
        """Give the batches of the next update, one a pass; none at the end of the epoch."""
        with self.clock("data"):
            samples = next(self._batches, None)
        return [] if samples is None else samples if self._passes > 1 else [samples]

    def _update(self, samples: list[Any]) -> dict[str, float]:
        group = self._group
        self._task.next_pass = group.rank
        # A process that the last batches of an epoch leave without a share does a pass that counts nothing.
        own = samples[group.rank :: group.size] or [None]
        if self.device.type == "cuda":
            with self.clock("data"):
                own = [sample and utils.move_to_cuda(sample) for sample in own]
        if self._watch:
            with self.clock("tracking"):
                self._watch.before(self.updates + 1)
        with self.clock("optimizer"):  # what is neither forward nor backward
            try:
                # fairseq would pass over an update that is out of memory; raise_oom has it say so.
                out = self._trainer.train_step(own, raise_oom=True)
            except Overflow:
                return Session._update(self, samples)  # not the Leader's: the others are doing it again too
        if out is None or not math.isfinite(out["loss"]):
            raise NonFinite("loss is not finite")
        if self._watch:
            with self.clock("tracking"):
                self.probed = self._watch.after(float(self._trainer.optimizer.last_norm))
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
        for number, sample in enumerate(batches.next_epoch_itr(shuffle=False, set_dataset_epoch=False)):
            if number % self._group.size != self._group.rank:
                continue
            self.check()
            out = self._trainer.valid_step(sample)
            tokens += float(out["sample_size"])
            for name in totals:
                totals[name] += float(out[name]) * float(out["sample_size"])
        loss, nll, tokens = self._group.total(totals["loss"], totals["nll_loss"], tokens)
        return {"loss_bits": loss / tokens, "nll_bits": nll / tokens}

    def translate(self, split: str, decode: Decode) -> list[str]:
        """Give one translation a source sentence, as BPE tokens, in corpus order."""
        longest = int(self._task.dataset(split).src_sizes.max())
        if longest > decode.max_tokens:
            rule = f"need at least {longest}, the longest source sentence of {split}"
            raise UserError(f"decode.max_tokens={decode.max_tokens}: {rule}")
        model = self._trainer.get_model()
        model.eval()
        own = translate(model, self._task, split, decode, self.device, self.check, self._group.rank, self._group.size)
        found = self._group.union(own)
        return [found[index] for index in range(len(found))]

    def heard(self) -> Any:
        """Wait for what the first of the run's processes says."""
        return self._group.tell()

    def close(self) -> None:
        """Let go of what else was started; one process has nothing of the kind."""

    def state(self) -> dict[str, Any]:
        """Give everything that training needs to go on bit for bit: tensors and plain values only.

        No generator state is among it: fairseq seeds dropout by seed + update, and batch order by seed + epoch.
        """
        return {
            "model": self._trainer.get_model().state_dict(),
            "optimizer": self._trainer.optimizer.state_dict(),
            "updates": self.updates,
            "passes": self._passes,
            "batches": self._position if self._batches is None else self._epochs.state_dict(),
        }

    def load_state(self, state: dict[str, Any], optimizer: bool = True) -> None:
        """Take `state` over; without `optimizer` only the parameters, for translation."""
        self._trainer.get_model().load_state_dict(state["model"])
        if not optimizer:
            return
        if (before := state.get("passes", self._passes)) != self._passes:
            rule = f"the run began with {before} passes an update, this makes {self._passes}; set them as they were"
            raise UserError(f"devices.max_tokens, devices.processes: {rule}, or delete the run folder")
        self._trainer.optimizer.load_state_dict(state["optimizer"])
        self._batches, self._position = None, state["batches"]
        if self._position is not None:
            self._epochs.load_state_dict(self._position)
        self._trainer.set_num_updates(state["updates"])
