"""Clinical significance of findings, from ``concepts.yaml`` and ``significance.yaml`` in ``findings/knowledge``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from math import floor
from typing import Any

from rrg_rewards.findings.knowledge.concepts import concept_graph
from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.knowledge.patient import Patient
from rrg_rewards.findings.reading.engine import get_engine
from rrg_rewards.findings.reading.finding import Attributes
from rrg_rewards.findings.reading.phrases import WordBits

# The levels by their names in the knowledge.
_LEVELS = {
    "benign": "benign_expected",
    "not_actionable": "not_actionable_not_urgent",
    "actionable": "actionable_not_urgent",
    "urgent": "urgent",
}
SIGNIFICANCE_LEVELS = tuple(_LEVELS.values())
"""Levels of clinical significance, the least significant first."""

Condition = Callable[[Attributes, Patient, Sequence[str]], bool]


def clinical_significance(concept: str, attributes: Attributes, patient: Patient, words: Sequence[str] = ()) -> str:
    """Return the clinical significance of a finding on CRIMSON's scale of four levels.

    Args:
        concept: Concept of ``knowledge/concepts.yaml``.
        attributes: Attributes of the finding.
        patient: Age and clinical contexts.
        words: Content words of an open finding.

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
    default, by_severity, cases = _rules()[concept]
    steps = 0
    for conditions, level in cases:
        if all(condition(attributes, patient, words) for condition in conditions):
            if level != "lower":
                break
            steps += 1
    else:
        level = by_severity.get(attributes.severity, default)
    return SIGNIFICANCE_LEVELS[max(SIGNIFICANCE_LEVELS.index(level) - steps, 0)] if steps else level


@cache
def _rules() -> dict[str, tuple[str, dict[str | None, str], list[tuple[list[Condition], str]]]]:
    return {
        concept: (
            _LEVELS[entry["significance"]],
            {severity: _LEVELS[level] for severity, level in entry.get("severity", {}).items()},
            [
                (
                    [_condition(key, value, concept) for key, value in case["if"].items()],
                    _LEVELS.get(case["then"], case["then"]),
                )
                for case in [*_shared_cases(concept), *entry.get("cases", ())]
            ],
        )
        for concept, entry in load_knowledge("concepts")["concepts"].items()
    }


def _shared_cases(concept: str) -> Iterator[Mapping[str, Any]]:
    """Yield the cases of ``significance.yaml`` that a concept shares with others."""
    kinds = {concept, *concept_graph().wider(concept)}
    for rule in load_knowledge("significance")["rules"]:
        if concept in rule.get("concepts", ()) or not kinds.isdisjoint(rule.get("kinds_of", ())):
            yield rule


def _condition(key: str, value: Any, concept: str) -> Condition:
    if key.startswith("not_"):
        denied = _condition(key.removeprefix("not_"), value, concept)
        return lambda attributes, patient, words: not denied(attributes, patient, words)
    name, _, bound = key.rpartition("_")
    if bound in ("below", "from") and name in _MEASURES:
        measure, is_below = _MEASURES[name], bound == "below"
        return lambda attributes, patient, _: (
            (number := measure(attributes, patient)) is not None and (number < value) == is_below
        )
    if key == "known":
        family = concept_graph().family(concept)
        return lambda _, patient, __: not family.isdisjoint(known_concepts(patient.known))
    if key == "words":
        bits = WordBits((word, 1) for word in value)
        return lambda _, __, words: any(bits[word] for word in words)
    choices = frozenset(value)
    if key == "context":
        return lambda _, patient, __: not choices.isdisjoint(patient.contexts)
    if key == "contexts":
        return lambda _, patient, __: choices <= patient.contexts
    if key not in Attributes._fields:
        raise ValueError(f"unknown condition {key!r} of the significance of {concept}")
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
