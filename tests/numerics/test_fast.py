"""The fast forward pass against fairseq in double precision, and each of its steps against plain torch."""

import copy
import math

import pytest
import torch
from fairseq.data import Dictionary
from omegaconf import OmegaConf
from torch import nn
from torch.nn import functional as F

from lnexp.backend import linear, output
from lnexp.backend.attention import Sizes, attention, hide
from lnexp.backend.dropout import Dropout
from lnexp.backend.fast import FastTransformer
from lnexp.backend.flat import Flat
from lnexp.backend.loss import smoothed_loss
from lnexp.backend.model import build_model
from lnexp.backend.norm import norm
from lnexp.backend.optim import LossScale, TorchOptimizer
from lnexp.backend.output import output_loss
from lnexp.config import Model, Size

PAD, CPU = 1, torch.device("cpu")


class Task:
    source_dictionary = target_dictionary = Dictionary()
    for _symbol in "abcdefghijklmnopqrst":
        source_dictionary.add_symbol(_symbol)


def build(place="post", **changes):
    torch.manual_seed(5)
    size = Size(encoder_layers=2, decoder_layers=3, d_model=32, d_ffn=48, heads=4, **changes)
    model = build_model(size, Model(place), Task())
    with torch.no_grad():  # off their neutral start, so that a missing or doubled gain, bias or residual shows
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
        for stack in (model.encoder, model.decoder):
            stack.embed_tokens.weight[PAD] = 0
    return model


def batch(lengths=((7, 5), (4, 6), (1, 2))):
    """Sources padded on the left, targets on the right, as fairseq's batches are."""
    torch.manual_seed(2)
    source = torch.full((len(lengths), max(s for s, _ in lengths)), PAD)
    target = torch.full((len(lengths), max(t for _, t in lengths)), PAD)
    for row, (s, t) in enumerate(lengths):
        source[row, -s:] = torch.randint(4, 24, (s,))
        target[row, :t] = torch.randint(4, 24, (t,))
    previous = target.roll(1, 1)
    previous[:, 0] = 2
    previous[target.eq(PAD)] = PAD
    return source, previous, target


def fairseqs(model, source, previous, target):
    """Loss and gradients of fairseq's modules, in double precision."""
    model = copy.deepcopy(model).double()
    model.zero_grad()
    logits = model(source, None, previous)[0]
    loss, nll = smoothed_loss(logits.view(-1, logits.size(-1)), target.view(-1), 0.1, PAD)
    loss.backward()
    return loss, nll, {name: p.grad for name, p in model.named_parameters()}


def ours(model, dtype, source, previous, target):
    flat = Flat(model)
    fast = FastTransformer(model, flat, dtype)
    loss, nll = output_loss(fast.features(source, previous), fast.output, target.view(-1), 0.1, PAD)
    loss.backward()
    flat.collect()
    return loss, nll, {name: p.grad for name, p in model.named_parameters()}


def distance(got, want):
    """Of all gradients together, relative."""
    return math.dist(flatten(got, want), flatten(want, want)) / torch.cat([g.flatten() for g in want.values()]).norm()


def flatten(grads, names):
    return torch.cat([grads[name].flatten().double() for name in names]).tolist()


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("share", ["all", "decoder", "none"])
@pytest.mark.parametrize("place", ["post", "pre"])
def test_float32_equals_fairseqs_modules(place, share, padded):
    model, data = build(place, share_embeddings=share), batch() if padded else batch(((5, 4), (5, 4)))
    want, want_nll, want_grads = fairseqs(model, *data)
    loss, nll, grads = ours(model, torch.float32, *data)
    assert loss.item() == pytest.approx(want.item(), rel=1e-6) and nll.item() == pytest.approx(
        want_nll.item(), rel=1e-6
    )
    for name, grad in want_grads.items():
        assert torch.allclose(grads[name].double(), grad, rtol=1e-4, atol=1e-5 * grad.abs().max().item() + 1e-6), name


