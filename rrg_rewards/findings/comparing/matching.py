"""Compare two reports finding by finding: matched, false and missing findings, and attribute errors of matches."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

from rrg_rewards.findings.comparing.attribute_errors import (
    LUNG_LEVELS,
    AttributeDiscrepancy,
    attribute_discrepancies,
    density,
    is_among,
    is_nodule,
    severity_steps,
    sides_conflict,
    stated_places,
)
from rrg_rewards.findings.comparing.open_findings import open_relation
from rrg_rewards.findings.comparing.significance import clinical_significance
from rrg_rewards.findings.knowledge.concepts import Relation, concept_graph, organs_differ
from rrg_rewards.findings.knowledge.organs import finding_organ
from rrg_rewards.findings.knowledge.patient import Patient
from rrg_rewards.findings.reading.engine import extract_findings
from rrg_rewards.findings.reading.finding import OTHER, Attributes, Finding
from rrg_rewards.findings.reading.merge_mentions import abnormal_findings
from rrg_rewards.schemas.errors import SIGNIFICANCE_WEIGHTS

__all__ = ["FindingComparison", "FindingMatch", "compare_findings"]

# Costs of a match: each step between the concepts, and differences in side, location, density, severity and size.
_STEP, _OPPOSITE, _ONE_OF_BOTH, _PLACE, _DENSITY, _SEVERITY, _SIZE = 4.0, 3.0, 1.0, 2.0, 1.0, 0.25, 0.5

# Largest part in mm of several findings of which no size is stated.
_SMALL_PART = 6.0

_PLURALS, _SINGULARS = ("s", "ae", "thoraces"), ("ss", "is", "us", "copd", "chf")
# Findings of a report after this number match nothing, because the number of pairs grows with its square. Reports of
# patients contain fewer than a hundred.
_MOST_FINDINGS = 300
# Findings with more alternatives are matched by their concept only, so that listing many diagnoses gains nothing.
_MOST_ALTERNATIVES = 1


@dataclass(frozen=True, slots=True)
class FindingMatch:
    """A finding that both reports contain.

    Args:
        reference: Indices of the reference's findings; several if the candidate combines them.
        candidate: Indices of the candidate's findings; several if the reference combines them.
        discrepancies: Attribute errors of the candidate.
    """

    reference: tuple[int, ...]
    candidate: tuple[int, ...]
    discrepancies: tuple[AttributeDiscrepancy, ...]


@dataclass(frozen=True, slots=True)
class FindingComparison:
    """Result of comparing a candidate report with a reference, finding by finding.

    Args:
        reference: Abnormal findings of the reference.
        candidate: Abnormal findings of the candidate.
        reference_significance: Clinical significance of each reference finding.
        candidate_significance: Clinical significance of each candidate finding.
        matches: Findings that both reports contain.
        false: Indices of the candidate's findings that the reference does not contain.
        missing: Indices of the reference's findings that the candidate does not contain.
    """

    reference: tuple[Finding, ...]
    candidate: tuple[Finding, ...]
    reference_significance: tuple[str, ...]
    candidate_significance: tuple[str, ...]
    matches: tuple[FindingMatch, ...]
    false: tuple[int, ...]
    missing: tuple[int, ...]

    def explain(self) -> list[str]:
        """Return one line for each error of the candidate, with character offsets in the reports.

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
    open_findings: bool = False,
) -> FindingComparison:
    """Compare two reports finding by finding.

    Findings match if their concepts are equal or if one concept is a kind of the other, and if they are in one organ.
    Open findings, which no concept names, match by organ and words. The closest pairs match first. Findings on opposite
    sides or in different lobes match with an error. They do not match if both side and lobe differ, or if one is a well
    placed device and the other a malpositioned one. A bilateral finding matches one finding on each side, and several
    nodules match each nodule that is neither larger nor more significant. Of each report, only the first 300 findings
    match.

    Args:
        reference: Reference report, or its findings.
        candidate: Candidate report, or its findings.
        context: ``age`` and ``indication`` of the patient, both optional.
        open_findings: Whether to compare also the abnormal statements of report texts that name no known concept; see
            :func:`rrg_rewards.findings.extract_findings`.

    Raises:
        TypeError: If a report is neither a string nor a sequence of findings.

    Example:
        >>> found = compare_findings("Bilateral effusions.", "Left effusion. Right effusion. Cardiomegaly.")
        >>> [(match.reference, match.candidate, match.discrepancies) for match in found.matches], found.false
        ([((0,), (0, 1), ())], (2,))
    """
    ours, theirs = (
        _findings(name, report, open_findings) for name, report in (("reference", reference), ("candidate", candidate))
    )
    patient = Patient.from_context(context)
    significance = partial(clinical_significance, patient=patient)
    levels = [
        tuple(significance(finding.concept, finding.attributes, words=finding.words) for finding in report)
        for report in (ours, theirs)
    ]
    matched = _groups(ours, theirs, levels[0], levels[1], patient)
    return FindingComparison(
        reference=ours,
        candidate=theirs,
        reference_significance=levels[0],
        candidate_significance=levels[1],
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


def _findings(name: str, report: str | Sequence[Finding], open_findings: bool) -> tuple[Finding, ...]:
    if isinstance(report, str):
        return tuple(abnormal_findings(report, extract_findings(report, open_findings=open_findings)))
    findings: tuple[Finding, ...] = tuple(report) if isinstance(report, Iterable) else (report,)
    if not all(isinstance(finding, Finding) for finding in findings):
        raise TypeError(f"{name} must be a report text or a list of findings, got {type(report).__name__}")
    return findings


def _rest(size: int, taken: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(range(size)).difference(taken)))


