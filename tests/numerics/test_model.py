"""fairseq's Transformer, as we configure it, against the paper's equations written out in plain torch."""

import math

import pytest
import torch
from fairseq.data import Dictionary

from lnexp.backend.model import build_model, check_structure, parameter_count
from lnexp.config import Model, Size

PAD = 1


class Task:
    source_dictionary = target_dictionary = Dictionary()
    for _symbol in "abcdefghijklmnopqrst":
        source_dictionary.add_symbol(_symbol)


SIZE = Size(encoder_layers=2, decoder_layers=3, d_model=16, d_ffn=24, heads=4)


def build(norm: str, size: Size = SIZE) -> torch.nn.Module:
    torch.manual_seed(5)
    model = build_model(size, Model(norm), Task()).eval()
    with torch.no_grad():  # off their neutral start, so that a missing or doubled LayerNorm shows
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
        model.encoder.embed_tokens.weight[PAD] = 0
    return model


def reference(model: torch.nn.Module, norm: str, source: torch.Tensor, previous: torch.Tensor) -> torch.Tensor:
    """Table 1 of the paper: logits, batch x target x vocabulary. Written from the equations, weights by name."""
    w = model.state_dict()
    d, heads = SIZE.d_model, SIZE.heads

    def linear(x, name):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    def layer_norm(x, name):
        centred = x - x.mean(-1, keepdim=True)
        scale = (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
        return centred / scale * w[name + ".weight"] + w[name + ".bias"]

    def attention(query, keys, name, hidden):
        q, k, v = (
            linear(x, f"{name}.{p}_proj").unflatten(-1, (heads, d // heads)).transpose(1, 2)
            for x, p in ((query, "q"), (keys, "k"), (keys, "v"))
        )
        scores = (q @ k.transpose(-1, -2) / math.sqrt(d // heads)).masked_fill(hidden, -math.inf)
        return linear((scores.softmax(-1) @ v).transpose(1, 2).flatten(2), f"{name}.out_proj")

    def residual(x, sublayer, name):
        return x + sublayer(layer_norm(x, name)) if norm == "pre" else layer_norm(x + sublayer(x), name)

    def ffn(name):
        return lambda x: linear(linear(x, f"{name}.fc1").relu(), f"{name}.fc2")

    def embed(tokens):
        # Positions count the tokens that are not padding, from 2 on; sines fill the first half, cosines the second.
        keep = tokens.ne(PAD)
        position = (keep.cumsum(1) + PAD) * keep
        rate = torch.exp(torch.arange(d // 2) * -(math.log(10000) / (d // 2 - 1)))
        angle = position.unsqueeze(-1) * rate
        sines = torch.cat([angle.sin(), angle.cos()], -1) * keep.unsqueeze(-1)
        return w["encoder.embed_tokens.weight"][tokens] * math.sqrt(d) + sines

    padded = source.eq(PAD)[:, None, None, :]
    future = torch.ones(previous.size(1), previous.size(1)).triu(1).bool()
    x = embed(source) * source.ne(PAD).unsqueeze(-1)
    for i in range(SIZE.encoder_layers):
        n = f"encoder.layers.{i}"
        x = residual(x, lambda y, n=n: attention(y, y, n + ".self_attn", padded), n + ".self_attn_layer_norm")
        x = residual(x, ffn(n), n + ".final_layer_norm")
    if norm == "pre":
        x = layer_norm(x, "encoder.layer_norm")
    y = embed(previous)
    for i in range(SIZE.decoder_layers):
        n = f"decoder.layers.{i}"
        y = residual(y, lambda z, n=n: attention(z, z, n + ".self_attn", future), n + ".self_attn_layer_norm")
        y = residual(y, lambda z, n=n: attention(z, x, n + ".encoder_attn", padded), n + ".encoder_attn_layer_norm")
        y = residual(y, ffn(n), n + ".final_layer_norm")
    if norm == "pre":
        y = layer_norm(y, "decoder.layer_norm")
    return y @ w["encoder.embed_tokens.weight"].T


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_forward_is_the_papers(norm):
    model = build(norm).double()
    source = torch.tensor([[4, 9, 7, 5, 2], [PAD, PAD, 8, 6, 2]])  # padded on the left, as fairseq does
    previous = torch.tensor([[2, 5, 6, 7], [2, 11, 12, 4]])
    with torch.no_grad():
        ours = model(source, torch.tensor([5, 3]), previous)[0]
        theirs = reference(model, norm, source, previous)
    assert (ours - theirs).abs().max() < 1e-6


def test_the_two_placements_differ():
    source, previous = torch.tensor([[4, 9, 2]]), torch.tensor([[2, 5]])
    with torch.no_grad():
        post, pre = (build(n)(source, torch.tensor([3]), previous)[0] for n in ("post", "pre"))
    assert (post - pre).abs().max() > 0.1


def test_only_pre_ln_has_final_layer_norms():
    for norm, final in (("post", False), ("pre", True)):
        model = build(norm)
        assert (model.encoder.layer_norm is not None) == (model.decoder.layer_norm is not None) == final
    with pytest.raises(AssertionError, match="final LayerNorm"):
        check_structure(build("post"), "pre")


@pytest.mark.parametrize(("name", "size"), [
    ("iwslt", Size(6, 6, 512, 1024, 4)),
    ("base", Size(6, 6, 512, 2048, 8)),
])  # fmt: skip
def test_parameter_count_is_the_closed_form(name, size):
    d, f, v = size.d_model, size.d_ffn, len(Task.target_dictionary)
    attention = 4 * (d * d + d)
    feed_forward = 2 * d * f + d + f
    layer_norms = 2 * d
    encoder = size.encoder_layers * (attention + feed_forward + 2 * layer_norms)
    decoder = size.decoder_layers * (2 * attention + feed_forward + 3 * layer_norms)
    for norm, final in (("post", 0), ("pre", 2 * layer_norms)):
        assert parameter_count(build_model(size, Model(norm), Task())) == v * d + encoder + decoder + final


def test_embeddings_are_shared_as_asked():
    for share, counts in (("all", 1), ("decoder", 2), ("none", 3)):
        model = build("pre", Size(1, 1, 8, 8, 2, share_embeddings=share))
        matrices = {p.data_ptr() for n, p in model.named_parameters() if "embed_tokens" in n or "output_proj" in n}
        assert len(matrices) == counts
