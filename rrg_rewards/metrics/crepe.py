"""CREPE as a metric on report text: error counts that an encoder predicts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rrg_rewards.functional.crepe import crepe_score
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.scores import Scores, named_weights
from rrg_rewards.models.crepe.predictor import CrepeOptions, CrepePredictor
from rrg_rewards.utilities.options import takes_options
from rrg_rewards.utilities.signature import format_signature

__all__ = ["CREPE", "CrepeScores"]

# Minimum predicted count of an error that the explanations name.
_LIKELY = 0.5


@dataclass(frozen=True, kw_only=True, repr=False)
class CrepeScores(Scores):
    """CREPE of report pairs.

    Args:
        value: CREPE, float64 tensor ``(N,)``; NaN if a pair is unscorable.
        details: Predicted error counts by category, each ``(N,)``, at least 0.
    """

    @property
    def explanations(self) -> dict[str, list[str]]:
        """Column ``errors``: categories with a predicted count of at least 0.5 and their counts, highest first."""
        rows = torch.stack([*self.details.values()], dim=1).tolist()
        return {"errors": [_likely_errors(zip(self.details, row, strict=True)) for row in rows]}


def _likely_errors(counts: Iterable[tuple[str, float]]) -> str:
    likely = sorted((pair for pair in counts if pair[1] >= _LIKELY), key=lambda pair: -pair[1])
    return ", ".join(f"{name.replace('_', ' ')} {count:.1f}" for name, count in likely)


class CREPE(ReportMetric):
    r"""CREPE: the number of errors in a candidate report. An encoder that reads both reports predicts it by category.

    With predicted counts :math:`\hat n_c` and weights :math:`w_c` of the categories :math:`c`,

    .. math::
        \mathrm{CREPE} = \sum_c w_c \max(\hat n_c, 0)

    (:func:`rrg_rewards.functional.crepe_score`). The corpus value is the mean over scored pairs: float64, at least 0,
    lower is better; NaN if no pair is scored. ``statistics()`` returns the mean count of each category. See
    :class:`rrg_rewards.models.crepe.predictor.CrepePredictor` for tokenisation and batching.

    The published model (``gihuncho/crepe-biomedbert``) counts errors of chest X-ray reports in the six categories of
    ``rrg_rewards.schemas.ERROR_CATEGORIES``.

    Source: Cho et al., "CREPE: Rapid Chest X-ray Report Evaluation by Predicting Multi-category Error Counts".

    Args:
        model: Folder or Hub id of a CREPE model, or a :class:`rrg_rewards.models.CrepeModel`.
        tokenizer: The tokenizer, or its folder or Hub id; default: the model's folder.
        weights: Weights :math:`w_c` by category; default: 1 for each category that is not named.
        kwargs: Fields of :class:`rrg_rewards.models.crepe.predictor.CrepeOptions` (``max_length``, ``long_reports``,
            ``token_budget``, ``dtype``, ``compile``, ``device``, ``revision``, ``progress``), and further arguments of
            :class:`torchmetrics.Metric`.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If an option is unknown or out of range, a weight has an unknown category, or the configuration is
            not that of a CREPE model.

    Example:
        >>> from rrg_rewards.metrics import CREPE
        >>> metric = CREPE("gihuncho/crepe-biomedbert")                                  # doctest: +SKIP
        >>> metric.update(["Bilateral pleural effusions noted"], ["Normal chest radiograph"])  # doctest: +SKIP
        >>> metric.compute()                                                             # doctest: +SKIP
        tensor(2.3632, dtype=torch.float64)
    """

    name = "crepe"
    context = ()
    higher_is_better = False
    plot_lower_bound: float = 0.0

    @takes_options(options=CrepeOptions())
    def __init__(
        self,
        model: str | Path | nn.Module,
        tokenizer: Any = None,
        *,
        weights: Mapping[str, float] | None = None,
        options: CrepeOptions,
        **kwargs: Any,
    ) -> None:
        predictor = CrepePredictor(model, tokenizer, options)
        super().__init__(predictor.categories, **kwargs)
        self.predictor = predictor
        self.weights = named_weights(weights or {}, self.categories, "error category", 1.0)

    def extra_repr(self) -> str:
        """Model."""
        return f"model={self.predictor.model!r}"

    @property
    def categories(self) -> tuple[str, ...]:
        """Names of the error categories."""
        return self.predictor.categories

    @property
    def signature(self) -> str:
        """Model with the first digits of the SHA-256 of its weights, and settings in one line."""
        weights = {"weights": ",".join(f"{weight:g}" for weight in self.weights)} if set(self.weights) != {1.0} else {}
        return format_signature(
            "crepe",
            model=self.predictor.weights_name,
            max_length=self.predictor.max_length,
            long_reports=self.predictor.options.long_reports,
            dtype=self.predictor.options.dtype,
            **weights,
        )

    def _score(self, preds: Sequence[str], target: Sequence[str], **_: Sequence[Any]) -> CrepeScores:
        counts = self.predictor(target, preds).double()
        value = crepe_score(counts, torch.tensor(self.weights, dtype=torch.float64))
        return CrepeScores(value, dict(zip(self.categories, counts.unbind(1), strict=True)))