def _united(findings: Sequence[Finding]) -> Finding:
    """Combine mentions into one finding of the largest size; a left and a right one make a bilateral finding."""
    if len(findings) == 1:
        return findings[0]
    sides = {finding.attributes.laterality for finding in findings}
    attributes = reduce(Attributes.filled, (finding.attributes for finding in findings))
    location = dict.fromkeys(place for finding in findings for place in finding.attributes.location)
    side = "bilateral" if {"left", "right"} <= sides or "bilateral" in sides else attributes.laterality
    places = tuple(place for finding in findings for place in stated_places(finding.attributes))
    united = replace(
        attributes,
        laterality=side,
        location=tuple(location),
        size_mm=max(filter(None, (finding.attributes.size_mm for finding in findings)), default=None),
        places=places if side == "bilateral" and None not in sides else (),
    )
    return replace(findings[0], attributes=united)


def _groups(
    ours: Sequence[Finding],
    theirs: Sequence[Finding],
    our_levels: Sequence[str],
    their_levels: Sequence[str],
    patient: Patient,
) -> list[tuple[list[int], list[int], Relation]]:
    """Return the groups of matched findings, as indices in both reports, and the relation of their concepts."""
    pairs = []
    for i, reference in enumerate(ours[:_MOST_FINDINGS]):
        for j, candidate in enumerate(theirs[:_MOST_FINDINGS]):
            relation = _relation(reference, candidate, patient)
            if relation is not None and not _apart(reference, candidate, relation):
                pairs.append((_cost(reference, candidate, relation), i, j, relation))
    pairs.sort(key=lambda pair: pair[:3])
    groups: list[tuple[list[int], list[int], Relation]] = []
    of_ours: dict[int, int] = {}
    of_theirs: dict[int, int] = {}
    for _, i, j, relation in pairs:
        if i not in of_ours and j not in of_theirs:
            of_ours[i] = of_theirs[j] = len(groups)
            groups.append(([i], [j], relation))
    # An unmatched finding may be part of a matched one: a left effusion is part of bilateral effusions. It is not if it
    # is more significant, as a large nodule beside small ones is.
    for _, i, j, _ in pairs:
        excess = SIGNIFICANCE_WEIGHTS[their_levels[j]] - SIGNIFICANCE_WEIGHTS[our_levels[i]]
        if j not in of_theirs and excess <= 0 and _covers(ours[i], theirs[j]):
            of_theirs[j] = of_ours[i]
            groups[of_ours[i]][1].append(j)
        elif i not in of_ours and excess >= 0 and _covers(theirs[j], ours[i]):
            of_ours[i] = of_theirs[j]
            groups[of_theirs[j]][0].append(i)
    return groups


