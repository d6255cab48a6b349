"""Read the age and the clinical contexts of a patient from the age and the indication."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any

from rrg_rewards.findings.knowledge.load import cue_words, load_knowledge, word_pattern

_MAX_AGE = 130.0
# Between two words of a clause.
_BETWEEN = r"[^\w.;]+"

_words = partial(word_pattern, "significance")


def parse_age(age: object) -> float | None:
    """Read an age in years from a number or a text such as ``82``, ``066Y`` (DICOM) or ``18 months``.

    Returns:
        The age, or ``None`` if it is missing or cannot be read.

    Example:
        >>> parse_age("066Y"), parse_age("018M"), parse_age("82-year-old"), parse_age("82 M"), parse_age("")
        (66.0, 1.5, 82.0, 82.0, None)
        >>> parse_age("3 days"), parse_age("27/40"), parse_age("newborn")
        (0.008213552361396304, 0.0, 0.0)
    """
    for expression, per_year in _ages():
        if (match := expression.match(str(age).strip())) is not None:
            # An expression without a number is for newborns.
            years = float(match[1]) / per_year if match.re.groups else 0.0
            return years if years <= _MAX_AGE else None
    return None


@cache
def _ages() -> list[tuple[re.Pattern[str], float]]:
    return [(re.compile(text, re.IGNORECASE), per_year) for text, per_year in load_knowledge("significance")["ages"]]


@cache
def _contexts() -> tuple[tuple[str, re.Pattern[str]], ...]:
    groups = load_knowledge("significance")["contexts"]
    return tuple((name, re.compile(_any_of(phrases), re.IGNORECASE)) for name, phrases in groups.items())


@cache
def _denial() -> re.Pattern[str]:
    return re.compile(_any_of(sorted(cue_words("denials", "in_indications"))) + "[^.;]*$", re.IGNORECASE)


def _any_of(phrases: Sequence[str]) -> str:
    return r"\b(?:" + "|".join(map(_phrase, phrases)) + r")\b"


def _phrase(text: str) -> str:
    """Return the expression of a phrase: ``|`` separates choices, ``*`` is any letters, ``<n>`` at most n words."""
    words = (
        rf"(?:\w+{_BETWEEN}){{0,{word[1]}}}"
        if word.startswith("<")
        else "(?:" + re.escape(word).replace(r"\*", r"\w*").replace(r"\|", "|") + ")" + _BETWEEN
        for word in text.split()
    )
    return "".join(words).removesuffix(_BETWEEN)


def _is_named(words: re.Pattern[str], indication: str) -> bool:
    """Whether an indication contains one of the words without denying it."""
    return any(not _denial().search(indication[: found.start()]) for found in words.finditer(indication))


def _known(indication: str) -> str:
    """Return the clauses of an indication that state a finding as known, and do not ask for it."""
    clauses = re.findall(r"[^.;?]+(?:[.;?]|$)", indication)
    known, asked = _words("known"), _words("asked")
    return "".join(clause for clause in clauses if known.search(clause) and not asked.search(clause)).strip()


@dataclass(frozen=True, slots=True)
class Patient:
    """The properties of a patient that clinical significance depends on.

    Args:
        age: Age in years, or ``None``.
        contexts: Keys of ``contexts`` in ``knowledge/significance.yaml`` whose words the indication contains.
        known: Clauses of the indication that state findings as known.

    Example:
        >>> Patient.from_context({"indication": "72-year-old man, fall. Known emphysema."})
        Patient(age=72.0, contexts=frozenset({'trauma'}), known='Known emphysema.')
    """

    age: float | None = None
    contexts: frozenset[str] = frozenset()
    known: str = ""

    @classmethod
    def from_context(cls, context: Mapping[str, Any] | None) -> "Patient":
        """Make a patient from context columns.

        Args:
            context: ``age`` and ``indication``, both optional; other columns are ignored. Without an age, the one that
                the indication states counts.
        """
        context = context or {}
        age, indication = context.get("age"), context.get("indication")
        return _patient("" if age is None else str(age), str(indication or ""))


@lru_cache(maxsize=10_000)
def _patient(age: str, indication: str) -> Patient:
    contexts = frozenset(name for name, words in _contexts() if _is_named(words, indication))
    years = parse_age(age)
    if years is None and "pregnancy" not in contexts and (stated := _words("stated_age").search(indication)):
        years = parse_age(stated[0])
    return Patient(years, contexts, _known(indication))
