"""Compare two reports finding by finding: matched, false and missing findings, and attribute errors of matches."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial, reduce
from itertools import chain, permutations, product
from operator import itemgetter
from typing import Any

from rrg_rewards.findings.comparing.attribute_errors import (
    AttributeDiscrepancy,
    attribute_discrepancies,
    levels_conflict,
    sides_conflict,
    stated_places,
)
from rrg_rewards.findings.comparing.finding_pairs import are_apart, covers, is_sign, match_cost, relation_of
from rrg_rewards.findings.comparing.profiles import Profile, get_profile
from rrg_rewards.findings.comparing.significance import SIGNIFICANCE_LEVELS, clinical_significance
from rrg_rewards.findings.knowledge.concepts import Relation
from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.knowledge.patient import Patient
from rrg_rewards.findings.reading.coverage import Coverage
from rrg_rewards.findings.reading.engine import FindingEngine, get_engine
from rrg_rewards.findings.reading.finding import Attributes, Finding
from rrg_rewards.findings.reading.merge_mentions import abnormal_findings
from rrg_rewards.schemas.errors import SIGNIFICANCE_WEIGHTS

# Findings of a report after this number match nothing, because the number of pairs grows with its square. Reports of
# patients contain fewer than a hundred.
_MOST_FINDINGS = 300
# Number of times that all matches are considered for an exchange; a few suffice for reports of patients.
_MOST_EXCHANGES = 8
# Number of references whose findings are remembered, because a reinforcement learner compares each with several
# candidates.
_REFERENCES = 1_024
# Number of candidates whose findings are remembered, because a reward above chance compares each with many references.
_CANDIDATES = 16
# Number of findings whose significance is remembered: those of some hundred references and a batch of candidates.
_FINDINGS = 1 << 13


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
        reference_coverage: How much of the reference was read; ``None`` if its findings were given. Not compared.
        candidate_coverage: How much of the candidate was read; ``None`` if its findings were given. Not compared.
    """

    reference: tuple[Finding, ...]
    candidate: tuple[Finding, ...]
    reference_significance: tuple[str, ...]
    candidate_significance: tuple[str, ...]
    matches: tuple[FindingMatch, ...]
    false: tuple[int, ...]
    missing: tuple[int, ...]
    reference_coverage: Coverage | None = field(default=None, compare=False, repr=False)
    candidate_coverage: Coverage | None = field(default=None, compare=False, repr=False)

    def explain(self) -> list[str]:
        """Return one line for each error of the candidate, with character offsets in the reports.

        Example:
            >>> for line in compare_findings("Small left effusion.", "Large left effusion. Emphysema.").explain():
            ...     print(line)
            false: 'Emphysema' (candidate 21-30), not_actionable_not_urgent
            severity (significant): severe for mild: 'effusion' (candidate 11-19) for 'effusion' (reference 11-19)
        """
        ours = [f"{found.text!r} (reference {found.start}-{found.end})" for found in self.reference]
        theirs = [f"{found.text!r} (candidate {found.start}-{found.end})" for found in self.candidate]
        lines = [f"missing: {ours[i]}, {self.reference_significance[i]}" for i in self.missing]
        lines += [f"false: {theirs[i]}, {self.candidate_significance[i]}" for i in self.false]
        for match in self.matches:
            pair = f"{', '.join(theirs[i] for i in match.candidate)} for {', '.join(ours[i] for i in match.reference)}"
            for error in match.discrepancies:
                level = "significant" if error.significant else "negligible"
                lines.append(f"{error.type} ({level}): {error.explanation}: {pair}")
        return lines


