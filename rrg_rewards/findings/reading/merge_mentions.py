"""Merge the mentions of a report into its abnormal findings."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from string import ascii_lowercase
from typing import Literal

from rrg_rewards.findings.knowledge.concepts import concept_graph
from rrg_rewards.findings.knowledge.load import cue_words, load_knowledge
from rrg_rewards.findings.reading.attributes import attribute_reader
from rrg_rewards.findings.reading.finding import DOUBTFUL, OTHER, Attributes, Finding, is_plural, may_be_same
from rrg_rewards.findings.reading.plain_text import plain_text
from rrg_rewards.findings.reading.tokens import tokenise
from rrg_rewards.findings.reading.wordings import diagnosing_words

# The words of a heading after a finding that it names: "Nodes/esophagus:".
_HEADING_END = re.compile(r"(?: ?(?:/|,|&|\band\b) ?[A-Za-z]+){0,2} ?:")
# The concept that all devices are kinds of.
_DEVICE = "medical_device"
# Densities of a nodule; two nodules of different density are not one.
_DENSITIES = frozenset({"solid", "part_solid", "ground_glass", "calcified"})
# Number of earlier findings that a mention is compared with, so that time is linear in the number of mentions. Reports
# of patients contain fewer than a hundred findings.
_MOST_COMPARED = 200
# Number of characters around a mention in which its sentence can say that it is about the cause of a finding.
_CAUSE_REACH = 80
# Number of characters, and of words, before a mention in which an article is looked for.
_REFERENCE_SEARCHED = 80
_REFERENCE_REACH = 6
# Number of characters after a mention that can contain "size".
_SIZE_SEARCHED = 16
# Number of characters before an apposition that can contain "the largest".
_LARGEST_SEARCHED = 150
# Number of characters after a denial in which a word of correction is looked for.
_CORRECTION_REACH = 30
_CORRECTION = re.compile("|".join(sorted(cue_words("references", "corrections"))), re.IGNORECASE)
_COUNTABLE = tuple(stem.rstrip("*") for stem in cue_words("references", "countable"))
# An ASCII letter that no word of ``likening`` contains.
_OTHER_LETTER = re.compile(
    f"[{''.join(sorted(set(ascii_lowercase).difference(*cue_words('connectives', 'likening'))))}]", re.IGNORECASE
)
_PHRASE_END = re.compile(r"[.,;:()\n]")
_SENTENCE_END = re.compile(r"\.\s")


def abnormal_findings(report: str, mentions: Sequence[Finding]) -> list[Finding]:
    """Return the present and possible findings of a report, without repetitions.

    "Opacity, likely atelectasis" is an atelectasis. "Opacity, which could be pneumonia" is an opacity with the
    alternative pneumonia. "Consolidation versus atelectasis" is one finding. A repeated mention, for example in the
    impression, adds its attributes to the first mention.

    Args:
        report: Report text.
        mentions: Its mentions, from :func:`rrg_rewards.findings.extract_findings`.

    Example:
        >>> from rrg_rewards.findings import extract_findings
        >>> report = "Right basilar opacity, likely atelectasis. No effusion. Mild atelectasis."
        >>> findings = abnormal_findings(report, extract_findings(report))
        >>> [(finding.concept, finding.attributes) for finding in findings]
        [('atelectasis', Attributes(laterality='right', location=('lower',), severity='mild', certainty='likely'))]
    """
    plain = plain_text(report)
    if plain.offsets is None:
        return _abnormal(report, mentions)
    moved = [mention._replace(**plain.in_text(mention.start, mention.end)._asdict()) for mention in mentions]
    found = _abnormal(plain.text, moved)
    return [finding._replace(**plain.in_report(finding.start, finding.end)._asdict()) for finding in found]


def _abnormal(report: str, mentions: Sequence[Finding]) -> list[Finding]:
    """Return the findings of a plain text."""
    findings: list[Finding] = []
    stated: set[str] = set()
    last: Finding | None = None
    corrections: list[tuple[int, int]] | None = None
    for mention in mentions:
        if mention.presence == "absent" or mention.certainty == DOUBTFUL:
            if last is not None and _is_heading(last, mention, report):
                findings.pop()
            if mention.concept in stated:
                # Once for all denials of a report, and not for reports without any.
                if corrections is None:
                    corrections = [match.span() for match in _CORRECTION.finditer(report)]
                if corrections:
                    findings = [finding for finding in findings if not _is_withdrawn(finding, mention, corrections)]
            last = None
            continue
        stated.update((mention.concept, *concept_graph().wider(mention.concept)))
        if last is not None and (merged := _interpreted(last, mention, report)) is not None:
            findings[-1] = last = merged
        elif (explained := _explained_finding(findings, mention, report)) is not None:
            findings[explained] = _merged(findings[explained], mention, mention.concept)
        else:
            findings.append(mention)
            last = mention
    return _distinct(_without_requests(findings, report), report)


def _is_withdrawn(finding: Finding, denial: Finding, corrections: Sequence[tuple[int, int]]) -> bool:
    """Whether an addendum denies a finding that the report stated: "Addendum: the nodule is a nipple shadow"."""
    if not (_is_kind(finding.concept, denial.concept) and _may_be_one(finding.attributes, denial.attributes)):
        return False
    following = corrections[bisect_left(corrections, (finding.end, 0)) :][:1]
    return any(end <= denial.end + _CORRECTION_REACH for _, end in following)


def _is_kind(narrow: str, wide: str) -> bool:
    """Whether a concept is another one or a kind of it."""
    return narrow == wide or wide in concept_graph().wider(narrow)


def _interpreted(first: Finding, second: Finding, report: str) -> Finding | None:
    """Return one finding if the words between two mentions interpret the first as the second, else ``None``."""
    # Only the sentence of a mention and the next one can interpret it.
    if second.sentence > first.sentence + 1 or not may_be_same(first, second):
        return None
    graph = concept_graph()
    if first.concept == OTHER != second.concept and _is_named_by(first, second, report):
        return _filled(second, first)
    if not (graph.akin(first.concept, second.concept) or graph.explains(second.concept, first.concept)):
        return None
    if _is_heading(first, second, report):
        return second
    if _is_one_phrase(first, second, report):
        return _narrower(first, second, report)
    if not graph.akin(first.concept, second.concept):
        return None
    link = _link(first, second, report)
    if link is None:
        return None
    if first.concept == second.concept:
        return _filled(first, second)
    explained = graph.explains(first.concept, second.concept)
    if link == "stated" and explained:
        return _filled(second, first)
    if link == "doubted" and not explained:
        return None
    if link == "glossed":
        # "Cystic lesions (bullae)", "consolidation (dense opacity)"
        is_wider = len(graph.wider(second.concept)) < len(graph.wider(first.concept))
        return _filled(first, second) if is_wider else _filled(second, first)
    return _merged(first, second, second.concept)


def _is_named_by(first: Finding, second: Finding, report: str) -> bool:
    """Whether words such as "most likely" say what an open finding is; those after "due to" name a cause."""
    between = tokenise(report[first.end : second.start])
    is_cause = not cue_words("causes", "linking").isdisjoint(between)
    return first.sentence == second.sentence and not is_cause and attribute_reader().link(between) == "stated"


def _is_heading(first: Finding, second: Finding, report: str) -> bool:
    """Whether a mention is the heading of the next, which names it again: "Nodes: two enlarged nodes"."""
    if first.sentence != second.sentence or not _HEADING_END.match(report, first.end, second.start):
        return False
    graph = concept_graph()
    # "Pneumonia: consolidation in the right lung" names a cause.
    return graph.akin(first.concept, second.concept) and not graph.explains(second.concept, first.concept)


def _is_one_phrase(first: Finding, second: Finding, report: str) -> bool:
    """Whether two mentions are words of one noun phrase: "consolidating opacities", "scar-like density"."""
    # The words before "in the aorta and the coronary arteries" name a finding of each organ.
    if first.sentence != second.sentence or first.organ != second.organ:
        return False
    between = report[first.end : second.start]
    # "Consolidation-atelectasis" names two findings. The words between most findings have other letters.
    if between == "-" or _OTHER_LETTER.search(between):
        return False
    has_separator = not cue_words("connectives", "separators").isdisjoint(tokenise(report[first.start : second.end]))
    return not has_separator and cue_words("connectives", "likening").issuperset(tokenise(between))


def _narrower(first: Finding, second: Finding, report: str) -> Finding | None:
    """Return the narrower of two mentions, with the words of both, or ``None`` if they are of different concepts."""
    graph = concept_graph()
    is_first = first.concept == second.concept or graph.explains(second.concept, first.concept)
    if not is_first and not graph.explains(first.concept, second.concept):
        return None
    concept, end = (first if is_first else second).concept, max(first.end, second.end)
    attributes = first.attributes.filled(second.attributes)
    return first._replace(concept=concept, end=end, text=report[first.start : end], attributes=attributes)


def _link(first: Finding, second: Finding, report: str) -> str | None:
    """Return how the words between two mentions link them, or ``None``.

    A sentence can continue the one before it: "... opacity. This may be pneumonia".
    """
    text = report[first.end : second.start]
    if text.strip() == "(":
        # "Opacity (pneumonia)", "opacity (pneumonia?)"
        return "doubted" if second.presence == "uncertain" else "glossed"
    # The second mention is in the same sentence or in the next one.
    return _stated_link(_SENTENCE_END.split(text)[-1], second.sentence != first.sentence)


# Reports repeat the words between findings.
@lru_cache(maxsize=1 << 13)
def _stated_link(text: str, continues: bool) -> str | None:
    """Return the link that words state; words of a sentence that continues the one before have to interpret it."""
    words = tokenise(text)
    return attribute_reader().link(words) if not continues or _interprets(words) else None


def _interprets(words: Sequence[str]) -> bool:
    """Whether a sentence begins with a word for the findings before: "this may be", "the pattern favors"."""
    has_article = not cue_words("continuations", "article").isdisjoint(words[:1])
    is_pattern = not cue_words("continuations", "pattern").isdisjoint(words[has_article:][:1])
    return is_pattern or not cue_words("continuations", "interpretation").isdisjoint(words[:1])


def _distinct(findings: Sequence[Finding], report: str) -> list[Finding]:
    """Merge repetitions of a concept, of a wider concept at the same location, and of findings on both sides."""
    family = concept_graph().family
    kept: list[Finding] = []
    seen: set[str] = set()
    for finding in map(_placed, findings):
        kin = family(finding.concept)
        similar = [] if kin.isdisjoint(seen) else [i for i in reversed(_latest(kept)) if kept[i].concept in kin]
        seen.add(finding.concept)
        reference = _reference_to(finding, report) if similar or (kept and is_countable(finding)) else None
        if reference == "definite" and (antecedent := _antecedent(kept, finding)) is not None:
            kept[antecedent] = _detailed(kept[antecedent], finding)
            continue
        for i in similar:
            earlier = kept[i]
            if _is_side_of(finding, earlier):
                break
            if not (_may_be_one(earlier.attributes, finding.attributes) and may_be_same(earlier, finding)) or (
                is_countable(finding) and _is_another(earlier, finding.attributes, reference, report)
            ):
                continue
            # "Pacemaker in place. The device is in satisfactory position."
            ours, theirs = earlier.attributes, finding.attributes
            has_place = ours.laterality and ours.laterality == theirs.laterality and ours.location and theirs.location
            here = has_place or _DEVICE in (earlier.concept, finding.concept)
            if finding.concept != earlier.concept and not here:
                continue
            is_wider = _is_kind(earlier.concept, finding.concept)
            kept[i] = _filled(earlier, finding) if is_wider else _filled(finding, earlier)
            break
        else:
            if not _repeats_both_sides(finding, [kept[i] for i in similar]):
                kept.append(finding)
    # A later mention may have stated the place of a device.
    return [_placed(finding) for finding in kept]


def _antecedent(kept: Sequence[Finding], finding: Finding) -> int | None:
    """Return the index of the last finding that "the nodule" can refer to, or ``None``."""
    theirs = finding.attributes
    for i in _latest(kept):
        ours = kept[i].attributes
        if _is_kind_of(kept[i], finding) and (
            _is_part_of(theirs, kept[i]) or (_may_be_one(ours, theirs) and not _densities_differ(ours, theirs))
        ):
            return i
    return None


def _latest(findings: Sequence[Finding]) -> range:
    """Return the indices of the findings that a mention is compared with, the last one first."""
    return range(len(findings) - 1, max(-1, len(findings) - 1 - _MOST_COMPARED), -1)


def _is_kind_of(earlier: Finding, finding: Finding) -> bool:
    """Whether "the mass" can be a finding: its concept is as wide, or its name ends so, as "mediastinal mass" does."""
    if _is_kind(earlier.concept, finding.concept):
        return True
    if not is_countable(finding):
        return False
    is_namesake = f" {earlier.text.lower()}".endswith(f" {finding.text.lower()}")
    return is_namesake or (is_countable(earlier) and concept_graph().akin(earlier.concept, finding.concept))


def _detailed(earlier: Finding, finding: Finding) -> Finding:
    """Return a finding with what "the largest nodule" says; a group keeps its side and has the size of its largest."""
    ours, theirs = earlier.attributes, finding.attributes
    if ours.size_mm and theirs.size_mm and theirs.size_mm > ours.size_mm:
        ours = ours._replace(size_mm=None, short_axis_mm=None)
    is_narrower = _is_kind(finding.concept, earlier.concept) and not _is_group(earlier)
    concept = finding.concept if is_narrower else earlier.concept
    return earlier._replace(concept=concept, attributes=ours.filled(theirs))


def _densities_differ(first: Attributes, second: Attributes) -> bool:
    ours, theirs = _DENSITIES.intersection(first.morphology), _DENSITIES.intersection(second.morphology)
    return bool(ours) and bool(theirs) and ours.isdisjoint(theirs)


def _is_another(earlier: Finding, second: Attributes, reference: str | None, report: str) -> bool:
    """Whether a mention of a lesion, such as "a nodule", is not the one mentioned before."""
    first = earlier.attributes
    changes = {first.change, second.change, None}
    # One of the two is new, and the other was there before.
    if _densities_differ(first, second) or ("new" in changes and changes != {"new", None}):
        return True
    # "The described mass is stable. A mass of 64 mm is seen on the right."
    if reference != "indefinite" or _reference_to(earlier, report) == "definite":
        return False
    stated = [name for name in ("laterality", "location", "size_mm") if getattr(second, name)]
    return bool(stated) and not any(getattr(first, name) for name in stated)


def _placed(finding: Finding) -> Finding:
    """Return a finding with the device position that the location of its tip implies; only devices have a position."""
    attributes = finding.attributes
    position = attributes.device_position
    if position and not _is_kind(finding.concept, _DEVICE):
        position = None
    elif attributes.location and not position:
        positions = load_knowledge("devices")["positions"].get(finding.concept, {})
        here = (name for name, places in positions.items() if not set(places).isdisjoint(attributes.location))
        position = next(here, position)
    is_same = position == attributes.device_position
    return finding if is_same else finding._replace(attributes=attributes._replace(device_position=position))


def _is_side_of(finding: Finding, earlier: Finding) -> bool:
    """Whether a mention is the part on one side of a finding on both: "crazy paving, more prominent on the right"."""
    sides = earlier.attributes.laterality, finding.attributes.laterality
    is_same = finding.concept == earlier.concept and finding.sentence == earlier.sentence
    return is_same and sides in (("bilateral", "left"), ("bilateral", "right")) and not is_countable(finding)


def _repeats_both_sides(finding: Finding, similar: Sequence[Finding]) -> bool:
    """Whether a bilateral finding repeats findings on the left and on the right."""
    return finding.attributes.laterality == "bilateral" and {"left", "right"} <= {
        earlier.attributes.laterality for earlier in similar if earlier.concept == finding.concept
    }


def _may_be_one(first: Attributes, second: Attributes) -> bool:
    """Whether the attributes of two mentions allow them to be one finding."""
    return (
        (not first.laterality or first.laterality == (second.laterality or first.laterality))
        and (not first.location or _may_overlap(first.location, second.location))
        and (not first.size_mm or first.size_mm == (second.size_mm or first.size_mm))
        and (not first.device_position or first.device_position == (second.device_position or first.device_position))
    )


def _may_overlap(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether two locations share a part, or one is not stated."""
    return not first or not second or not set(first).isdisjoint(second)


