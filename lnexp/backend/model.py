"""fairseq's Transformer from our part configs, with layer normalization where `model.norm` says.

In: Size, Model, a fairseq task with its dictionaries. Out: the model, checked: normalization stands at the same
place in encoder and decoder, and only Pre-LN has a final LayerNorm on each stack (paper, Table 1).
"""

from __future__ import annotations

import math
from typing import Any

from fairseq.models.transformer import TransformerConfig, TransformerModelBase
from fairseq.models.transformer.transformer_config import DecoderConfig, EncDecBaseConfig, QuantNoiseConfig
from torch import nn

from lnexp.backend.room import MAX_POSITIONS
from lnexp.config import Model, Size


def transformer_config(size: Size, model: Model) -> TransformerConfig:
    """Translate our words into fairseq's; `norm` sets both stacks at once."""
    pre = model.norm == "pre"

    def stack(kind: type, layers: int) -> Any:
        return kind(
            embed_dim=size.d_model,
            ffn_embed_dim=size.d_ffn,
            layers=layers,
            attention_heads=size.heads,
            normalize_before=pre,
        )

    decoder = stack(DecoderConfig, size.decoder_layers)
    decoder.input_dim = decoder.output_dim = size.d_model
    return TransformerConfig(
        encoder=stack(EncDecBaseConfig, size.encoder_layers),
        decoder=decoder,
        quant_noise=QuantNoiseConfig(),
        dropout=size.dropout,
        attention_dropout=size.attention_dropout,
        activation_dropout=size.activation_dropout,
        share_all_embeddings=size.share_embeddings == "all",
        # The base class asks for the second switch too, or it would build an output matrix of its own.
        share_decoder_input_output_embed=size.share_embeddings in ("all", "decoder"),
        max_source_positions=MAX_POSITIONS,
        max_target_positions=MAX_POSITIONS,
    )


class Transformer(TransformerModelBase):
    """fairseq's, but asked before every update to be in training it does not walk over all its modules again."""

    def train(self, mode: bool = True) -> Transformer:
        return self if self.training == mode else super().train(mode)


def build_model(size: Size, model: Model, task: Any) -> nn.Module:
    """Give the Transformer, freshly initialised by fairseq's rules: embeddings N(0, 1/d), attention Xavier-uniform, the
    FFN as torch's Linear has it (variance 1/(3 n_in); the paper: Xavier there too)."""
    built = Transformer.build_model(transformer_config(size, model), task)
    check_structure(built, model.norm)
    return built


def check_structure(model: Any, norm: str) -> None:
    """Raise AssertionError where a stack does not stand as `norm` says; guards against fairseq changing under us."""
    for stack in (model.encoder, model.decoder):
        final = stack.layer_norm is not None
        assert final == (norm == "pre"), f"{type(stack).__name__}: final LayerNorm {final} with norm={norm}"
        assert all(layer.normalize_before == (norm == "pre") for layer in stack.layers)


def parameter_count(model: nn.Module) -> int:
    """Count trained numbers, shared matrices once."""
    return sum(math.prod(p.shape) for p in model.parameters() if p.requires_grad)