def compare_findings(
    reference: str | Sequence[Finding],
    candidate: str | Sequence[Finding],
    context: Mapping[str, Any] | None = None,
    open_findings: bool = False,
    profile: str | Profile = "published",
) -> FindingComparison:
    """Compare two reports finding by finding.

    Findings match if their concepts are equal or if one concept is a kind of the other, and if they are in one organ.
    Open findings, which no concept names, match by organ and words. The closest pairs match first. Findings on opposite
    sides or in different lobes match with an error. They do not match if one is a well placed device and the other a
    malpositioned one, if one is wider than the other and in another place, or if the candidate's is benign, the
    reference's is not, and their names are only similar. A bilateral finding matches one finding on each side, and
    several nodules match each nodule that is neither larger nor more significant. A wider name of a matched finding
    beside it belongs to the match, and so do the signs of its diagnosis (``signs`` in ``knowledge/concepts.yaml``), in
    the reference only if one sentence states both, the diagnosis is not in doubt, and they are no ``complications``. A
    candidate that describes signs of the reference's diagnosis without naming it matches with a significant error. A
    normal structure, such as a small node, does not match one of at least one and a half times its size that is
    abnormal. Of each report, only the first 300 findings match.

    Args:
        reference: Reference report, or its findings.
        candidate: Candidate report, or its findings.
        context: ``age`` and ``indication`` of the patient, both optional.
        open_findings: Whether to compare also the abnormal statements of report texts that name no known concept; see
            :func:`rrg_rewards.findings.extract_findings`.
        profile: What is convention: the rules above, ``"published"``; ``"ct"``, a written convention for chest CT; or
            the path of a YAML file, as ``docs/crimson.md`` explains.

    Raises:
        TypeError: If a report is neither a string nor a sequence of findings.
        SettingError: If the profile is unknown or invalid.

    Example:
        >>> found = compare_findings("Bilateral effusions.", "Left effusion. Right effusion. Cardiomegaly.")
        >>> [(match.reference, match.candidate, match.discrepancies) for match in found.matches], found.false
        ([((0,), (0, 1), ())], (2,))
    """
    ours, our_coverage = _findings("reference", reference, open_findings)
    theirs, their_coverage = _findings("candidate", candidate, open_findings)
    patient, profile = Patient.from_context(context), get_profile(profile)
    significance = partial(clinical_significance, patient=patient, profile=profile)
    ours, theirs = _joined(ours, theirs, patient, profile), _joined(theirs, ours, patient, profile)
    levels = [
        tuple([_finding_significance(finding, patient, profile) for finding in report]) for report in (ours, theirs)
    ]
    groups = _groups(ours, theirs, levels, profile) if ours and theirs else []
    matches = []
    for of_ours, of_theirs, relation in groups:
        here = _in_patient(relation, ours[of_ours[0]], theirs[of_theirs[0]], patient, profile)
        united = _united([ours[i] for i in of_ours]), _united([theirs[j] for j in of_theirs])
        errors = attribute_discrepancies(*united, here, significance, profile)
        matches.append(FindingMatch(tuple(of_ours), tuple(of_theirs), tuple(errors)))
    return FindingComparison(
        reference=ours,
        candidate=theirs,
        reference_significance=levels[0],
        candidate_significance=levels[1],
        matches=tuple(matches),
        false=_rest(theirs, chain.from_iterable(group[1] for group in groups)),
        missing=_rest(ours, chain.from_iterable(group[0] for group in groups)),
        reference_coverage=our_coverage,
        candidate_coverage=their_coverage,
    )


def _in_patient(
    relation: Relation, reference: Finding, candidate: Finding, patient: Patient, profile: Profile
) -> Relation:
    """Return the relation of two matched findings, of which the patient's context may say whether it is significant."""
    pair = {reference.concept, candidate.concept}
    for row in profile.matches if patient.contexts else ():
        is_of_both = not pair.isdisjoint(row["of"]) and pair <= {*row["of"], *row["with"]}
        if row.get("context") in patient.contexts and is_of_both:
            return replace(relation, significant=row["as"] == "significant")
    return relation


def _read(engine: FindingEngine, report: str) -> tuple[tuple[Finding, ...], Coverage]:
    reading = engine.read(report)
    return tuple(abnormal_findings(report, reading.findings)), reading.coverage


_read_reference = lru_cache(maxsize=_REFERENCES)(_read)
_read_candidate = lru_cache(maxsize=_CANDIDATES)(_read)


def _findings(
    name: str, report: str | Sequence[Finding], open_findings: bool
) -> tuple[tuple[Finding, ...], Coverage | None]:
    """Return the abnormal findings of a report, and how much of it was read if it is a text."""
    if isinstance(report, str):
        read = _read_reference if name == "reference" else _read_candidate
        return read(get_engine("chest", open_findings), report)
    findings: tuple[Finding, ...] = tuple(report) if isinstance(report, Iterable) else (report,)
    if not all(isinstance(finding, Finding) for finding in findings):
        raise TypeError(f"{name} must be a report text or a list of findings, got {type(report).__name__}")
    return findings, None


def _rest(findings: Sequence[Finding], taken: Iterable[int]) -> tuple[int, ...]:
    """Return the indices of the findings that are not taken."""
    gone = set(taken)
    return tuple([i for i in range(len(findings)) if i not in gone])