def _explained_finding(findings: Sequence[Finding], mention: Finding, report: str) -> int | None:
    """Return the index of the last finding that a statement about its cause can explain, or ``None``.

    "Ground glass areas in both lungs. No effusion. Viral pneumonia is considered in the etiology."
    """
    if mention.attributes.location or not findings:
        return None
    # The concepts are compared first, because most mentions explain nothing.
    explained = concept_graph().explained(mention.concept)
    for i in _latest(findings):
        if findings[i].concept in explained and may_be_same(findings[i], mention):
            is_apart = findings[-1].sentence != mention.sentence
            is_said = is_apart or not cue_words("causes", "after").isdisjoint(_after(mention, report))
            return i if is_said and _is_near(mention, report, "words") else None
    return None


def _without_requests(findings: Sequence[Finding], report: str) -> list[Finding]:
    """Return the findings with a suspected cause, stated before its finding, as an alternative of the finding.

    "In terms of viral pneumonia, clinical correlation is recommended. Ground glass areas are seen in both lungs."
    """
    explained, kept = concept_graph().explained, list(findings)
    concepts = {finding.concept for finding in findings}
    for cause in findings:
        effects = explained(cause.concept)
        # The words around a cause are read last, because most findings explain no other.
        is_placed = cause.attributes.location or cause.attributes.laterality
        if effects.isdisjoint(concepts) or is_placed or not _is_near(cause, report, "requests"):
            continue
        for i, finding in enumerate(kept):
            if finding.sentence > cause.sentence and finding.concept in effects and may_be_same(finding, cause):
                kept[i] = _merged(finding, cause, cause.concept)
                kept.remove(cause)
                break
    return kept


