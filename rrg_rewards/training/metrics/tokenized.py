"""Tokenised report pairs with labels, graded reports and preference pairs: data sets that return batches."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import Dataset

from rrg_rewards.data.records.error_records import ErrorRecord
from rrg_rewards.data.records.graded_reports import GradedPairs, GradedReport
from rrg_rewards.models.crepe.encoding import PairEncoder
from rrg_rewards.models.er2score.prompt import PromptEncoder
from rrg_rewards.schemas.errors import ERROR_CATEGORIES
from rrg_rewards.schemas.scoring import ScoringSystem
from rrg_rewards.utilities.checks import check_model_source
from rrg_rewards.utilities.imports import require

Heads = Literal["categories", "significance", "total"]
"""One head for each of the six categories, two for significant and insignificant errors, or one for all errors."""

HEADS: Mapping[Heads, tuple[str, ...]] = {
    "categories": ERROR_CATEGORIES,
    "significance": ("significant", "insignificant"),
    "total": ("errors",),
}
"""Names of the heads (CREPE, Section 5.1), which are the error categories of a trained model."""


def head_labels(record: ErrorRecord, heads: Heads) -> list[float]:
    """Return the true numbers of errors of a record for each head, NaN if they were not annotated.

    ``categories`` uses the six counts. ``total`` is the sum of the six counts and of the errors without a category, and
    requires all six counts, or none of them and a number of errors without a category. ``significance`` requires
    all six counts and their significance; errors without a category do not count.

    Example:
        >>> record = ErrorRecord("Clear.", "Edema.", (2, 0, 0, 0, 1, 0), significant=(1, 0, 0, 0, 0, 0))
        >>> head_labels(record, "significance"), head_labels(record, "total")
        ([1.0, 2.0], [3.0])
    """
    if heads == "categories":
        return [math.nan if count is None else count for count in record.counts]
    counts = [count for count in record.counts if count is not None]
    complete = len(counts) == len(record.counts)
    if heads == "total":
        return [record.total if complete or not counts else math.nan]
    if not complete or record.significant is None:
        return [math.nan, math.nan]
    significant = math.fsum(count for count in record.significant if count is not None)
    return [significant, math.fsum(counts) - significant]


def load_tokenizer(name: str, revision: str | None = None) -> Any:
    """Load a tokenizer from a folder or the Hub without executing its code."""
    check_model_source(name, "tokenizer")
    return require("transformers", extra="train").AutoTokenizer.from_pretrained(
        name, revision=revision, trust_remote_code=False
    )


class TokenizedPairs(Dataset[dict[str, Tensor]]):
    """Token sequences of reference and candidate, the input of CREPE.

    For a list of rows, the data set returns a batch padded to its longest pair: ``input_ids``, ``attention_mask``,
    ``token_type_ids`` for encoders that use them, ``labels`` ``(N, C)`` float32, NaN for a head that is not annotated
    (:func:`head_labels`), and ``source`` ``(N,)``, the index of the record's source.

    Args:
        records: Records whose ``source`` is one of ``sources``.
        sources: Names of the sources.
        encode: Encoder of pairs.
        heads: Heads of the model.
    """

    def __init__(
        self,
        records: Sequence[ErrorRecord],
        sources: Sequence[str],
        encode: PairEncoder,
        heads: Heads = "categories",
    ) -> None:
        self.sources = tuple(sources)
        self.encode = encode
        self.pairs = encode([record.reference for record in records], [record.candidate for record in records])
        self.labels = torch.tensor([head_labels(record, heads) for record in records], dtype=torch.float32)
        self.source = _source_indices(records, self.sources)
        self.lengths = [len(pair) for pair in self.pairs]

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, rows: list[int]) -> dict[str, Tensor]:
        batch = self.encode.collate([self.pairs[row] for row in rows])
        return {**batch, "labels": self.labels[rows], "source": self.source[rows]}

    def describe(self) -> dict[str, Any]:
        """Return the numbers of pairs in total and by source, mean counts, and lengths in tokens."""
        return {
            "pairs": len(self),
            "by_source": _count_by_source(self.source, self.sources),
            "mean_counts": self.labels.double().nanmean(0).tolist(),
            "mean_tokens": sum(self.lengths) / len(self),
            "longest_tokens": max(self.lengths),
            "pairs_cut": sum(pair.num_cut > 0 for pair in self.pairs),
        }


class TokenizedReports(Dataset[dict[str, Tensor]]):
    """Prompts with reference and candidate, sorted by reference, the input of ER²Score.

    For a list of rows, the data set returns a batch: the arguments of
    :meth:`rrg_rewards.models.ER2ScoreModel.forward_shared` by name, ``contributions`` ``(N, C)`` float32, NaN for a
    criterion that is not annotated, ``reference`` ``(N,)``, the index of the report's reference, and ``source``
    ``(N,)``, the index of the report's source.

    Args:
        reports: Reports whose ``source`` is one of ``sources``.
        system: Scoring system of the sub-scores.
        sources: Names of the sources.
        encode: Encoder of reference and candidate.
    """

    def __init__(
        self, reports: Sequence[GradedReport], system: ScoringSystem, sources: Sequence[str], encode: PromptEncoder
    ) -> None:
        indices: dict[str, int] = {}
        for report in reports:
            indices.setdefault(report.reference, len(indices))
        # The sort is stable: candidates of a reference keep their order.
        self.reports = sorted(reports, key=lambda report: indices[report.reference])
        self.system = system
        self.sources = tuple(sources)
        self.encode = encode
        self.prompts = encode([r.reference for r in self.reports], [r.candidate for r in self.reports])
        self.contributions = torch.tensor([report.contributions(system) for report in self.reports])
        self.reference = torch.tensor([indices[report.reference] for report in self.reports])
        self.source = _source_indices(self.reports, self.sources)

    def __len__(self) -> int:
        return len(self.reports)

    def __getitem__(self, rows: list[int]) -> dict[str, Tensor]:
        return {
            **self.encode.collate_shared([self.prompts[row] for row in rows]),
            "contributions": self.contributions[rows],
            "reference": self.reference[rows],
            "source": self.source[rows],
        }

    @property
    def lengths(self) -> list[int]:
        """Number of tokens of the longest prompt with the reference of each report."""
        tokens = torch.tensor([len(prompt) for prompt in self.prompts])
        longest = torch.zeros(int(self.reference.max()) + 1, dtype=tokens.dtype)
        lengths: list[int] = longest.scatter_reduce(0, self.reference, tokens, "amax")[self.reference].tolist()
        return lengths

    def describe(self) -> dict[str, Any]:
        """Return the numbers of reports in total and by source, mean sub-scores, and lengths in tokens."""
        factors = torch.tensor(self.system.factors, dtype=torch.float64)
        means = (self.contributions.double() / factors).nanmean(0).tolist()
        prefixes = {prompt.prefix for prompt in self.prompts}
        tokens = sum(map(len, prefixes)) + sum(len(prompt.suffix) for prompt in self.prompts)
        return {
            "reports": len(self),
            "references": int(self.reference.max()) + 1,
            "by_source": _count_by_source(self.source, self.sources),
            "mean_scores": {
                name: None if math.isnan(mean) else mean for name, mean in zip(self.system.names, means, strict=True)
            },
            "mean_tokens": sum(map(len, self.prompts)) / len(self),
            "tokens_read": tokens,
            "longest_tokens": max(map(len, self.prompts)),
            "reports_cut": sum(prompt.num_cut > 0 for prompt in self.prompts),
        }


class TokenizedPreferences(Dataset[dict[str, Tensor]]):
    """Pairs of an accepted and a rejected report.

    For a list of rows, the data set returns a batch of the distinct reports in these pairs with the columns of
    :class:`TokenizedReports`. ``accepted`` and ``rejected`` are the indices of the reports of each pair in the batch.

    Args:
        reports: The reports.
        pairs: Pairs of these reports.
    """

    def __init__(self, reports: TokenizedReports, pairs: GradedPairs) -> None:
        self.reports = reports
        self.made = pairs
        rows = {(report.reference, report.candidate): row for row, report in enumerate(reports.reports)}
        self.rows = torch.tensor(
            [[rows[pair.reference, candidate] for candidate in (pair.accepted, pair.rejected)] for pair in pairs.pairs]
        )
        # Number the references from 0 without gaps, because some references have no pair.
        self.together = torch.unique(reports.reference[self.rows[:, 0]], return_inverse=True)[1]
        lengths = reports.lengths
        self.lengths = [lengths[row] for row in self.rows[:, 0].tolist()]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: list[int]) -> dict[str, Tensor]:
        distinct, positions = torch.unique(self.rows[rows], return_inverse=True)
        return {**self.reports[distinct.tolist()], "accepted": positions[:, 0], "rejected": positions[:, 1]}

    def describe(self) -> dict[str, Any]:
        """Return the numbers of reports and pairs, and how many pairs differ in each criterion."""
        contributions = self.reports.contributions
        margins = contributions[self.rows[:, 0]] - contributions[self.rows[:, 1]]
        differ = (margins.nan_to_num() != 0).sum(0).tolist()
        return {
            **self.reports.describe(),
            "pairs": len(self),
            "ties_left_out": self.made.ties,
            "incomparable_left_out": self.made.incomparable,
            "capped": self.made.capped,
            "pairs_that_differ": dict(zip(self.reports.system.names, differ, strict=True)),
        }


def _source_indices(records: Sequence[ErrorRecord | GradedReport], sources: tuple[str, ...]) -> Tensor:
    return torch.tensor([sources.index(record.source) for record in records])


def _count_by_source(indices: Tensor, sources: tuple[str, ...]) -> dict[str, int]:
    counts = Counter(indices.tolist())
    return {name: counts[index] for index, name in enumerate(sources)}
