"""Candidate reports with known errors, and the numbers of errors to inject."""

import operator
from bisect import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from rrg_rewards.schemas import ERROR_CATEGORIES, REXVAL_ERRORS
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.random_draws import Draws

LETTERS = tuple(REXVAL_ERRORS)
"""Letters of the error categories, in order."""

WHOLE_EXAMINATION = "the examination"
"""``detail`` of an edit that concerns no single finding."""

_BY_NAME = dict(zip((*LETTERS, *ERROR_CATEGORIES), LETTERS * 2, strict=True))
# Chosen by hand, not estimated: false and missing findings are by far the most common errors of models (CREPE,
# Figure 4), and some candidates have no error.
_TOTALS = (0.14, 0.22, 0.21, 0.17, 0.12, 0.08, 0.06)
_SHARES = (0.32, 0.32, 0.09, 0.11, 0.08, 0.08)


@dataclass(frozen=True, slots=True)
class ErrorEdit:
    """One difference between a candidate and its reference.

    Args:
        category: Letter of ``rrg_rewards.schemas.REXVAL_ERRORS``; ``None`` for a harmless edit.
        action: Kind of edit: ``invented``, ``dropped``, ``moved``, ``severity``, ``size``, ``comparison added``,
            ``comparison dropped``; for harmless edits ``synonym``, ``reordered``, ``normal statement``.
        detail: Concept of the finding and the change, such as ``pleural_effusion: left for right``; or
            :data:`WHOLE_EXAMINATION`.
        reference: Start and end in the reference; ``None`` if the edit has no position there.
    """

    category: str | None
    action: str
    detail: str
    reference: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class InjectedReport:
    """A candidate report with known errors and its reference.

    Args:
        reference: The original report.
        candidate: The report with errors.
        counts: Number of errors by category, in the order of ``rrg_rewards.schemas.ERROR_CATEGORIES``.
        requested: Number of requested errors by category; at least ``counts``.
        edits: One edit for each counted error, and the harmless edits.

    Example:
        >>> report = InjectedReport("Small effusion.", "Large effusion.", (0, 0, 0, 1, 0, 0), (0, 1, 0, 1, 0, 0), ())
        >>> report.declined
        (0, 1, 0, 0, 0, 0)
    """

    reference: str
    candidate: str
    counts: tuple[int, ...]
    requested: tuple[int, ...]
    edits: tuple[ErrorEdit, ...]

    @property
    def declined(self) -> tuple[int, ...]:
        """Number of requested errors by category that could not be injected."""
        return tuple(wanted - made for wanted, made in zip(self.requested, self.counts, strict=True))


def _drawn(shares: Sequence[float], draws: Draws) -> int:
    """Return an index drawn with the probabilities ``shares``."""
    # Rounding can make the sum of the shares slightly less than 1.
    return min(bisect(list(accumulate(shares)), draws.uniform()), len(shares) - 1)


def draw_counts(draws: Draws) -> tuple[int, ...]:
    """Draw the number of errors of each category for one candidate, in the order of the categories.

    The total is 0 to 6, on average 2.4. Two thirds of the errors are false or missing findings, as in reports that
    models generate.
    """
    counts = Counter(_drawn(_SHARES, draws) for _ in range(_drawn(_TOTALS, draws)))
    return tuple(counts[category] for category in range(len(LETTERS)))


def requested_counts(counts: Mapping[str, int] | Sequence[int]) -> tuple[int, ...]:
    """Check numbers of errors and return them in the order of the categories.

    Args:
        counts: Numbers by letter or name, 0 for absent ones; or a sequence of all six.

    Raises:
        TypeError: If ``counts`` is neither a mapping nor a sequence, or a count is not an integer.
        ValueError: For an unknown category, a negative count, or if there are not six counts.

    Example:
        >>> requested_counts({"B": 2, "D": 1})
        (0, 2, 0, 1, 0, 0)
    """
    size = len(LETTERS)
    if isinstance(counts, Mapping):
        values: list[Any] = [0] * size
        for name, number in counts.items():
            if name not in _BY_NAME:
                raise ValueError(unknown_name_message("error category", str(name), _BY_NAME))
            values[LETTERS.index(_BY_NAME[name])] = number
    elif isinstance(counts, Sequence) and not isinstance(counts, (str, bytes)):
        values = list(counts)
    else:
        raise TypeError(f"counts must be a mapping by letter or a sequence of {size}, got {type(counts).__name__}")
    if len(values) != size:
        raise ValueError(f"counts must hold {size} numbers, one for each of {', '.join(LETTERS)}; got {len(values)}")
    return tuple(_count(letter, value) for letter, value in zip(LETTERS, values, strict=True))


def _count(letter: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"counts[{letter!r}] must be an integer, got {type(value).__name__}") from None
    if number < 0:
        raise ValueError(f"counts[{letter!r}] must not be negative, got {number}")
    return number