def _merged(first: Finding, second: Finding, *alternatives: str) -> Finding:
    """Return a finding with the attributes of both, and its alternatives and others.

    Wider alternatives are left out: "mycobacterial infection" is one.
    """
    named = dict.fromkeys((*first.alternatives, *alternatives))
    wider = {concept for other in named for concept in concept_graph().wider(other)}
    kept = tuple([concept for concept in named if concept != first.concept and concept not in wider])
    return first._replace(attributes=first.attributes.filled(second.attributes), alternatives=kept)


def _filled(first: Finding, second: Finding) -> Finding:
    """Return a finding with the attributes and the alternatives of another mention of it.

    It is named as in the second mention if only this one is a diagnosis: "lesion in segment 4, a metastasis".
    """
    merged = _merged(first, second, *second.alternatives)
    is_named = first.concept == second.concept and second.presence == "present" and _is_diagnosis(second)
    if not is_named or _is_diagnosis(first):
        return merged
    return merged._replace(start=second.start, end=second.end, text=second.text)


def _is_diagnosis(finding: Finding) -> bool:
    """Whether the words of a mention name the cause of a lesion."""
    return any(table[word] for table in diagnosing_words(finding.concept) for word in tokenise(finding.text))


def _is_near(mention: Finding, report: str, name: str) -> bool:
    """Whether a word of its sentence around a mention is in a list of ``causes`` in ``cues.yaml``."""
    before = tokenise(_SENTENCE_END.split(report[max(0, mention.start - _CAUSE_REACH) : mention.start])[-1])
    return not cue_words("causes", name).isdisjoint(before + _after(mention, report))


