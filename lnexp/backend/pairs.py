"""fairseq's data set of sentence pairs, with batches laid out in a few steps instead of a few a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from fairseq.data import LanguagePairDataset
from torch import Tensor


class Pairs(LanguagePairDataset):
    """The batches of LanguagePairDataset, number for number: sources padded on the left, by falling length."""

    @classmethod
    def of(cls, plain: LanguagePairDataset) -> Pairs:
        """Give `plain`, which fairseq's task has loaded from memory-mapped files, with our batches."""
        plain.__class__ = cls
        return plain

    def __getitems__(self, indices: Sequence[int]) -> np.ndarray[Any, Any]:
        """Read nothing yet: DataLoader hands this to `collater`."""
        return np.asarray(indices, dtype=np.int64)

    def collater(self, samples: Any, pad_to_length: Any = None) -> dict[str, Any]:
        """Give the batch of these sentences, as fairseq's `collate` documents it."""
        if not isinstance(samples, np.ndarray):  # fairseq's Trainer makes its first batch by hand
            return super().collater(samples, pad_to_length)
        lengths, order = torch.from_numpy(self.src.sizes[samples].astype(np.int64)).sort(descending=True)
        ids = torch.from_numpy(samples)[order]
        source = _rows(self.src, ids.numpy(), self.src_dict.pad(), left=True)
        target = _rows(self.tgt, ids.numpy(), self.tgt_dict.pad(), left=False)
        # What comes before each target: its end first, then itself without it.
        previous = target.roll(1, 1)
        previous[:, 0] = self.eos
        previous[target.eq(self.tgt_dict.pad())] = self.tgt_dict.pad()
        return {
            "id": ids,
            "nsentences": len(ids),
            "ntokens": int(self.tgt.sizes[samples].sum()),
            "net_input": {"src_tokens": source, "src_lengths": lengths, "prev_output_tokens": previous},
            "target": target,
        }


def _rows(side: Any, ids: np.ndarray[Any, Any], pad: int, left: bool) -> Tensor:
    """Give sentences x longest, from one look into the file behind `side`, an MMapIndexedDataset."""
    index = side._index
    tokens = np.frombuffer(side._bin_buffer, dtype=index.dtype)
    lengths = index.sizes[ids].astype(np.int64)[:, None]
    place = np.arange(lengths.max())[None] - (lengths.max() - lengths if left else 0)
    inside = (place >= 0) & (place < lengths)
    first = index._pointers[ids][:, None] // tokens.itemsize
    return torch.from_numpy(np.where(inside, tokens[np.where(inside, first + place, 0)], pad).astype(np.int64))
