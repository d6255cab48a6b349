"""From the mentions of a report to its abnormal findings: each once, and as specific as the report makes it."""

from collections.abc import Sequence
from dataclasses import replace

from rrg_rewards.findings.attributes import attribute_reader
from rrg_rewards.findings.concepts import concept_graph
from rrg_rewards.findings.knowledge_base import read_knowledge
from rrg_rewards.findings.text import tokenise
from rrg_rewards.findings.types import Attributes, Finding

__all__ = ["abnormal_findings"]

# Subjects by which a sentence interprets the one before it.
_GOING_ON = frozenset({"this", "these", "it", "they", "findings", "appearance", "appearances", "differential"})


def abnormal_findings(report: str, mentions: Sequence[Finding]) -> list[Finding]:
    """What a report calls present or possible, each finding once.

    "Opacity, likely atelectasis" is an atelectasis; "opacity, which could be pneumonia" is an opacity that may be a
    pneumonia; "consolidation versus atelectasis" is one finding. What is said again, in an impression, adds to what
    was said before.

    Args:
        report: Report text.
        mentions: What :func:`rrg_rewards.findings.extract_findings` found in it.

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
            last = None
            continue
        merged = None if last is None else _interpreted(last, mention, report)
        if merged is not None:
            findings[-1] = last = merged
            continue
        findings.append(mention)
        last = mention
    return _distinct(findings)


def _interpreted(first: Finding, second: Finding, report: str) -> Finding | None:
    """One finding of two, where the words between say that the second is what the first is or may be."""
    between = _between(first, second, report)
    if between is None:
        return None
    graph = concept_graph()
    if not graph.akin(first.concept, second.concept):
        return None
    if first.start == second.start and first.end == second.end:
        # One phrase for both: a fracture of a vertebra.
        return second if graph.explains(first.concept, second.concept) else None
    link = attribute_reader().link(between)
    if link is None:
        return None
    if first.concept == second.concept:
        return replace(first, attributes=first.attributes.filled(second.attributes))
    explained = graph.explains(first.concept, second.concept)
    if link == "stated" and explained:
        return replace(second, attributes=second.attributes.filled(first.attributes))
    if link == "doubted" and not explained:
        return None
    attributes = first.attributes.filled(second.attributes)
    return replace(first, attributes=attributes, alternatives=(*first.alternatives, second.concept))


def _between(first: Finding, second: Finding, report: str) -> list[str] | None:
    """Words that lead from one mention to the next, if they belong to it: "... opacity. This may be pneumonia"."""
    text = report[first.end : second.start]
    if first.sentence == second.sentence:
        return tokenise(text)
    words = tokenise(text.rpartition(". ")[2])
    return words if second.sentence == first.sentence + 1 and words and words[0] in _GOING_ON else None


def _distinct(findings: Sequence[Finding]) -> list[Finding]:
    """Findings of which none repeats another: in its words, in wider ones at the same place, or both sides as one."""
    wider = concept_graph().wider
    kept: list[Finding] = []
    for finding in map(_placed, findings):
        for i, earlier in enumerate(kept):
            if not _may_be_one(earlier.attributes, finding.attributes):
                continue
            here = _same_place(earlier.attributes, finding.attributes)
            if finding.concept == earlier.concept or (here and finding.concept in wider(earlier.concept)):
                kept[i] = replace(earlier, attributes=earlier.attributes.filled(finding.attributes))
                break
            if here and earlier.concept in wider(finding.concept):
                kept[i] = replace(finding, attributes=finding.attributes.filled(earlier.attributes))
                break
        else:
            if not _told_by_side(finding, kept):
                kept.append(finding)
    return kept


def _placed(finding: Finding) -> Finding:
    """A device with its position, where that follows from where its tip lies."""
    positions = read_knowledge("concepts")["positions"].get(finding.concept)
    attributes = finding.attributes
    if positions is None or attributes.device_position is not None:
        return finding
    for position, places in positions.items():
        if not set(places).isdisjoint(attributes.location):
            return replace(finding, attributes=replace(attributes, device_position=position))
    return finding


def _same_place(first: Attributes, second: Attributes) -> bool:
    """Whether both mentions state a place, and the same."""
    return bool(first.laterality and first.location) and first.laterality == second.laterality and bool(second.location)


def _told_by_side(finding: Finding, kept: Sequence[Finding]) -> bool:
    """Whether what is on both sides was told of each before."""
    sides = {earlier.attributes.laterality for earlier in kept if earlier.concept == finding.concept}
    return finding.attributes.laterality == "bilateral" and {"left", "right"} <= sides


def _may_be_one(first: Attributes, second: Attributes) -> bool:
    """Whether nothing in what is said of two findings tells them apart."""
    return (
        (first.laterality is None or second.laterality is None or first.laterality == second.laterality)
        and (not first.location or not second.location or not set(first.location).isdisjoint(second.location))
        and (first.size_mm is None or second.size_mm is None or first.size_mm == second.size_mm)
        and (
            first.device_position is None or first.device_position == (second.device_position or first.device_position)
        )
    )