def _after(mention: Finding, report: str) -> list[str]:
    return tokenise(_SENTENCE_END.split(report[mention.end : mention.end + _CAUSE_REACH])[0].rstrip("."))


def _reference_to(finding: Finding, report: str) -> Literal["definite", "indefinite"] | None:
    """Return whether the words around a mention say that its finding was mentioned before, or that it was not.

    Example:
        >>> from rrg_rewards.findings import extract_findings
        >>> report = "A nodule is seen. The largest nodule is on the left. Calcified nodule."
        >>> [_reference_to(finding, report) for finding in extract_findings(report)]
        ['indefinite', 'definite', None]
    """
    before = _PHRASE_END.split(report[max(0, finding.start - _REFERENCE_SEARCHED) : finding.start])[-1]
    after = _PHRASE_END.split(report[finding.end : finding.end + _SIZE_SEARCHED], maxsplit=1)[0]
    reference = _reference(before, after)
    if reference is None and _is_apposition(report[max(0, finding.start - _LARGEST_SEARCHED) : finding.start], before):
        return "definite"
    return reference


def _is_apposition(text: str, before: str) -> bool:
    """Whether a name without an article describes the lesion before: "the largest is on the right, solid nodule"."""
    _, largest, since = _SENTENCE_END.split(text)[-1].rpartition("largest")
    if not largest or not since.removesuffix(before).rstrip().endswith((",", ")")):
        return False
    return "and" not in tokenise(since) and cue_words("adjectives", "descriptive").issuperset(tokenise(before))


