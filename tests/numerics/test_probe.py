"""What a probe measures against torch.func, finite differences, public tools and closed forms."""

import copy
import math

import pytest
import torch
from fairseq.data import Dictionary
from torch import nn
from torch.nn import functional as F

from lnexp.backend.loss import LabelSmoothedLoss
from lnexp.backend.model import build_model
from lnexp.backend.probing import batch_of, gaussian_inputs, xavier
from lnexp.backend.watch import attentions, scores
from lnexp.config import Model, Size
from lnexp.probe import QUANTITIES, Activations, matrices, measure, norms, ratios

PAD, EPS = 1, 0.1


class Task:
    source_dictionary = target_dictionary = Dictionary()
    for _symbol in "abcdefghijklmnopqrst":
        source_dictionary.add_symbol(_symbol)


def build(place):
    """A tiny fairseq model off its neutral start, in double precision."""
    torch.manual_seed(3)
    model = build_model(Size(2, 2, 16, 24, 4), Model(place), Task()).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
        for stack in (model.encoder, model.decoder):
            stack.embed_tokens.weight[PAD] = 0
    return model


def sample(seed, lengths=((7, 5), (4, 6), (1, 2))):
    """A batch as fairseq's: sources padded on the left, targets on the right."""
    draw = torch.Generator().manual_seed(seed)
    source = torch.full((len(lengths), max(s for s, _ in lengths)), PAD)
    target = torch.full((len(lengths), max(t for _, t in lengths)), PAD)
    for row, (s, t) in enumerate(lengths):
        source[row, -s:] = torch.randint(4, 24, (s,), generator=draw)
        target[row, :t] = torch.randint(4, 24, (t,), generator=draw)
    previous = target.roll(1, 1)
    previous[:, 0] = 2
    previous[target.eq(PAD)] = PAD
    inputs = {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1), "prev_output_tokens": previous}
    return {"net_input": inputs, "target": target, "ntokens": int(target.ne(PAD).sum())}


SAMPLES = [sample(1), sample(2, ((3, 4), (2, 8)))]


def measured(model, step=None):
    loss = LabelSmoothedLoss(Task(), EPS)
    return measure(model, [batch_of(model, loss, s) for s in SAMPLES], attentions(model), scores, step)


def plain_loss(model, parameters, batch):
    """The mean label-smoothed loss a token, nats, from the definition."""
    copied = copy.deepcopy(model)  # functional_call leaves the shared embeddings apart
    logits = torch.func.functional_call(copied, parameters, (), batch["net_input"])[0]
    logs, target = logits.log_softmax(-1).flatten(0, 1), batch["target"].flatten()
    others = EPS / (logs.size(1) - 1)
    wanted = torch.full_like(logs, others).scatter(1, target[:, None], 1 - EPS)
    return -(wanted * logs).sum(1)[target.ne(PAD)].mean()


@pytest.mark.parametrize("place", ["post", "pre"])
def test_gradient_norms_are_those_of_torch_func(place, monkeypatch):
    # fairseq asks for the shape of its tokens in a way that torch.func does not know.
    monkeypatch.setattr(torch.onnx.operators, "shape_as_tensor", lambda x: torch.tensor(x.shape))
    model, found = build(place), measured(build(place))
    weights = dict(model.named_parameters())
    grads = [torch.func.grad(lambda p, s=s: plain_loss(model, p, s))(weights) for s in SAMPLES]
    assert set(found["grad_norm_of_mean"]) == {name.removesuffix(".weight") for name in weights if "weight" in name
                                               and weights[name].dim() == 2}  # fmt: skip
    for name, value in found["grad_norm_of_mean"].items():
        first, second = (g[f"{name}.weight"] for g in grads)
        assert value == pytest.approx(float(((first + second) / 2).norm()), rel=1e-5), name
        means = (float(first.norm()) + float(second.norm())) / 2
        assert found["grad_mean_of_norms"][name] == pytest.approx(means, rel=1e-5), name


