"""Rows to be completed, handed out once for each rollout, in an order that a resumed run goes on with."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from rrg_rewards.callbacks import UnpaddedDistributedSampler
from rrg_rewards.utilities.processes import num_processes, process_index

__all__ = ["PolicyDataModule", "collate_rows"]

Collate = Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]]


def collate_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Columns of rows: tensors stacked, everything else in lists.

    Raises:
        ValueError: If rows differ in their columns.

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


class PolicyDataModule(LightningDataModule):  # type: ignore[misc]  # Lightning is an optional dependency
    """Rows for a :class:`~rrg_rewards.training.PolicyModule`.

    A batch of rows is handed out at the first step of each rollout, and an empty one at the others, which work on what
    was written for it. An epoch's order depends on the seed and the epoch alone; rows that make no whole batch are left
    out of the epoch, others in each. A run resumed within an epoch goes on behind the rows that it has seen.

    Args:
        train: Rows to learn from, dicts of the same columns: a list or anything else with a length and an index.
        validation: Rows for validation; ``None`` for none.
        batch_size: Rows of a rollout on each process; the generator writes several completions for each.
        collate: Makes a batch of rows: a Hugging Face generator's ``collate``, or one's own. Default:
            :func:`collate_rows`.
        validation_batch_size: Rows written at once in validation; default: ``batch_size``.
        num_workers: Processes that load rows.
        seed: Seed of the order.

    Raises:
        ValueError: If there are fewer rows than all processes need for a batch, or a number is out of range.

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
        validation_batch_size: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("validation_batch_size", batch_size if validation_batch_size is None else validation_batch_size, 1),
            ("num_workers", num_workers, 0),
        ):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if len(train) < batch_size:
            raise ValueError(f"train has {len(train)} rows, fewer than batch_size={batch_size}")
        self.train = train
        self.validation = validation
        self.batch_size = batch_size
        self.collate = collate
        self.validation_batch_size = validation_batch_size or batch_size
        self.num_workers = num_workers
        self.seed = seed

    def train_dataloader(self) -> "ResumableLoader":
        """Batches of a rollout's rows, each followed by empty ones for its further steps."""
        repeats = int(getattr(self.trainer.lightning_module, "steps_per_rollout", 1))
        return ResumableLoader(
            _Batches(self.train, self.collate),
            sampler=PromptBatches(len(self.train), self.batch_size, repeats, self.seed),
            batch_size=None,
            num_workers=self.num_workers,
        )

    def val_dataloader(self) -> Any:
        """Each row once, on one process."""
        if self.validation is None:
            return []
        return DataLoader(
            self.validation,  # type: ignore[arg-type]  # a sequence is a data set
            sampler=UnpaddedDistributedSampler(self.validation),
            batch_size=self.validation_batch_size,
            collate_fn=self.collate,
            num_workers=self.num_workers,
        )


class PromptBatches(DistributedSampler[Any]):
    """Samples lists of rows, each followed by empty lists; processes get other rows.

    As a ``sampler`` and not a ``batch_sampler``: Lightning leaves a distributed one alone. Pass it as ``sampler`` of a
    ``DataLoader`` with ``batch_size=None``.

    Args:
        count: Number of rows.
        batch_size: Rows of a list.
        repeats: Lists that make a rollout: one of rows, the others empty.
        seed: Seed of the order.

    Example:
        >>> [len(rows) for rows in PromptBatches(5, batch_size=2, repeats=2)]
        [2, 0, 2, 0]
    """

    def __init__(self, count: int, batch_size: int, repeats: int = 1, seed: int = 0) -> None:
        # One replica: no padding is planned. The real number of processes is asked for when it is needed.
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
        for place in range(start, len(self)):
            rollout, step = divmod(place, self.repeats)
            first = (rollout * world + process_index()) * self.batch_size
            yield [] if step else rows[first : first + self.batch_size]

    def __len__(self) -> int:
        batches = self.count // (self.batch_size * num_processes())
        if not batches:
            raise ValueError(
                f"{self.count} rows are fewer than batch_size={self.batch_size} on each of {num_processes()} processes"
            )
        return batches * self.repeats


class ResumableLoader(DataLoader[Any]):
    """A data loader that Lightning's checkpoints hold the place of; its sampler is :class:`PromptBatches`."""

    _given = 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # Lightning asks for no more
        assert isinstance(self.sampler, PromptBatches)
        self._given = self.sampler.start
        for batch in super().__iter__():
            self._given += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """How many batches of the epoch were given."""
        return {"given": self._given % len(self)}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on behind the batches that were given."""
        assert isinstance(self.sampler, PromptBatches)
        self.sampler.start = state["given"]


class _Batches(Dataset[Any]):
    """Batches by lists of rows."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], collate: Collate) -> None:
        self.rows = rows
        self.collate = collate

    def __getitem__(self, rows: Sequence[int]) -> dict[str, Any]:
        return self.collate([self.rows[row] for row in rows]) if rows else {}