# Reports repeat their sentences.
@lru_cache(maxsize=1 << 16)
def _reference(text_before: str, text_after: str) -> Literal["definite", "indefinite"] | None:
    sizes = cue_words("references", "sizes")
    if not sizes.isdisjoint(tokenise(text_after)[:1]):
        return "definite"
    before = tokenise(text_before)
    places = cue_words("references", "places")
    has_place = False
    for k in range(len(before) - 1, max(-1, len(before) - 1 - _REFERENCE_REACH), -1):
        word = before[k]
        if word in cue_words("references", "indefinite"):
            return "indefinite"
        if word in cue_words("references", "definite"):
            is_of_place = has_place and k and before[k - 1] in cue_words("references", "placing")
            return None if is_of_place else "definite"
        if word == "of":
            return "definite" if k and before[k - 1] in sizes else None
        if word in cue_words("references", "ends"):
            return None
        has_place = has_place or word in places
    return None


def is_countable(finding: Finding) -> bool:
    """Whether a mention names lesions that can be counted, such as nodules."""
    return _names_countable(finding.text)


@lru_cache(maxsize=1 << 12)
def _names_countable(text: str) -> bool:
    return any(word.startswith(_COUNTABLE) for word in tokenise(text))


def _is_group(finding: Finding) -> bool:
    """Whether a mention names several lesions."""
    attributes = finding.attributes
    return is_plural(finding.text) or attributes.extent == "multiple" or attributes.laterality == "bilateral"


def _is_part_of(attributes: Attributes, group: Finding) -> bool:
    """Whether a lesion with these attributes can be one of a group."""
    own = group.attributes
    return (
        _is_group(group)
        and is_countable(group)
        and own.laterality in (None, "bilateral", attributes.laterality or own.laterality)
        and (own.laterality == "bilateral" or _may_overlap(own.location, attributes.location))
    )
