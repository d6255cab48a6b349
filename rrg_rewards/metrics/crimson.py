"""CRIMSON as a metric on report text, through a judge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.functional.crimson import (
    CrimsonEvaluation,
    CrimsonFinding,
    CrimsonStatistics,
    crimson_score_from_statistics,
    crimson_statistics,
)
from rrg_rewards.judges.base import Judge, JudgeFailure, ReportPair
from rrg_rewards.judges.crimson import CrimsonPrompt, CrimsonTask
from rrg_rewards.metrics.base import Scores
from rrg_rewards.metrics.judged import FAILURE_KINDS, JudgedMetric, JudgedScores
from rrg_rewards.schemas import ATTRIBUTE_ERROR_TYPES
from rrg_rewards.utilities.signature import format_signature

__all__ = ["CRIMSON", "CrimsonScores"]

_CONTEXT = ("age", "sex", "indication")
# What is summed, under the names of details and statistics: weights are multiples of 1/4 but for partial credit.
_WEIGHTS = ("credit", "reference_weight", "weighted_false", "weighted_missing", "weighted_attribute")
_COUNTS = (
    "reference_findings",
    "predicted_findings",
    "matched_findings",
    "false_findings",
    "missing_findings",
    "attribute_errors",
    *(f"{kind}_errors" for kind in ATTRIBUTE_ERROR_TYPES),
)


def _named(statistics: CrimsonStatistics) -> dict[str, Tensor]:
    """Columns of statistics under their names in details."""
    columns = [*statistics[:-1], *statistics.num_error_types.unbind(1)]
    return dict(zip((*_WEIGHTS, *_COUNTS), columns, strict=True))


@dataclass(frozen=True, kw_only=True)
class CrimsonScores(JudgedScores):
    """CRIMSON of report pairs with the evaluations it was made from.

    Args:
        value: CRIMSON, float64 tensor ``(N,)``; NaN where a pair is unscorable or the judge failed.
        details: Weighted and plain counts by name, each ``(N,)``; see :meth:`CRIMSON.score`.
        results: Evaluation or failure of each pair; ``None`` where it was not judged.
    """

    @property
    def evaluations(self) -> tuple[CrimsonEvaluation | None, ...]:
        """Evaluation of each pair; ``None`` where there is none."""
        return tuple(result if isinstance(result, CrimsonEvaluation) else None for result in self.results)

    @property
    def explanations(self) -> dict[str, list[str]]:
        """What is ``missed``, ``invented`` and ``misdescribed`` in each report, and why the judge failed on it."""
        evaluations = [evaluation or CrimsonEvaluation() for evaluation in self.evaluations]
        return {
            "missed": [_in_words(one.reference_findings, one.missing_findings) for one in evaluations],
            "invented": [_in_words(one.predicted_findings, one.false_findings) for one in evaluations],
            "misdescribed": [_misdescribed(one) for one in evaluations],
            **super().explanations,
        }


def _in_words(findings: Sequence[CrimsonFinding], chosen: Sequence[str]) -> str:
    by_id = {finding.id: finding for finding in findings}
    return "; ".join(f"{by_id[id_].finding} ({by_id[id_].clinical_significance.replace('_', ' ')})" for id_ in chosen)


def _misdescribed(evaluation: CrimsonEvaluation) -> str:
    reference = {finding.id: finding.finding for finding in evaluation.reference_findings}
    predicted = {finding.id: finding.finding for finding in evaluation.predicted_findings}
    told = []
    for error in evaluation.attribute_errors:
        named = reference[error.ref_id]
        what = f"{named}: {error.explanation}" if error.explanation else f"{predicted[error.pred_id]} for {named}"
        told.append(f"{what} ({error.severity} {', '.join(error.error_types)})")
    return "; ".join(told)


class CRIMSON(JudgedMetric[ReportPair, CrimsonEvaluation]):
    r"""CRIMSON: how much of a report's clinical significance a candidate carries, less what it invents.

    A judge lists the abnormal findings of both reports, matches them, says what is wrong about matched ones and how
    significant each finding is for this patient; the score follows from its evaluation by the formulas of
    :func:`rrg_rewards.functional.crimson_statistics` and
    :func:`rrg_rewards.functional.crimson_score_from_statistics`. The corpus value is the mean over scored pairs.
    float64 in (-1, 1], higher is better; 0 is what a normal template earns where there is something to find; NaN where
    no pair is scored.

    Source: Baharoon et al., "CRIMSON", arXiv:2603.06183.

    Args:
        judge: A judge, or its name or settings as :func:`rrg_rewards.judges.get_judge` takes them.
        prompt: What a language model is asked with, as :class:`rrg_rewards.judges.crimson.CrimsonTask` takes it; rules
            are not asked.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: For an unknown judge or prompt.
        TypeError: For something that is no judge, or an argument that the judge does not take.

    Example:
        >>> from rrg_rewards.metrics import CRIMSON
        >>> metric = CRIMSON(judge="rules")
        >>> metric.update(["No abnormality."], ["Large right pneumothorax."], age=[66])
        >>> metric.compute(), metric.error_counts()["missing_findings"]
        (tensor(0., dtype=torch.float64), tensor(1))
        >>> metric.score(["Large left pneumothorax."], ["Large right pneumothorax."]).explanations["misdescribed"]
        ['pneumothorax: left for right (significant location)']
    """

    name = "crimson"
    plot_lower_bound: float = -1.0
    plot_upper_bound: float = 1.0

    score_sum: Tensor
    num_scored: Tensor
    weights: Tensor
    counts: Tensor

    def __init__(
        self, judge: str | Mapping[str, Any] | Judge = "rules", prompt: CrimsonPrompt = "own", **kwargs: Any
    ) -> None:
        super().__init__(judge, CrimsonTask(prompt), **kwargs)
        self.add_state("score_sum", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("num_scored", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("weights", torch.zeros(len(_WEIGHTS), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("counts", torch.zeros(len(_COUNTS), dtype=torch.long), dist_reduce_fx="sum")

    @property
    def signature(self) -> str:
        """What exactly is computed; the prompt is named where a language model is asked."""
        # A judge that never waits asks nobody, so no prompt can change what it says.
        prompt = {} if self.judge.is_immediate else {"prompt": self.task.prompt_hash}
        return format_signature("crimson", judge=f"{{{self.judge.signature}}}", **prompt)

    def score(
        self, preds: Sequence[str | None], target: Sequence[str | None], **context: Sequence[Any]
    ) -> CrimsonScores:
        """CRIMSON of each report pair.

        Args:
            preds: ``N`` candidate reports.
            target: ``N`` reference reports.
            context: ``age``, ``sex`` and ``indication``, each optional: ``N`` texts or numbers, ``None`` or blank where
                unknown. An age is passed on as it is written (``"066Y"``, ``66``).

        Returns:
            ``value``: CRIMSON. ``details``, each ``(N,)``: ``credit`` (weight of what is right) of
            ``reference_weight``; ``weighted_false``, ``weighted_missing`` and ``weighted_attribute``; the numbers of
            ``reference_findings``, ``predicted_findings``, ``matched_findings`` (of the reference),
            ``false_findings``, ``missing_findings`` and ``attribute_errors``, and of the latter by type
            (``location_errors`` and so on; an error of several types counts in each).
            ``evaluations``: what the judge said.

        Raises:
            TypeError: If a report is no text or a context value neither text nor number, by argument and row, or a
                context column is not known.
            ValueError: If lengths differ.
        """
        scores = super().score(preds, target, **context)
        assert isinstance(scores, CrimsonScores)
        return scores

    def _choose(
        self, preds: Sequence[str | None], target: Sequence[str | None], context: Mapping[str, Sequence[Any]]
    ) -> tuple[Tensor, list[str], list[str], dict[str, list[Any]]]:
        self._check_columns(context, _CONTEXT)
        texts = {
            name: [_context_text(f"{name}[{row}]", value) for row, value in enumerate(column)]
            for name, column in context.items()
        }
        return super()._choose(preds, target, texts)

    def _items(
        self, preds: Sequence[str], target: Sequence[str], context: Mapping[str, Sequence[Any]]
    ) -> list[ReportPair]:
        # In one order, whatever the caller's: equal pairs are judged once.
        named = [[(name, text) for text in context[name]] for name in _CONTEXT if name in context]
        known = [tuple(pair for pair in row if pair[1]) for row in zip(*named, strict=True)] or [()] * len(preds)
        return [
            ReportPair(reference, candidate, row)
            for reference, candidate, row in zip(target, preds, known, strict=True)
        ]

    def _judged(self, results: Sequence[CrimsonEvaluation | JudgeFailure]) -> CrimsonScores:
        judged = torch.tensor([not isinstance(result, JudgeFailure) for result in results], dtype=torch.bool)
        statistics = crimson_statistics([result for result in results if not isinstance(result, JudgeFailure)])
        scored = Scores(crimson_score_from_statistics(*statistics[:3]), _named(statistics)).expand(judged)
        return CrimsonScores(scored.value, scored.details, results=tuple(results))

    def _accumulate(self, scores: Scores) -> None:
        super()._accumulate(scores)
        scored = scores.scored
        self.score_sum += scores.value[scored].sum().to(self.device)
        self.num_scored += int(scored.sum())
        self.weights += _sums(scores, _WEIGHTS).to(self.device)
        self.counts += _sums(scores, _COUNTS).long().to(self.device)

    def compute(self) -> Tensor:
        """Mean CRIMSON of the pairs scored so far: float64 scalar, NaN where there is none."""
        return self.score_sum / self.num_scored

    def error_counts(self) -> dict[str, Tensor]:
        """Totals over all pairs so far, synced over processes as ``compute`` is, so every process must call it.

        Returns:
            Scalars by name. int64: ``scored``, ``unscorable``, the judge's failures among the latter by kind
            (``failed_deadline`` and so on), and the plain counts of :meth:`score`'s details; float64: its weighted
            counts.
        """
        with self._synced():
            return {
                "scored": self.num_scored.clone(),
                "unscorable": self.num_unscorable.clone(),
                **dict(zip((f"failed_{kind}" for kind in FAILURE_KINDS), self.num_failed.clone(), strict=True)),
                **dict(zip(_WEIGHTS, self.weights.clone(), strict=True)),
                **dict(zip(_COUNTS, self.counts.clone(), strict=True)),
            }

    def statistics(self) -> dict[str, Tensor]:
        """Means per scored report of all weighted and plain counts, synced as ``compute`` is.

        Returns:
            float64 scalars by the names of :meth:`score`'s details; NaN where no pair is scored.
        """
        totals = self.error_counts()
        return {name: totals[name].double() / totals["scored"] for name in (*_WEIGHTS, *_COUNTS)}


def _sums(scores: Scores, names: Sequence[str]) -> Tensor:
    return torch.stack([scores.details[name][scores.scored].sum() for name in names])


def _context_text(place: str, value: Any) -> str:
    """Text of what is known of a patient; empty where nothing is."""
    if value is None or value != value:  # NaN, as tables have it for an empty cell
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{place} must be a text, a number or None, got {type(value).__name__}")
    # A column with an empty cell is one of floats: 66.0 is the age 66.
    number = float(value)
    return str(int(number)) if number.is_integer() else str(value)
