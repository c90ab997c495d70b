"""Our loss against the formula in plain torch, against fairseq's, and against finite differences."""

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss

from lnexp.backend.loss import smoothed_loss

PAD = 1


def plain(logits, target, eps):
    """(1 - eps - eps') * nll + eps' * sum over the vocabulary, summed over the tokens that are not padding."""
    lp = logits.log_softmax(-1)
    keep = target.ne(PAD)
    nll = -lp[torch.arange(len(target)), target][keep]
    eps_i = eps / (logits.size(-1) - 1)
    return ((1 - eps - eps_i) * nll + eps_i * -lp.sum(-1)[keep]).sum(), nll.sum()


@pytest.fixture
def batch():
    torch.manual_seed(3)
    return 3 * torch.randn(12, 9, dtype=torch.double), torch.tensor([3, 1, 8, 0, 2, 1, 4, 4, 5, 6, 7, 1])


@pytest.mark.parametrize("eps", [0.0, 0.1, 0.5])
def test_value_and_gradient(batch, eps):
    logits, target = batch
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss, nll = smoothed_loss(ours, target, eps, PAD)
    want, want_nll = plain(theirs, target, eps)
    (2 * loss).backward()
    (2 * want).backward()
    assert torch.allclose(loss, want, atol=1e-10) and torch.allclose(nll, want_nll, atol=1e-10)
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-10)
    assert ours.grad[target.eq(PAD)].abs().max() == 0


@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_same_as_fairseqs(batch, eps):
    logits, target = batch
    loss, nll = smoothed_loss(logits, target, eps, PAD)
    want, want_nll = label_smoothed_nll_loss(logits.log_softmax(-1), target, eps, ignore_index=PAD)
    assert torch.allclose(loss, want) and torch.allclose(nll, want_nll)


def test_finite_differences(batch):
    logits, target = batch
    assert torch.autograd.gradcheck(lambda z: smoothed_loss(z, target, 0.1, PAD)[0], logits.requires_grad_())


def test_large_logits_do_not_overflow():
    logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    loss, _ = smoothed_loss(logits, torch.tensor([0]), 0.0, PAD)
    loss.backward()
    assert loss.item() == 0 and torch.isfinite(logits.grad).all()