@pytest.mark.parametrize("place", ["post", "pre"])
def test_float32_without_onednn_too(place, monkeypatch):
    monkeypatch.setattr(linear, "ONEDNN", False)
    model, data = build(place), batch()
    want, _, want_grads = fairseqs(model, *data)
    loss, _, grads = ours(model, torch.float32, *data)
    assert loss.item() == pytest.approx(want.item(), rel=1e-6)
    assert distance(grads, want_grads) < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("place", ["post", "pre"])
def test_half_types_are_off_by_their_rounding(place, dtype):
    """A step rounds by 2^-9 (bfloat16); some ten steps deep the gradient may be off by a few percent."""
    model, data = build(place), batch(((9, 8), (12, 12), (3, 5)))
    want, _, want_grads = fairseqs(model, *data)
    loss, _, grads = ours(model, dtype, *data)
    precision = torch.finfo(dtype).eps
    assert loss.item() == pytest.approx(want.item(), rel=precision)
    assert distance(grads, want_grads) < 10 * precision


@pytest.mark.parametrize("name", ["adam", "sgd", "radam"])
def test_a_step_changes_the_next_pass(name):
    model, (source, previous, _) = build(), batch()
    flat = Flat(model)
    fast = FastTransformer(model, flat, torch.bfloat16)
    config = {"name": name, "lr": [0.1], "betas": [0.9, 0.98], "eps": 1e-8, "weight_decay": 0.0}
    optimizer = TorchOptimizer(OmegaConf.create(config), flat, LossScale(False))
    before, old = fast.features(source, previous).detach(), copy.deepcopy(model.state_dict())
    flat.grad.normal_()
    optimizer.step()
    after = fast.features(source, previous).detach()
    fresh = copy.deepcopy(model)
    assert torch.equal(after, FastTransformer(fresh, Flat(fresh), torch.bfloat16).features(source, previous))
    assert not torch.equal(before, after)
    model.load_state_dict(old)
    assert torch.equal(fast.features(source, previous), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_passes_add_up(dtype):
    model, data = build(), batch()
    flat = Flat(model)
    fast = FastTransformer(model, flat, dtype)
    for passes in (1, 2):
        loss, _ = output_loss(fast.features(*data[:2]), fast.output, data[2].view(-1), 0.1, PAD)
        loss.backward()
        flat.collect()
        if passes == 1:
            once = flat.grad.clone()
    assert torch.allclose(flat.grad, 2 * once, rtol=1e-5, atol=1e-5)


def test_dropout_is_drawn_in_training_alone_and_follows_from_torchs_seed():
    model, (source, previous, _) = build(dropout=0.3, attention_dropout=0.2, activation_dropout=0.1), batch()
    fast = FastTransformer(model, Flat(model), torch.float32)

    def features(seed):
        torch.manual_seed(seed)
        return fast.features(source, previous).detach()

    assert torch.equal(features(1), features(1)) and not torch.allclose(features(1), features(2))
    model.eval()
    assert torch.equal(features(1), features(2))


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_dropout_keeps_its_share_and_the_expectation(p):
    torch.manual_seed(1)
    mask, scale = Dropout(CPU).mask(n := 1_000_003, p)
    assert mask.shape == (n,) and set(mask.unique().tolist()) == {0.0, 1.0}
    kept = mask.float().mean().item()
    assert abs(kept - (1 - p)) < 4 * math.sqrt(p * (1 - p) / n) + 1e-5
    assert scale == pytest.approx(1 / (1 - p), rel=2e-5)
    pairs = mask[: n - 1].float() @ mask[1:].float() / n  # neighbours are independent
    assert abs(pairs.item() - (1 - p) ** 2) < 0.004


def test_dropout_gives_gradients_where_it_kept():
    drop = Dropout(CPU)
    residual, x = (torch.randn(64, 8, dtype=torch.double, requires_grad=True) for _ in range(2))
    out = drop.add(residual, x, 0.25)
    kept = (out - residual).detach() != 0
    assert torch.allclose((out - residual)[kept], x[kept] / 0.75)
    out.sum().backward()
    assert torch.equal(residual.grad, torch.ones_like(residual)) and torch.allclose(x.grad, kept.double() / 0.75)
    x.grad = None
    plain = drop(x, 0.25)
    plain.sum().backward()
    assert torch.allclose(plain, x * x.grad) and 0 < (plain == 0).sum() < x.numel()


@pytest.mark.parametrize("p", [0.0, 0.2])
@pytest.mark.parametrize("own", [True, False])
def test_attention_by_finite_differences(own, p):
    torch.manual_seed(3)
    sentences, heads, width = 2, 3, 12
    query = torch.randn(sentences * 4, width * (3 if own else 1), dtype=torch.double, requires_grad=True)
    others = None if own else torch.randn(sentences * 5, width * 2, dtype=torch.double, requires_grad=True)
    padding = torch.zeros(sentences, 4 if own else 5, dtype=torch.bool)
    padding[1, 0] = True
    sizes, mask = Sizes(sentences, 4, padding.size(1), heads), hide(padding, torch.double)

    def seen(query, others=None):
        torch.manual_seed(4)
        return attention(query, others, sizes, mask, Dropout(CPU), p)

    assert torch.autograd.gradcheck(seen, (query,) if own else (query, others))


@pytest.mark.parametrize("length", [6, 8, 11])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_is_torchs(length, causal):
    """With rows of filling after the last sentence's, which must come out as nothing."""
    torch.manual_seed(3)
    rows = torch.randn(3 * length + 5, 3 * 8)
    q, k, v = rows[:-5].view(3, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
    want = F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(0, 1).flatten(1)
    mask = hide(torch.zeros(3, length, dtype=torch.bool), torch.float32)
    got = attention(rows, None, Sizes(3, length, length, 2), mask, Dropout(CPU), 0.0, causal)
    assert torch.allclose(got[:-5], want, atol=1e-6) and not got[-5:].any() and len(got) == len(rows)


@pytest.mark.parametrize("cut", [1, 40, 1 << 20])
@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_output_and_loss_are_the_formula_whatever_the_cuts(eps, cut, monkeypatch):
    monkeypatch.setattr(output, "_LOGITS", 3 * cut)
    monkeypatch.setattr(output, "_CACHED", cut)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 9, bias=False)).double()
    flat = Flat(model)
    x, target = torch.randn(12, 5, dtype=torch.double), torch.tensor([3, 1, 8, 0, 2, 1, 4, 4, 5, 6, 7, 1])
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    weight = model[0].weight.detach().clone().requires_grad_()
    loss, nll = output_loss(a, linear.Linear([model[0]], flat, flat.values.detach()), target, eps, PAD)
    want, want_nll = smoothed_loss(b @ weight.t(), target, eps, PAD)
    (2 * loss).backward()
    (2 * want).backward()
    assert torch.allclose(loss, want) and torch.allclose(nll, want_nll)
    assert torch.allclose(a.grad, b.grad) and torch.allclose(model[0].weight.grad, weight.grad)


