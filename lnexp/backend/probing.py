"""What lnexp.probe needs to measure a run: models at their start and from checkpoints, batches with a loss, an update.

Always fairseq's own modules in float32 and without dropout, whatever the precision of training: the fast pass does
not call the modules that hooks sit on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from fairseq import utils
from torch import Tensor, nn

from lnexp.backend.devices import device_of
from lnexp.backend.flat import Flat
from lnexp.backend.loss import LabelSmoothedLoss
from lnexp.backend.model import build_model
from lnexp.backend.optim import LossScale, TorchOptimizer
from lnexp.backend.room import longest_trained
from lnexp.backend.session import open_task, optimizer_config
from lnexp.backend.watch import attentions, real_rows, scores
from lnexp.config import Run
from lnexp.data.prepare import Prepared
from lnexp.errors import UserError
from lnexp.probe import Batch, Values, measure
from lnexp.schedule import lr


class Prober:
    """Measures models of one run: at initialisation by any seed, and from its checkpoints."""

    def __init__(self, run: Run, data: Prepared, threads: int) -> None:
        torch.set_num_threads(threads)
        self._run, self._device = run, device_of(run, 0)
        self._task = open_task(run, data)
        self._tokens = run.probe.tokens or run.tokens_per_update
        if self._tokens < (longest := longest_trained(data)):
            raise UserError(f"probe.tokens={self._tokens}: need at least {longest}, the longest training sentence")

    def at_init(self, seed: int) -> Values:
        """Measure the model that training with this seed starts from; its update is one at the peak rate."""
        model = self._model(seed)
        if self._run.probe.init == "xavier":
            xavier(model, seed)
        return self._measure(model, seed, None, self._run.optim.lr)

    def at_checkpoint(self, state: dict[str, Any], updates_per_epoch: int) -> Values:
        """Measure a checkpoint's parameters; its update is the one that training would do next."""
        model = self._model(self._run.seed)
        model.load_state_dict(state["model"])
        rate = lr(self._run.schedule, self._run.optim.lr, state["updates"] + 1, updates_per_epoch)
        return self._measure(model, self._run.seed, state["optimizer"], rate)

    def _model(self, seed: int) -> Any:
        utils.set_torch_seed(seed)
        return build_model(self._run.size, self._run.model, self._task).to(self._device)

    def _measure(self, model: Any, seed: int, optimizer: dict[str, Any] | None, rate: float) -> Values:
        model.eval()
        flat = Flat(model)
        stepper = TorchOptimizer(_Namespace(optimizer_config(self._run.optim)), flat, LossScale(False))
        if optimizer:
            stepper.load_state_dict(optimizer)
        stepper.set_lr(rate)

        def step(means: dict[str, Tensor]) -> None:
            for name, p in model.named_parameters():
                if p.grad is not None:
                    p.grad.copy_(means[name])
            stepper.step()

        loss = LabelSmoothedLoss(self._task, self._run.optim.label_smoothing)
        samples = self._samples(seed)
        with gaussian_inputs(model, seed, self._run.probe.inputs == "gaussian"):
            batches = [batch_of(model, loss, sample) for sample in samples]
            return measure(model, batches, attentions(model), scores, step)

    def _samples(self, seed: int) -> list[Any]:
        """Give the first batches that training with this seed would see, at probe.tokens a batch."""
        want = self._run.probe.batches
        found = self._task.get_batch_iterator(
            self._task.dataset("train"), max_tokens=self._tokens, required_batch_size_multiple=1, seed=seed,
            num_workers=0, disable_iterator_cache=True,
        ).next_epoch_itr(fix_batches_to_gpus=False, shuffle=True)  # fmt: skip
        samples = list(islice(found, want))
        if len(samples) < want:
            rule = f"the training data makes {len(samples)} batches of {self._tokens} tokens"
            raise UserError(f"probe.batches={want}: {rule}; need at most as many, or a smaller probe.tokens")
        return [utils.move_to_cuda(s) if self._device.type == "cuda" else s for s in samples]


class _Namespace(dict[str, Any]):
    __getattr__ = dict.__getitem__


def batch_of(model: Any, loss: LabelSmoothedLoss, sample: dict[str, Any]) -> Batch:
    """Make a batch of fairseq's: mean loss a target token in nats, and which positions are no padding."""

    def mean() -> Tensor:
        total, tokens, _ = loss(model, sample)
        return total / tokens

    return Batch(mean, real_rows(sample, loss.padding_idx))


@contextmanager
def gaussian_inputs(model: Any, seed: int, wanted: bool) -> Iterator[None]:
    """Feed both stacks independent N(0, 1) numbers in place of embedded words; the words still are the labels."""
    if not wanted:
        yield
        return
    draw = torch.Generator().manual_seed(seed)

    def hook(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (torch.randn(args[0].shape, generator=draw).to(args[0]), *args[1:])

    hooks = [stack.layers[0].register_forward_pre_hook(hook) for stack in (model.encoder, model.decoder)]
    try:
        yield
    finally:
        for each in hooks:
            each.remove()


def xavier(model: nn.Module, seed: int) -> None:
    """Draw every linear layer anew as the paper has it: Xavier (uniform, fairseq's choice of it), biases 0."""
    torch.manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
