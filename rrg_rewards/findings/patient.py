"""What is known of a patient beside the report: age in years, and what the indication speaks of."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from rrg_rewards.findings.knowledge_base import read_knowledge

__all__ = ["Patient", "parse_age"]

# A lone M or W behind a number is a sex as often as a unit, so only DICOM's three digits have one.
_AGE = re.compile(
    r"\s*(\d+(?:\.\d+)?)"
    r"(?:(?<=\d{3})([ymwd])\b|[\s-]*(y|yrs?|years?|mos?|months?|wks?|weeks?|days?)\b)?",
    re.IGNORECASE,
)
_DENIAL = re.compile(r"\b(?:no|not|without|denies|denied|negative for)\b[^.;]*$", re.IGNORECASE)
_PER_YEAR = {"y": 1.0, "m": 12.0, "w": 52.18, "d": 365.25}
_MAX_AGE = 130.0


def parse_age(age: object) -> float | None:
    """Age in years, from a number or a text such as ``82``, ``066Y`` (DICOM), ``18 months``.

    Returns:
        The age, or None where it is missing or cannot be read.

    Example:
        >>> parse_age("066Y"), parse_age("018M"), parse_age("82-year-old"), parse_age("82 M"), parse_age("")
        (66.0, 1.5, 82.0, 82.0, None)
    """
    found = _AGE.match(str(age)) if age is not None else None
    if found is None:
        return None
    years = float(found[1]) / _PER_YEAR[(found[2] or found[3] or "y")[0].lower()]
    return years if years <= _MAX_AGE else None


@cache
def _contexts() -> tuple[tuple[str, re.Pattern[str]], ...]:
    groups = read_knowledge("concepts")["contexts"]
    return tuple((name, re.compile(_any_of(words), re.IGNORECASE)) for name, words in groups.items())


def _any_of(words: Sequence[str]) -> str:
    return r"\b(?:" + "|".join(re.escape(word).replace(r"\*", r"\w*") for word in words) + r")\b"


def _is_named(words: re.Pattern[str], indication: str) -> bool:
    """Whether an indication has one of some words, and does not deny it."""
    return any(not _DENIAL.search(indication[: found.start()]) for found in words.finditer(indication))


@dataclass(frozen=True, slots=True)
class Patient:
    """A patient as far as significance depends on it.

    Args:
        age: Years, or None.
        contexts: Groups of ``contexts`` in ``knowledge/concepts.yaml`` that the indication has a word of.

    Example:
        >>> Patient.from_context({"age": "82", "indication": "Fever and cough"})
        Patient(age=82.0, contexts=frozenset({'infection'}))
    """

    age: float | None = None
    contexts: frozenset[str] = frozenset()

    @classmethod
    def from_context(cls, context: Mapping[str, Any] | None) -> "Patient":
        """A patient from context columns; what is missing, or another column, says nothing.

        Args:
            context: ``age`` and ``indication``, both optional.
        """
        if not context:
            return cls()
        age, indication = context.get("age"), context.get("indication")
        return _patient("" if age is None else str(age), str(indication or ""))


@lru_cache(maxsize=10_000)
def _patient(age: str, indication: str) -> Patient:
    named = (name for name, words in _contexts() if _is_named(words, indication))
    return Patient(parse_age(age), frozenset(named))
