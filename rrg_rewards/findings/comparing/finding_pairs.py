"""Pairs of findings of two reports: how they are related, whether they may be one finding, and how much they differ."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from rrg_rewards.findings.comparing.attribute_errors import (
    bones,
    density,
    is_among,
    is_nodule,
    levels_conflict,
    severity_steps,
    sides_conflict,
    stated_places,
)
from rrg_rewards.findings.comparing.profiles import Profile, get_profile
from rrg_rewards.findings.knowledge.concepts import SAME, Relation, concept_graph, finding_organ, organs_differ
from rrg_rewards.findings.reading.finding import OTHER, Finding, is_plural
from rrg_rewards.findings.reading.tokens import tokenise
from rrg_rewards.findings.reading.wordings import lesion_bits, opposite_bits, relating_words, wording

# Costs of a match: each step between the concepts, and differences in side, location, density, severity and size.
_STEP, _OPPOSITE, _ONE_OF_BOTH, _PLACE, _DENSITY, _SEVERITY, _SIZE = 4.0, 3.0, 1.0, 2.0, 1.0, 0.25, 0.5
# Cost of a difference in change; it only decides between matches that are equal otherwise.
_CHANGE = 1 / 64

# Kinds of bones that are told apart.
_BONES = {("rib",), ("vertebra",)}
# Number of sentences between a diagnosis and its signs.
_NEAR = 2

# Findings with more alternatives are matched by their concept only, so that listing many diagnoses gains nothing.
_MOST_ALTERNATIVES = 1
# Relations of open findings in similar words, in wider words and in narrower words.
_SIMILAR = Relation("descriptor", 1, significant=False)
_WIDER = Relation("unspecific", 2, significant=True)
_NARROWER = Relation("overinterpretation", 2, significant=False)
# A finding of an organ of which the reference says no more than that it is abnormal.
_GUESS = Relation("overinterpretation", 3, significant=True)


def relation_of(
    reference: Finding,
    candidate: Finding,
    considered: frozenset[str] = frozenset(),
    profile: str | Profile = "published",
) -> Relation | None:
    """Return the closest relation between two findings of one organ, or between their alternatives.

    Args:
        reference: Finding of the reference.
        candidate: Finding of the candidate.
        considered: Alternatives that the reference names of any finding. Reports attach a cause of several findings to
            different ones of them.
        profile: Profile, or its name.
    """
    if OTHER in (reference.concept, candidate.concept):
        return None if _are_elsewhere(reference, candidate) else _open_relation(reference, candidate)
    # The concepts are compared first, because those of most pairs are unrelated.
    relation = _named_relation(reference, candidate, considered, get_profile(profile))
    return None if relation is None or _are_elsewhere(reference, candidate) else relation


def _are_elsewhere(reference: Finding, candidate: Finding) -> bool:
    """Whether the organs of two findings tell them apart; a lucency of the lung may be a pneumothorax."""
    return organs_differ(reference.organ, candidate.organ) and (
        reference.concept == candidate.concept
        or any(finding.organ != finding_organ(finding.concept, None) for finding in (reference, candidate))
    )


def _named_relation(
    reference: Finding, candidate: Finding, considered: frozenset[str], profile: Profile
) -> Relation | None:
    """Return the closest relation between the concepts of two findings, or between their alternatives.

    A candidate that names an alternative which the reference does not name hedges: a significant error of certainty.
    """
    direct = profile.relation(reference.concept, candidate.concept)
    if not (reference.alternatives or candidate.alternatives):
        return direct and _worded_relation(reference, candidate, direct)
    ours, theirs = ((finding.concept, *finding.alternatives) for finding in (reference, candidate))
    pairs = product(ours, theirs) if max(len(ours), len(theirs)) <= 1 + _MOST_ALTERNATIVES else ()
    relations = filter(None, [direct, *(profile.relation(*pair) for pair in pairs)])
    best = min(relations, key=lambda relation: relation.distance, default=None)
    if best is None or not candidate.alternatives:
        return best
    named = {concept for known in considered.union(ours) for concept in (known, *concept_graph().wider(known))}
    if named.issuperset(theirs):
        return best
    return direct if direct and direct.significant else Relation("certainty", 1 + best.distance, significant=True)


def _worded_relation(reference: Finding, candidate: Finding, relation: Relation) -> Relation:
    """Return the relation that the words of one of two mentions make, or else the one of their concepts.

    Example:
        >>> from rrg_rewards.findings import extract_findings
        >>> texts = ("Infiltrate in the left lung.", "Pneumonia in the left lung.")
        >>> first, second = (extract_findings(text)[0] for text in texts)
        >>> _worded_relation(first, second, concept_graph().relation(first.concept, second.concept)).significant
        False
    """
    worded = relating_words()
    for named, other in ((reference, candidate), (candidate, reference)):
        if (named.concept, other.concept) not in worded:
            continue
        words, is_diagnosis = worded[named.concept, other.concept]
        if not any(words[word] for word in tokenise(named.text)) or any(words[word] for word in tokenise(other.text)):
            continue
        if is_diagnosis:
            return Relation("unspecific" if named is reference else "overinterpretation", 1, significant=True)
        return replace(relation, distance=1, significant=False)
    return relation


def _open_relation(reference: Finding, candidate: Finding) -> Relation | None:
    """Return the relation of two findings of which at least one is open, or ``None`` if they are unrelated.

    Findings in one organ are related if they share a word that says what is abnormal. If an organ is unknown, they have
    to share most words, and if only one is, more than one. A word for any abnormality, such as "irregularity", is wider
    than any finding of the organ.

    Args:
        reference: Finding of the reference.
        candidate: Finding of the candidate. Their organs may not differ.

    Example:
        >>> def finding(*words):
        ...     return Finding("other_finding", "present", 0, 0, 0, "", organ="liver", words=words)
        >>> _open_relation(finding("low", "density"), finding("hypodense", "focus")).kind
        'descriptor'
        >>> _open_relation(finding("low", "density"), finding("high", "density")) is None
        True
    """
    if reference.words and reference.words == candidate.words:
        return SAME
    ours, theirs = wording(_words(reference)), wording(_words(candidate))
    for first, second in opposite_bits():
        if {ours.heads & (first | second), theirs.heads & (first | second)} == {first, second}:
            return None
    shared = (ours.heads & theirs.heads).bit_count() + len(ours.stems & theirs.stems)
    if reference.organ is None or candidate.organ is None:
        fewest = min(said.heads.bit_count() + len(said.stems) for said in (ours, theirs))
        return _SIMILAR if shared > (reference.organ != candidate.organ) and 2 * shared > fewest else None
    if shared:
        return _SIMILAR
    # "Abnormality" is wider than a "shadow" that is said to be an opacity.
    is_vague = theirs.is_general and not theirs.heads
    if ours.is_general and theirs.is_general and not (is_vague and ours.heads & lesion_bits()):
        return _SIMILAR
    if ours.is_general and theirs.heads & lesion_bits():
        return _NARROWER
    is_here = reference.organ == candidate.organ
    if theirs.is_general and (ours.heads & lesion_bits() or (is_here and not theirs.heads & lesion_bits())):
        return _WIDER
    return _GUESS if ours.is_general and is_here and not ours.heads & lesion_bits() else None


def _words(finding: Finding) -> tuple[str, ...]:
    if finding.words:
        return finding.words
    # The "disease" in the name of a concept does not make a mention vague.
    named = [word for word in finding.concept.split("_") if not wording((word,)).is_general]
    return (*tokenise(finding.text), *named)


def are_apart(
    reference: Finding, candidate: Finding, relation: Relation, weights: tuple[float, float], profile: Profile
) -> bool:
    """Whether two mentions of related concepts, with the weights of their significance, are different findings."""
    ours, theirs = reference.attributes, candidate.attributes
    # A tortuous aorta is no aneurysm.
    if weights[0] > weights[1] == 0 and relation.kind == "descriptor":
        return True
    # An enlarged node is invented beside a normal one.
    sizes = [side.size_mm for side in (ours, theirs) if side.size_mm is not None]
    if weights[1] > weights[0] == 0 and len(sizes) == 2 and sizes[1] >= profile["far_larger"] * sizes[0]:
        return True
    if {ours.device_position, theirs.device_position} == {"satisfactory", "malpositioned"}:
        return True
    if profile["bones_apart"] and {*map(tuple, (bones(side.location, profile) for side in (ours, theirs)))} == _BONES:
        return True
    opposite = {ours.laterality, theirs.laterality} == {"left", "right"}
    # An opacity is an atelectasis only in the same place.
    is_other = relation.kind in ("unspecific", "overinterpretation") and not is_nodule(candidate)
    if is_other and (opposite or levels_conflict(ours, theirs)):
        return True
    densities = {density(reference), density(candidate)}
    # Of several nodules, some may be calcified.
    if ours.extent == "multiple" or "calcified" not in densities:
        return False
    return "ground_glass" in densities or (profile["opposite_densities"] and opposite and len(densities) > 1)


def match_cost(reference: Finding, candidate: Finding, relation: Relation) -> float:
    """Return how much two related findings differ: in concept, side, place, density, severity, size and change."""
    ours, theirs = reference.attributes, candidate.attributes
    cost = _STEP * relation.distance + _SEVERITY * severity_steps(ours, theirs)
    if sides_conflict(ours, theirs):
        cost += _ONE_OF_BOTH if "bilateral" in (ours.laterality, theirs.laterality) else _OPPOSITE
    if ours.location and theirs.location and set(ours.location).isdisjoint(theirs.location):
        cost += _PLACE
    if density(reference) != density(candidate):
        cost += _DENSITY
    if ours.change != theirs.change:
        cost += _CHANGE
    if ours.size_mm and theirs.size_mm:
        # Of several nodules, those of nearly the same size are the same.
        cost += _SIZE * abs(ours.size_mm - theirs.size_mm) / max(ours.size_mm, theirs.size_mm)
    return cost


def covers(whole: Finding, part: Finding, profile: Profile) -> bool:
    """Whether a mention of several findings, or of several possible diagnoses, may include another mention."""
    if not profile["several_in_one"]:
        return False
    ours, theirs = whole.attributes, part.attributes
    if part.concept in whole.alternatives and theirs.certainty:
        return True
    several = ours.extent in ("multiple", "diffuse") or is_plural(whole.text)
    # The place that is stated with a size is that of the largest one.
    of_largest = several and ours.size_mm is not None
    return (
        (whole.concept == part.concept or (is_nodule(whole) and is_nodule(part)))
        and (ours.laterality == "bilateral" or several)
        and ours.laterality in (None, "bilateral", theirs.laterality)
        and (of_largest or not ours.location or set(theirs.location) <= set(ours.location))
        and (of_largest or all(is_among(place, stated_places(ours)) for place in stated_places(theirs)))
        and (theirs.size_mm is None or theirs.size_mm <= (ours.size_mm or profile["small_part"]))
    )


def is_sign(finding: Finding, diagnosis: Finding, signs: Mapping[str, Sequence[str]], reach: int = _NEAR) -> bool:
    """Whether a mention names a finding again, or describes one beside it by a wider name or a sign, in its place.

    Args:
        finding: The mention.
        diagnosis: The finding.
        signs: Signs of diagnoses, by their concepts.
        reach: Number of sentences between a diagnosis and its signs; 0 for a reference, of which an open finding is one
            of its own.
    """
    ours, theirs = finding.attributes, diagnosis.attributes
    if finding.concept == diagnosis.concept:
        # Lesions with a size, and nodules, are counted.
        if finding.concept == OTHER or is_nodule(finding) or (ours.size_mm and theirs.size_mm):
            return False
    elif not _describes(finding, diagnosis, signs, reach):
        return False
    return not sides_conflict(ours, theirs) and not levels_conflict(ours, theirs)


def _describes(finding: Finding, diagnosis: Finding, signs: Mapping[str, Sequence[str]], reach: int) -> bool:
    """Whether a mention near a diagnosis of another concept is a wider name, a sign, or an open finding of it."""
    distance = abs(finding.sentence - diagnosis.sentence)
    if finding.concept == OTHER:
        if organs_differ(finding.organ, diagnosis.organ):
            return False
        # In the candidate: "appendagitis, with an inflamed fat lobule beside the colon"
        if reach and distance == 0 and finding.organ is not None and finding.organ == diagnosis.organ:
            return True
    if distance <= reach and finding.concept in signs.get(diagnosis.concept, ()):
        return True
    return distance <= _NEAR and finding.concept in concept_graph().implied(diagnosis.concept)
