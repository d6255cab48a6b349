"""Merge the mentions of a report into its abnormal findings."""

import re
from collections.abc import Sequence
from dataclasses import replace

from rrg_rewards.findings.knowledge.concepts import concept_graph
from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.lexicon.cues import cue_words
from rrg_rewards.findings.reading.attributes import attribute_reader
from rrg_rewards.findings.reading.causes import explained_finding, with_alternative, without_requests
from rrg_rewards.findings.reading.finding import MOST_COMPARED, Attributes, Finding, may_be_same
from rrg_rewards.findings.reading.references import is_countable, is_group, is_part_of, reference_to
from rrg_rewards.findings.reading.tokens import tokenise

__all__ = ["abnormal_findings"]

# The words of a heading after a finding that it names: "Nodes/esophagus:".
_HEADING_END = re.compile(r"(?: ?(?:/|,|&|\band\b) ?[A-Za-z]+){0,2} ?:")
# The concept that all devices are kinds of.
_DEVICE = "medical_device"
# Densities of a nodule; two nodules of different density are not one.
_DENSITIES = frozenset({"solid", "part_solid", "ground_glass", "calcified"})


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
        >>> found = abnormal_findings(report, extract_findings(report))
        >>> [(finding.concept, finding.attributes) for finding in found]
        [('atelectasis', Attributes(laterality='right', location=('lower',), severity='mild', certainty='likely'))]
    """
    findings: list[Finding] = []
    last: Finding | None = None
    for mention in mentions:
        if mention.presence == "absent":
            if last is not None and _is_heading(last, mention, report):
                findings.pop()
            last = None
            continue
        merged = None if last is None else _interpreted(last, mention, report)
        if merged is not None:
            findings[-1] = last = merged
            continue
        if (place := explained_finding(findings, mention, report)) is not None:
            findings[place] = with_alternative(findings[place], mention)
            continue
        findings.append(mention)
        last = mention
    return _distinct(without_requests(findings, report), report)


def _interpreted(first: Finding, second: Finding, report: str) -> Finding | None:
    """Return one finding if the words between two mentions interpret the first as the second, else ``None``."""
    # Only the sentence of a mention and the next one can interpret it.
    if second.sentence > first.sentence + 1 or not may_be_same(first, second):
        return None
    graph = concept_graph()
    if first.start == second.start and first.end == second.end:
        # One phrase names both, for example a vertebral fracture.
        return second if graph.explains(first.concept, second.concept) else None
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
        return replace(first, attributes=first.attributes.filled(second.attributes))
    explained = graph.explains(first.concept, second.concept)
    if link == "stated" and explained:
        return replace(second, attributes=second.attributes.filled(first.attributes))
    if link == "doubted" and not explained:
        return None
    return with_alternative(first, second)


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
    if not cue_words("connectives", "separators").isdisjoint(tokenise(report[first.start : second.end])):
        return False
    between = report[first.end : second.start]
    # "Consolidation-atelectasis" names two findings.
    return between != "-" and set(tokenise(between)) <= cue_words("connectives", "likening")


def _narrower(first: Finding, second: Finding, report: str) -> Finding | None:
    """Return the narrower of two mentions, with the words of both, or ``None`` if they are of different concepts."""
    graph = concept_graph()
    if first.concept == second.concept or graph.explains(second.concept, first.concept):
        concept = first.concept
    elif graph.explains(first.concept, second.concept):
        concept = second.concept
    else:
        return None
    end = max(first.end, second.end)
    return replace(
        first,
        concept=concept,
        end=end,
        text=report[first.start : end],
        attributes=first.attributes.filled(second.attributes),
    )


def _link(first: Finding, second: Finding, report: str) -> str | None:
    """Return how the words between two mentions link them, or ``None``.

    A sentence can continue the one before it: "... opacity. This may be pneumonia".
    """
    text = report[first.end : second.start]
    if first.sentence == second.sentence:
        return attribute_reader().link(tokenise(text))
    words = tokenise(text.rpartition(". ")[2])
    if second.sentence == first.sentence + 1 and words and _interprets(words):
        return attribute_reader().link(words)
    return None


def _interprets(words: Sequence[str]) -> bool:
    """Whether a sentence begins with a word for the findings before: "this may be", "the pattern favors"."""
    if words[0] in cue_words("continuations", "interpretation"):
        return True
    subject = words[words[0] in cue_words("continuations", "article") :][:1]
    return not cue_words("continuations", "pattern").isdisjoint(subject)


def _distinct(findings: Sequence[Finding], report: str) -> list[Finding]:
    """Merge repetitions of a concept, of a wider concept at the same location, and of findings on both sides."""
    wider, family = concept_graph().wider, concept_graph().family
    kept: list[Finding] = []
    seen: set[str] = set()
    for finding in map(_placed, findings):
        kin = family(finding.concept)
        similar: list[int] = []
        if not kin.isdisjoint(seen):
            similar = [i for i in range(max(0, len(kept) - MOST_COMPARED), len(kept)) if kept[i].concept in kin]
        seen.add(finding.concept)
        if not similar:
            kept.append(finding)
            continue
        reference = reference_to(finding, report)
        if reference == "definite" and (place := _antecedent(kept, similar, finding)) is not None:
            kept[place] = _detailed(kept[place], finding)
            continue
        for i in similar:
            earlier = kept[i]
            if _is_side_of(finding, earlier):
                break
            if not (_may_be_one(earlier.attributes, finding.attributes) and may_be_same(earlier, finding)) or (
                is_countable(finding) and _is_another(earlier.attributes, finding.attributes, reference)
            ):
                continue
            # "Pacemaker in place. The device is in satisfactory position."
            here = _same_place(earlier.attributes, finding.attributes) or finding.concept == _DEVICE
            if finding.concept == earlier.concept or (here and finding.concept in wider(earlier.concept)):
                kept[i] = replace(earlier, attributes=earlier.attributes.filled(finding.attributes))
                break
            if here and earlier.concept in wider(finding.concept):
                kept[i] = replace(finding, attributes=finding.attributes.filled(earlier.attributes))
                break
        else:
            if not _repeats_both_sides(finding, [kept[i] for i in similar]):
                kept.append(finding)
    return kept


def _antecedent(kept: Sequence[Finding], similar: Sequence[int], finding: Finding) -> int | None:
    """Return the index of the last of the similar findings that "the nodule" can refer to, or ``None``."""
    wider = concept_graph().wider
    for i in reversed(similar):
        earlier = kept[i]
        is_kind = (
            finding.concept == earlier.concept
            or finding.concept in wider(earlier.concept)
            or (earlier.concept in wider(finding.concept) and is_countable(finding))
        )
        if is_kind and (
            is_part_of(finding.attributes, earlier)
            or (
                _may_be_one(earlier.attributes, finding.attributes)
                and not _densities_differ(earlier.attributes, finding.attributes)
            )
        ):
            return i
    return None


def _detailed(earlier: Finding, finding: Finding) -> Finding:
    """Return a finding with what "the largest nodule" says; a group keeps its side and has the size of its largest."""
    ours, theirs = earlier.attributes, finding.attributes
    if ours.size_mm is not None and theirs.size_mm is not None and theirs.size_mm > ours.size_mm:
        ours = replace(ours, size_mm=None, short_axis_mm=None)
    concept = earlier.concept
    if finding.concept != concept and concept in concept_graph().wider(finding.concept) and not is_group(earlier):
        concept = finding.concept
    return replace(earlier, concept=concept, attributes=ours.filled(theirs))


def _densities_differ(first: Attributes, second: Attributes) -> bool:
    ours, theirs = _DENSITIES.intersection(first.morphology), _DENSITIES.intersection(second.morphology)
    return bool(ours) and bool(theirs) and ours.isdisjoint(theirs)


def _is_another(first: Attributes, second: Attributes, reference: str | None) -> bool:
    """Whether a mention of a lesion, such as "a nodule", is not the one mentioned before."""
    if _densities_differ(first, second):
        return True
    if reference != "indefinite":
        return False
    stated = [name for name in ("laterality", "location", "size_mm") if getattr(second, name)]
    return bool(stated) and not any(getattr(first, name) for name in stated)


def _placed(finding: Finding) -> Finding:
    """Return a finding with the device position that the location of its tip implies; only devices have a position."""
    positions = load_knowledge("concepts")["positions"].get(finding.concept)
    attributes = finding.attributes
    if attributes.device_position is not None and not _is_device(finding.concept):
        return replace(finding, attributes=replace(attributes, device_position=None))
    if positions is None or attributes.device_position is not None:
        return finding
    for position, places in positions.items():
        if not set(places).isdisjoint(attributes.location):
            return replace(finding, attributes=replace(attributes, device_position=position))
    return finding


def _is_device(concept: str) -> bool:
    return concept == _DEVICE or _DEVICE in concept_graph().wider(concept)


def _same_place(first: Attributes, second: Attributes) -> bool:
    """Whether both mentions state the same side, and both state a location."""
    return bool(first.laterality and first.location) and first.laterality == second.laterality and bool(second.location)


def _is_side_of(finding: Finding, earlier: Finding) -> bool:
    """Whether a mention is the part on one side of a finding on both: "crazy paving, more prominent on the right"."""
    return (
        finding.concept == earlier.concept
        and finding.sentence == earlier.sentence
        and earlier.attributes.laterality == "bilateral"
        and finding.attributes.laterality in ("left", "right")
        and not is_countable(finding)
    )


def _repeats_both_sides(finding: Finding, similar: Sequence[Finding]) -> bool:
    """Whether a bilateral finding repeats findings on the left and on the right."""
    return finding.attributes.laterality == "bilateral" and {"left", "right"} <= {
        earlier.attributes.laterality for earlier in similar if earlier.concept == finding.concept
    }


def _may_be_one(first: Attributes, second: Attributes) -> bool:
    """Whether the attributes of two mentions allow them to be one finding."""
    return (
        (first.laterality is None or second.laterality is None or first.laterality == second.laterality)
        and (not first.location or not second.location or not set(first.location).isdisjoint(second.location))
        and (first.size_mm is None or second.size_mm is None or first.size_mm == second.size_mm)
        and (
            first.device_position is None or first.device_position == (second.device_position or first.device_position)
        )
    )
