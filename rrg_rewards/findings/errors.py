"""Reports with a known number of errors: what is counted, how many are usual, and the record that tells it."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np

from rrg_rewards.schemas import ERROR_CATEGORIES, REXVAL_ERRORS
from rrg_rewards.utilities.draws import Draws
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["LETTERS", "ErrorEdit", "InjectedReport", "draw_counts", "error_counts", "requested_counts", "seeded_draws"]

LETTERS = tuple(REXVAL_ERRORS)
"""Of the error categories, in order."""

_BY_NAME = dict(zip((*LETTERS, *ERROR_CATEGORIES), LETTERS * 2, strict=True))
# Chosen by hand: false and missing findings are by far the most common errors of models (CREPE, Figure 4), and a share
# of candidates is right. Neither is an estimate.
_TOTALS = (0.14, 0.22, 0.21, 0.17, 0.12, 0.08, 0.06)
_SHARES = (0.32, 0.32, 0.09, 0.11, 0.08, 0.08)


@dataclass(frozen=True, slots=True)
class ErrorEdit:
    """One thing that a candidate says differently from its reference.

    Args:
        category: Letter of ``rrg_rewards.schemas.REXVAL_ERRORS``; ``None`` for a harmless edit.
        action: What was done: ``invented``, ``dropped``, ``moved``, ``severity``, ``size``, ``comparison added``,
            ``comparison dropped``; of harmless edits ``synonym``, ``reordered``, ``normal statement``, ``rewritten``.
        detail: The finding's concept and what was said of it, such as ``pleural_effusion: left for right``.
        reference: First character and end of the place in the reference; ``None`` where it has none.
        candidate: The same in the candidate.
    """

    category: str | None
    action: str
    detail: str
    reference: tuple[int, int] | None = None
    candidate: tuple[int, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        """A plain dict for JSON."""
        return {
            "category": self.category,
            "action": self.action,
            "detail": self.detail,
            "reference": None if self.reference is None else list(self.reference),
            "candidate": None if self.candidate is None else list(self.candidate),
        }


@dataclass(frozen=True, slots=True)
class InjectedReport:
    """A candidate report with known errors against its reference.

    Args:
        reference: The report that it was made from.
        candidate: The report with errors.
        counts: Errors that it holds, in the order of ``rrg_rewards.schemas.ERROR_CATEGORIES``.
        requested: Errors that were asked for, never fewer than ``counts``.
        edits: What was done where; as many of a category as it counts, and the harmless ones.

    Example:
        >>> report = InjectedReport("Small effusion.", "Large effusion.", (0, 0, 0, 1, 0, 0), (0, 1, 0, 1, 0, 0), ())
        >>> report.declined, sorted(report.to_record("example"))
        ((0, 1, 0, 0, 0, 0), ['candidate', 'counts', 'edits', 'reference', 'source'])
    """

    reference: str
    candidate: str
    counts: tuple[int, ...]
    requested: tuple[int, ...]
    edits: tuple[ErrorEdit, ...]

    @property
    def declined(self) -> tuple[int, ...]:
        """Errors that were asked for and could not be made with certainty, by category."""
        return tuple(asked - made for asked, made in zip(self.requested, self.counts, strict=True))

    def to_record(self, source: str) -> dict[str, Any]:
        """One line of the JSON lines that CREPE is trained on.

        Args:
            source: Where the reference is from, such as ``phantom`` or ``iu_xray``.

        Returns:
            ``reference``, ``candidate``, ``counts`` (6 ints), ``source`` and ``edits``, a list of dicts.
        """
        return {
            "reference": self.reference,
            "candidate": self.candidate,
            "counts": list(self.counts),
            "source": source,
            "edits": [edit.to_dict() for edit in self.edits],
        }


def seeded_draws(seed: int, *texts: str) -> Draws:
    """Choices that depend on a seed and on texts, in every process alike.

    Raises:
        TypeError: If the seed is no integer.
        ValueError: If it is negative.

    Example:
        >>> seeded_draws(0, "a").uniform() == seeded_draws(0, "a").uniform() != seeded_draws(0, "b").uniform()
        True
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"seed must be an integer, got {type(seed).__name__}")
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}")
    digest = hashlib.sha256("\x1f".join((str(int(seed)), *texts)).encode("utf-8", "surrogatepass")).digest()
    return Draws(np.random.Generator(np.random.PCG64(np.random.SeedSequence(int.from_bytes(digest, "big")))))


def _drawn(shares: Sequence[float], draws: Draws) -> int:
    number = draws.uniform()
    for place, share in enumerate(shares):
        number -= share
        if number < 0:
            return place
    # Shares that add up to a little less than 1 leave a number over.
    return len(shares) - 1


def draw_counts(draws: Draws) -> tuple[int, ...]:
    """As :func:`error_counts`, from a stream of choices."""
    counts = [0] * len(LETTERS)
    for _ in range(_drawn(_TOTALS, draws)):
        counts[_drawn(_SHARES, draws)] += 1
    return tuple(counts)


def error_counts(rng: np.random.Generator) -> tuple[int, ...]:
    """Draw how many errors of each category a candidate is to have.

    None to six in all, 2.4 on average; two of three are false or missing findings, as in reports that models write.

    Args:
        rng: Where random numbers come from.

    Returns:
        Six counts in the order of ``rrg_rewards.schemas.ERROR_CATEGORIES``.

    Example:
        >>> import numpy as np
        >>> len(error_counts(np.random.default_rng(0)))
        6
    """
    return draw_counts(Draws(rng))


def requested_counts(counts: Mapping[str, int] | Sequence[int]) -> tuple[int, ...]:
    """Check counts and put them in the categories' order.

    Args:
        counts: By letter or by name, those left out being 0; or all six in order.

    Raises:
        TypeError: If ``counts`` is neither, or a count is no integer.
        ValueError: For an unknown category, a negative count, or a number of counts other than six.

    Example:
        >>> requested_counts({"B": 2, "D": 1})
        (0, 2, 0, 1, 0, 0)
    """
    if isinstance(counts, Mapping):
        values: list[Any] = [0] * len(LETTERS)
        for name, number in counts.items():
            if name not in _BY_NAME:
                raise ValueError(unknown_name_message("error category", str(name), _BY_NAME))
            values[LETTERS.index(_BY_NAME[name])] = number
    elif isinstance(counts, Sequence) and not isinstance(counts, (str, bytes)):
        values = list(counts)
    else:
        raise TypeError(
            f"counts must be a mapping by letter or a sequence of {len(LETTERS)}, got {type(counts).__name__}"
        )
    if len(values) != len(LETTERS):
        raise ValueError(
            f"counts must hold {len(LETTERS)} numbers, one for each of {', '.join(LETTERS)}; got {len(values)}"
        )
    return tuple(_count(letter, value) for letter, value in zip(LETTERS, values, strict=True))


def _count(letter: str, value: Any) -> int:
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"counts[{letter!r}] must be an integer, got {type(value).__name__}") from None
    if number < 0:
        raise ValueError(f"counts[{letter!r}] must not be negative, got {number}")
    return number
