"""chrF of report text."""

from collections.abc import Sequence
from typing import Any

import torch

from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.metrics.word_overlap import chrf
from rrg_rewards.utilities.signature import format_signature

__all__ = ["ChrF"]


class ChrF(ReportMetric):
    r"""chrF of each candidate report against its reference.

    .. math::
        \mathrm{chrF}_\beta = \frac{1}{N} \sum_n (1 + \beta^2) \frac{P_n R_n}{\beta^2 P_n + R_n}

    with the precision :math:`P_n` and recall :math:`R_n` of :math:`N` kinds of n-grams: of 1 to ``char_order``
    characters without spaces, and of 1 to ``word_order`` words. In [0, 1], higher is better. The corpus value is the
    mean over reports. chrF compares wording, not findings. The values are those of torchmetrics in float64.

    Source: Popović, "chrF: character n-gram F-score for automatic MT evaluation", WMT 2015; "chrF++", WMT 2017.

    Args:
        char_order: Maximum length of n-grams of characters.
        word_order: Maximum length of n-grams of words: 0 for chrF, 2 for chrF++.
        beta: Weight of the recall.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: If an order or the weight is out of range.

    Example:
        >>> from rrg_rewards.metrics import ChrF
        >>> metric = ChrF()
        >>> metric.update(["Small pleural effusion."], ["Small left pleural effusion."])
        >>> round(float(metric.compute()), 3)
        0.729
    """

    name = "chrf"
    context = ()
    best_of_references = True
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0

    def __init__(self, char_order: int = 6, word_order: int = 0, beta: float = 2.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if char_order < 1 or word_order < 0 or beta <= 0:
            raise ValueError(
                f"char_order must be at least 1, word_order at least 0 and beta positive, got {char_order!r}, "
                f"{word_order!r} and {beta!r}"
            )
        self.char_order = char_order
        self.word_order = word_order
        self.beta = float(beta)

    @property
    def signature(self) -> str:
        """Metric, version and settings in one line."""
        orders = {"char_order": self.char_order, "word_order": self.word_order}
        return format_signature("chrf", **orders, beta=self.beta, case="mixed", of="report")

    def _score(self, preds: Sequence[str], target: Sequence[str], **_: Sequence[Any]) -> Scores:
        orders = (self.char_order, self.word_order, self.beta)
        values = [chrf(pred, ref, *orders) for pred, ref in zip(preds, target, strict=True)]
        return Scores(torch.tensor(values, dtype=torch.float64))