def _joined(
    findings: tuple[Finding, ...], others: Sequence[Finding], patient: Patient, profile: Profile
) -> tuple[Finding, ...]:
    """Return the findings of a report with those that are part of another one joined to it.

    The part stands for both if only the part is among the findings of the other report, and is no less significant.
    """
    parts, restated = profile["parts"], profile["restated"]
    owners: dict[int, int] = {}
    for i, j in permutations(range(min(len(findings), _MOST_FINDINGS)), 2) if parts or restated else ():
        whole, part = findings[i], findings[j]
        is_part = part.sentence == whole.sentence and part.concept in parts.get(whole.concept, ())
        if (
            {i, j}.isdisjoint(owners)
            and (is_part or part.concept in restated.get(whole.concept, ()))
            and not sides_conflict(whole.attributes, part.attributes)
            and not levels_conflict(whole.attributes, part.attributes)
        ):
            told = [any(profile.relation(one.concept, other.concept) for other in others) for one in (whole, part)]
            levels = [SIGNIFICANCE_LEVELS.index(_finding_significance(one, patient, profile)) for one in (whole, part)]
            owner, owned = (j, i) if told == [False, True] and levels[1] >= levels[0] else (i, j)
            owners.setdefault(owned, owner)
    joined = {i: [finding] for i, finding in enumerate(findings) if i not in owners}
    for j, i in owners.items():
        joined.get(i, []).append(findings[j])
    return tuple(_united(group) for group in joined.values())


def _united(findings: Sequence[Finding]) -> Finding:
    """Combine mentions into one finding of the largest size; a left and a right one make a bilateral finding."""
    if len(findings) == 1:
        return findings[0]
    sides = {finding.attributes.laterality for finding in findings}
    attributes = reduce(Attributes.filled, (finding.attributes for finding in findings))
    location = dict.fromkeys(place for finding in findings for place in finding.attributes.location)
    side = "bilateral" if {"left", "right"} <= sides or "bilateral" in sides else attributes.laterality
    places = tuple(place for finding in findings for place in stated_places(finding.attributes))
    is_several = side != "bilateral" and any(finding.concept == findings[0].concept for finding in findings[1:])
    united = attributes._replace(
        laterality=side,
        extent=attributes.extent or ("multiple" if is_several else None),
        location=tuple(location),
        size_mm=max(filter(None, (finding.attributes.size_mm for finding in findings)), default=None),
        places=places if side == "bilateral" and None not in sides else (),
    )
    return findings[0]._replace(attributes=united)


def _groups(
    ours: Sequence[Finding], theirs: Sequence[Finding], levels: Sequence[Sequence[str]], profile: Profile
) -> list[tuple[list[int], list[int], Relation]]:
    """Return the groups of matched findings, as indices in both reports, and the relation of their concepts."""
    doubted = [finding.concept for finding in ours if finding.presence == "uncertain"]
    considered = frozenset([*doubted, *(concept for finding in ours for concept in finding.alternatives)])
    # Further findings do not match.
    ours, theirs = ours[:_MOST_FINDINGS], theirs[:_MOST_FINDINGS]
    our_weights, their_weights = weights = [[SIGNIFICANCE_WEIGHTS[level] for level in report] for report in levels]
    pairs = _priced_pairs(ours, theirs, weights, considered, profile)
    partners = _assignment({(i, j): cost for cost, i, j, _ in pairs})
    groups = [([i], [j], relation) for _, i, j, relation in pairs if partners.get(i) == j]
    of_ours = {group[0][0]: k for k, group in enumerate(groups)}
    of_theirs = {group[1][0]: k for k, group in enumerate(groups)}
    # An unmatched finding may be part of a matched one: a left effusion is part of bilateral effusions. It is not if it
    # is more significant, as a large nodule beside small ones is.
    for _, i, j, _ in pairs:
        excess = their_weights[j] - our_weights[i]
        if j not in of_theirs and excess <= 0 and covers(ours[i], theirs[j], profile):
            of_theirs[j] = of_ours[i]
            groups[of_ours[i]][1].append(j)
        elif i not in of_ours and excess >= 0 and covers(theirs[j], ours[i], profile):
            of_ours[i] = of_theirs[j]
            groups[of_theirs[j]][0].append(i)
    # A wrong diagnosis explains nothing.
    right = [group for group in groups if not group[2].significant]
    _add_signs(ours, [group[0] for group in right], _rest(ours, of_ours), our_weights, _is_contained)
    signs = load_knowledge("concepts")["signs"]
    stated = [group[1] for group in right]
    _add_signs(theirs, stated, _rest(theirs, of_theirs), their_weights, partial(is_sign, signs=signs))
    # A candidate that describes the signs of the reference's diagnosis invents none of them.
    for (i, *_), shown, relation in groups:
        is_stated = profile.relates(ours[i].concept, theirs[shown[0]].concept)
        if relation.kind in ("unspecific", "severity") and (relation.significant or is_stated):
            shown += [
                j
                for j in _rest(theirs, chain.from_iterable(group[1] for group in groups))
                if their_weights[j] <= our_weights[i]
                and is_sign(theirs[j], ours[i]._replace(sentence=theirs[j].sentence), signs)
            ]
    return groups


