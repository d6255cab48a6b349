"""Agreement of a learned metric with true scores on held-out reports."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.functional.agreement import (
    POSITIVE_THRESHOLD,
    AgreementStatistic,
    agreement_interval,
    human_agreement,
)
from rrg_rewards.functional.bootstrap import bootstrap_interval
from rrg_rewards.functional.correlation import kendall_tau
from rrg_rewards.metrics.preference_accuracy import GradedRewards, annotated_totals, preference_pairs, rows_with_totals
from rrg_rewards.schemas.scoring import Criterion, ScoringSystem

_CORRELATIONS: tuple[AgreementStatistic, ...] = ("kendall", "spearman")


def count_agreement(preds: Tensor, target: Tensor, mean_counts: Tensor, categories: Sequence[str]) -> dict[str, Any]:
    """Compare predicted error counts with true counts, and with the mean counts of the training data.

    Args:
        preds: Predicted counts ``(N, C)``.
        target: True counts ``(N, C)``; NaN for a category that is not annotated.
        mean_counts: Mean counts of the training data, ``(C,)``.
        categories: Names of the categories.

    Returns:
        ``pairs``, ``pairs_with_total``, ``tau`` (``None`` if it is undefined), ``mae`` of the total, and for each
        category ``mae``, ``mae_of_mean`` (the error of always predicting the mean) and ``mean_true`` (``None`` if the
        category is not annotated).

    Example:
        >>> preds, target = torch.tensor([[1.0], [3.0]]), torch.tensor([[1.0], [2.0]])
        >>> found = count_agreement(preds, target, torch.tensor([1.5]), ["A"])
        >>> found["tau"], found["mae"], found["categories"]["A"]
        (1.0, 0.5, {'mae': 0.5, 'mae_of_mean': 0.5, 'mean_true': 1.5})
    """
    annotated = ~target.isnan().any(1)
    predicted_total, true_total = preds[annotated].sum(1), target[annotated].sum(1)
    by_category = {
        "mae": (preds - target).abs().nanmean(0),
        "mae_of_mean": (mean_counts.to(target) - target).abs().nanmean(0),
        "mean_true": target.nanmean(0),
    }
    return {
        "pairs": len(preds),
        "pairs_with_total": int(annotated.sum()),
        "tau": _finite(kendall_tau(predicted_total, true_total)),
        "mae": _finite((predicted_total - true_total).abs().mean()),
        "categories": {
            name: {statistic: _finite(values[index]) for statistic, values in by_category.items()}
            for index, name in enumerate(categories)
        },
    }


def preference_agreement(graded: GradedRewards, system: ScoringSystem) -> dict[str, Any]:
    """Compare the order of predicted rewards with the true order, and predicted sub-scores with true sub-scores.

    Args:
        graded: Rewards and contributions of reports.
        system: Scoring system of the contributions.

    Returns:
        ``reports``, ``pairs``, ``accuracy``, ``kendall``, ``spearman``, and for each criterion the number of ``pairs``
        that differ in it, ``accuracy`` over these pairs, and ``mae`` and ``mean_true`` of the sub-score; ``reports``
        that are annotated, and ``kendall`` and ``spearman`` of predicted and true sub-scores of these; ``binary``, the
        share of reports with or without an error of this criterion (a sub-score of at least 0.5) of which the model
        says the same, and ``majority``, the share of the more frequent answer. Undefined values are ``None``, and so
        are ``binary`` and ``majority`` of grades.

    Example:
        >>> from rrg_rewards.schemas import get_scoring_system
        >>> contributions = torch.tensor([[0.0, 0, 0, 0, 0, 0], [-2.0, 0, 0, 0, 0, 0]], dtype=torch.float64)
        >>> found = preference_agreement(
        ...     GradedRewards(contributions / 2, contributions, torch.tensor([0, 0])), get_scoring_system("radcliq")
        ... )
        >>> criterion = found["criteria"]["false_finding"]
        >>> {name: criterion[name] for name in ("pairs", "accuracy", "mae", "mean_true")}
        {'pairs': 1, 'accuracy': 1.0, 'mae': 0.5, 'mean_true': 1.0}
        >>> {name: criterion[name] for name in ("reports", "kendall", "binary", "majority")}
        {'reports': 2, 'kendall': 1.0, 'binary': 1.0, 'majority': 0.5}
    """
    # Do not use the metric, because it would synchronise with processes that have ended.
    statistics = {name: _finite(value) for name, value in graded.statistics(system.names).items()}
    accepted, rejected = preference_pairs(graded.contributions, graded.reference)
    differ = (graded.contributions[accepted] - graded.contributions[rejected]).nan_to_num() != 0
    factors = torch.tensor(system.factors, dtype=torch.float64)
    mae = ((graded.rewards - graded.contributions) / factors).abs().nanmean(0)
    mean_true = (graded.contributions / factors).nanmean(0)
    columns = zip(system.criteria, _sub_scores(graded, system), strict=True)
    annotated = {criterion.name: _criterion_agreement(criterion, *scores) for criterion, scores in columns}
    return {
        "reports": len(graded.rewards),
        "pairs": len(accepted),
        "accuracy": _finite(graded.accuracy()),
        "kendall": statistics["kendall"],
        "spearman": statistics["spearman"],
        "criteria": {
            name: {
                "pairs": int(differ[:, index].sum()),
                "accuracy": statistics[f"accuracy_{name}"],
                "mae": _finite(mae[index]),
                "mean_true": _finite(mean_true[index]),
                **annotated[name],
            }
            for index, name in enumerate(system.names)
        },
    }


def with_preference_intervals(
    agreement: Mapping[str, Any], graded: GradedRewards, system: ScoringSystem, num_resamples: int = 1000
) -> dict[str, Any]:
    """Return the values of :func:`preference_agreement` with bootstrap 95 % intervals.

    All reports on a reference are drawn together.

    Args:
        agreement: The values.
        graded: Rewards and contributions of reports.
        system: Scoring system of the contributions.
        num_resamples: Number of draws.

    Returns:
        ``agreement`` with ``accuracy_interval``, ``kendall_interval`` and ``spearman_interval``, and in each criterion
        ``kendall_interval``, ``spearman_interval`` and ``binary_interval``: lower and upper end, ``None`` if undefined.

    Example:
        >>> from rrg_rewards.schemas import get_scoring_system
        >>> system, contributions = get_scoring_system("radcliq"), -torch.arange(24.0).double().reshape(4, 6)
        >>> graded = GradedRewards(contributions / 2, contributions, torch.tensor([0, 0, 1, 1]))
        >>> with_preference_intervals(preference_agreement(graded, system), graded, system)["kendall_interval"]
        [1.0, 1.0]
    """

    def intervals(
        preds: Tensor, target: Tensor, units: Tensor, statistics: Sequence[AgreementStatistic]
    ) -> dict[str, list[float | None]]:
        ends = {name: (float("nan"), float("nan")) for name in statistics}
        if len(preds):
            ends = {
                name: agreement_interval(preds, target, name, units, num_resamples=num_resamples) for name in statistics
            }
        return {f"{name}_interval": _finite_ends(pair) for name, pair in ends.items()}

    whole, _ = rows_with_totals(graded.contributions)
    totals = annotated_totals(graded.rewards, graded.contributions)
    columns = zip(system.criteria, graded.contributions.T, _sub_scores(graded, system), strict=True)
    by_criterion = {
        criterion.name: intervals(*scores, graded.reference[~column.isnan()], _statistics_of(criterion))
        for criterion, column, scores in columns
    }
    return {
        **agreement,
        "accuracy_interval": accuracy_interval(graded, num_resamples),
        **intervals(*totals, graded.reference[whole], _CORRELATIONS),
        "criteria": {name: {**row, **by_criterion[name]} for name, row in agreement["criteria"].items()},
    }


def _sub_scores(graded: GradedRewards, system: ScoringSystem) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield predicted and true sub-scores of the annotated reports, criterion by criterion."""
    for rewards, contributions, factor in zip(graded.rewards.T, graded.contributions.T, system.factors, strict=True):
        known = ~contributions.isnan()
        yield rewards[known] / factor, contributions[known] / factor


