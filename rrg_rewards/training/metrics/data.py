"""Data modules of learned metrics, which split and tokenise records, and samplers of batches of similar length."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from rrg_rewards.data.records.graded_reports import graded_pairs
from rrg_rewards.models.crepe.encoding import PairEncoder
from rrg_rewards.models.er2score.prompt import PromptEncoder, PromptTemplate, default_prompt
from rrg_rewards.schemas.scoring import ScoringSystem, get_scoring_system
from rrg_rewards.training.base import ResumableDataModule, ResumableLoader
from rrg_rewards.training.metrics.sources import RecordSource, ReportSource, check_sources, read_graded, read_sources
from rrg_rewards.training.metrics.splits import RecordSplit, split_by_reference
from rrg_rewards.training.metrics.tokenized import (
    Heads,
    TokenizedPairs,
    TokenizedPreferences,
    TokenizedReports,
    head_labels,
    load_tokenizer,
)
from rrg_rewards.utilities.processes import num_processes, process_index

# Number of batches whose rows are sorted by length together.
_GROUP_BATCHES = 16


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

    In each epoch, rows are shuffled and cut into groups of 16 batches. The rows of a group are sorted by
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
        together: torch.Tensor | None = None,
    ) -> None:
        super().__init__(lengths, batch_size)
        self.together = together
        self.start = 0
        self.seed = seed

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
        groups = torch.split(rows, size * _GROUP_BATCHES)
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


_SIDES = ("train", "validation", "test")


@dataclass(eq=False, repr=False)
class LearnedMetricData(ResumableDataModule, ABC):
    """Base class of data modules: report pairs, split by reference report, tokenised once and batched by length.

    Each process reads all sources, and trains on and evaluates its share of the reports.

    Args:
        sources: Sources of the reports.
        tokenizer: Folder or Hub id of the tokenizer.

    Raises:
        ValueError: If there is no source, or two sources have the same name. In ``setup``, if training, validation or
            test is empty.
    """

    sources: Sequence[ReportSource]
    tokenizer: str
    _: KW_ONLY
    revision: str | None = None
    max_length: int = 512
    batch_size: int = 64
    eval_batch_size: int = 64
    validation_fraction: float = 0.1
    test_fraction: float = 0.1
    split_seed: int = 0
    seed: int = 0
    num_workers: int = 0

    def __post_init__(self) -> None:
        super().__init__()
        check_sources(self.sources)
        self.source_names = tuple(source.name for source in self.sources)
        self.loaded_tokenizer: Any = None
        self.split: RecordSplit[Any] | None = None
        self.rows: dict[str, Any] = {}

    @abstractmethod
    def read(self) -> list[Any]:
        """Read the records of all sources."""

    @abstractmethod
    def tokenize(self, split: RecordSplit[Any]) -> Mapping[str, Dataset[Any]]:
        """Tokenise the records of ``train``, ``validation`` and ``test``."""

    def setup(self, stage: str | None = None) -> None:  # noqa: ARG002 (Lightning's)
        """Read, split and tokenise the records unless this is done."""
        if self.rows:
            return
        self.loaded_tokenizer = load_tokenizer(self.tokenizer, self.revision)
        records = self.read()
        self.split = split_by_reference(records, self.validation_fraction, self.test_fraction, self.split_seed)
        for side in _SIDES:
            if not getattr(self.split, side):
                raise ValueError(
                    f"none of {len(records)} records is in {side}; give more records, or a larger {side}_fraction"
                )
        self.rows = dict(self.tokenize(self.split))

    def train_dataloader(self) -> DataLoader[Any]:
        """Return shuffled batches of similar length. The steps do not depend on the number of processes."""
        rows = self.rows["train"]
        together = getattr(rows, "together", None)
        batches = LengthGroupedBatches(rows.lengths, self.batch_size, self.seed, together=together)
        return self.resumed(ResumableLoader(rows, **self._options(batches)))

    def val_dataloader(self) -> DataLoader[Any]:
        """Return batches that contain each row of the validation data once."""
        return self._evaluation_loader("validation")

    def test_dataloader(self) -> DataLoader[Any]:
        """Return batches that contain each row of the test data once."""
        return self._evaluation_loader("test")

    def describe(self) -> dict[str, Any]:
        """Return the number of rows of each part of the split and each source, and the numbers of excluded records.

        Raises:
            RuntimeError: If ``setup`` was not called.
        """
        if self.split is None:
            raise RuntimeError("call setup before describe")
        return {
            **{side: rows.describe() for side, rows in self.rows.items()},
            "duplicates_left_out": self.split.duplicates,
            "crossing_left_out": self.split.crossing,
        }

    def save_tokenizer(self, folder: str | Path) -> None:
        """Write the tokenizer to a folder, such as that of an exported model."""
        self.loaded_tokenizer.save_pretrained(folder)

    def _evaluation_loader(self, side: str) -> DataLoader[Any]:
        rows = self.rows[side]
        return DataLoader(rows, **self._options(LengthSortedBatches(rows.lengths, self.eval_batch_size)))

    def _options(self, batches: LengthGroupedBatches | LengthSortedBatches) -> dict[str, Any]:
        return {
            # The sampler yields lists of rows, and the data set returns a batch for each list.
            "sampler": batches,
            "batch_size": None,
            "num_workers": self.num_workers,
            "persistent_workers": self.num_workers > 0,
            "pin_memory": torch.cuda.is_available(),
        }


@dataclass(eq=False, repr=False)
class CrepeDataModule(LearnedMetricData):
    """Records of error counts, split by reference report, tokenised once and batched by length.

    Each process reads all sources, and trains on and evaluates its share of the records.

    Args:
        sources: Sources of the records.
        tokenizer: Folder or Hub id of the encoder's tokenizer.
        heads: Heads of the model; see :class:`CrepeModule`. Records without a label for any head are left out.
        revision: Revision of a Hub id.
        max_length: Maximum number of tokens of a pair; 512 in the paper.
        batch_size: Number of pairs in a training step, over all processes.
        eval_batch_size: Number of pairs in an evaluation batch of each process.
        validation_fraction: Expected fraction of references in the validation data, which select the checkpoint; 0.1 in
            the paper.
        test_fraction: Expected fraction of references in the test data, on which the training report is based.
        split_seed: Seed of the split.
        seed: Seed of the order of pairs.
        num_workers: Number of processes that load pairs. Pairs are in memory, so 0 is fast.

    Raises:
        ValueError: If there is no source, or two sources have the same name. In ``setup``, if training, validation or
            test is empty.

    Example:
        >>> from rrg_rewards.training import CrepeDataModule, JsonlRecords
        >>> data = CrepeDataModule([JsonlRecords("errors.jsonl")], tokenizer="google-bert/bert-base-uncased")
        >>> [source.name for source in data.sources]
        ['errors']
    """

    sources: list[RecordSource]
    heads: Heads = "categories"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.unlabelled = 0

    @property
    def pairs(self) -> dict[str, TokenizedPairs]:
        """Tokenised pairs of ``train``, ``validation`` and ``test``, after ``setup``."""
        return self.rows

    def read(self) -> list[Any]:
        """Read the records of all sources that have a label for a head.

        Raises:
            ValueError: If no record of a source has one.
        """
        records = read_sources(self.sources)
        kept = [record for record in records if not all(map(math.isnan, head_labels(record, self.heads)))]
        if missing := {record.source for record in records} - {record.source for record in kept}:
            raise ValueError(
                f"no record of source {min(missing)!r} has a label for heads={self.heads!r}; choose other heads, or "
                "leave the source out"
            )
        self.unlabelled = len(records) - len(kept)
        return kept

    def describe(self) -> dict[str, Any]:
        """Return the content of :meth:`LearnedMetricData.describe`, and the number of records without a label."""
        return {**super().describe(), "unlabelled_left_out": self.unlabelled}

    def tokenize(self, split: RecordSplit[Any]) -> Mapping[str, Dataset[Any]]:
        """Tokenise the pairs."""
        encode = PairEncoder(self.loaded_tokenizer, self.max_length)
        return {side: TokenizedPairs(getattr(split, side), self.source_names, encode, self.heads) for side in _SIDES}

    @property
    def training_counts(self) -> Tensor:
        """The true counts of each head in the training data, float64 ``(N, C)``; NaN for what is not annotated."""
        return self.pairs["train"].labels.double()

    def mean_counts(self) -> Tensor:
        """Return the mean true count of each head in the training data, ``(C,)``."""
        return self.training_counts.nanmean(0)


@dataclass(eq=False, repr=False)
class ER2ScoreDataModule(LearnedMetricData):
    """Graded reports, split by reference report. Training uses pairs of candidates with the same reference.

    All pairs of candidates with unequal totals are training pairs. The pairs of a reference are in the same batch if
    possible. The model reads each report of a batch once, even if it is in several pairs, and reads the text that
    candidates of a reference share once. Validation and test data contain each report once; pairs are formed from the
    predictions.

    Each process reads all sources, and trains on and evaluates its share of the reports.

    Args:
        sources: Sources of the reports: files of graded reports, or records of error counts, which the scoring system
            converts to sub-scores.
        tokenizer: Folder or Hub id of the backbone's tokenizer.
        revision: Revision of a Hub id.
        scoring_system: Name or YAML file of a scoring system.
        prompt: Text of the prompt template. Default: the template of the package.
        max_length: Maximum number of tokens of a prompt.
        batch_size: Number of pairs in a training step, over all processes.
        eval_batch_size: Number of reports in an evaluation batch of each process.
        min_margin: Minimum difference of the totals of a training pair.
        max_pairs: Maximum number of training pairs of a reference. Default: no limit.
        validation_fraction: Expected fraction of references in the validation data, which select the checkpoint.
        test_fraction: Expected fraction of references in the test data, on which the training report is based.
        split_seed: Seed of the split.
        seed: Seed of the order of pairs.
        num_workers: Number of processes that load pairs. Pairs are in memory, so 0 is fast.

    Raises:
        ValueError: If there is no source, two sources have the same name, or the prompt is not a template. In
            ``setup``, if training, validation or test is empty, or there is no training pair.

    Example:
        >>> from rrg_rewards.training import ER2ScoreDataModule, GradedReports
        >>> data = ER2ScoreDataModule([GradedReports("graded.jsonl")], tokenizer="HuggingFaceTB/SmolLM2-135M")
        >>> data.source_names, data.system.names[0]
        (('graded',), 'false_finding')
    """

    sources: list[ReportSource]
    _: KW_ONLY
    scoring_system: str = "radcliq"
    prompt: str | None = None
    max_length: int = 2048
    batch_size: int = 32
    min_margin: float = 0.0
    max_pairs: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.system: ScoringSystem = get_scoring_system(self.scoring_system)
        self.template = PromptTemplate(default_prompt() if self.prompt is None else self.prompt)

    @property
    def preferences(self) -> TokenizedPreferences | None:
        """Training pairs, after ``setup``."""
        return self.rows.get("train")

    @property
    def reports(self) -> dict[str, TokenizedReports]:
        """Tokenised reports of ``validation`` and ``test``, after ``setup``."""
        return {side: rows for side, rows in self.rows.items() if side != "train"}

    def read(self) -> list[Any]:
        """Read the graded reports of all sources."""
        return read_graded(self.sources, self.system)

    def tokenize(self, split: RecordSplit[Any]) -> Mapping[str, Dataset[Any]]:
        """Tokenise the training pairs and the reports of validation and test."""
        pairs = graded_pairs(split.train, self.system, min_margin=self.min_margin, max_per_reference=self.max_pairs)
        if not pairs.pairs:
            raise ValueError(
                f"{len(split.train)} training reports form no pair: give several candidates of a reference whose "
                f"totals differ ({pairs.ties} pairs are tied)"
            )
        # Exclude reports that are in no pair.
        used = {(pair.reference, text) for pair in pairs.pairs for text in (pair.accepted, pair.rejected)}
        kept = [report for report in split.train if (report.reference, report.candidate) in used]
        encode = PromptEncoder(self.loaded_tokenizer, self.template.with_criteria(self.system), self.max_length)
        train, validation, test = (
            TokenizedReports(reports, self.system, self.source_names, encode)
            for reports in (kept, split.validation, split.test)
        )
        return {"train": TokenizedPreferences(train, pairs), "validation": validation, "test": test}