def _is_contained(finding: Finding, diagnosis: Finding) -> bool:
    """Whether a finding of the reference is a part of a diagnosis: a wider name, or a sign that no doubt leaves open.

    Complications, and signs in other sentences, are findings of their own.
    """
    signs = _contained_signs() if diagnosis.presence == "present" else {}
    return is_sign(finding, diagnosis, signs, reach=0)


@cache
def _contained_signs() -> dict[str, list[str]]:
    """Return the signs of each diagnosis without complications: heart failure contains no effusion."""
    knowledge = load_knowledge("concepts")
    complications = set(knowledge["complications"])
    return {
        diagnosis: [sign for sign in of_it if sign not in complications]
        for diagnosis, of_it in knowledge["signs"].items()
    }


def _priced_pairs(
    ours: Sequence[Finding],
    theirs: Sequence[Finding],
    weights: Sequence[Sequence[float]],
    considered: frozenset[str],
    profile: Profile,
) -> list[tuple[float, int, int, Relation]]:
    """Return the pairs of findings that may match, the cheapest first: cost, indices in both reports, and relation."""
    pairs = []
    for i, j in product(range(len(ours)), range(len(theirs))):
        reference, candidate = ours[i], theirs[j]
        relation = relation_of(reference, candidate, considered, profile)
        if relation and not are_apart(reference, candidate, relation, (weights[0][i], weights[1][j]), profile):
            pairs.append((match_cost(reference, candidate, relation), i, j, relation))
    return sorted(pairs, key=itemgetter(0, 1, 2))


def _assignment(costs: Mapping[tuple[int, int], float]) -> dict[int, int]:
    """Return the candidate's finding of each matched one of the reference, from the costs of pairs in ascending order.

    The cheapest pairs match first. Then two matches are exchanged, or one is replaced by two, as long as that matches
    more findings or costs less.

    Example:
        >>> sorted(_assignment({(0, 0): 1.0, (0, 1): 1.5, (1, 0): 1.5, (2, 2): 2.0}).items())
        [(0, 1), (1, 0), (2, 2)]
    """
    partners: dict[int, int] = {}
    owners: dict[int, int] = {}
    rows = defaultdict(list)
    contested = []
    for i, j in costs:
        if i not in partners and j not in owners:
            partners[i], owners[j] = j, i
        else:
            contested.append((i, j))
            rows[j].append(i)
    for _ in range(_MOST_EXCHANGES):
        before = dict(partners)
        for i, j in contested:
            old = partners.get(i, j)
            k = owners[j] if j in owners else next((row for row in rows[old] if row not in partners), -1)
            if (
                old != j
                and (k, old) in costs
                and (j not in owners or costs[i, j] + costs[k, old] < costs[i, old] + costs[k, j])
            ):
                partners.update({i: j, k: old})
                owners.update({j: i, old: k})
        if partners == before:
            break
    return partners


def _add_signs(
    findings: Sequence[Finding],
    groups: Sequence[list[int]],
    unmatched: Sequence[int],
    weights: Sequence[float],
    belongs: Callable[[Finding, Finding], bool],
) -> None:
    """Add each unmatched finding that belongs to a matched one to its group, unless it is more significant."""
    for k in unmatched:
        for group in groups:
            if any(weights[k] <= weights[m] and belongs(findings[k], findings[m]) for m in group):
                group.append(k)
                break


@lru_cache(maxsize=_FINDINGS)
def _finding_significance(finding: Finding, patient: Patient, profile: Profile) -> str:
    """Return the greatest clinical significance of a finding's concept and of its alternatives.

    Example:
        >>> hedge = Finding("granuloma", "present", 0, 9, 0, "granuloma", alternatives=("pneumonia",))
        >>> _finding_significance(hedge, Patient(), get_profile("published"))
        'actionable_not_urgent'
    """
    named = (finding.concept, *finding.alternatives)
    attributes, words, text = finding.attributes, finding.words, finding.text
    levels = [clinical_significance(concept, attributes, patient, words, text, profile) for concept in named]
    return max(levels, key=SIGNIFICANCE_LEVELS.index)
