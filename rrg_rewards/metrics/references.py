"""Scores of reports with several references each."""

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import torch

from rrg_rewards.metrics.base import Column, ReportMetric, read_column
from rrg_rewards.metrics.coco import CocoMetric
from rrg_rewards.metrics.nlg import BLEU
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.checks import check_same_length, read_reports

References = Sequence[str | None]


def score_references(
    metric: ReportMetric,
    preds: Sequence[str | None],
    target: Sequence[References],
    *,
    best: bool = False,
    **context: Column,
) -> Scores:
    """Score reports with several references each.

    - BLEU is computed as published: the count of an n-gram is clipped to its maximum in a reference, and the length is
      that of the reference whose length is closest.
    - So are the metrics of the COCO caption evaluation (:mod:`rrg_rewards.metrics.coco`, CIDEr).
    - ROUGE, chrF and BERTScore take the best reference of each report, as published.
    - The other metrics are defined for one reference. With ``best=True``, they take the reference of each report with
      the best ``value``; sub-scores and explanations are those of this reference.

    Missing and blank references are left out, and references without a score in metrics with a judge, such as those
    that CT-FineBench finds no questions in. A report without a reference, or without a prediction, is unscorable. If a
    judge fails on a reference, or a metric without a judge gives no score, the report has no score, because this
    reference may be the best. The corpus value is that of ``metric.add_scores(scores)``.

    Args:
        metric: The metric. Its state is not changed.
        preds: ``N`` candidate reports.
        target: For each of them, its references.
        best: Whether metrics that are defined for one reference take the best one.
        context: Context columns of ``N`` values by name.

    Raises:
        TypeError: If ``target`` does not contain lists of texts.
        ValueError: If the metric is defined for one reference and ``best`` is not set; if its scores depend on the
            other pairs, such as CRG without a prior; or if it does not say whether higher scores are better.

    Example:
        >>> from rrg_rewards.metrics import ROUGE, ReportCRG, score_references
        >>> references = [["Small effusion.", "Pleural effusion on the left."]]
        >>> score_references(ROUGE(), ["Small pleural effusion."], references).value
        tensor([0.8000], dtype=torch.float64)
        >>> crg = ReportCRG(prior=0.2)
        >>> crg.add_scores(score_references(crg, ["Cardiomegaly."], [["Normal.", "Enlarged heart."]], best=True))
        >>> crg.compute()
        tensor(1., dtype=torch.float64)
    """
    check_references(metric, best)
    preds, target = _read_texts(metric, preds, target)
    kept = [[text for text in texts if text is not None and text.strip()] for texts in target]
    if isinstance(metric, BLEU | CocoMetric):
        rows = torch.tensor([pred is not None and bool(texts) for pred, texts in zip(preds, kept, strict=True)])
        chosen = rows.nonzero().flatten().tolist()
        scores = metric.score_references([preds[row] or "" for row in chosen], [kept[row] for row in chosen])
        return scores.expand(rows.bool())
    # A report without a reference stays as one unscorable pair.
    pairs: list[tuple[int, str | None]] = [(row, text) for row, texts in enumerate(kept) for text in texts or (None,)]
    columns = {name: read_column(name, column, len(preds)) for name, column in context.items()}
    scores = metric.score(
        [preds[row] for row, _ in pairs],
        [text for _, text in pairs],
        **{name: [column[row] for row, _ in pairs] for name, column in columns.items()},
    )
    return scores.take(_best_rows(scores, [row for row, _ in pairs], len(preds), bool(metric.higher_is_better)))


def score_batch(
    metric: ReportMetric,
    preds: Sequence[str | None],
    target: Sequence[Any],
    best: bool | None,
    context: Mapping[str, Column],
) -> Scores:
    """Score reports with one reference each (``best=None``), or with several, as :func:`score_references`."""
    if best is None:
        return metric.score(preds, target, **context)
    return score_references(metric, preds, target, best=best, **context)


def _best_rows(scores: Scores, rows: Sequence[int], num_reports: int, higher_is_better: bool) -> torch.Tensor:
    """Return the index of the best pair of each report; of a pair on which a judge failed, if there is one."""
    sign = 1 if higher_is_better else -1
    # Metrics without a judge do not say why a pair has no score.
    failures = [*scores.failures.values()] or [~scores.scored]
    failed = torch.stack(failures).any(0).tolist()
    best: list[tuple[float, int]] = [(-math.inf, -1)] * num_reports
    for index, (row, value) in enumerate(zip(rows, scores.value.tolist(), strict=True)):
        rank = math.inf if failed[index] else -math.inf if math.isnan(value) else sign * value
        if rank > best[row][0] or best[row][1] == -1:
            best[row] = (rank, index)
    return torch.tensor([index for _, index in best], dtype=torch.long)


def _read_texts(
    metric: ReportMetric, preds: Sequence[str | None], target: Sequence[References]
) -> tuple[list[str | None], list[list[str | None]]]:
    """Return reports and the references of each, ``None`` for a missing one."""
    check_same_length("preds", preds, "target", target)
    read = []
    for row, texts in enumerate(target):
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise TypeError(f"target[{row}] must be a list of references, got {type(texts).__name__}")
        read.append(read_reports(f"target[{row}]", texts))
    known = iter(metric.without_placeholders([text for texts in read for text in texts]))
    return read_reports("preds", preds), [[*islice(known, len(texts))] for texts in read]


def signature_with_references(metric: ReportMetric, best: bool | None) -> str:
    """Return the signature of a metric that scores reports as :func:`score_batch`."""
    if best is None:
        return metric.signature
    return f"{metric.signature}|references:{'published' if _has_published_rule(metric) else 'best'}"


def _has_published_rule(metric: ReportMetric) -> bool:
    """Return whether the publication of a metric defines its score for several references."""
    return metric.best_of_references or isinstance(metric, BLEU | CocoMetric)


def check_references(metric: ReportMetric, best: bool) -> None:
    """Raise the errors of :func:`score_references` about the metric.

    Args:
        metric: The metric.
        best: Whether metrics that are defined for one reference take the best one.

    Raises:
        ValueError: If the metric is defined for one reference and ``best`` is not set, its scores depend on the other
            pairs, or it does not say whether higher scores are better.
    """
    if not (best or _has_published_rule(metric)):
        raise ValueError(
            f"{metric.name} is defined for one reference; best=True takes the reference of each report with the best "
            "score"
        )
    if metric.higher_is_better is None:
        raise ValueError(f"{metric.name} has no best reference: set its higher_is_better to true or false")
    if not (metric.compares_across_batches or metric.depends_on_corpus):
        raise ValueError(f"scores of {metric.name} depend on the other references; set the option prior to a number")
