"""What metrics above chance share: their setting, and training references as text for settings."""

import base64
import binascii
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

T = TypeVar("T")
ChanceT = TypeVar("ChanceT", bound="Chance")

CHANCE, DATASET = "chance", "dataset"
"""Name of the option, and its value before the training references are known."""


def spread_rows(rows: Sequence[T], most: int) -> list[T]:
    """Return all rows, or of more than ``most`` that many at even distances.

    Example:
        >>> spread_rows("abcdef", 3)
        ['a', 'c', 'e']
    """
    count = min(len(rows), most)
    return [rows[row * len(rows) // count] for row in range(count)]


class Chance(ABC):
    """What a report earns on average over training references."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of references."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """Number of references, and a hash of them, for signatures."""

    @abstractmethod
    def _content(self) -> Any:
        """Return what is kept of the references, as plain data."""

    @abstractmethod
    def mean(self, report: str) -> float:
        """Return the weighted mean score of a report over the references."""

    def charge(self, report: str) -> float:
        """Return what a report earns by chance: its weighted mean score over the references, at least 0.

        Args:
            report: The candidate report.
        """
        # Also for NaN: a report without a score has none that the charge could lower.
        return max(0.0, self.mean(report))

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


class AboveChance(Generic[ChanceT]):
    """Part of a metric with the option ``chance``, which :meth:`fit_references` measures if it is ``"dataset"``."""

    name: ClassVar[str]
    is_above_chance: bool
    chance: ChanceT | None

    @property
    def unfitted(self) -> tuple[str, ...]:
        """``("chance",)`` before it is measured on the training references."""
        return (CHANCE,) if self.is_above_chance and self.chance is None else ()

    @property
    def _chance_signature(self) -> dict[str, str]:
        if not self.is_above_chance:
            return {}
        return {CHANCE: DATASET if self.chance is None else self.chance.digest}

    def _check_fitted(self) -> None:
        if self.unfitted:
            raise ValueError(
                f"{self.name} has chance='dataset', which is measured on the training set: call fit of the reward, or "
                "fit_references of the metric, with its references before scoring"
            )
