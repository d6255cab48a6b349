"""CREPE as a metric on report text: error counts that an encoder predicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rrg_rewards.functional.crepe import crepe_score
from rrg_rewards.metrics.base import ReportMetric, Scores
from rrg_rewards.metrics.weights import named_weights
from rrg_rewards.models.crepe_encoding import LongReports
from rrg_rewards.models.crepe_predictor import CrepePredictor, Precision
from rrg_rewards.utilities.signature import format_signature

__all__ = ["CREPE", "CrepeScores"]

# A predicted count from which on an error is told of.
_LIKELY = 0.5


@dataclass(frozen=True, kw_only=True)
class CrepeScores(Scores):
    """CREPE of report pairs.

    Args:
        value: CREPE, float64 tensor ``(N,)``; NaN where a pair is unscorable.
        details: Predicted error counts by category, each ``(N,)``, at least 0.
    """

    @property
    def explanations(self) -> dict[str, list[str]]:
        """The categories of which an error is likelier than not in each report, with their counts, most first."""
        rows = torch.stack([*self.details.values()], dim=1).tolist()
        return {"errors": [_in_words(zip(self.details, row, strict=True)) for row in rows]}


def _in_words(counts: Any) -> str:
    likely = sorted((pair for pair in counts if pair[1] >= _LIKELY), key=lambda pair: -pair[1])
    return ", ".join(f"{name.replace('_', ' ')} {count:.1f}" for name, count in likely)


class CREPE(ReportMetric):
    r"""CREPE: how many errors a candidate report makes, counted by category by an encoder that reads both reports.

    The score of a pair is the sum of the predicted counts, clipped at 0
    (:func:`rrg_rewards.functional.crepe_score`), or their weighted sum; the corpus value is the mean over scored pairs.
    float64, at least 0, lower is better; NaN where no pair is scored. How pairs are tokenised, packed and run says
    :class:`rrg_rewards.models.crepe_predictor.CrepePredictor`.

    The published model (``gihuncho/crepe-biomedbert``) counts errors of chest X-ray reports in the six categories of
    ``rrg_rewards.schemas.ERROR_CATEGORIES``.

    Source: Cho et al., "CREPE: Rapid Chest X-ray Report Evaluation by Predicting Multi-category Error Counts".

    Args:
        model: Folder or Hub id of a CREPE model, or a :class:`rrg_rewards.models.CrepeModel`.
        tokenizer: The tokenizer, or its folder or Hub id; default: the model's folder.
        weights: What an error counts by category; 1 where a category is not named.
        max_length: Tokens of a pair at most; default: 512 as published, or what the encoder takes if that is less.
        long_reports: ``"truncate"`` or ``"chunks"``, for pairs that are longer.
        token_budget: Tokens of a batch at most, padding included.
        dtype: ``"float32"``, ``"bfloat16"`` or ``"float16"``.
        compile: Whether the model is compiled by ``torch.compile``.
        device: Where a loaded model runs; default: this process' CUDA device where there is one, else the CPU.
        revision: Revision of a Hub id.
        progress: Whether a bar on stderr shows how far a call is.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If a setting is unknown or out of range, a weight is of no category, or the configuration is of no
            CREPE model.

    Example:
        >>> metric = CREPE("gihuncho/crepe-biomedbert")                                  # doctest: +SKIP
        >>> metric.update(["Bilateral pleural effusions noted"], ["Normal chest radiograph"])  # doctest: +SKIP
        >>> metric.compute()                                                             # doctest: +SKIP
        tensor(2.3632, dtype=torch.float64)
    """

    name = "crepe"
    higher_is_better = False
    plot_lower_bound: float = 0.0

    score_sum: Tensor
    count_sums: Tensor
    num_scored: Tensor

    def __init__(
        self,
        model: str | Path | nn.Module,
        tokenizer: Any = None,
        *,
        weights: Mapping[str, float] | None = None,
        max_length: int | None = None,
        long_reports: LongReports = "truncate",
        token_budget: int = 8192,
        dtype: Precision = "float32",
        compile: bool = False,  # noqa: A002 (torch's word for it)
        device: str | None = None,
        revision: str | None = None,
        progress: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.predictor = CrepePredictor(
            model,
            tokenizer,
            max_length=max_length,
            long_reports=long_reports,
            token_budget=token_budget,
            dtype=dtype,
            compile=compile,
            device=device,
            revision=revision,
            progress=progress,
        )
        self.weights = named_weights(weights or {}, self.categories, "error category", 1.0)
        self.add_state("score_sum", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count_sums", torch.zeros(len(self.categories), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("num_scored", torch.tensor(0), dist_reduce_fx="sum")

    @property
    def categories(self) -> tuple[str, ...]:
        """Names of the error categories."""
        return self.predictor.categories

    @property
    def signature(self) -> str:
        """What exactly is computed; the weights are named by the first digits of their SHA-256."""
        own = {"weights": ",".join(f"{weight:g}" for weight in self.weights)} if set(self.weights) != {1.0} else {}
        return format_signature(
            "crepe",
            model=self.predictor.weights_name,
            max_length=self.predictor.max_length,
            long_reports=self.predictor.long_reports,
            dtype=self.predictor.dtype,
            **own,
        )

    def _score(
        self,
        preds: Sequence[str],
        target: Sequence[str],
        **context: Sequence[Any],  # noqa: ARG002 (there is none)
    ) -> CrepeScores:
        counts = self.predictor(target, preds).double()
        value = crepe_score(counts, torch.tensor(self.weights))
        return CrepeScores(value, dict(zip(self.categories, counts.unbind(1), strict=True)))

    def _choose(
        self, preds: Sequence[str | None], target: Sequence[str | None], context: Mapping[str, Sequence[Any]]
    ) -> tuple[Tensor, list[str], list[str], dict[str, list[Any]]]:
        self._check_columns(context, ())
        return super()._choose(preds, target, context)

    def _accumulate(self, scores: Scores) -> None:
        scored = scores.scored
        self.score_sum += scores.value[scored].sum().to(self.device)
        sums = torch.stack([scores.details[name][scored].sum() for name in self.categories])
        self.count_sums += sums.to(self.device)
        self.num_scored += int(scored.sum())

    def compute(self) -> Tensor:
        """Mean CREPE of the pairs scored so far: float64 scalar, NaN where there is none."""
        return self.score_sum / self.num_scored

    def statistics(self) -> dict[str, Tensor]:
        """Means per scored report of the predicted error counts, synced as ``compute`` is.

        Returns:
            float64 scalars by category; NaN where no pair is scored.
        """
        with self._synced():
            means = self.count_sums / self.num_scored
        return dict(zip(self.categories, means, strict=True))