# Behind the last attention to the encoder, whose softmax fairseq takes in single precision.
@pytest.mark.parametrize("name", ["decoder.layers.1.fc1", "decoder.layers.1.fc2"])
def test_a_step_along_the_gradient_changes_the_loss_by_its_norm(name):
    """Finite differences: (L(W + hg/|g|) - L(W - hg/|g|)) / 2h = |g|, the loss being the mean over both batches."""
    model, h = build("post"), 1e-5
    weights = dict(model.named_parameters())

    def loss(p):
        return sum(plain_loss(model, p, s) for s in SAMPLES) / len(SAMPLES)

    grad = torch.autograd.grad(loss(weights), weights[f"{name}.weight"])[0]
    way = h * grad / grad.norm()
    with torch.no_grad():
        up, down = (loss(weights | {f"{name}.weight": weights[f"{name}.weight"] + sign * way}) for sign in (1, -1))
    assert measured(model)["grad_norm_of_mean"][name] == pytest.approx(float(up - down) / (2 * h), rel=1e-5)


def test_nothing_is_left_behind():
    model, state = build("post"), torch.get_rng_state()
    before = {name: p.clone() for name, p in model.named_parameters()}
    measured(model)
    assert all(torch.equal(p, before[name]) and p.grad is None for name, p in model.named_parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())


def test_all_quantities_and_each_module_once():
    found = measured(build("pre"), lambda means: None)
    assert set(found) == set(QUANTITIES)
    assert len(found["hidden_norm"]) == len(found["ln_jacobian"]) == 2 * 2 + 2 * 3 + 2  # with both final LayerNorms
    assert len(found["attention_entropy"]) == 2 + 2 * 2
    assert set(found["update_ratio"].values()) == {0.0}


def test_hidden_norms_count_real_rows_alone():
    model = build("post")
    layer, total, count = model.encoder.layers[0], 0.0, 0
    with torch.no_grad():
        for tokens in (s["net_input"]["src_tokens"] for s in SAMPLES):
            padding = tokens.eq(PAD)
            x = (model.encoder.forward_embedding(tokens)[0] * ~padding[..., None]).transpose(0, 1)
            x = x + layer.self_attn(x, x, x, key_padding_mask=padding)[0]
            rows = x.transpose(0, 1)[~padding]
            total, count = total + float(rows.square().sum()), count + len(rows)
    found = measured(model)["hidden_norm"]["encoder.layers.0.self_attn_layer_norm"]
    assert found == pytest.approx(math.sqrt(total / count), rel=1e-9)


def test_the_factor_of_layer_norm_is_the_norm_of_its_jacobian():
    """Lemma 3, by torch.func.jacrev and singular values."""
    torch.manual_seed(1)
    norm, x = nn.LayerNorm(12, eps=0.0, dtype=torch.float64), 3 * torch.randn(5, 2, 12, dtype=torch.float64) + 1
    real = torch.tensor([[True, True]] * 4 + [[True, False]])
    seen = Activations()
    with seen.watching(nn.ModuleDict({"stack": norm}), {"stack": real}, {}, scores):
        norm(x)
    exact = [torch.linalg.matrix_norm(torch.func.jacrev(norm)(row), 2) for row in x[real]]
    assert seen.values()["ln_jacobian"]["stack"] == pytest.approx(float(torch.stack(exact).mean()), rel=1e-9)


