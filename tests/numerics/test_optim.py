"""The optimizers and the scheduler as fairseq's Trainer drives them, against plain formulas."""

import copy
import math
from dataclasses import asdict

import pytest
import torch
from omegaconf import OmegaConf

from lnexp.backend import NonFinite
from lnexp.backend.flat import Flat
from lnexp.backend.optim import LossScale, Overflow, ScheduleScheduler, TorchOptimizer
from lnexp.errors import UserError
from lnexp.schedule import Schedule, lr


def optimizer(parameter, scaled=False, **changes):
    values = {"name": "adam", "lr": [0.1], "betas": [0.9, 0.98], "eps": 1e-8, "weight_decay": 0.0} | changes
    model = torch.nn.Module()
    model.register_parameter("x", parameter)
    return TorchOptimizer(OmegaConf.create(values), Flat(model), LossScale(scaled))


def test_adam_is_the_papers_formula():
    x = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.double))
    opt = optimizer(x, weight_decay=0.01)
    want, m, v = x.detach().clone(), torch.zeros(2).double(), torch.zeros(2).double()
    for t in range(1, 6):
        g = torch.tensor([0.3 * t, -0.1 / t]).double()
        x.grad.copy_(g)
        opt.step()
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g
        want = want * (1 - 0.1 * 0.01)  # decay apart from the gradient
        want = want - 0.1 * (m / (1 - 0.9**t)) / ((v / (1 - 0.98**t)).sqrt() + 1e-8)
    assert torch.allclose(x.detach(), want, atol=1e-7)


def test_sgd_has_no_momentum():
    x = torch.nn.Parameter(torch.tensor([1.0]))
    opt = optimizer(x, name="sgd")
    for _ in range(3):
        x.grad.fill_(2.0)
        opt.step()
    assert x.item() == pytest.approx(1 - 3 * 0.1 * 2)


def test_radam_starts_without_adaptation():
    """Liu et al. (2020), algorithm 2: while rho_t <= 5 the update is plain momentum, lr * m / (1 - beta1^t)."""
    x = torch.nn.Parameter(torch.tensor([1.0]))
    opt = optimizer(x, name="radam")
    x.grad.fill_(4.0)
    opt.step()
    assert x.item() == pytest.approx(1 - 0.1 * 4.0)


@pytest.mark.parametrize("max_norm", [0.0, 1.0])
def test_gradient_norm_and_clipping(max_norm):
    x = torch.nn.Parameter(torch.zeros(2))
    opt = optimizer(x)
    x.grad.copy_(torch.tensor([3.0, 4.0]))
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


def test_gradients_of_a_scaled_loss_come_out_as_they_are():
    x = torch.nn.Parameter(torch.tensor([3.0]))
    opt = optimizer(x, scaled=True)
    opt.scale.value = 8.0
    opt.backward((x * x).sum())
    assert x.grad.item() == 8 * 6
    opt.multiply_grads(0.5)
    assert x.grad.item() == 3.0


def test_an_overflow_halves_the_scale_until_nothing_is_left_of_it():
    x = torch.nn.Parameter(torch.zeros(1))
    opt = optimizer(x, scaled=True)
    x.grad.fill_(math.inf)
    for exponent in range(1, 15):
        with pytest.raises(Overflow):
            opt.clip_grad_norm(0)
        assert opt.scale.value == 2.0**-exponent
    with pytest.raises(NonFinite):
        opt.clip_grad_norm(0)
    x.grad.fill_(1.0)
    for _ in range(LossScale.PATIENCE):
        assert opt.scale.value == 2.0**-14
        opt.clip_grad_norm(0)
    assert opt.scale.value == 2.0**-13


def test_without_half_types_a_gradient_that_is_no_number_ends_the_run_at_once():
    x = torch.nn.Parameter(torch.zeros(1))
    opt = optimizer(x)
    x.grad.fill_(math.nan)
    with pytest.raises(NonFinite):
        opt.clip_grad_norm(0)
    assert opt.scale.value == 1


def test_moments_and_scale_come_back_and_go_to_their_own_parameters_only():
    x = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    opt = optimizer(x, scaled=True)
    x.grad.fill_(0.5)
    opt.step()
    opt.scale.value = 0.25
    saved = copy.deepcopy(opt.state_dict())
    again = optimizer(torch.nn.Parameter(x.detach().clone()), scaled=True)
    again.load_state_dict(saved)
    assert again.scale.value == 0.25
    for one in (opt, again):
        next(iter(one.params)).grad.fill_(0.25)
        one.step()
    assert torch.equal(*(next(iter(one.params)) for one in (opt, again)))
    for other in (saved | {"order": ["y"]}, saved["torch"]):
        with pytest.raises(UserError, match="another version"):
            again.load_state_dict(other)
