"""Scores above chance: what a report earns on average over training references is measured and subtracted."""

import base64
import binascii
import hashlib
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from rrg_rewards.metrics.base import Column
from rrg_rewards.metrics.judged import AsyncReportMetric, JudgedScores

T = TypeVar("T")
ChanceT = TypeVar("ChanceT", bound="Chance")

CHANCE, DATASET = "chance", "dataset"
"""Name of the option, and its value before the training references are known."""


class Chance(ABC):
    r"""What a report earns on average over training references.

    The score above chance of a candidate :math:`c` is

    .. math::
        w_i \, (S(c, y_i) - S(\emptyset, y_i)) - \alpha \max\bigl(0, \bar S(c)\bigr), \qquad
        \bar S(c) = \frac{1}{M} \sum_{j=1}^{M} w_j \, (S(c, y_j) - S(\emptyset, y_j))

    with the score :math:`S(\emptyset, y)` of a blank report, and the share :math:`\alpha = 1` unless a metric has
    another. A text that is the same for all of these references then has the mean :math:`\min(\bar S(c), 0)`, and a
    blank one 0. Normal references have the weight
    :func:`rrg_rewards.functional.normal_reference_weight`, others 1.
    """

    most_references: ClassVar[int]
    """Maximum number of references that are kept."""

    normal_weight: float
    """Weight of a normal reference."""

    normal_blank: float = 0.0
    """Score of a blank report for a normal reference; 0 for others."""

    _separators: ClassVar[tuple[str, str]] = (",", ":")

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of references."""

    @abstractmethod
    def _content(self) -> Any:
        """Return what is kept of the references, as plain data."""

    @abstractmethod
    def mean(self, report: str) -> float:
        """Return the weighted mean score of a report above a blank one, over the references that have a score; or NaN.

        Args:
            report: The candidate report.
        """

    @classmethod
    def spread(cls, rows: Sequence[T]) -> list[T]:
        """Return all rows, or of more than :attr:`most_references` that many at even distances."""
        count = min(len(rows), cls.most_references)
        return [rows[row * len(rows) // count] for row in range(count)]

    def charge(self, report: str) -> float:
        """Return what a report earns by chance: its weighted mean score over the references, at least 0.

        Args:
            report: The candidate report.
        """
        # Also for NaN: a report without a score has none that the charge could lower.
        return max(0.0, self.mean(report))

    def above(
        self, values: Tensor, reports: Sequence[str], normal: Tensor, share: float = 1.0
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores above chance, the charges, and the weights of the references: ``(N,)`` each.

        Args:
            values: Scores, ``(N,)``; NaN where there is none.
            reports: The ``N`` candidate reports.
            normal: Whether the reference is normal, ``(N,)``.
            share: Share of the charges that is subtracted.
        """
        by_report = {report: share * self.charge(report) for report in dict.fromkeys(reports)}
        charges = torch.tensor([by_report[report] for report in reports], dtype=torch.float64)
        weights = torch.ones_like(charges).masked_fill(normal, self.normal_weight)
        blank = torch.zeros_like(charges).masked_fill(normal, self.normal_blank)
        above = weights * (values - blank) - charges
        unscored = values.isnan()
        return above, charges.masked_fill(unscored, torch.nan), weights.masked_fill(unscored, torch.nan)

    @property
    def digest(self) -> str:
        """Number of references, and the first eight hexadecimal digits of a hash of what is kept of them."""
        content = json.dumps(self._content(), separators=self._separators)
        return f"{len(self)}@{hashlib.sha256(content.encode()).hexdigest()[:8]}"

    def to_text(self) -> str:
        """Return what is kept of the references as text for settings: compressed JSON in base64."""
        content = json.dumps(self._content(), separators=(",", ":"))
        return base64.b64encode(zlib.compress(content.encode(), 9)).decode()

    @staticmethod
    def _restored(text: str, restore: Callable[[Any], T]) -> T:
        """Return what a function makes of the content that :meth:`to_text` has saved.

        Raises:
            ValueError: If the text is no saved one.
        """
        try:
            return restore(json.loads(zlib.decompress(base64.b64decode(text, validate=True))))
        except (binascii.Error, zlib.error, ValueError, KeyError, IndexError, TypeError) as error:
            raise ValueError(
                "chance must be 'dataset' or the text that fitted_options() returned, which is damaged or another text"
            ) from error


class AboveChance(AsyncReportMetric[Any, Any], Generic[ChanceT]):
    """Layer over a metric by rules: with the option ``chance``, its scores are those above chance.

    The metric underneath gives the scores and says which references are normal. It calls :meth:`_set_chance` in its
    constructor.
    """

    chance: ChanceT | None
    is_above_chance: bool

    chance_share: float = 1.0
    """Share of what a report earns by chance that is subtracted."""

    chance_details: ClassVar[tuple[str, str]] = (CHANCE, "weight")
    """Names of the details of a score above chance: what is subtracted, and the weight of the reference."""

    @abstractmethod
    def _measured(self, references: Sequence[str], context: Mapping[str, Sequence[Any]]) -> ChanceT:
        """Return the chance of training references with a text."""

    @abstractmethod
    def _are_normal(self, scores: JudgedScores) -> Tensor:
        """Return whether the reference of each pair is normal: bool tensor ``(N,)``."""

    def _set_chance(self, setting: str | None, restore: Callable[[str], ChanceT]) -> None:
        self.is_above_chance = setting is not None
        self.chance = None if setting in (None, DATASET) else restore(str(setting))

    @property
    def fitted(self) -> Mapping[str, Any]:
        """The training references as ``chance``, as :meth:`Chance.to_text` returns them."""
        return {CHANCE: self.chance and self.chance.to_text()} if self.is_above_chance else {}

    @property
    def unfitted(self) -> tuple[str, ...]:
        """``("chance",)`` before it is measured on the training references."""
        # Without their text, whose compression takes milliseconds.
        return (CHANCE,) if self.is_above_chance and self.chance is None else ()

    def fit_references(self, references: Sequence[str | None], **context: Column) -> None:
        """Keep training references if ``chance="dataset"``; a second call replaces them.

        Args:
            references: Reference reports; ``None`` and blank ones are left out.
            context: As in :meth:`score`.

        Raises:
            ValueError: If there is no reference to measure chance on.
        """
        if self.is_above_chance:
            _, _, given, columns = self._choose([""] * len(references), references, context)
            self.chance = self._measured(given, columns)

    @property
    def _chance_fields(self) -> dict[str, str]:
        """Chance as a field of a signature."""
        return {CHANCE: DATASET if self.chance is None else self.chance.digest} if self.is_above_chance else {}

    def _score(self, preds: Sequence[str], target: Sequence[str], **context: Sequence[Any]) -> JudgedScores:
        if self.unfitted:
            raise ValueError(
                f"{self.name} has chance='dataset', which is measured on the training set: call fit of the reward, or "
                "fit_references of the metric, with its references before scoring"
            )
        scores = super()._score(preds, target, **context)
        if self.chance is None:
            return scores
        value, *details = self.chance.above(scores.value, preds, self._are_normal(scores), self.chance_share)
        own = dict(zip(self.chance_details, details, strict=True))
        return replace(scores, value=value, details={**scores.details, **own})
