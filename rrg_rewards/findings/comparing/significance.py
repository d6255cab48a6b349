"""Clinical significance of findings, from the rows of a profile."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import floor
from typing import Any

from rrg_rewards.findings.comparing.profiles import LEVEL_NAMES, NUMBERS, Profile, get_profile
from rrg_rewards.findings.knowledge.concepts import concept_graph
from rrg_rewards.findings.knowledge.patient import Patient
from rrg_rewards.findings.reading.engine import get_engine
from rrg_rewards.findings.reading.finding import Attributes
from rrg_rewards.findings.reading.phrases import WordBits
from rrg_rewards.findings.reading.tokens import tokenise

SIGNIFICANCE_LEVELS = tuple(LEVEL_NAMES.values())
"""Levels of clinical significance, the least significant first."""

Condition = Callable[[Attributes, Patient, Sequence[str], str], bool]


def clinical_significance(
    concept: str,
    attributes: Attributes,
    patient: Patient,
    words: Sequence[str] = (),
    text: str = "",
    profile: str | Profile = "published",
) -> str:
    """Return the clinical significance of a finding on CRIMSON's scale of four levels.

    Args:
        concept: Concept of ``knowledge/concepts.yaml``.
        attributes: Attributes of the finding.
        patient: Age and clinical contexts.
        words: Content words of an open finding.
        text: Words of the mention.
        profile: Profile, or its name.

    Returns:
        ``urgent``, ``actionable_not_urgent``, ``not_actionable_not_urgent`` or ``benign_expected``.

    Example:
        >>> clinical_significance("arterial_calcification", Attributes(), Patient(age=82))
        'benign_expected'
        >>> clinical_significance("arterial_calcification", Attributes(), Patient(age=25))
        'actionable_not_urgent'
        >>> clinical_significance("pleural_effusion", Attributes(severity="mild"), Patient())
        'not_actionable_not_urgent'
        >>> clinical_significance("other_finding", Attributes(), Patient(), words=("gastric", "perforation"))
        'urgent'
    """
    steps = 0
    for conditions, level in _rules(get_profile(profile), concept):
        if all(condition(attributes, patient, words, text) for condition in conditions):
            if level != "lower":
                break
            steps += 1
    return SIGNIFICANCE_LEVELS[max(SIGNIFICANCE_LEVELS.index(level) - steps, 0)] if steps else level


@lru_cache(maxsize=2_048)
def _rules(profile: Profile, concept: str) -> list[tuple[list[Condition], str]]:
    """Return the conditions and the level of each row of a profile that is for a concept."""
    kinds = {concept, *concept_graph().wider(concept)}
    return [
        (
            [_condition(key, value, concept, profile) for key, value in row.get("if", {}).items()],
            LEVEL_NAMES.get(row["then"], row["then"]),
        )
        for row in profile.significance
        if row.keys().isdisjoint(("concepts", "kinds_of"))
        or concept in row.get("concepts", ())
        or not kinds.isdisjoint(row.get("kinds_of", ()))
    ]


def _condition(key: str, value: Any, concept: str, profile: Profile) -> Condition:
    if key.startswith("not_"):
        denied = _condition(key.removeprefix("not_"), value, concept, profile)
        return lambda *finding: not denied(*finding)
    if key in NUMBERS:
        name, _, bound = key.rpartition("_")
        measure, is_below = _MEASURES[name], bound == "below"
        # What a report gives as a bound of a size: "less than 10 mm"
        bounded = {("below", value)} if profile["strict_bounds"] else frozenset()
        return lambda attributes, patient, *_: (
            (number := measure(attributes, patient)) is not None
            and (number < value or (number == value and not bounded.isdisjoint(attributes.values))) == is_below
        )
    if key == "known":
        family = concept_graph().family(concept)
        return lambda _, patient, *__: not family.isdisjoint(known_concepts(patient.known))
    if key in ("words", "named"):
        bits = WordBits((word, 1) for word in value)
        return lambda _, __, words, text: any(bits[word] for word in (words if key == "words" else tokenise(text)))
    choices = frozenset(value)
    if key == "context":
        return lambda _, patient, *__: not choices.isdisjoint(patient.contexts)
    if key == "contexts":
        return lambda _, patient, *__: choices <= patient.contexts
    if key in ("location", "morphology"):
        return lambda attributes, *_: not choices.isdisjoint(getattr(attributes, key))
    return lambda attributes, *_: getattr(attributes, key) in choices


@lru_cache(maxsize=10_000)
def known_concepts(text: str) -> frozenset[str]:
    """Return the concepts of the findings in clauses of an indication.

    Example:
        >>> sorted(known_concepts("Known emphysema, no effusion."))
        ['emphysema']
    """
    findings = get_engine("chest").extract(text) if text else ()
    return frozenset(finding.concept for finding in findings if finding.presence != "absent")


def _mean_size(attributes: Attributes, _: Patient) -> float | None:
    """Return the mean of the two dimensions, or the only one, rounded to whole millimetres."""
    if attributes.size_mm is None:
        return None
    return floor((attributes.size_mm + (attributes.short_axis_mm or attributes.size_mm)) / 2 + 0.5)


_MEASURES: dict[str, Callable[[Attributes, Patient], float | None]] = {
    "age": lambda _, patient: patient.age,
    "size": lambda attributes, _: attributes.size_mm,
    "mean_size": _mean_size,
    "short_axis": lambda attributes, _: attributes.short_axis_mm or attributes.size_mm,
}