def _relation(reference: Finding, candidate: Finding, patient: Patient) -> Relation | None:
    """Return the closest relation between two findings of one organ, or between their alternatives."""
    if organs_differ(reference.organ, candidate.organ):
        # Concepts of two organs may be related: a lucency of the lung is a pneumothorax.
        usual = all(finding.organ == finding_organ(finding.concept, None) for finding in (reference, candidate))
        if reference.concept == candidate.concept or not usual:
            return None
    if OTHER in (reference.concept, candidate.concept):
        return open_relation(reference, candidate)
    graph = concept_graph()
    best = graph.relation(reference.concept, candidate.concept, patient)
    if 0 < max(len(reference.alternatives), len(candidate.alternatives)) <= _MOST_ALTERNATIVES:
        for ours in (reference.concept, *reference.alternatives):
            for theirs in (candidate.concept, *candidate.alternatives):
                found = graph.relation(ours, theirs, patient)
                if found is not None and (best is None or found.distance < best.distance):
                    best = found
    return best


def _levels_conflict(reference: Attributes, candidate: Attributes) -> bool:
    ours, theirs = LUNG_LEVELS.intersection(reference.location), LUNG_LEVELS.intersection(candidate.location)
    return bool(ours) and bool(theirs) and ours.isdisjoint(theirs)


def _apart(reference: Finding, candidate: Finding, relation: Relation) -> bool:
    """Whether two mentions of related concepts are different findings."""
    ours, theirs = reference.attributes, candidate.attributes
    if {ours.device_position, theirs.device_position} == {"satisfactory", "malpositioned"}:
        return True
    opposite = {ours.laterality, theirs.laterality} == {"left", "right"}
    conflict = _levels_conflict(ours, theirs)
    # An opacity is an atelectasis only in the same place.
    is_other = relation.kind in ("unspecific", "overinterpretation") and not is_nodule(candidate)
    if is_other and (opposite or conflict):
        return True
    # Of several nodules, the stated place is that of the largest.
    if opposite and conflict and not (is_nodule(candidate) and "multiple" in (ours.extent, theirs.extent)):
        return True
    densities = {density(reference), density(candidate)}
    # Of several nodules, some may be calcified.
    if ours.extent == "multiple" or "calcified" not in densities:
        return False
    return "ground_glass" in densities or (opposite and len(densities) > 1)


def _cost(reference: Finding, candidate: Finding, relation: Relation) -> float:
    ours, theirs = reference.attributes, candidate.attributes
    cost = _STEP * relation.distance + _SEVERITY * severity_steps(ours, theirs)
    if sides_conflict(ours, theirs):
        cost += _ONE_OF_BOTH if "bilateral" in (ours.laterality, theirs.laterality) else _OPPOSITE
    if ours.location and theirs.location and set(ours.location).isdisjoint(theirs.location):
        cost += _PLACE
    if density(reference) != density(candidate):
        cost += _DENSITY
    if ours.size_mm and theirs.size_mm:
        # Of several nodules, those of nearly the same size are the same.
        cost += _SIZE * abs(ours.size_mm - theirs.size_mm) / max(ours.size_mm, theirs.size_mm)
    return cost


def _covers(whole: Finding, part: Finding) -> bool:
    """Whether a mention of several findings may include another mention."""
    ours, theirs = whole.attributes, part.attributes
    several = ours.extent in ("multiple", "diffuse") or _is_plural(whole.text)
    # The place that is stated with a size is that of the largest one.
    of_largest = several and ours.size_mm is not None
    return (
        (whole.concept == part.concept or (is_nodule(whole) and is_nodule(part)))
        and (ours.laterality == "bilateral" or several)
        and ours.laterality in (None, "bilateral", theirs.laterality)
        and (of_largest or not ours.location or set(theirs.location) <= set(ours.location))
        and (of_largest or all(is_among(place, stated_places(ours)) for place in stated_places(theirs)))
        and (theirs.size_mm is None or theirs.size_mm <= (ours.size_mm or _SMALL_PART))
    )


def _is_plural(text: str) -> bool:
    """Whether a mention ends in a plural: "nodules", "bullae", and not "atelectasis" or "pneumothorax"."""
    return text.lower().endswith(_PLURALS) and not text.lower().endswith(_SINGULARS)
