"""Read the age and the clinical contexts of a patient from the age and the indication."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.lexicon.cues import cue_words

# A single M or W after a number may be the sex. It is a unit only after three digits, as in DICOM.
_AGE = re.compile(
    r"\s*(\d+(?:\.\d+)?)"
    r"(?:(?<=\d{3})([ymwd])\b|[\s-]*(y|yrs?|years?|mos?|months?|wks?|weeks?|days?)\b)?",
    re.IGNORECASE,
)
_PER_YEAR = {"y": 1.0, "m": 12.0, "w": 52.18, "d": 365.25}
_MAX_AGE = 130.0


def parse_age(age: object) -> float | None:
    """Read an age in years from a number or a text such as ``82``, ``066Y`` (DICOM) or ``18 months``.

    Returns:
        The age, or ``None`` if it is missing or cannot be read.

    Example:
        >>> parse_age("066Y"), parse_age("018M"), parse_age("82-year-old"), parse_age("82 M"), parse_age("")
        (66.0, 1.5, 82.0, 82.0, None)
    """
    match = _AGE.match(str(age)) if age is not None else None
    if match is None:
        return None
    years = float(match[1]) / _PER_YEAR[(match[2] or match[3] or "y")[0].lower()]
    return years if years <= _MAX_AGE else None


@cache
def _contexts() -> tuple[tuple[str, re.Pattern[str]], ...]:
    groups = load_knowledge("concepts")["contexts"]
    return tuple((name, re.compile(_any_of(words), re.IGNORECASE)) for name, words in groups.items())


@cache
def _denial() -> re.Pattern[str]:
    return re.compile(_any_of(sorted(cue_words("denials", "in_indications"))) + "[^.;]*$", re.IGNORECASE)


def _any_of(words: Sequence[str]) -> str:
    return r"\b(?:" + "|".join(re.escape(word).replace(r"\*", r"\w*") for word in words) + r")\b"


def _is_named(words: re.Pattern[str], indication: str) -> bool:
    """Whether an indication contains one of the words without denying it."""
    return any(not _denial().search(indication[: found.start()]) for found in words.finditer(indication))


@dataclass(frozen=True, slots=True)
class Patient:
    """The properties of a patient that clinical significance depends on.

    Args:
        age: Age in years, or ``None``.
        contexts: Keys of ``contexts`` in ``knowledge/concepts.yaml`` whose words the indication contains.

    Example:
        >>> Patient.from_context({"age": "82", "indication": "Fall from a ladder"})
        Patient(age=82.0, contexts=frozenset({'trauma'}))
    """

    age: float | None = None
    contexts: frozenset[str] = frozenset()

    @classmethod
    def from_context(cls, context: Mapping[str, Any] | None) -> "Patient":
        """Make a patient from context columns.

        Args:
            context: ``age`` and ``indication``, both optional; other columns are ignored.
        """
        if not context:
            return cls()
        age, indication = context.get("age"), context.get("indication")
        return _patient("" if age is None else str(age), str(indication or ""))


@lru_cache(maxsize=10_000)
def _patient(age: str, indication: str) -> Patient:
    named = (name for name, words in _contexts() if _is_named(words, indication))
    return Patient(parse_age(age), frozenset(named))