def test_norm_does_not_lose_small_terms_of_a_long_sum():
    """torch's own backward pass in bfloat16 is off by 5% here."""
    torch.manual_seed(1)
    layer = nn.LayerNorm(64)
    nn.init.normal_(layer.weight)
    x, grad = torch.randn(4096, 64).bfloat16(), (torch.randn(4096, 64) + 0.01).bfloat16()
    norm(x.requires_grad_(), layer).backward(grad)
    exact, y = copy.deepcopy(layer).double(), x.detach().double().requires_grad_()
    exact.zero_grad()
    exact(y).backward(grad.double())
    for got, want in ((layer.weight, exact.weight), (layer.bias, exact.bias), (x, y)):
        assert (got.grad.double() - want.grad).norm() < 0.01 * want.grad.norm()


def test_a_flat_model_is_the_same_model():
    model = build("pre")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    flat = Flat(model)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert flat.values.numel() == sum(p.numel() for p in model.parameters()) and len(set(flat.order)) == len(flat.order)
    with torch.no_grad():
        flat.values.zero_()
    assert all(not p.any() for p in model.parameters())
    attention = model.decoder.layers[1].self_attn
    assert (
        flat.block([p.weight for p in (attention.q_proj, attention.k_proj, attention.v_proj)], flat.grad).size(0) == 96
    )
    with pytest.raises(AssertionError, match="not neighbours"):
        flat.block([attention.q_proj.weight, attention.v_proj.weight], flat.grad)
