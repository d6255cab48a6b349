"""Attribute errors of a matched finding: CRIMSON's eight types, significant or negligible."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf

from rrg_rewards.findings.comparing.profiles import Profile, get_profile
from rrg_rewards.findings.knowledge.concepts import Relation
from rrg_rewards.findings.knowledge.load import cue_words, load_knowledge
from rrg_rewards.findings.reading.finding import LUNG_LEVELS, Attributes, Finding, Place
from rrg_rewards.findings.reading.merge_mentions import is_countable

_SEVERITIES = {"minimal": 0, "mild": 1, "moderate": 2, "severe": 3}
# Number of vertebrae above the first one of each part of the spine.
_SPINE = {"c": 0, "t": 7, "l": 19}

Significance = Callable[[str, Attributes], str]


@dataclass(frozen=True, slots=True)
class AttributeDiscrepancy:
    """A difference in an attribute of a finding that both reports contain.

    Args:
        type: One of ``rrg_rewards.schemas.ATTRIBUTE_ERROR_TYPES``.
        significant: Whether the difference could change the management of the patient.
        explanation: Description of the difference.
    """

    type: str
    significant: bool
    explanation: str


def severity_steps(reference: Attributes, candidate: Attributes) -> int:
    """Return the number of steps between two severities, or 0 if one of them is not stated."""
    if reference.severity is None or candidate.severity is None:
        return 0
    return abs(_SEVERITIES[reference.severity] - _SEVERITIES[candidate.severity])


def sides_conflict(reference: Attributes, candidate: Attributes) -> bool:
    """Whether both findings have a stated side and the sides differ."""
    return None not in (reference.laterality, candidate.laterality) and reference.laterality != candidate.laterality


def attribute_discrepancies(
    reference: Finding,
    candidate: Finding,
    relation: Relation,
    significance: Significance,
    profile: str | Profile = "published",
) -> list[AttributeDiscrepancy]:
    """Return the attribute errors of a candidate's finding.

    An attribute that one of the reports does not state is not an error, with two exceptions: a change since an earlier
    examination; and a candidate that states neither side, degree nor location, which is unspecific, a significant
    error, if the reference states side and degree.

    - Location: the other side, a lobe that is not adjacent, or another bone is significant. An adjacent lobe and
      another location within the same lobe are negligible; the two lobes of the left lung are adjacent. One side of
      both is significant for the concepts of ``each_side``. A match has at most one error of location.
    - Density of nodules: two different ones are significant. One that a report leaves open is significant if it changes
      the clinical significance.
    - Severity: a difference is significant if it is at least two steps (small and large) or changes the clinical
      significance. Minimal and mild are one degree in different words. Focal instead of diffuse, and one lesion instead
      of several, are significant, and so is the reverse.
    - Measurement: of nodules and masses, a difference is significant above 2 mm if the reference's size is below 6 mm,
      above 4 mm below 3 cm, and above 20 % of the reference's size from 3 cm, where a mass begins. A mass instead of a
      nodule, and a nodule instead of a mass, are significant. Of other findings, a difference is significant above half
      of the smaller size, of calibers of vessels above a fifth, and of lymph nodes if it changes the clinical
      significance. Other values have margins of their own. A match has at most one error of
      measurement.
    - Change since an earlier examination: "new" or "increased" that the candidate leaves out, adds or replaces is
      significant. Any other difference, such as "stable" left out, is negligible. Acute instead of chronic is
      significant. A match has at most one temporal error.
    - Certainty: possible instead of certain, or the reverse, is significant if the finding is urgent. Other differences
      are negligible.

    Source: Baharoon et al., "CRIMSON", arXiv:2603.06183, Section 3.2, and the prompt of the package ``crimson-score``.
    Rules that neither gives are named in the rows of ``knowledge/profiles/published.yaml``. The above is that profile;
    another one has other settings.

    Args:
        reference: Finding of the reference.
        candidate: Matched finding of the candidate.
        relation: Relation of their concepts.
        significance: Function that returns the clinical significance of a concept with attributes in this patient.
        profile: Profile, or its name.
    """
    profile = get_profile(profile)
    errors: list[AttributeDiscrepancy] = []
    ours, theirs = reference.attributes, candidate.attributes
    measured = ours.size_mm is not None and theirs.size_mm is not None
    # Of two nodules, the words of one may state a cause, as metastasis does.
    is_named = relation.kind != "same" and reference.concept == candidate.concept
    if is_nodule(reference) and is_nodule(candidate) and not is_named:
        errors += _density(reference, candidate, relation, significance, profile)
    elif relation.kind != "same" and not (relation.kind == "descriptor" and measured):
        first, second = (finding.text if is_named else _words([finding.concept]) for finding in (candidate, reference))
        errors.append(AttributeDiscrepancy(relation.kind, relation.significant, f"{first} for {second}"))
    if relation.kind == "same" and profile["bare_candidates"] and _is_bare(ours, theirs):
        explanation = f"{_words([candidate.concept])} without side and degree"
        errors.append(AttributeDiscrepancy("unspecific", True, explanation))
    errors += _most_significant(_location(reference, candidate, profile))
    # Names that state two degrees are one error with the words for these degrees.
    if relation.kind != "severity":
        errors += _severity(reference, candidate, relation, significance, profile)
    errors += _most_significant(_measurement(reference, candidate, significance, profile))
    # A name and a form that contradict the reference's are one error.
    named = bool(errors) and errors[0].type in ("descriptor", "unspecific", "overinterpretation")
    errors += [] if named else _morphology(ours, theirs, profile)
    errors += _most_significant(_temporal(ours, theirs, profile))
    return [*errors, *_certainty(reference, candidate, significance)]


def _most_significant(errors: Iterable[AttributeDiscrepancy]) -> list[AttributeDiscrepancy]:
    """Return the first significant error, or else the first one."""
    return sorted(errors, key=lambda error: not error.significant)[:1]


def is_nodule(finding: Finding) -> bool:
    """Whether the density of a finding is one of its attributes, and not another finding."""
    return finding.concept in load_knowledge("concepts")["density"]["concepts"]


def density(finding: Finding) -> str | None:
    """Return the density of a nodule: ``calcified``, ``ground_glass`` or ``solid``; ``None`` if it is not stated."""
    if not is_nodule(finding):
        return None
    rules = load_knowledge("concepts")["density"]
    stated = (rules["concepts"][finding.concept], *finding.attributes.morphology)
    return next((value for value in rules["values"] if value in stated), None)


def _density(
    reference: Finding, candidate: Finding, relation: Relation, significance: Significance, profile: Profile
) -> Iterator[AttributeDiscrepancy]:
    """Yield the difference in density of two nodules.

    Two stated densities differ significantly. A density that one report leaves open does if the significance differs,
    or if it is one of the ``open_densities``, unless it is that of some nodules only. Several nodules can have several
    densities. A name that states a cause, as granuloma does, is a diagnosis.
    """
    ours, theirs = density(reference), density(candidate)
    if ours == theirs:
        return
    several = reference.attributes.extent == "multiple"
    if not {reference.concept, candidate.concept}.isdisjoint(load_knowledge("concepts")["density"]["diagnoses"]):
        names = f"{_words([candidate.concept])} for {_words([reference.concept])}"
        yield AttributeDiscrepancy(relation.kind, not several, names)
        return
    kind = "unspecific" if theirs is None else "descriptor"
    if None not in (ours, theirs):
        significant = not several
    elif (stated := ours or theirs) in profile["open_densities"]:
        some = f"partly_{stated}"
        significant = all(some not in finding.attributes.morphology for finding in (reference, candidate))
        kind = "descriptor"
    else:
        levels = {
            significance(finding.concept, reference.attributes._replace(morphology=finding.attributes.morphology))
            for finding in (reference, candidate)
        }
        significant = profile["density_levels"] and not several and len(levels) > 1
    yield AttributeDiscrepancy(kind, significant, f"{_words([theirs or 'nodule'])} for {_words([ours or 'nodule'])}")


def _certainty(reference: Finding, candidate: Finding, significance: Significance) -> Iterator[AttributeDiscrepancy]:
    ours, theirs = reference.attributes.certainty, candidate.attributes.certainty
    if ours != theirs:
        levels = [significance(finding.concept, finding.attributes) for finding in (reference, candidate)]
        significant = {ours, theirs} == {None, "possible"} and "urgent" in levels
        yield AttributeDiscrepancy("certainty", significant, f"{theirs or 'certain'} for {ours or 'certain'}")


def _is_bare(ours: Attributes, theirs: Attributes) -> bool:
    """Whether the candidate states neither side, degree nor location although the reference states side and degree."""
    side = ours.laterality is not None
    degree = ours.severity is not None or ours.size_mm is not None
    return side and degree and not (theirs.laterality or theirs.severity or theirs.size_mm or theirs.location)


def _words(values: Iterable[str]) -> str:
    return " and ".join(values).replace("_", " ")


def _location(reference: Finding, candidate: Finding, profile: Profile) -> Iterator[AttributeDiscrepancy]:
    """Yield the differences in place."""
    ours, theirs = reference.attributes, candidate.attributes
    if sides_conflict(ours, theirs):
        # Of a finding on both sides, one side may be the one that matters.
        partly = "bilateral" in (ours.laterality, theirs.laterality)
        is_less = profile["one_of_both"] and ours.laterality == "bilateral"
        significant = not partly or is_less or reference.concept in profile["each_side"]
        yield AttributeDiscrepancy("location", significant, f"{theirs.laterality} for {ours.laterality}")
    if "malpositioned" in (ours.device_position, theirs.device_position):
        if ours.device_position != theirs.device_position:
            stated = f"{theirs.device_position or 'position not stated'} for {ours.device_position or 'not stated'}"
            yield AttributeDiscrepancy("location", True, stated)
    elif ours.places or theirs.places:
        wrong = [place for place in stated_places(ours) if not is_among(place, stated_places(theirs))]
        if wrong:
            # Some of several places are an extent, as one side of both is.
            is_far = not all(any(_touches(place, other, profile) for other in stated_places(theirs)) for place in wrong)
            significant = len(wrong) == len(stated_places(ours)) and is_far
            names = (" ".join((place.laterality, *place.location)) for place in wrong)
            yield AttributeDiscrepancy("location", significant, f"not {_words(names)}")
    elif ours.location and theirs.location and set(ours.location).isdisjoint(theirs.location):
        explanation = f"{_words(theirs.location)} for {_words(ours.location)}"
        significant = _levels_apart(ours, theirs, profile) or _bones_apart(ours.location, theirs.location, profile)
        yield AttributeDiscrepancy("location", significant, explanation)


def stated_places(attributes: Attributes) -> tuple[Place, ...]:
    """Return the places of a finding; one if it is not in several places with different sides."""
    return attributes.places or (Place(attributes.laterality or "bilateral", attributes.location, attributes.size_mm),)


def is_among(place: Place, places: Sequence[Place]) -> bool:
    """Whether a place may be one of several others: on their side, and at their level if both state one."""
    return any(
        (place.laterality == other.laterality or "bilateral" in (place.laterality, other.laterality))
        and not levels_conflict(place, other)
        for other in places
    )


def _touches(place: Place, other: Place, profile: Profile) -> bool:
    """Whether two places are on one side and at levels that touch."""
    return place.laterality == other.laterality and not _levels_apart(place, other, profile)


def levels_conflict(reference: Attributes | Place, candidate: Attributes | Place) -> bool:
    """Whether both findings have a stated level of the lung and the levels differ."""
    ours, theirs = LUNG_LEVELS.intersection(reference.location), LUNG_LEVELS.intersection(candidate.location)
    return bool(ours) and bool(theirs) and ours.isdisjoint(theirs)


def _levels_apart(reference: Attributes | Place, candidate: Attributes | Place, profile: Profile) -> bool:
    """Whether two findings are in lobes of the lung that do not touch: one in the upper, one in the lower.

    The left lung has two lobes, which touch. If ``touching_lobes`` are apart, two lobes are; the lingula, which is
    the middle level of the left lung, is in the upper one.

    Example:
        >>> sides = Place("right", ("upper",)), Place("right", ("lower",)), Place("left", ("upper",))
        >>> [_levels_apart(side, Place(side.laterality, ("lower",)), get_profile("published")) for side in sides]
        [True, False, False]
    """
    if not levels_conflict(reference, candidate):
        return False
    levels, is_left = {*reference.location, *candidate.location}, reference.laterality == candidate.laterality == "left"
    if profile["touching_lobes"]:
        return not is_left or "lower" in levels
    return "middle" not in levels and not is_left


def _bones_apart(ours: Sequence[str], theirs: Sequence[str], profile: Profile) -> bool:
    """Whether two locations are bones that are too far apart to be confused."""
    levels = profile["bone_levels"]
    first, second = bones(ours, profile), bones(theirs, profile)
    return bool(first and second) and not any(
        abs(first[kind] - second[kind]) <= levels.get(kind, 0) for kind in first.keys() & second
    )


def bones(places: Sequence[str], profile: Profile) -> dict[str, int]:
    """Return the kinds of bones in locations, with the number of each."""
    return dict(filter(None, (_bone(place, profile["bones"]) for place in places)))


def _bone(place: str, named: Sequence[str]) -> tuple[str, int] | None:
    """Return the kind and number of a bone: rib 10, vertebra 19 for T12. Return ``None`` for other locations."""
    if place.startswith("rib_"):
        return "rib", int(place[4:])
    if place[1:].isdigit() and place[0] in _SPINE:
        return "vertebra", _SPINE[place[0]] + int(place[1:])
    return (place, 0) if place in named else None


def _severity(
    reference: Finding, candidate: Finding, relation: Relation, significance: Significance, profile: Profile
) -> Iterator[AttributeDiscrepancy]:
    ours, theirs = reference.attributes, candidate.attributes
    steps = severity_steps(ours, theirs)
    if steps:
        levels = {significance(reference.concept, ours._replace(severity=side.severity)) for side in (ours, theirs)}
        # "Slight" and "mild" are one degree in different words.
        is_equal = {ours.severity, theirs.severity} == set(profile["equal_degrees"])
        is_other_level = profile["severity_levels"] and len(levels) > 1
        significant = not is_equal and (steps >= profile["severity_steps"] or is_other_level)
        yield AttributeDiscrepancy("severity", significant, f"{theirs.severity} for {ours.severity}")
    if {ours.extent, theirs.extent} == {"focal", "diffuse"}:
        yield AttributeDiscrepancy("severity", True, f"{theirs.extent} for {ours.extent}")
    elif relation.kind == "same" and is_countable(reference):
        numbers = _number(reference), _number(candidate)
        if set(numbers) == {"focal", "multiple"}:
            yield AttributeDiscrepancy("severity", True, f"{numbers[1]} for {numbers[0]}")


def _number(finding: Finding) -> str | None:
    """Return whether a finding is one lesion or several: its stated extent, or else "focal" for the name of one."""
    attributes = finding.attributes
    if attributes.extent or attributes.laterality == "bilateral" or attributes.places:
        return attributes.extent
    is_one = not cue_words("references", "single").isdisjoint(finding.text.lower().split()[-1:])
    return "focal" if is_one else None


def _measurement(
    reference: Finding, candidate: Finding, significance: Significance, profile: Profile
) -> Iterator[AttributeDiscrepancy]:
    """Yield the differences in size and in other values."""
    ours, theirs = reference.attributes, candidate.attributes
    concept = reference.concept
    other_size = ours._replace(size_mm=theirs.size_mm, short_axis_mm=theirs.short_axis_mm)
    levels = {significance(concept, attributes) for attributes in (ours, other_size)}
    is_other_level = concept in profile["level_sizes"] and len(levels) > 1
    for kind, own, other in _measured(ours, theirs):
        if own != other:
            significant = (kind == "size" and is_other_level) or _values_differ(concept, kind, own, other, profile)
            explanation = f"{other:g} mm for {own:g} mm" if kind == "size" else f"{other:g} for {own:g} ({kind})"
            yield AttributeDiscrepancy("measurement", significant, explanation)
    # "A tiny nodule" is no nodule of 20 mm.
    for sized, graded in ((ours, theirs), (theirs, ours)) if concept in profile["sized"] else ():
        sizes = profile["degree_sizes"].get(None if graded.size_mm else graded.severity, (0, inf))
        if sized.size_mm is not None and not min(sizes) <= sized.size_mm <= max(sizes):
            yield AttributeDiscrepancy("measurement", True, f"{graded.severity} for {sized.size_mm:g} mm")


def _measured(ours: Attributes, theirs: Attributes) -> Iterator[tuple[str, float, float]]:
    """Yield the values that both findings state, with their kind; equally many of one kind in ascending order."""
    sized: list[tuple[Attributes | Place, Attributes | Place]] = [
        pair for pair in product(ours.places, theirs.places) if is_among(pair[0], pair[1:])
    ]
    for first, second in sized or [(ours, theirs)]:
        if first.size_mm is not None and second.size_mm is not None:
            yield "size", first.size_mm, second.size_mm
    for kind in dict(ours.values):
        own, other = ([value for name, value in side.values if name == kind] for side in (ours, theirs))
        if len(own) == len(other) and kind != "below":
            yield from ((kind, *pair) for pair in zip(own, other, strict=True))


def _values_differ(concept: str, kind: str, ours: float, theirs: float, profile: Profile) -> bool:
    """Whether two values of a kind differ significantly.

    Example:
        >>> chest = get_profile("published")
        >>> _values_differ("emphysema", "share", 30, 40, chest), _values_differ("lung_nodule", "count", 2, 5, chest)
        (False, True)
        >>> [_values_differ("lung_mass", "size", *sizes, chest) for sizes in ((50, 60), (50, 61), (31, 29))]
        [False, True, True]
    """
    ratio, margin = profile["value_ratios"].get(kind), profile["value_margins"].get(kind)
    if kind == "size" and concept not in profile["sized"]:
        ratio = profile["caliber_ratio" if concept in profile["calibers"] else "size_ratio"]
    elif kind == "size":
        if (ours >= profile["mass_size"]) != (theirs >= profile["mass_size"]):
            return True
        row: dict[str, float] = next(
            (row for row in reversed(profile["size_margins"]) if ours >= row.get("from", 0)), {}
        )
        margin = min(row.get("mm", inf), row.get("share", inf) * ours)
    if ratio is not None:
        return bool(max(ours, theirs) > ratio * min(ours, theirs))
    # Rounded, because the share and sizes in cm are not exact in binary.
    return bool(round(abs(ours - theirs) - margin, 6) > 0)


def _morphology(ours: Attributes, theirs: Attributes, profile: Profile) -> Iterator[AttributeDiscrepancy]:
    own, other = (
        set(first.morphology).difference(second.morphology) for first, second in ((ours, theirs), (theirs, ours))
    )
    pairs = [set(pair) for pair in product(own, other)]
    significant = any(set(pair) in pairs for pair in profile["contradicting_morphology"])
    if significant or (pairs and set(ours.morphology).isdisjoint(theirs.morphology)):
        explanation = f"{_words(theirs.morphology)} for {_words(ours.morphology)}"
        yield AttributeDiscrepancy("descriptor", significant, explanation)


def _temporal(ours: Attributes, theirs: Attributes, profile: Profile) -> Iterator[AttributeDiscrepancy]:
    """Yield the differences in the change since an earlier examination, and in age.

    A change that is new or worse is significant if the candidate leaves it out, invents it or has another one. A report
    without an earlier examination states no change.
    """
    if ours.change != theirs.change and (profile["unstated_changes"] or None not in (ours.change, theirs.change)):
        significant = not {ours.change, theirs.change}.isdisjoint(profile["significant_changes"])
        names = [change or "no stated change" for change in (theirs.change, ours.change)]
        yield AttributeDiscrepancy("temporal", significant, " for ".join(names))
    if ours.acuity and theirs.acuity and ours.acuity != theirs.acuity:
        significant = any({ours.acuity, theirs.acuity} == set(pair) for pair in profile["contradicting_acuity"])
        yield AttributeDiscrepancy("temporal", significant, f"{theirs.acuity} for {ours.acuity}")
