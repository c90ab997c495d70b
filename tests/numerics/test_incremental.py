"""The steps from cached keys and values against fairseq's forward pass over whole prefixes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary

from lnexp.backend.incremental import Decoder, Weights, encode
from lnexp.backend.model import build_model
from lnexp.config import Model, Size

PAD, EOS = 1, 2
WORDS = Dictionary()
for _symbol in "abcdefghijklmnopqrstuvw":
    WORDS.add_symbol(_symbol)
SOURCE = torch.tensor([[PAD, PAD, 8, 6, 2], [4, 9, 7, 5, 2], [PAD, PAD, PAD, PAD, 2]])
LENGTHS = torch.tensor([3, 5, 1])
EVERY = pytest.mark.parametrize(
    ("norm", "share"), [(n, s) for n in ("post", "pre") for s in ("all", "decoder", "none")]
)


def build(norm: str, share: str = "all", size: Size | None = None) -> torch.nn.Module:
    torch.manual_seed(5)
    size = size or Size(2, 3, 16, 24, 4)
    size.share_embeddings = share
    model = build_model(size, Model(norm), SimpleNamespace(source_dictionary=WORDS, target_dictionary=WORDS)).eval()
    with torch.no_grad():  # biases and LayerNorms off their neutral start
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
        for stack in (model.encoder, model.decoder):
            stack.embed_tokens.weight[PAD] = 0
    return model


def walk(
    model: torch.nn.Module, weights: Weights, steps: int, width: int = 3
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Step through random tokens and parents, half-way without the first sentence; give (ours, fairseq's) logits."""
    draw = torch.Generator().manual_seed(1)
    source, lengths, logits = SOURCE, LENGTHS, []
    with torch.inference_mode():
        decoder = Decoder(weights, source)
        tokens = torch.full((3, 1), EOS)
        parents = torch.zeros_like(tokens)
        prefixes = torch.empty((3, 1, 0), dtype=torch.long)
        for step in range(steps):
            if step == steps // 2:
                rows = torch.tensor([1, 2])
                decoder.keep(rows)
                source, lengths, tokens, parents, prefixes = (
                    x[rows] for x in (source, lengths, tokens, parents, prefixes)
                )
            kept = prefixes.gather(1, parents.unsqueeze(-1).expand(-1, -1, prefixes.size(2)))
            prefixes = torch.cat([kept, tokens.unsqueeze(-1)], 2)
            each = prefixes.size(1)
            rows = torch.arange(len(source)).repeat_interleave(each)
            full = model(source[rows], lengths[rows], prefixes.flatten(0, 1))[0][:, -1]
            logits.append((decoder.step(tokens, parents), full.view(len(source), each, -1)))
            tokens = torch.randint(4, len(WORDS), (len(source), width), generator=draw)
            parents = torch.randint(0, each, (len(source), width), generator=draw)
    return logits


@EVERY
def test_the_logits_of_each_step_are_those_of_the_whole_prefix(norm, share):
    model = build(norm, share)
    for ours, theirs in walk(model, Weights(model), steps=40):  # further than the cache has room at first
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_encoder_gives_what_fairseqs_gives_where_there_is_no_padding(norm):
    model = build(norm)
    with torch.inference_mode():
        theirs = model.encoder(SOURCE, LENGTHS)["encoder_out"][0].transpose(0, 1)
        ours = encode(Weights(model), SOURCE)
    torch.testing.assert_close(ours[SOURCE.ne(PAD)], theirs[SOURCE.ne(PAD)], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_bf16_logits_are_within_two_percent_of_their_spread(norm):
    """bf16 keeps 8 bits, a relative 2^-9 at each rounding; some thirty of them follow each other here."""
    model = build(norm, size=Size(3, 3, 64, 128, 4))
    weights = Weights(model, torch.bfloat16)
    assert weights.dtype == torch.bfloat16 and weights.target.dtype == torch.bfloat16
    for ours, theirs in walk(model, weights, steps=12):
        assert (ours.float() - theirs).square().mean().sqrt() < 0.02 * theirs.std()
