"""Two reports finding by finding: what matches, what is false, what is missing, and what is wrong about matches."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rrg_rewards.findings.concepts import ConceptGraph, Relation, concept_graph
from rrg_rewards.findings.consolidate import abnormal_findings
from rrg_rewards.findings.discrepancies import (
    LUNG_LEVELS,
    AttributeDiscrepancy,
    attribute_discrepancies,
    severity_steps,
    sides_conflict,
)
from rrg_rewards.findings.extract import extract_findings
from rrg_rewards.findings.patient import Patient
from rrg_rewards.findings.significance import clinical_significance
from rrg_rewards.findings.types import Attributes, Finding

__all__ = ["FindingComparison", "FindingMatch", "compare_findings"]

# What sets two mentions apart, against one step between their concepts.
_STEP, _OPPOSITE, _ONE_OF_BOTH, _PLACE, _SEVERITY, _SIZE = 4.0, 3.0, 1.0, 2.0, 0.25, 0.5

_PLURALS, _SINGULARS = ("s", "ae", "thoraces"), ("ss", "is", "us", "copd", "chf")
# With more of them a hedge is a list of everything, and matches nothing by it.
_MOST_ALTERNATIVES = 1


@dataclass(frozen=True, slots=True)
class FindingMatch:
    """A finding that both reports hold.

    Args:
        reference: Indices of the reference's findings; several where the candidate names them together.
        candidate: Indices of the candidate's findings; several where the reference names them together.
        discrepancies: What the candidate says differently.
    """

    reference: tuple[int, ...]
    candidate: tuple[int, ...]
    discrepancies: tuple[AttributeDiscrepancy, ...]


@dataclass(frozen=True, slots=True)
class FindingComparison:
    """A candidate report against a reference, finding by finding.

    Args:
        reference: Abnormal findings of the reference.
        candidate: Abnormal findings of the candidate.
        reference_significance: Clinical significance of each of the reference's.
        candidate_significance: Clinical significance of each of the candidate's.
        matches: What both hold.
        false: Indices of the candidate's findings that the reference does not hold.
        missing: Indices of the reference's findings that the candidate does not hold.
    """

    reference: tuple[Finding, ...]
    candidate: tuple[Finding, ...]
    reference_significance: tuple[str, ...]
    candidate_significance: tuple[str, ...]
    matches: tuple[FindingMatch, ...]
    false: tuple[int, ...]
    missing: tuple[int, ...]

    def explain(self) -> list[str]:
        """What is wrong with the candidate, a line for each error, with the places in the reports.

        Example:
            >>> for line in compare_findings("Small left effusion.", "Large left effusion. Emphysema.").explain():
            ...     print(line)
            false: 'Emphysema' (candidate 21-30), not_actionable_not_urgent
            severity (significant): severe for mild: 'effusion' (candidate 11-19) for 'effusion' (reference 11-19)
        """
        lines = [
            f"missing: {_place(self.reference[i], 'reference')}, {self.reference_significance[i]}" for i in self.missing
        ]
        lines += [
            f"false: {_place(self.candidate[i], 'candidate')}, {self.candidate_significance[i]}" for i in self.false
        ]
        for match in self.matches:
            ours = ", ".join(_place(self.reference[i], "reference") for i in match.reference)
            theirs = ", ".join(_place(self.candidate[i], "candidate") for i in match.candidate)
            lines += [
                f"{error.type} ({'significant' if error.significant else 'negligible'}): {error.explanation}: "
                f"{theirs} for {ours}"
                for error in match.discrepancies
            ]
        return lines


def _place(finding: Finding, report: str) -> str:
    return f"{finding.text!r} ({report} {finding.start}-{finding.end})"


def compare_findings(
    reference: str | Sequence[Finding],
    candidate: str | Sequence[Finding],
    context: Mapping[str, Any] | None = None,
) -> FindingComparison:
    """Compare two reports finding by finding.

    Findings match where their concepts are the same or kinds of one another, nearest first. Opposite sides or lobes
    still match, with an error; if neither side nor lobe agrees they are two findings, as are a device in place and one
    that is not. A finding on both sides matches one on each.

    Args:
        reference: Reference report, or its findings.
        candidate: Candidate report, or its findings.
        context: What is known of the patient: ``age`` and ``indication``, both optional.

    Raises:
        TypeError: If a report is no text.

    Example:
        >>> found = compare_findings("Bilateral effusions.", "Left effusion. Right effusion. Cardiomegaly.")
        >>> [(match.reference, match.candidate, match.discrepancies) for match in found.matches], found.false
        ([((0,), (0, 1), ())], (2,))
    """
    ours, theirs = _findings("reference", reference), _findings("candidate", candidate)
    patient = Patient.from_context(context)
    matched = _Matcher(ours, theirs, patient).groups()
    significance = partial(clinical_significance, patient=patient)
    return FindingComparison(
        reference=ours,
        candidate=theirs,
        reference_significance=tuple(_level(finding, patient) for finding in ours),
        candidate_significance=tuple(_level(finding, patient) for finding in theirs),
        matches=tuple(
            FindingMatch(
                tuple(of_ours),
                tuple(of_theirs),
                tuple(
                    attribute_discrepancies(
                        _united([ours[i] for i in of_ours]),
                        _united([theirs[i] for i in of_theirs]),
                        relation,
                        significance,
                    )
                ),
            )
            for of_ours, of_theirs, relation in matched
        ),
        false=_rest(len(theirs), (i for _, of_theirs, _ in matched for i in of_theirs)),
        missing=_rest(len(ours), (i for of_ours, _, _ in matched for i in of_ours)),
    )


def _level(finding: Finding, patient: Patient) -> str:
    return clinical_significance(finding.concept, finding.attributes, patient)


def _findings(name: str, report: str | Sequence[Finding]) -> tuple[Finding, ...]:
    if isinstance(report, str):
        return tuple(abnormal_findings(report, extract_findings(report)))
    findings: tuple[Finding, ...] = tuple(report) if isinstance(report, Iterable) else (report,)
    if not all(isinstance(finding, Finding) for finding in findings):
        raise TypeError(f"{name} must be a report text or a list of findings, got {type(report).__name__}")
    return findings


def _rest(size: int, taken: Any) -> tuple[int, ...]:
    used = set(taken)
    return tuple(i for i in range(size) if i not in used)


def _united(findings: Sequence[Finding]) -> Finding:
    """Several mentions as one: a finding on the left and one on the right is on both sides."""
    first = findings[0]
    if len(findings) == 1:
        return first
    sides = {finding.attributes.laterality for finding in findings}
    attributes = first.attributes
    for finding in findings[1:]:
        attributes = attributes.filled(finding.attributes)
    location = dict.fromkeys(place for finding in findings for place in finding.attributes.location)
    side = "bilateral" if {"left", "right"} <= sides or "bilateral" in sides else attributes.laterality
    return replace(first, attributes=replace(attributes, laterality=side, location=tuple(location)))


class _Matcher:
    """Pairs the findings of two reports."""

    def __init__(self, ours: Sequence[Finding], theirs: Sequence[Finding], patient: Patient) -> None:
        self.ours, self.theirs, self.patient = ours, theirs, patient
        self.graph: ConceptGraph = concept_graph()

    def groups(self) -> list[tuple[list[int], list[int], Relation]]:
        """Indices of the reference's and the candidate's findings that are one, and how their concepts stand."""
        pairs = []
        for i, reference in enumerate(self.ours):
            for j, candidate in enumerate(self.theirs):
                relation = self._relation(reference, candidate)
                if relation is not None and not _apart(reference.attributes, candidate.attributes):
                    pairs.append((_cost(reference, candidate, relation), i, j, relation))
        pairs.sort(key=lambda pair: pair[:3])
        groups: list[tuple[list[int], list[int], Relation]] = []
        of_ours: dict[int, int] = {}
        of_theirs: dict[int, int] = {}
        for _, i, j, relation in pairs:
            if i not in of_ours and j not in of_theirs:
                of_ours[i] = of_theirs[j] = len(groups)
                groups.append(([i], [j], relation))
        # What is left may be part of what was matched: the left one of effusions on both sides.
        for _, i, j, _ in pairs:
            if j not in of_theirs and _covers(self.ours[i], self.theirs[j]):
                of_theirs[j] = of_ours[i]
                groups[of_ours[i]][1].append(j)
            elif i not in of_ours and _covers(self.theirs[j], self.ours[i]):
                of_ours[i] = of_theirs[j]
                groups[of_theirs[j]][0].append(i)
        return groups

    def _relation(self, reference: Finding, candidate: Finding) -> Relation | None:
        """The nearest relation among all that either report leaves open."""
        best = self.graph.relation(reference.concept, candidate.concept, self.patient)
        hedges = max(len(reference.alternatives), len(candidate.alternatives))
        if 0 < hedges <= _MOST_ALTERNATIVES:
            for ours in (reference.concept, *reference.alternatives):
                for theirs in (candidate.concept, *candidate.alternatives):
                    found = self.graph.relation(ours, theirs, self.patient)
                    if found is not None and (best is None or found.distance < best.distance):
                        best = found
        return best


def _levels(attributes: Attributes) -> frozenset[str]:
    return LUNG_LEVELS.intersection(attributes.location)


def _places_conflict(reference: Attributes, candidate: Attributes) -> bool:
    ours, theirs = _levels(reference), _levels(candidate)
    return bool(ours) and bool(theirs) and ours.isdisjoint(theirs)


def _apart(reference: Attributes, candidate: Attributes) -> bool:
    """Whether two mentions of one concept are two findings."""
    if {reference.device_position, candidate.device_position} == {"satisfactory", "malpositioned"}:
        return True
    opposite = {reference.laterality, candidate.laterality} == {"left", "right"}
    return opposite and _places_conflict(reference, candidate)


def _cost(reference: Finding, candidate: Finding, relation: Relation) -> float:
    ours, theirs = reference.attributes, candidate.attributes
    cost = _STEP * relation.distance + _SEVERITY * severity_steps(ours, theirs)
    if sides_conflict(ours, theirs):
        cost += _ONE_OF_BOTH if "bilateral" in (ours.laterality, theirs.laterality) else _OPPOSITE
    if _places_conflict(ours, theirs):
        cost += _PLACE
    if ours.size_mm is not None and theirs.size_mm is not None and ours.size_mm != theirs.size_mm:
        cost += _SIZE
    return cost


def _covers(whole: Finding, part: Finding) -> bool:
    """Whether a mention speaks of several findings, of which another that is matched with nothing else may be one."""
    ours, theirs = whole.attributes, part.attributes
    return (
        whole.concept == part.concept
        and (ours.laterality == "bilateral" or ours.extent in ("multiple", "diffuse") or _is_plural(whole.text))
        and ours.laterality in (None, "bilateral", theirs.laterality)
        and (not ours.location or set(theirs.location) <= set(ours.location))
        and theirs.size_mm in (None, ours.size_mm)
    )


def _is_plural(text: str) -> bool:
    """Whether a mention ends in a plural: "nodules", "bullae", and not "atelectasis" or "pneumothorax"."""
    return text.lower().endswith(_PLURALS) and not text.lower().endswith(_SINGULARS)
