"""How much a finding matters to a patient, by rules in ``knowledge/concepts.yaml``."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from rrg_rewards.findings.knowledge_base import read_knowledge
from rrg_rewards.findings.patient import Patient
from rrg_rewards.findings.types import Attributes

__all__ = ["clinical_significance"]

_LEVELS = {
    "urgent": "urgent",
    "actionable": "actionable_not_urgent",
    "not_actionable": "not_actionable_not_urgent",
    "benign": "benign_expected",
}

Condition = Callable[[Attributes, Patient], bool]


def clinical_significance(concept: str, attributes: Attributes, patient: Patient) -> str:
    """Clinical significance of a finding: CRIMSON's four levels.

    Args:
        concept: Concept of ``knowledge/concepts.yaml``.
        attributes: What the report says of the finding.
        patient: Age and contexts.

    Returns:
        ``urgent``, ``actionable_not_urgent``, ``not_actionable_not_urgent`` or ``benign_expected``.

    Example:
        >>> clinical_significance("arterial_calcification", Attributes(), Patient(age=82))
        'benign_expected'
        >>> clinical_significance("arterial_calcification", Attributes(), Patient(age=25))
        'actionable_not_urgent'
        >>> clinical_significance("pleural_effusion", Attributes(severity="mild"), Patient())
        'not_actionable_not_urgent'
    """
    default, by_severity, cases = _rules()[concept]
    for conditions, level in cases:
        if all(condition(attributes, patient) for condition in conditions):
            return level
    return by_severity.get(attributes.severity, default)


@cache
def _rules() -> dict[str, tuple[str, dict[str | None, str], list[tuple[list[Condition], str]]]]:
    return {
        concept: (
            _LEVELS[entry["significance"]],
            {severity: _LEVELS[level] for severity, level in entry.get("severity", {}).items()},
            [(_conditions(case["if"]), _LEVELS[case["then"]]) for case in entry.get("cases", ())],
        )
        for concept, entry in read_knowledge("concepts")["concepts"].items()
    }


def _conditions(entry: Mapping[str, Any]) -> list[Condition]:
    return [_condition(key, value) for key, value in entry.items()]


def _condition(key: str, value: Any) -> Condition:
    if key == "context":
        return lambda _, patient: value in patient.contexts
    name, _, bound = key.rpartition("_")
    if bound in ("below", "from"):
        return _bound(name, value, below=bound == "below")
    if key not in Attributes.__slots__:
        raise ValueError(f"unknown condition {key!r} in knowledge/concepts.yaml")
    choices = frozenset(value)
    if key in ("location", "morphology"):
        return lambda attributes, _: not choices.isdisjoint(getattr(attributes, key))
    return lambda attributes, _: getattr(attributes, key) in choices


def _bound(name: str, value: float, below: bool) -> Condition:
    def holds(attributes: Attributes, patient: Patient) -> bool:
        number = patient.age if name == "age" else attributes.size_mm
        return number is not None and (number < value) == below

    return holds
