"""What `devices.precision` means on the device at hand.

fp32       fairseq's own modules in float32: the reference
fp32_fast  our forward pass (fast.py) in float32, through oneDNN where that is faster
bf16       the same pass with activations and products in bfloat16; parameters, gradients and moments in float32
fp16       likewise in float16, with a scaled loss; CUDA alone
auto       bf16 on a CPU with bfloat16 instructions, fp32_fast on others, fp32 on CUDA: what was shown to be as good
"""

from __future__ import annotations

import torch

from lnexp.errors import UserError

_TYPES = {"fp32_fast": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def resolve(precision: str, device: torch.device) -> str:
    """Give the precision that runs; UserError for one that the device has no products in."""
    if precision == "fp16" and device.type == "cpu":
        raise UserError("devices.precision=fp16: no fast kernels on a CPU; use bf16, or devices=gpu")
    if precision != "auto":
        return precision
    if device.type != "cpu":
        return "fp32"
    native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return "bf16" if native else "fp32_fast"


def fast_type(precision: str) -> torch.dtype | None:
    """Give the type that the fast pass computes in; None = fairseq's own modules compute."""
    return _TYPES.get(precision)
