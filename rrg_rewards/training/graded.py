"""Graded reports as tokens in memory, and batches of them: reports to evaluate, and pairs to train on."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from rrg_rewards.data.graded_pairs import GradedPairs
from rrg_rewards.data.graded_reports import GradedReport
from rrg_rewards.models.er2score_encoding import PromptEncoder
from rrg_rewards.schemas.scoring import ScoringSystem

__all__ = ["TokenizedPreferences", "TokenizedReports"]


class TokenizedReports(Dataset[dict[str, Tensor]]):
    """Candidates and their references as prompts, tokenised once; those of a reference stand together.

    Indexed by a list of rows, it gives a batch: what :meth:`rrg_rewards.models.ER2ScoreModel.forward_shared` takes, by
    name, ``contributions`` ``(N, C)`` float32, NaN where a criterion is not annotated, ``reference`` ``(N,)``, the
    index of the report's reference, and ``source`` ``(N,)``, the index of its source.

    Args:
        reports: Reports, each with one of the sources' names.
        system: The scoring system of their sub-scores.
        sources: Names of the sources.
        encode: Makes token sequences of reference and candidate.
    """

    def __init__(
        self, reports: Sequence[GradedReport], system: ScoringSystem, sources: Sequence[str], encode: PromptEncoder
    ) -> None:
        places: dict[str, int] = {}
        for report in reports:
            places.setdefault(report.reference, len(places))
        # Stable: candidates of a reference stay in their order.
        self.reports = sorted(reports, key=lambda report: places[report.reference])
        self.system = system
        self.sources = tuple(sources)
        self.encode = encode
        self.prompts = encode([r.reference for r in self.reports], [r.candidate for r in self.reports])
        self.contributions = torch.tensor([report.contributions(system) for report in self.reports])
        self.reference = torch.tensor([places[report.reference] for report in self.reports])
        self.source = torch.tensor([self.sources.index(report.source) for report in self.reports])

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
    def lengths(self) -> Tensor:
        """For each report the tokens of the longest prompt with its reference, int64 ``(N,)``."""
        own = torch.tensor([len(prompt) for prompt in self.prompts])
        longest = torch.zeros(int(self.reference.max()) + 1, dtype=own.dtype)
        return longest.scatter_reduce(0, self.reference, own, "amax")[self.reference]

    def describe(self) -> dict[str, Any]:
        """Numbers of reports, by source, their mean sub-scores, and how long they are in tokens."""
        by_source = Counter(self.sources[place] for place in self.source.tolist())
        factors = torch.tensor(self.system.factors, dtype=torch.float64)
        means = (self.contributions.double() / factors).nanmean(0).tolist()
        prefixes = {prompt.prefix for prompt in self.prompts}
        tokens = sum(map(len, prefixes)) + sum(len(prompt.suffix) for prompt in self.prompts)
        return {
            "reports": len(self),
            "references": int(self.reference.max()) + 1,
            "by_source": {name: by_source[name] for name in self.sources},
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

    Indexed by a list of rows, it gives a batch of the reports that are in these pairs, each once, as
    :class:`TokenizedReports` does, and for each pair the places of the ``accepted`` and the ``rejected`` one in it.

    Args:
        reports: The reports.
        pairs: Pairs of them.
    """

    def __init__(self, reports: TokenizedReports, pairs: GradedPairs) -> None:
        self.reports = reports
        self.made = pairs
        rows = {(report.reference, report.candidate): row for row, report in enumerate(reports.reports)}
        self.rows = torch.tensor(
            [
                [rows[pair.reference, candidate] for candidate in (pair.accepted, pair.rejected)]
                for pair in self.made.pairs
            ]
        )
        # From 0 on without a gap: some references have no pair.
        self.together = torch.unique(reports.reference[self.rows[:, 0]], return_inverse=True)[1]
        self.lengths: list[int] = reports.lengths[self.rows[:, 0]].tolist()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: list[int]) -> dict[str, Tensor]:
        distinct, places = torch.unique(self.rows[rows], return_inverse=True)
        return {**self.reports[distinct.tolist()], "accepted": places[:, 0], "rejected": places[:, 1]}

    def describe(self) -> dict[str, Any]:
        """Numbers of the reports and of pairs, and how many pairs differ in each criterion."""
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
