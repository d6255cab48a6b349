"""Relations of open findings, which no concept of the lexicon names: by their organ and their words."""

from rrg_rewards.findings.knowledge.concepts import SAME, Relation
from rrg_rewards.findings.reading.finding import Finding
from rrg_rewards.findings.reading.tokens import tokenise
from rrg_rewards.findings.reading.wordings import lesion_bits, opposite_bits, wording

__all__ = ["open_relation"]

# Distances of a finding in similar words and of one in wider words; equal concepts have the distance 0.
_SIMILAR = Relation("descriptor", 1, significant=False)
_WIDER = Relation("unspecific", 2, significant=True)
_NARROWER = Relation("overinterpretation", 2, significant=False)


def open_relation(reference: Finding, candidate: Finding) -> Relation | None:
    """Return the relation of two findings of which at least one is open, or ``None`` if they are unrelated.

    Findings in one organ are related if they share a word that says what is abnormal. If the organ of one is unknown,
    they have to share most words. A word for any abnormality is wider than a lesion of the organ.

    Args:
        reference: Finding of the reference.
        candidate: Finding of the candidate. Their organs may not differ.

    Example:
        >>> def finding(*words):
        ...     return Finding("other_finding", "present", 0, 0, 0, "", organ="liver", words=words)
        >>> open_relation(finding("low", "density"), finding("hypodense", "focus")).kind
        'descriptor'
        >>> open_relation(finding("low", "density"), finding("high", "density")) is None
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
        return _SIMILAR if shared > 1 and 2 * shared > fewest else None
    if shared:
        return _SIMILAR
    # "Abnormality" is wider than a "shadow" that is said to be an opacity.
    is_vague = theirs.is_general and not theirs.heads
    if ours.is_general and theirs.is_general and not (is_vague and ours.heads & lesion_bits()):
        return _SIMILAR
    if theirs.is_general and ours.heads & lesion_bits():
        return _WIDER
    if ours.is_general and theirs.heads & lesion_bits():
        return _NARROWER
    return None


def _words(finding: Finding) -> tuple[str, ...]:
    return finding.words or (*tokenise(finding.text), *finding.concept.split("_"))
