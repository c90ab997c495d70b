"""The processes that share one run's batches, and the few sums that they owe each other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_TIMEOUT = timedelta(minutes=30)


class Group:
    """One process: nothing to share."""

    rank, size = 0, 1

    def add_up(self, tensors: list[Tensor]) -> None:
        """Turn each tensor into its sum over the processes, in place."""

    def total(self, *values: float) -> list[float]:
        """Give the sum of each value over the processes."""
        return list(values)

    def union(self, found: dict[int, str]) -> dict[int, str]:
        """Put together what each process has found."""
        return found

    def tell(self, message: Any = None) -> Any:
        """Give every process the message of the first one."""
        return message

    def close(self) -> None:
        """Leave the group."""


class Processes(Group):
    """Several on one machine: gloo between CPUs, nccl between GPUs (and gloo for what is no gradient)."""

    def __init__(self, rank: int, size: int, store: dist.TCPStore, device: torch.device) -> None:
        self.rank, self.size = rank, size
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_TIMEOUT)

    def add_up(self, tensors: list[Tensor]) -> None:
        flat = torch._utils._flatten_dense_tensors(tensors)
        dist.all_reduce(flat)
        for tensor, total in zip(tensors, torch._utils._unflatten_dense_tensors(flat, tensors), strict=True):
            tensor.copy_(total)

    def total(self, *values: float) -> list[float]:
        sums = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(sums)
        return sums.tolist()

    def union(self, found: dict[int, str]) -> dict[int, str]:
        parts: list[Any] = [None] * self.size
        dist.all_gather_object(parts, found)
        return {index: text for part in parts for index, text in part.items()}

    def tell(self, message: Any = None) -> Any:
        box = [message]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def close(self) -> None:
        dist.destroy_process_group()
