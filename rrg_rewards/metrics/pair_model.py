"""What CREPE and ER²Score share: a model that reads both reports, and the type in which it computed."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar, get_args

import torch
from torch import Tensor

from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.models.pair_predictor import PairPredictor, Precision

Predictor = TypeVar("Predictor", bound=PairPredictor)

_DTYPES = tuple(name for name in get_args(Precision) if name != "auto")


class PairModelMetric(ReportMetric, Generic[Predictor]):
    """A metric whose scores a :class:`rrg_rewards.models.pair_predictor.PairPredictor` predicts.

    The state also counts the scored pairs by the type of the arithmetic. With ``dtype="auto"`` the machines of a run
    may compute in different types, and a corpus value would otherwise mix them without a trace.

    Args:
        predictor: The predictor.
        parts: Names of the sub-scores.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.
    """

    num_by_dtype: Tensor

    def __init__(self, predictor: Predictor, parts: Sequence[str], **kwargs: Any) -> None:
        super().__init__(parts, **kwargs)
        self.predictor = predictor
        self.add_state("num_by_dtype", torch.zeros(len(_DTYPES), dtype=torch.long), dist_reduce_fx="sum")

    def extra_repr(self) -> str:
        """Model, and type of the arithmetic."""
        return f"model={self.predictor.model!r}, dtype={self.predictor.dtype!r}"

    def compute(self) -> Tensor:
        """Mean score of the pairs scored so far: float64 scalar; NaN, with a warning, if all pairs are unscorable.

        Raises:
            ValueError: If processes computed in different types.
        """
        self._check_dtypes()
        return super().compute()

    def statistics(self) -> dict[str, Tensor]:
        """Means of the sub-scores over the scored pairs, synced over processes as in ``compute``.

        Returns:
            float64 scalars by name; NaN if no pair is scored.

        Raises:
            ValueError: If processes computed in different types.
        """
        with self._synced():
            self._check_dtypes()
            return super().statistics()

    def _accumulate(self, scores: Scores) -> None:
        super()._accumulate(scores)
        counts = torch.zeros_like(self.num_by_dtype)
        counts[_DTYPES.index(self.predictor.dtype)] = int(scores.scored.sum())
        self.num_by_dtype = self.num_by_dtype + counts

    def _check_dtypes(self) -> None:
        found = {name: number for name, number in zip(_DTYPES, self.num_by_dtype.tolist(), strict=True) if number}
        if len(found) > 1:
            parts = " and ".join(f"{number} pairs in {name}" for name, number in found.items())
            raise ValueError(
                f"{self.name} computed {parts}, as dtype='auto' does on processors of two kinds; give all processes "
                "the same dtype, for example dtype='float32'"
            )
