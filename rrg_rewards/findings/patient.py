"""What is known of a patient beside the report: age in years, and what the indication speaks of."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from rrg_rewards.findings.knowledge_base import read_knowledge

__all__ = ["Patient", "parse_age"]

_AGE = re.compile(r"\s*0*(\d+(?:\.\d+)?)\s*(?:-?\s*(y|m|w|d)[a-z]*)?", re.IGNORECASE)
_PER_YEAR = {"y": 1.0, "m": 12.0, "w": 52.18, "d": 365.25}
_MAX_AGE = 130.0


def parse_age(age: object) -> float | None:
    """Age in years, from a number or a text such as ``82``, ``066Y`` (DICOM), ``18 months``.

    Returns:
        The age, or None where it is missing or cannot be read.

    Example:
        >>> parse_age("066Y"), parse_age("018M"), parse_age("82-year-old"), parse_age(""), parse_age(None)
        (66.0, 1.5, 82.0, None, None)
    """
    found = _AGE.match(str(age)) if age is not None else None
    if found is None:
        return None
    years = float(found[1]) / _PER_YEAR[(found[2] or "y").lower()]
    return years if years <= _MAX_AGE else None


@cache
def _contexts() -> tuple[tuple[str, re.Pattern[str]], ...]:
    groups = read_knowledge("concepts")["contexts"]
    return tuple(
        (name, re.compile(r"\b(?:" + "|".join(map(re.escape, stems)) + ")", re.IGNORECASE))
        for name, stems in groups.items()
    )


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
        return _patient(context.get("age"), str(context.get("indication") or ""))


@lru_cache(maxsize=10_000)
def _patient(age: object, indication: str) -> Patient:
    named = frozenset(name for name, words in _contexts() if words.search(indication)) if indication else frozenset()
    return Patient(parse_age(age), named)
