"""Data module for reinforcement learning, with resumable loaders."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from rrg_rewards.data.samplers import UnpaddedDistributedSampler
from rrg_rewards.training.base import ResumableDataModule, ResumableLoader
from rrg_rewards.utilities.processes import num_processes, process_index

Collate = Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]]


def collate_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Collate rows into columns: tensors are stacked, other values are put into lists.

    Raises:
        ValueError: If rows have different columns.

    Example:
        >>> collate_rows([{"report": "a", "image": torch.zeros(2)}, {"report": "b", "image": torch.ones(2)}])
        {'report': ['a', 'b'], 'image': tensor([[0., 0.], [1., 1.]])}
    """
    for index, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            raise ValueError(f"rows must have the same columns; row 0 has {list(rows[0])}, row {index} {list(row)}")
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return {
        name: torch.stack(column) if all(isinstance(value, Tensor) for value in column) else column
        for name, column in columns.items()
    }


class PolicyDataModule(ResumableDataModule):
    """Rows for a :class:`~rrg_rewards.training.PolicyModule`.

    The loader returns a batch of rows at the first step of each rollout and an empty batch at the other steps, which
    reuse the completions. The order of rows depends only on the seed and the epoch. Remaining rows that do not fill a
    batch are omitted; they differ between epochs. A run that is resumed within an epoch continues with the next rows.

    Args:
        train: Training rows, a sequence of dicts with the same columns.
        validation: Validation rows, or ``None``.
        batch_size: Number of rows of a rollout in each process. Several completions are sampled for each row.
        collate: Function that makes a batch of rows, such as the ``collate`` of a Hugging Face generator. Default:
            :func:`collate_rows`.
        num_workers: Number of processes that load rows.
        seed: Seed of the order.

    Raises:
        ValueError: If there are too few rows for a batch in each process, or a number is out of range.

    Example:
        >>> data = PolicyDataModule([{"report": "No effusion."}, {"report": "Cardiomegaly."}], batch_size=2)
        >>> len(data.train)
        2
    """

    def __init__(
        self,
        train: Sequence[Mapping[str, Any]],
        validation: Sequence[Mapping[str, Any]] | None = None,
        *,
        batch_size: int = 16,
        collate: Collate = collate_rows,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        for name, value, least in (("batch_size", batch_size, 1), ("num_workers", num_workers, 0)):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if len(train) < batch_size:
            raise ValueError(f"train has {len(train)} rows, fewer than batch_size={batch_size}")
        self.train = train
        self.validation = validation
        self.batch_size = batch_size
        self.collate = collate
        self.num_workers = num_workers
        self.seed = seed

    def train_dataloader(self) -> ResumableLoader:
        """Return batches of rows, each followed by empty batches for the remaining steps of the rollout."""
        repeats = int(getattr(self.trainer.lightning_module, "steps_per_rollout", 1))
        loader = ResumableLoader(
            _Batches(self.train, self.collate),
            sampler=PromptBatches(len(self.train), self.batch_size, repeats, self.seed),
            batch_size=None,
            num_workers=self.num_workers,
        )
        return self.resumed(loader)

    def val_dataloader(self) -> Any:
        """Return batches in which each row occurs once, in one process."""
        if self.validation is None:
            return []
        return DataLoader(
            self.validation,  # type: ignore[arg-type]  # a sequence is a data set
            sampler=UnpaddedDistributedSampler(self.validation),
            batch_size=self.batch_size,
            collate_fn=self.collate,
            num_workers=self.num_workers,
        )

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Move a batch to the device. On the CPU, skip the search for tensors in columns of lists."""
        if device.type == "cpu":
            return batch
        return super().transfer_batch_to_device(batch, device, dataloader_idx)


class PromptBatches(DistributedSampler[Any]):
    """Samples lists of rows, each followed by empty lists. Processes get different rows.

    Pass the object as ``sampler`` to a ``DataLoader`` with ``batch_size=None``. It is not a batch sampler because
    Lightning replaces a ``batch_sampler``, but not a distributed ``sampler``.

    Args:
        count: Number of rows.
        batch_size: Number of rows in a list.
        repeats: Number of lists per rollout, of which the first contains rows and the others are empty.
        seed: Seed of the order.

    Example:
        >>> [len(rows) for rows in PromptBatches(5, batch_size=2, repeats=2)]
        [2, 0, 2, 0]
    """

    def __init__(self, count: int, batch_size: int, repeats: int = 1, seed: int = 0) -> None:
        # Use one replica to avoid padding. The number of processes is read in each iteration.
        super().__init__(range(count), num_replicas=1, rank=0, shuffle=False)  # type: ignore[arg-type]  # its length
        self.count = count
        self.batch_size = batch_size
        self.repeats = repeats
        self.seed = seed
        self.start = 0

    def __iter__(self) -> Iterator[list[int]]:
        start, self.start = self.start, 0
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        rows = torch.randperm(self.count, generator=generator).tolist()
        world = num_processes()
        for index in range(start, len(self)):
            rollout, step = divmod(index, self.repeats)
            first = (rollout * world + process_index()) * self.batch_size
            yield [] if step else rows[first : first + self.batch_size]

    def __len__(self) -> int:
        batches = self.count // (self.batch_size * num_processes())
        if not batches:
            raise ValueError(
                f"{self.count} rows are fewer than batch_size={self.batch_size} on each of {num_processes()} processes"
            )
        return batches * self.repeats


class _Batches(Dataset[Any]):
    """Data set that returns a batch for a list of rows."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], collate: Collate) -> None:
        self.rows = rows
        self.collate = collate

    def __getitem__(self, rows: Sequence[int]) -> dict[str, Any]:
        return self.collate([self.rows[row] for row in rows]) if rows else {}
