"""BLEU of ReXrank and RadCliQ."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.signature import format_signature

# What an n-gram precision counts instead of no match, if a shorter n-gram matches.
_EPSILON = 0.1


class ReXrankBLEU(ReportMetric):
    r"""BLEU of each candidate report against its reference, as ReXrank and RadCliQ compute it.

    .. math::
        \mathrm{BLEU} = \min(1, e^{1 - |r| / |c|}) \sqrt{p_1 p_2}

    with the precisions :math:`p_1` of words and :math:`p_2` of pairs of words. Reports without a common pair of words
    count 0.1 of one; those without a common word score 0. Words are lower-case and separated by spaces; a full stop is
    a word, and other punctuation belongs to its word. In [0, 1], higher is better. The corpus value is the mean over
    reports.

    Source: CXR-Report-Metric (``CXRMetric/run_eval.py``, ``add_bleu_col``) with ``fast_bleu``, as used by ReXrank.

    Args:
        kwargs: Arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> from rrg_rewards.metrics import ReXrankBLEU
        >>> metric = ReXrankBLEU()
        >>> metric.update(["Small effusion."], ["Small left effusion."])
        >>> metric.compute()
        tensor(0.5067, dtype=torch.float64)
    """

    name = "rexrank_bleu"
    context = ()
    has_independent_rows = True
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0

    @property
    def signature(self) -> str:
        """Metric, version and settings in one line."""
        return format_signature("rexrank_bleu", n_gram=2, epsilon=_EPSILON, case="lower", of="report")

    def _score(self, preds: Sequence[str], target: Sequence[str], **_: Sequence[Any]) -> Scores:
        values = [_bleu(_words(pred), _words(reference)) for pred, reference in zip(preds, target, strict=True)]
        return Scores(torch.tensor(values, dtype=torch.float64))


def _words(report: str) -> list[str]:
    return [word for word in report.lower().replace(".", " .").split(" ") if word]


def _bleu(candidate: Sequence[str], reference: Sequence[str]) -> float:
    precisions = []
    for size in (1, 2):
        ours, theirs = (
            Counter(zip(*(words[start:] for start in range(size)), strict=False)) for words in (candidate, reference)
        )
        matches = (ours & theirs).total() or (_EPSILON if size > 1 else 0)
        precisions.append(matches / max(1, ours.total()))
    if not precisions[0]:
        return 0.0
    brevity = min(1.0, math.exp(1 - len(reference) / len(candidate)))
    return brevity * math.sqrt(precisions[0] * precisions[1])
