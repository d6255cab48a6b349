"""Attribute errors between two mentions of one finding: CRIMSON's eight types, significant or negligible."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rrg_rewards.findings.concepts import Relation
from rrg_rewards.findings.knowledge_base import read_knowledge
from rrg_rewards.findings.types import Attributes, Finding

__all__ = ["LUNG_LEVELS", "AttributeDiscrepancy", "attribute_discrepancies", "severity_steps", "sides_conflict"]

LUNG_LEVELS = frozenset({"upper", "middle", "lower"})
_SEVERITIES = {"minimal": 0, "mild": 1, "moderate": 2, "severe": 3}
# "Small" against "large": steps of severity that are significant whatever the finding.
_SIGNIFICANT_STEPS = 2
# Vertebrae above the first of each part of the spine.
_SPINE = {"c": 0, "t": 7, "l": 19}

Significance = Callable[[str, Attributes], str]


@dataclass(frozen=True, slots=True)
class AttributeDiscrepancy:
    """What the candidate says differently of a finding that both reports hold.

    Args:
        type: One of ``rrg_rewards.schemas.ATTRIBUTE_ERROR_TYPES``.
        significant: Whether it could change what is done for the patient.
        explanation: In words.
    """

    type: str
    significant: bool
    explanation: str


def severity_steps(reference: Attributes, candidate: Attributes) -> int:
    """Steps between two severities; 0 where one is not stated."""
    if reference.severity is None or candidate.severity is None:
        return 0
    return abs(_SEVERITIES[reference.severity] - _SEVERITIES[candidate.severity])


def sides_conflict(reference: Attributes, candidate: Attributes) -> bool:
    """Whether both state a side, and not the same."""
    return None not in (reference.laterality, candidate.laterality) and reference.laterality != candidate.laterality


def attribute_discrepancies(
    reference: Finding, candidate: Finding, relation: Relation, significance: Significance
) -> list[AttributeDiscrepancy]:
    """Attribute errors of a candidate's finding.

    What one of the two does not say is no error, unless the candidate names neither side nor degree nor place where
    the reference has side and degree: then it is unspecific, significantly. A side is significant, a place within the
    same lobe negligible; another lobe or bone is significant. A severity is significant if it is two steps off (small
    and large), or changes how much the finding matters. Measures of nodules and masses may differ by 2 mm below 6 mm
    and by 4 mm from there on, others by half. Opposite changes, and acute for chronic, are significant; a hedge is
    negligible.

    Source: Baharoon et al., "CRIMSON", arXiv:2603.06183, Section 3.2; where the paper is silent, our own rules in
    ``knowledge/concepts.yaml``.

    Args:
        reference: Finding of the reference.
        candidate: Finding of the candidate that it is matched with.
        relation: How their concepts stand to each other.
        significance: Level of a concept with attributes in this patient.
    """
    found: list[AttributeDiscrepancy] = []
    ours, theirs = reference.attributes, candidate.attributes
    measured = ours.size_mm is not None and theirs.size_mm is not None
    if relation.kind != "same" and not (relation.kind == "descriptor" and measured):
        found.append(
            AttributeDiscrepancy(
                relation.kind,
                relation.significant,
                f"{_name(candidate)} for {_name(reference)}",
            )
        )
    if relation.kind == "same" and _is_bare(ours, theirs):
        found.append(AttributeDiscrepancy("unspecific", True, f"{_name(candidate)} without side and degree"))
    found += _location(ours, theirs)
    found += _severity(reference, candidate, significance)
    found += _measurement(reference, candidate)
    found += _contradictions(ours, theirs)
    if (ours.certainty is None) != (theirs.certainty is None):
        hedged = "is hedged" if theirs.certainty else "is not hedged"
        found.append(AttributeDiscrepancy("certainty", significant=False, explanation=f"the candidate {hedged}"))
    return found


def _is_bare(ours: Attributes, theirs: Attributes) -> bool:
    """Whether the candidate leaves out all of a side and a degree."""
    side = ours.laterality is not None
    degree = ours.severity is not None or ours.size_mm is not None
    return side and degree and not (theirs.laterality or theirs.severity or theirs.size_mm or theirs.location)


def _name(finding: Finding) -> str:
    return finding.concept.replace("_", " ")


def _words(values: Sequence[str]) -> str:
    return " and ".join(values).replace("_", " ")


def _location(ours: Attributes, theirs: Attributes) -> list[AttributeDiscrepancy]:
    found = []
    if sides_conflict(ours, theirs):
        found.append(
            AttributeDiscrepancy("location", significant=True, explanation=f"{theirs.laterality} for {ours.laterality}")
        )
    if "malpositioned" in (ours.device_position, theirs.device_position):
        if ours.device_position != theirs.device_position:
            stated = f"{theirs.device_position or 'position not stated'} for {ours.device_position or 'not stated'}"
            found.append(AttributeDiscrepancy("location", significant=True, explanation=stated))
    elif ours.location and theirs.location and set(ours.location).isdisjoint(theirs.location):
        lobes = bool(LUNG_LEVELS.intersection(ours.location)) and bool(LUNG_LEVELS.intersection(theirs.location))
        explanation = f"{_words(theirs.location)} for {_words(ours.location)}"
        significant = lobes or _bones_apart(ours.location, theirs.location)
        found.append(AttributeDiscrepancy("location", significant, explanation))
    return found


def _bones_apart(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    """Whether two bones are named that nobody takes for each other."""
    levels = read_knowledge("concepts")["levels"]
    first, second = (dict(filter(None, map(_bone, places))) for places in (ours, theirs))
    if not first or not second:
        return False
    return not any(kind in second and abs(level - second[kind]) <= levels.get(kind, 0) for kind, level in first.items())


def _bone(place: str) -> tuple[str, int] | None:
    """Kind and level of a bone: rib 10, vertebra 19 for T12."""
    if place.startswith("rib_"):
        return "rib", int(place[4:])
    if place[1:].isdigit() and place[0] in _SPINE:
        return "vertebra", _SPINE[place[0]] + int(place[1:])
    return (place, 0) if place in read_knowledge("concepts")["bones"] else None


def _severity(reference: Finding, candidate: Finding, significance: Significance) -> list[AttributeDiscrepancy]:
    ours, theirs = reference.attributes, candidate.attributes
    found = []
    steps = severity_steps(ours, theirs)
    if steps:
        changed = significance(reference.concept, ours) != significance(
            reference.concept, Attributes(severity=theirs.severity).filled(ours)
        )
        explanation = f"{theirs.severity} for {ours.severity}"
        found.append(AttributeDiscrepancy("severity", steps >= _SIGNIFICANT_STEPS or changed, explanation))
    if {ours.extent, theirs.extent} == {"focal", "diffuse"}:
        found.append(AttributeDiscrepancy("severity", True, f"{theirs.extent} for {ours.extent}"))
    return found


def _measurement(reference: Finding, candidate: Finding) -> list[AttributeDiscrepancy]:
    ours, theirs = reference.attributes.size_mm, candidate.attributes.size_mm
    if ours is None or theirs is None or ours == theirs:
        return []
    rules = read_knowledge("concepts")["measurement"]
    if reference.concept in rules["concepts"]:
        margin = next(margin for size, margin in sorted(rules["margins"].items(), reverse=True) if ours >= size)
        significant = abs(ours - theirs) > margin
    else:
        significant = max(ours, theirs) > rules["ratio"] * min(ours, theirs)
    return [AttributeDiscrepancy("measurement", significant, f"{theirs:g} mm for {ours:g} mm")]


def _contradictions(ours: Attributes, theirs: Attributes) -> list[AttributeDiscrepancy]:
    found = []
    contradictions = read_knowledge("concepts")["contradictions"]
    if ours.morphology and theirs.morphology and set(ours.morphology).isdisjoint(theirs.morphology):
        significant = any(
            (first in ours.morphology and second in theirs.morphology)
            or (second in ours.morphology and first in theirs.morphology)
            for first, second in contradictions["morphology"]
        )
        explanation = f"{_words(theirs.morphology)} for {_words(ours.morphology)}"
        found.append(AttributeDiscrepancy("descriptor", significant, explanation))
    for kind in ("change", "acuity"):
        first, second = getattr(ours, kind), getattr(theirs, kind)
        if first and second and first != second:
            significant = any({first, second} == set(pair) for pair in contradictions[kind])
            found.append(AttributeDiscrepancy("temporal", significant, f"{second} for {first}"))
    return found
