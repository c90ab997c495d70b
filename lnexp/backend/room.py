"""Whether each sentence has room: positions in the model, and tokens in a pass. No torch, so that it is soon said."""

from __future__ import annotations

import math

from lnexp.config import Run
from lnexp.data.prepare import Prepared
from lnexp.errors import UserError

MAX_POSITIONS = 1024
"""Longest sentence in BPE tokens, as in fairseq's translation models."""


def longest_trained(data: Prepared) -> int:
    """Give the tokens of the longest training sentence that a model has positions for, with its end."""
    return min(MAX_POSITIONS, max(data.manifest["splits"]["train"]["longest"].values()))


def check_room(run: Run, data: Prepared) -> None:
    """Raise UserError for a sentence of valid or test that is too long for the model, and where a pass has no room
    for the longest training sentence: fairseq would leave it out."""
    for split in ("valid", "test"):
        longest = max(data.manifest["splits"][split]["longest"].values())
        if longest > MAX_POSITIONS:
            place = f"a sentence of {longest:,} tokens with its end, the model has {MAX_POSITIONS:,} positions"
            raise UserError(f"data={run.data.name}: {split} has {place}: take it out or cut it")
    room, longest = math.ceil(run.tokens_per_update / run.passes), longest_trained(data)
    if room < longest:
        devices = f"devices.max_tokens={run.devices.max_tokens}, devices.processes={run.devices.processes}, "
        what = f"{devices if run.passes > 1 else ''}tokens_per_update={run.tokens_per_update}"
        raise UserError(f"{what}: {room} tokens a pass; the longest training sentence has {longest}, need as many")
