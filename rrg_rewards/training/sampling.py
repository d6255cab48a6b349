"""Batches of pairs of about the same length, shared out to processes."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

__all__ = ["LengthGroupedBatches", "LengthSortedBatches"]


def _place() -> tuple[int, int]:
    """This process' rank and the number of processes, asked for when a sampler is iterated."""
    running = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if running else (0, 1)


class _Batches(DistributedSampler[Any]):
    """Samples lists of rows. As a ``sampler`` and not a ``batch_sampler``: Lightning leaves a distributed one alone."""

    def __init__(self, lengths: Sequence[int], batch_size: int) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be positive, got {batch_size}")
        if not lengths:
            raise ValueError("lengths is empty: there is no row to sample")
        # One replica: no padding is planned. The real number of processes is asked for when it is needed.
        super().__init__(lengths, num_replicas=1, rank=0, shuffle=False)  # type: ignore[arg-type]  # only its length
        self.lengths = torch.as_tensor(lengths)
        self.batch_size = batch_size


class LengthGroupedBatches(_Batches):
    """Batches for training: shuffled, each of rows of about the same length, so that little is padded.

    The rows of an epoch are shuffled by the seed and the epoch alone, cut into groups of ``group_batches`` batches,
    sorted by length within a group, and cut into batches, which are shuffled again. A batch is shared out evenly:
    ``batch_size`` rows make a step whatever the number of processes, and each step is that of one process. Rows that
    make no whole batch are left out of the epoch (others in each), unless there is no whole one at all.

    With ``together`` the rows of a reference stay side by side: references are shuffled in place of rows, and a batch
    is shared out in pieces, so that what rows of one reference have in common is seldom computed twice.

    Pass it as ``sampler`` of a ``DataLoader`` with ``batch_size=None``.

    Args:
        lengths: Length of each row; the same for all rows of a reference, where ``together`` is given.
        batch_size: Rows of a step over all processes; a multiple of their number.
        seed: Seed of the order.
        group_batches: Batches among which rows are sorted by length.
        together: Index of each row's reference, from 0 on. Default: every row is on its own.

    Raises:
        ValueError: If there is no row or ``batch_size`` is not positive; when iterated, if the processes cannot share
            a batch evenly.

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
        self.seed = seed
        self.group_batches = group_batches

    def __iter__(self) -> Iterator[list[int]]:
        rank, world_size = _place()
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
        for place in torch.randperm(len(batches), generator=generator).tolist():
            batch = batches[place]
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
    """Batches for evaluation: every row once on one process, longest first, none repeated.

    Pass it as ``sampler`` of a ``DataLoader`` with ``batch_size=None``.

    Args:
        lengths: Length of each row.
        batch_size: Rows of a batch on a process.

    Example:
        >>> list(LengthSortedBatches([5, 1, 4, 2], batch_size=3))
        [[0, 2, 3], [1]]
    """

    def _rows(self) -> torch.Tensor:
        rank, world_size = _place()
        return self.lengths.argsort(descending=True, stable=True)[rank::world_size]

    def __iter__(self) -> Iterator[list[int]]:
        for batch in torch.split(self._rows(), self.batch_size):
            if len(batch):
                yield batch.tolist()

    def __len__(self) -> int:
        return -(-len(self._rows()) // self.batch_size)