@pytest.mark.parametrize("place", ["post", "pre"])
def test_entropy_is_that_of_torchs_own_attention_weights(place):
    model, calls = build(place), []
    watched = attentions(model)
    hooks = [m.register_forward_pre_hook(lambda m, args, call, n=name: calls.append((n, m, call)), with_kwargs=True)
             for name, m in watched.items()]  # fmt: skip
    real = {"encoder": SAMPLES[0]["net_input"]["src_tokens"].ne(PAD), "decoder": SAMPLES[0]["target"].ne(PAD)}
    with torch.no_grad():
        model(**SAMPLES[0]["net_input"])
    for hook in hooks:
        hook.remove()
    found = measure(model, [batch_of(model, LabelSmoothedLoss(Task(), EPS), SAMPLES[0])], watched, scores)
    assert len(calls) == 6
    for name, m, call in calls:
        _, weights = F.multi_head_attention_forward(
            call["query"], call["key"], call["value"], 16, 4, None,
            torch.cat([m.q_proj.bias, m.k_proj.bias, m.v_proj.bias]), None, None, False, 0.0, m.out_proj.weight,
            m.out_proj.bias, False, call.get("key_padding_mask"), True, call.get("attn_mask"), True,
            m.q_proj.weight, m.k_proj.weight, m.v_proj.weight, average_attn_weights=False,
        )  # fmt: skip
        rows = weights.transpose(1, 2)[real[name.split(".")[0]]]  # real queries x heads x keys
        entropy = torch.special.entr(rows).sum()
        most = (rows > 0).sum(-1).double().log().sum()
        assert found["attention_entropy"][name] == pytest.approx(float(entropy / most), rel=1e-6), name


def test_uniform_attention_has_entropy_one_and_a_sharp_one_none():
    model = build("pre")
    first, second = model.decoder.layers[0].encoder_attn, model.decoder.layers[1].encoder_attn
    with torch.no_grad():
        first.q_proj.weight.zero_(), first.q_proj.bias.zero_()
        second.q_proj.weight.mul_(1e4)
    found = measured(model)["attention_entropy"]
    assert found["decoder.layers.0.encoder_attn"] == pytest.approx(1, abs=1e-12)
    assert found["decoder.layers.1.encoder_attn"] < 0.05


def test_update_ratio_is_that_of_the_step():
    model = build("post")
    size = norms(matrices(model.named_parameters()))

    def step(means):
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.sub_(0.5 * means[name])

    found = measured(model, step)
    for name, ratio in found["update_ratio"].items():
        assert ratio == pytest.approx(0.5 * found["grad_norm_of_mean"][name] / size[name], rel=1e-9)


def test_a_matrix_of_zeros_has_no_ratio():
    assert ratios({"a": torch.zeros(2, 2), "b": torch.ones(2, 2)}, {"a": torch.ones(2, 2), "b": torch.ones(2, 2)}) == {
        "b": 0.0
    }


def test_gaussian_inputs_have_squared_norm_d_and_are_drawn_by_seed():
    model, found = build("pre"), []
    for seed in (1, 1, 2):
        with gaussian_inputs(model, seed, True):
            found.append(measured(model)["hidden_norm"]["encoder.layers.0.self_attn_layer_norm"])
    assert found[0] == found[1] != found[2]
    assert found[0] ** 2 / 16 == pytest.approx(1, abs=5 * math.sqrt(2 / (17 * 16)))  # chi-square over 17 real rows
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_xavier_is_the_papers_variance():
    model = build_model(Size(1, 1, 256, 512, 4), Model("post"), Task())
    fairseqs = float(model.encoder.layers[0].fc2.weight.var())
    xavier(model, 1)
    for layer in (model.encoder.layers[0].fc2, model.decoder.layers[0].fc1, model.decoder.layers[0].self_attn.v_proj):
        n_out, n_in = layer.weight.shape
        # A uniform variable's variance has a standard error of sqrt(4/5 / n).
        wanted, error = 2 / (n_in + n_out), 5 * math.sqrt(0.8 / layer.weight.numel())
        assert float(layer.weight.var()) == pytest.approx(wanted, rel=error) and not layer.bias.any()
    # fairseq 0.12 leaves the FFN to torch: variance 1 / (3 n_in), and biases.
    assert fairseqs == pytest.approx(1 / (3 * 512), rel=5 * math.sqrt(0.8 / (256 * 512)))
