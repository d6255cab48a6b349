"""What the data of every learned metric shares: sources, split, tokenizer, loaders."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, Dataset

from rrg_rewards.training.sampling import LengthGroupedBatches, LengthSortedBatches
from rrg_rewards.training.sources import ReportSource, check_sources
from rrg_rewards.training.splits import RecordSplit

__all__ = ["SIDES", "LearnedMetricData"]

SIDES = ("train", "validation", "test")
"""Sides of a split: what is trained on, what chooses the checkpoint, what the report is about."""


class LearnedMetricData(LightningDataModule, ABC):  # type: ignore[misc]  # Lightning is an optional dependency
    """Judged reports, split by reference report, tokenised once and batched by length.

    Every process reads the sources and gets the same reports; each trains and evaluates its share.

    Args:
        sources: Where reports come from.
        tokenizer: Folder or Hub id of the tokenizer.
        revision: Revision of a Hub id.
        max_length: Tokens of a sequence at most.
        batch_size: Rows of a step, over all processes.
        eval_batch_size: Rows evaluated at once on a process.
        validation_fraction: Expected share of references in the validation.
        test_fraction: Expected share of references in the test.
        split_seed: Seed of the split.
        seed: Seed of the order of rows.
        num_workers: Processes that load rows.

    Raises:
        ValueError: If there is no source, or two have the same name.
    """

    def __init__(
        self,
        sources: Sequence[ReportSource],
        tokenizer: str,
        revision: str | None,
        max_length: int,
        batch_size: int,
        eval_batch_size: int,
        validation_fraction: float,
        test_fraction: float,
        split_seed: int,
        seed: int,
        num_workers: int,
    ) -> None:
        super().__init__()
        check_sources(sources)
        self.source_names = tuple(source.name for source in sources)
        self.tokenizer_name = tokenizer
        self.revision = revision
        self.max_length = max_length
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size
        self.validation_fraction = validation_fraction
        self.test_fraction = test_fraction
        self.split_seed = split_seed
        self.seed = seed
        self.num_workers = num_workers
        self.tokenizer: Any = None
        self.split: RecordSplit[Any] | None = None

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Numbers of rows by side and source, and of those left out."""

    def chosen(self, side: str, number: int) -> list[Any]:
        """Records of a side of the split, of which there must be some.

        Args:
            side: ``train``, ``validation`` or ``test``.
            number: Number of records that were split.

        Raises:
            ValueError: If there is none.
        """
        records: list[Any] = getattr(self.split, side)
        if not records:
            raise ValueError(f"no record of {number} falls into {side}; give more records, or a larger {side}_fraction")
        return records

    def left_out(self) -> dict[str, int]:
        """How many records the split has left out, and why.

        Raises:
            RuntimeError: Before ``setup``.
        """
        if self.split is None:
            raise RuntimeError("describe comes after setup")
        return {"duplicates_left_out": self.split.duplicates, "crossing_left_out": self.split.crossing}

    def loader(self, rows: Dataset[Any], batches: LengthGroupedBatches | LengthSortedBatches) -> DataLoader[Any]:
        """A loader of the batches that a sampler gives, which the data set makes of lists of rows."""
        return DataLoader(
            rows,
            # A sampler of whole batches, so that the data set, which is asked for a list of rows, makes the batch.
            sampler=batches,
            batch_size=None,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            pin_memory=torch.cuda.is_available(),
        )

    def save_tokenizer(self, folder: str | Path) -> None:
        """Write the tokenizer beside an exported model."""
        self.tokenizer.save_pretrained(folder)
