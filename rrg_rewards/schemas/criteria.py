"""Criteria for grading a candidate report."""

import math
import re
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any, Literal, get_args

from rrg_rewards.schemas.errors import ERROR_CATEGORIES
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["Criterion", "CriterionKind", "is_number", "two_numbers"]

CriterionKind = Literal["count", "yes_no", "grade"]
"""Kinds of sub-scores: a number of errors, 1 if there is an error, or a grade on a scale."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")
# Name of the total in logs and tables, in which criteria must not have the same name.
_TOTAL = "total"
_RANGES: dict[str, tuple[float, float]] = {"count": (0.0, math.inf), "yes_no": (0.0, 1.0)}


@dataclass(frozen=True)
class Criterion:
    """One criterion for grading a candidate report.

    Args:
        name: Identifier of the sub-score in files, logs and tables: lower case words joined by ``_``, not ``total``.
        description: Instruction for a rater or a language model, one sentence.
        kind: ``count`` for a number of errors; ``yes_no`` for 1 if there is such an error; ``grade`` for a number in
            ``range``.
        weight: Change of the total per point of the sub-score; positive.
        range: Lowest and highest sub-score. Required for grades; (0, inf) for counts and (0, 1) for yes/no by default.
        errors: Categories of ``ERROR_CATEGORIES`` that are errors under this criterion. They determine the sub-score of
            a report with counted errors. Empty if counts do not determine the sub-score, for example for a grade.

    Raises:
        ValueError: If a field is invalid. The message names the field.

    Example:
        >>> Criterion("grammar", "Does the report have errors of grammar?", "yes_no", weight=5).range
        (0.0, 1.0)
    """

    name: str
    description: str
    kind: CriterionKind
    weight: float = 1.0
    range: tuple[float, float] | None = None
    errors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        where = f"criterion {self.name!r}"
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name) or self.name == _TOTAL:
            raise ValueError(f"{where}: name must be lower case letters, digits and _, as in wrong_location, not total")
        if not isinstance(self.description, str) or not self.description.strip():
            raise ValueError(f"{where}: description must be a non-empty text")
        if self.kind not in get_args(CriterionKind):
            raise ValueError(f"{where}: {unknown_name_message('kind', str(self.kind), get_args(CriterionKind))}")
        if not is_number(self.weight) or not 0 < self.weight < math.inf:
            raise ValueError(f"{where}: weight must be positive and finite, got {self.weight!r}")
        # 30 and 30.0 must give the same signature.
        object.__setattr__(self, "weight", float(self.weight))
        object.__setattr__(self, "range", self._checked_range(where))
        if not isinstance(self.errors, list | tuple) or not all(name in ERROR_CATEGORIES for name in self.errors):
            raise ValueError(f"{where}: errors must be a list of {', '.join(ERROR_CATEGORIES)}, got {self.errors!r}")
        object.__setattr__(self, "errors", tuple(self.errors))

    def _checked_range(self, where: str) -> tuple[float, float]:
        if self.range is None:
            if self.kind == "grade":
                raise ValueError(f"{where}: a grade needs its range, as in range: [0, 10]")
            return _RANGES[self.kind]
        low, high = two_numbers(self.range, f"{where}: range")
        if not -math.inf < low < high or (self.kind == "grade" and high == math.inf):
            raise ValueError(f"{where}: range must be finite and ascending, got [{low:g}, {high:g}]")
        if self.kind != "grade" and (low != 0 or (self.kind == "yes_no" and high != 1)):
            raise ValueError(f"{where}: a {self.kind} starts at 0{' and ends at 1' if self.kind == 'yes_no' else ''}")
        return low, high

    @property
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest sub-score."""
        assert self.range is not None
        return self.range

    def check(self, score: float) -> None:
        """Check that a sub-score is in the criterion's range.

        A sub-score may be the mean of several raters. Counts and yes/no sub-scores may therefore be fractions.

        Raises:
            ValueError: If the sub-score is out of range or not finite. The message names the criterion and the range.

        Example:
            >>> Criterion("grammar", "Any errors of grammar?", "yes_no").check(2)
            Traceback (most recent call last):
            ...
            ValueError: grammar must lie in [0, 1], got 2
        """
        low, high = self.bounds
        if not is_number(score):
            found = score if isinstance(score, float) else type(score).__name__
            raise ValueError(f"{self.name} must be a number in [{low:g}, {high:g}], got {found}")
        if not low <= score <= high or score == math.inf:
            raise ValueError(f"{self.name} must lie in [{low:g}, {high:g}], got {score:g}")

    def to_dict(self) -> dict[str, Any]:
        """Return the criterion as plain data for JSON and YAML."""
        low, high = self.bounds
        # JSON has no infinity; an omitted range is the default of the kind.
        return {**asdict(self), "range": [low, high] if math.isfinite(high) else None, "errors": list(self.errors)}


def is_number(value: Any) -> bool:
    """Whether a value is a Python or NumPy number other than NaN and bool."""
    return not isinstance(value, bool) and isinstance(value, Real) and not math.isnan(value)


def two_numbers(value: Any, where: str) -> tuple[float, float]:
    """Return a range as two floats.

    Raises:
        ValueError: If ``value`` is not a list of two numbers. The message begins with ``where``.
    """
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(map(is_number, value)):
        raise ValueError(f"{where} must be two numbers, got {value!r}")
    low, high = value
    return float(low), float(high)