def _statistics_of(criterion: Criterion) -> tuple[AgreementStatistic, ...]:
    return _CORRELATIONS if criterion.kind == "grade" else (*_CORRELATIONS, "binary")


def _criterion_agreement(criterion: Criterion, preds: Tensor, target: Tensor) -> dict[str, Any]:
    """Return the agreement of predicted and true sub-scores across references."""
    statistics = _statistics_of(criterion) if len(preds) else ()
    agreement = {name: _finite(human_agreement(preds, target, name)) for name in statistics}
    positive = float((target >= POSITIVE_THRESHOLD).double().mean())
    return {
        "reports": len(preds),
        **{name: agreement.get(name) for name in (*_CORRELATIONS, "binary")},
        "majority": max(positive, 1 - positive) if "binary" in agreement else None,
    }


def agreement_by_source(
    results: Mapping[str, Sequence[Tensor]], agreement: Callable[..., dict[str, Any]]
) -> dict[str, Any]:
    """Compute the agreement over all sources (``test``) and for each source with rows (``test_by_source``).

    Args:
        results: Tensors of predictions and true scores by source, with one row per report.
        agreement: Function that computes the agreement from these tensors.
    """
    pooled = (torch.cat(parts) for parts in zip(*results.values(), strict=True))
    return {
        "test": agreement(*pooled),
        "test_by_source": {name: agreement(*tensors) for name, tensors in results.items() if len(tensors[0])},
    }


def tau_interval(results: Mapping[str, Sequence[Tensor]]) -> list[float | None]:
    """Return the bootstrap interval over pairs of ``tau``, as :func:`count_agreement` computes it over all sources.

    Args:
        results: Predicted and true counts ``(N, C)`` by source.
    """
    preds, target = (torch.cat(parts) for parts in zip(*results.values(), strict=True))
    annotated = ~target.isnan().any(1)
    if not annotated.any():
        return [None, None]
    ends = agreement_interval(preds[annotated].sum(1).double(), target[annotated].sum(1).double(), "kendall")
    return _finite_ends(ends)


def accuracy_interval(graded: GradedRewards, num_resamples: int = 1000) -> list[float | None]:
    """Return the bootstrap interval over references of :meth:`GradedRewards.accuracy`."""
    accepted, rejected = preference_pairs(graded.contributions, graded.reference)
    owner = graded.reference[accepted]
    known = ~(graded.contributions[accepted] - graded.contributions[rejected]).isnan()
    right = ((graded.rewards[accepted] - graded.rewards[rejected]) * known).sum(1) > 0
    references = int(graded.reference.max()) + 1 if len(graded.reference) else 0
    pairs = torch.bincount(owner, minlength=references).double()
    correct = torch.bincount(owner, weights=right.double(), minlength=references)
    ends = bootstrap_interval(lambda hits, all_pairs: hits.sum() / all_pairs.sum(), (correct, pairs), num_resamples)
    return _finite_ends(ends)


def _finite(value: Tensor) -> float | None:
    return float(value) if bool(value.isfinite()) else None


def _finite_ends(ends: tuple[float, float]) -> list[float | None]:
    return [_finite(torch.tensor(end)) for end in ends]
