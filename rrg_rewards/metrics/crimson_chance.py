"""What a report earns in CRIMSON's training form by chance, over the references of a training set."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from rrg_rewards.findings import Finding
from rrg_rewards.functional.chance import normal_reference_weight
from rrg_rewards.functional.crimson import CrimsonEvaluation, finding_weight
from rrg_rewards.functional.crimson_training import crimson_training_statistics
from rrg_rewards.judges.base import Judge, JudgeFailure, ReportPair, remember_results
from rrg_rewards.judges.rules import RuleJudge
from rrg_rewards.judges.tasks.crimson import CrimsonTask
from rrg_rewards.judges.tasks.grounding import readings
from rrg_rewards.metrics.chance import Chance

# Mean scores of reports that are kept in memory.
_REMEMBERED = 4096


class CrimsonChance(Chance):
    """The weighted mean score of a report over training references, in CRIMSON's training form.

    A reference is normal if it has no finding of weight above 0. References that the judge cannot score are left out. A
    blank report scores 0 for every reference.

    Args:
        references: The references with the context of their patients; the candidates of these pairs are not used.
        judge: The rules.
        task: Task of the judge.
        false_price: Price of a false finding in the training form.

    Raises:
        ValueError: If there is no reference that the judge can score.
    """

    most_references = 256

    def __init__(
        self, references: Sequence[ReportPair], judge: Judge, task: CrimsonTask, false_price: float = 1.0
    ) -> None:
        assert isinstance(judge, RuleJudge)
        self._judge, self._task, self._false_price = judge, task, false_price
        blank = [replace(pair, candidate="") for pair in references]
        results: list[CrimsonEvaluation | JudgeFailure] = judge.evaluate_now(task, blank)
        found = zip(blank, results, strict=True)
        scorable = [(pair, result) for pair, result in found if not isinstance(result, JudgeFailure)]
        if not scorable:
            raise ValueError(
                f"chance needs references that the judge can score; got {len(references)}, none of which it can"
            )
        # All references of one context without a finding give a candidate the same score.
        self._counts: dict[ReportPair, int] = {}
        without: dict[Any, ReportPair] = {}
        normal = set()
        for pair, result in scorable:
            same = pair if result.reference_findings else without.setdefault(pair.context, pair)
            self._counts[same] = self._counts.get(same, 0) + 1
            if not any(map(finding_weight, result.reference_findings)):
                normal.add(same)
        self.normal_weight = normal_reference_weight(sum(self._counts[pair] for pair in normal) / len(scorable))
        weights = [count * (self.normal_weight if pair in normal else 1) for pair, count in self._counts.items()]
        self._weights = torch.tensor(weights, dtype=torch.float64) / len(scorable)
        self._blank = self._statistics([])
        # Credit and price that a finding adds to those of a blank report, for all references.
        self._rows: dict[Finding, Tensor] = {}
        self._means: dict[str, float] = {}

    @classmethod
    def from_text(cls, text: str, judge: Judge, task: CrimsonTask, false_price: float = 1.0) -> Self:
        """Restore what :meth:`to_text` has saved.

        Raises:
            ValueError: If the text is no saved one.
        """

        def restore(rows: Any) -> list[ReportPair]:
            return [
                ReportPair(report, "", tuple((name, value) for name, value in context))
                for report, context, count in rows
                for _ in range(count)
            ]

        return cls(cls._restored(text, restore), judge, task, false_price)

    def _content(self) -> list[Any]:
        return [[pair.reference, pair.context, count] for pair, count in self._counts.items()]

    def __len__(self) -> int:
        return sum(self._counts.values())

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_means": {}, "_rows": {}}

    def mean(self, report: str) -> float:
        """Return the weighted mean score of a report over the references.

        Credit and price of each finding are those of a report that states it alone, and are added. This is what the
        report earns if no two of its findings compete for one of a reference. Otherwise it is nearly always more, and
        seldom less: a finding that has the nearest partner when alone may have another one beside others.

        Args:
            report: The candidate report.
        """
        found = self._means.get(report)
        if found is None:
            # Braces may contain an answer for a judge; the reading that earns more is charged.
            found = max(map(self._mean_of, readings(report)))
            remember_results(self._means, {report: found}, _REMEMBERED)
        return found

    def _mean_of(self, reading: str) -> float:
        rows = []
        for finding in self._judge.stated_findings(reading):
            alone = finding._replace(start=0, end=0, sentence=0)
            row = self._rows.get(alone)
            if row is None:
                row = self._statistics([alone]) - self._blank
                remember_results(self._rows, {alone: row}, _REMEMBERED)
            rows.append(row)
        credit, price = torch.stack([self._blank, *rows]).sum(0)
        # Several findings that share a partner each lower the price by what its omission costs.
        return float(torch.where(credit < price, credit / price, 1.0) @ self._weights)

    def _statistics(self, findings: Sequence[Finding]) -> Tensor:
        """Return credit and price of findings for all references: ``(2, M)``."""
        evaluations = [self._judge.evaluation_of(pair, findings) for pair in self._counts]
        return torch.stack(crimson_training_statistics(evaluations, self._task.checks, self._false_price)[:2])
