"""CREPE as a metric on report text: error counts that an encoder predicts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rrg_rewards.functional.crepe import crepe_score
from rrg_rewards.metrics.pair_model import PairModelMetric
from rrg_rewards.metrics.scores import Scores, named_weights
from rrg_rewards.models.crepe.predictor import CrepePredictor
from rrg_rewards.models.pair_predictor import PairPredictorOptions, Precision
from rrg_rewards.utilities.signature import format_signature

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


class CREPE(PairModelMetric[CrepePredictor]):
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
        max_length: Maximum number of tokens of a sequence; default: 512 as published, or the limit of the encoder if
            that is lower. Each report of a longer pair keeps its first tokens.
        token_budget: Maximum number of tokens of a batch, padding included. A longer sequence is the only one in its
            batch.
        dtype: ``"float32"`` (default), in which a score does not depend on the machine, ``"bfloat16"`` or
            ``"float16"``; ``"auto"``, for speed, is ``bfloat16`` on processors that are faster in it, and ``float32``
            on others (:func:`rrg_rewards.utilities.precision.fastest_dtype`). In half precision, matrix products run in
            that type under autocast; embeddings, sums, normalisations and heads stay in float32. The signature names
            the type.
        device: Device of a loaded model; default: the CUDA device of this process if there is one, else the CPU.
        revision: Revision of a Hub id.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If an option is unknown or out of range, a weight has an unknown category, or the configuration is
            not that of a CREPE model; from ``compute``, if processes computed in different types.

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

    def __init__(
        self,
        model: str | Path | nn.Module,
        tokenizer: Any = None,
        *,
        weights: Mapping[str, float] | None = None,
        max_length: int | None = None,
        token_budget: int = 8192,
        dtype: Precision = "float32",
        device: str | None = None,
        revision: str | None = None,
        **kwargs: Any,
    ) -> None:
        options = PairPredictorOptions(max_length, token_budget, dtype, device, revision)
        predictor = CrepePredictor(model, tokenizer, options)
        super().__init__(predictor, predictor.categories, **kwargs)
        self.weights = named_weights(weights or {}, self.categories, "error category", 1.0)

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
            # Also scores of earlier versions, which had another rule for long pairs, can be compared by the signature.
            long_reports="truncate",
            dtype=self.predictor.dtype,
            **weights,
        )

    def _score(self, preds: Sequence[str], target: Sequence[str], **_: Sequence[Any]) -> CrepeScores:
        counts = self.predictor(target, preds).double()
        value = crepe_score(counts, torch.tensor(self.weights, dtype=torch.float64))
        return CrepeScores(value, dict(zip(self.categories, counts.unbind(1), strict=True)))
