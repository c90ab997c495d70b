"""The optimizers and the scheduler as fairseq's Trainer drives them, against plain formulas."""

import math
from dataclasses import asdict

import pytest
import torch
from omegaconf import OmegaConf

from lnexp.backend.optim import ScheduleScheduler, TorchOptimizer
from lnexp.schedule import Schedule, lr


def optimizer(parameter, **changes):
    values = {"name": "adam", "lr": [0.1], "betas": [0.9, 0.98], "eps": 1e-8, "weight_decay": 0.0} | changes
    return TorchOptimizer(OmegaConf.create(values), [parameter])


def test_adam_is_the_papers_formula():
    x = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.double))
    opt = optimizer(x, weight_decay=0.01)
    want, m, v = x.detach().clone(), torch.zeros(2).double(), torch.zeros(2).double()
    for t in range(1, 6):
        g = torch.tensor([0.3 * t, -0.1 / t]).double()
        x.grad = g.clone()
        opt.step()
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g
        want = want * (1 - 0.1 * 0.01)  # decay apart from the gradient
        want = want - 0.1 * (m / (1 - 0.9**t)) / ((v / (1 - 0.98**t)).sqrt() + 1e-8)
    assert torch.allclose(x.detach(), want, atol=1e-7)


def test_sgd_has_no_momentum():
    x = torch.nn.Parameter(torch.tensor([1.0]))
    opt = optimizer(x, name="sgd")
    for _ in range(3):
        x.grad = torch.tensor([2.0])
        opt.step()
    assert x.item() == pytest.approx(1 - 3 * 0.1 * 2)


def test_radam_starts_without_adaptation():
    """Liu et al. (2020), algorithm 2: while rho_t <= 5 the update is plain momentum, lr * m / (1 - beta1^t)."""
    x = torch.nn.Parameter(torch.tensor([1.0]))
    opt = optimizer(x, name="radam")
    x.grad = torch.tensor([4.0])
    opt.step()
    assert x.item() == pytest.approx(1 - 0.1 * 4.0)


@pytest.mark.parametrize("max_norm", [0.0, 1.0])
def test_gradient_norm_and_clipping(max_norm):
    x = torch.nn.Parameter(torch.zeros(2))
    opt = optimizer(x)
    x.grad = torch.tensor([3.0, 4.0])
    assert opt.clip_grad_norm(max_norm).item() == pytest.approx(5.0)
    assert x.grad.norm().item() == pytest.approx(max_norm or 5.0, rel=1e-5)


@pytest.mark.parametrize("warmup", [0, 1, 500, 4000])
def test_the_rate_of_update_n_is_the_formulas_at_n(warmup):
    """fairseq tells the scheduler the updates done; update n must run at lr(n), so the first at lr(1)."""
    opt = optimizer(torch.nn.Parameter(torch.zeros(1)))
    schedule = Schedule("inverse_sqrt", warmup_updates=warmup)
    config = {"schedule": asdict(schedule), "lr_max": 5e-4, "updates_per_epoch": 0}
    scheduler = ScheduleScheduler(OmegaConf.create(config), opt)
    assert opt.get_lr() == lr(schedule, 5e-4, 1)
    for done in (0, 1, 499, 500, 4000):
        scheduler.step_update(done)
        assert math.isclose(opt.get_lr(), lr(schedule, 5e-4, done + 1))
