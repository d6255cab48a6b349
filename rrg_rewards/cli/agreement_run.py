"""The result of ``rrg-rewards agreement``: agreement, differences and the correlations between all columns."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.analysis.scoring import number
from rrg_rewards.cli.agreement_columns import ALL_ROWS, AgreementColumns
from rrg_rewards.functional.agreement import AgreementStatistic, agreement_interval, human_agreement
from rrg_rewards.functional.significance import agreement_permutation_test, perm_both_test, williams_test

__all__ = ["agreement_result", "correlations"]

_CORRELATIONS: tuple[AgreementStatistic, ...] = ("kendall", "spearman", "pearson")


def agreement_result(
    columns: AgreementColumns,
    statistics: Sequence[AgreementStatistic],
    args: argparse.Namespace,
    report: Callable[[int, int], None],
) -> dict[str, Any]:
    """Return, for all rows and for each group, the agreement with each human column.

    Args:
        columns: Scores and judgements.
        statistics: Statistics to compute.
        args: Arguments of the command: ``bootstrap``, ``permutations``, ``seed`` and ``baseline``.
        report: Function that :meth:`Terminal.progress` yields.
    """
    groups = {ALL_ROWS: torch.arange(columns.rows)}
    if columns.groups is not None:
        for name in dict.fromkeys(columns.groups):
            groups[name] = torch.tensor([row for row, group in enumerate(columns.groups) if group == name])
    pairs = _pairs(list(columns.scores), args.baseline)
    report(0, len(groups) * len(columns.human) * len(statistics) * (len(columns.scores) + len(pairs)))
    return {
        name: {
            "rows": len(rows),
            "human": {
                human: _against(columns, human, rows, statistics, pairs, args, report) for human in columns.human
            },
            "correlations": correlations({**columns.scores, **columns.human}, rows, _heat_statistic(statistics)),
        }
        for name, rows in groups.items()
    }


def _heat_statistic(statistics: Sequence[AgreementStatistic]) -> AgreementStatistic:
    """Return the first correlation among the statistics."""
    return next((statistic for statistic in statistics if statistic in _CORRELATIONS), "kendall")


def _pairs(names: Sequence[str], baseline: str | None) -> list[tuple[str, str]]:
    """Return the pairs of scores to compare."""
    if baseline is None:
        return list(combinations(names, 2))
    return [(name, baseline) for name in names if name != baseline]


def correlations(columns: Mapping[str, Tensor], rows: Tensor, statistic: AgreementStatistic) -> dict[str, Any]:
    """Return the correlation of each column with each other, over the rows in which all columns are known.

    Example:
        >>> columns = {"a": torch.tensor([1.0, 2.0, 3.0]), "b": torch.tensor([3.0, 2.0, 1.0])}
        >>> correlations(columns, torch.arange(3), "kendall")["values"]
        [[1.0, -1.0], [-1.0, 1.0]]
    """
    known = torch.stack([values[rows].isfinite() for values in columns.values()]).all(0)
    chosen = [values[rows][known] for values in columns.values()]
    values = [[_value(ours, theirs, statistic) for theirs in chosen] for ours in chosen]
    return {"statistic": statistic, "rows": int(known.sum()), "names": list(columns), "values": values}


def _value(scores: Tensor, target: Tensor, statistic: AgreementStatistic, units: Tensor | None = None) -> float | None:
    return number(float(human_agreement(scores, target, statistic, units))) if len(scores) else None


def _against(
    columns: AgreementColumns,
    human: str,
    rows: Tensor,
    statistics: Sequence[AgreementStatistic],
    pairs: Sequence[tuple[str, str]],
    args: argparse.Namespace,
    report: Callable[[int, int], None],
) -> dict[str, Any]:
    """Return the agreement with one human column, over the rows with this judgement and all scores."""
    judged = columns.human[human][rows].isfinite()
    scored = torch.stack([values[rows].isfinite() for values in columns.scores.values()]).all(0)
    kept = rows[judged & scored]
    scores = {name: values[kept] for name, values in columns.scores.items()}
    target = columns.human[human][kept]
    units = None if columns.units is None else columns.units[kept]
    found: dict[str, Any] = {
        "rows": len(kept),
        "units": len(kept) if units is None else len(set(units.tolist())),
        "without_judgement": int((~judged).sum()),
        "without_score": int((judged & ~scored).sum()),
        "agreement": {},
        "differences": [],
    }
    for statistic in statistics:
        found["agreement"][statistic] = {}
        for name, values in scores.items():
            found["agreement"][statistic][name] = _one(values, target, statistic, units, args)
            report(1, 0)
        for first, second in pairs:
            difference = _difference(scores[first], scores[second], target, statistic, units, args)
            found["differences"].append({"statistic": statistic, "first": first, "second": second, **difference})
            report(1, 0)
    return found


def _interval(
    scores: Tensor,
    target: Tensor,
    statistic: AgreementStatistic,
    units: Tensor | None,
    args: argparse.Namespace,
    minus: Tensor | None = None,
) -> dict[str, float | None]:
    if not args.bootstrap or not len(scores):
        return {"low": None, "high": None}
    low, high = agreement_interval(
        scores, target, statistic, units, minus=minus, num_resamples=args.bootstrap, seed=args.seed
    )
    return {"low": number(low), "high": number(high)}


def _one(
    scores: Tensor, target: Tensor, statistic: AgreementStatistic, units: Tensor | None, args: argparse.Namespace
) -> dict[str, float | None]:
    """Return a value, its bootstrap interval, and the p-value and interval of no agreement."""
    found = {
        "value": _value(scores, target, statistic, units),
        **_interval(scores, target, statistic, units, args),
        "p_value": None,
        "chance_low": None,
        "chance_high": None,
    }
    if args.permutations and len(scores):
        options = {"num_permutations": args.permutations, "seed": args.seed}
        test = agreement_permutation_test(scores, target, statistic, units, **options)
        found |= {
            "p_value": number(test.p_value),
            "chance_low": number(test.low),
            "chance_high": number(test.high),
        }
    return found


def _difference(
    first: Tensor,
    second: Tensor,
    target: Tensor,
    statistic: AgreementStatistic,
    units: Tensor | None,
    args: argparse.Namespace,
) -> dict[str, float | None]:
    """Return the difference of two scores' agreement, its interval and its tests."""
    ours, theirs = (_value(scores, target, statistic, units) for scores in (first, second))
    found = {
        "value": None if ours is None or theirs is None else ours - theirs,
        **_interval(first, target, statistic, units, args, minus=second),
        "p_value": None,
        "williams_p_value": None,
    }
    if args.permutations and len(first):
        options = {"num_permutations": args.permutations, "seed": args.seed}
        found["p_value"] = number(perm_both_test(first, second, target, statistic, units, **options).p_value)
    if statistic == "pearson" and len(first) >= 4 and ours is not None and theirs is not None:
        between = float(human_agreement(first, second, "pearson"))
        found["williams_p_value"] = number(williams_test(ours, theirs, between, len(first)).p_value)
    return found
