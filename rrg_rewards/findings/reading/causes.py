"""Causes of findings: statements about the etiology, and requests to correlate with a suspected disease."""

from collections.abc import Sequence
from dataclasses import replace

from rrg_rewards.findings.knowledge.concepts import concept_graph
from rrg_rewards.findings.lexicon.cues import cue_words
from rrg_rewards.findings.reading.finding import MOST_COMPARED, Finding, may_be_same
from rrg_rewards.findings.reading.tokens import tokenise

__all__ = ["explained_finding", "with_alternative", "without_requests"]

# Number of characters around a mention in which its sentence can say that it is about the cause of a finding.
_CAUSE_REACH = 80


def explained_finding(findings: Sequence[Finding], mention: Finding, report: str) -> int | None:
    """Return the index of the last finding that a statement about its cause can explain, or ``None``.

    "Ground glass areas in both lungs. No effusion. Viral pneumonia is considered in the etiology."
    """
    if mention.attributes.location or not findings:
        return None
    if findings[-1].sentence == mention.sentence and not _has_word(_after(mention, report), "after"):
        return None
    graph = concept_graph()
    for i in range(len(findings) - 1, max(-1, len(findings) - 1 - MOST_COMPARED), -1):
        if graph.explains(findings[i].concept, mention.concept) and may_be_same(findings[i], mention):
            return i if _is_about_cause(mention, report) else None
    return None


def without_requests(findings: Sequence[Finding], report: str) -> list[Finding]:
    """Return the findings with a suspected cause, stated before its finding, as an alternative of the finding.

    "In terms of viral pneumonia, clinical correlation is recommended. Ground glass areas are seen in both lungs."
    """
    graph, kept = concept_graph(), list(findings)
    for cause in findings:
        if cause.attributes.location or cause.attributes.laterality:
            continue
        if not _has_word(_before(cause, report) + _after(cause, report), "requests"):
            continue
        for i, finding in enumerate(kept):
            if (
                finding.sentence > cause.sentence
                and graph.explains(finding.concept, cause.concept)
                and may_be_same(finding, cause)
            ):
                kept[i] = with_alternative(finding, cause)
                kept.remove(cause)
                break
    return kept


def with_alternative(first: Finding, second: Finding) -> Finding:
    """Return a finding with the concept of a second mention as an alternative, and the attributes of both."""
    attributes = first.attributes.filled(second.attributes)
    return replace(first, attributes=attributes, alternatives=(*first.alternatives, second.concept))


def _is_about_cause(mention: Finding, report: str) -> bool:
    """Whether the sentence of a mention is about the cause of a finding."""
    return _has_word(_before(mention, report) + _after(mention, report), "words")


def _has_word(words: Sequence[str], name: str) -> bool:
    """Whether one of the words is in a list of ``causes`` in ``cues.yaml``."""
    return not cue_words("causes", name).isdisjoint(words)


def _before(mention: Finding, report: str) -> list[str]:
    return tokenise(report[max(0, mention.start - _CAUSE_REACH) : mention.start].rpartition(". ")[2])


def _after(mention: Finding, report: str) -> list[str]:
    return tokenise(report[mention.end : mention.end + _CAUSE_REACH].partition(". ")[0].rstrip("."))
