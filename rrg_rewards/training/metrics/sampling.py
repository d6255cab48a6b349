"""Samplers of batches of rows with similar length, distributed over processes."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DistributedSampler

from rrg_rewards.utilities.processes import num_processes, process_index

__all__ = ["LengthGroupedBatches", "LengthSortedBatches"]


class _Batches(DistributedSampler[Any]):
    """Base class of samplers of lists of rows.

    They are not batch samplers because Lightning replaces a ``batch_sampler``, but not a distributed ``sampler``.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be positive, got {batch_size}")
        if not lengths:
            raise ValueError("lengths is empty: there is no row to sample")
        # Use one replica to avoid padding. The number of processes is read in each iteration.
        super().__init__(lengths, num_replicas=1, rank=0, shuffle=False)  # type: ignore[arg-type]  # only its length
        self.lengths = torch.as_tensor(lengths)
        self.batch_size = batch_size


class LengthGroupedBatches(_Batches):
    """Shuffled training batches, each with rows of similar length to reduce padding.

    In each epoch, rows are shuffled and cut into groups of ``group_batches`` batches. The rows of a group are sorted by
    length and cut into batches, and all batches are shuffled. The order depends only on the seed and the epoch. Each
    batch is distributed evenly over processes, so steps do not depend on their number. Remaining rows that do not fill
    a batch are omitted; they differ between epochs. If there are fewer rows than ``batch_size``, they form one batch.

    With ``together``, references are shuffled instead of rows, and each process gets a contiguous part of a batch. The
    text that rows of a reference share is then seldom computed more than once.

    Pass the object as ``sampler`` to a ``DataLoader`` with ``batch_size=None``.

    Args:
        lengths: Length of each row. With ``together``, rows of a reference must have equal lengths.
        batch_size: Number of rows in a step over all processes, a multiple of the number of processes.
        seed: Seed of the order.
        group_batches: Number of batches in a group.
        together: Index of each row's reference, from 0. Default: rows are shuffled individually.

    Raises:
        ValueError: If there is no row or ``batch_size`` is not positive. In iteration, if a batch cannot be distributed
            evenly over processes.

    Example:
        >>> batches = LengthGroupedBatches([5, 1, 4, 1, 5], batch_size=2, seed=1)
        >>> sorted(len(batch) for batch in batches), len(batches)
        ([2, 2], 2)
    """

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int,
        seed: int = 0,
        group_batches: int = 16,
        together: torch.Tensor | None = None,
    ) -> None:
        super().__init__(lengths, batch_size)
        self.together = together
        self.start = 0
        self.seed = seed
        self.group_batches = group_batches

    def __iter__(self) -> Iterator[list[int]]:
        rank, world_size = process_index(), num_processes()
        size = min(self.batch_size, len(self.lengths))
        if size % world_size:
            raise ValueError(
                f"{world_size} processes cannot share batches of {size} rows evenly; set batch_size to a multiple of "
                "their number"
            )
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        rows = self._shuffled(generator)[: len(self) * size]
        groups = torch.split(rows, size * self.group_batches)
        batches = [
            batch for group in groups for batch in torch.split(group[self.lengths[group].argsort(stable=True)], size)
        ]
        start, self.start = self.start, 0
        for index in torch.randperm(len(batches), generator=generator).tolist()[start:]:
            batch = batches[index]
            share = batch[rank::world_size] if self.together is None else batch.chunk(world_size)[rank]
            yield share.tolist()

    def _shuffled(self, generator: torch.Generator) -> torch.Tensor:
        if self.together is None:
            return torch.randperm(len(self.lengths), generator=generator)
        order = torch.randperm(int(self.together.max()) + 1, generator=generator)
        return order[self.together].argsort(stable=True)

    def __len__(self) -> int:
        return max(len(self.lengths) // self.batch_size, 1)


class LengthSortedBatches(_Batches):
    """Evaluation batches in descending order of length. Each row is in exactly one batch of one process.

    Pass the object as ``sampler`` to a ``DataLoader`` with ``batch_size=None``.

    Args:
        lengths: Length of each row.
        batch_size: Maximum number of rows in a batch of one process.

    Example:
        >>> list(LengthSortedBatches([5, 1, 4, 2], batch_size=3))
        [[0, 2, 3], [1]]
    """

    def _rows(self) -> torch.Tensor:
        rank, world_size = process_index(), num_processes()
        return self.lengths.argsort(descending=True, stable=True)[rank::world_size]

    def __iter__(self) -> Iterator[list[int]]:
        for batch in torch.split(self._rows(), self.batch_size):
            if len(batch):
                yield batch.tolist()

    def __len__(self) -> int:
        return -(-len(self._rows()) // self.batch_size)
