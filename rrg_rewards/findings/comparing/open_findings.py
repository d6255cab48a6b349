"""Relations of open findings, which no concept of the lexicon names: by their organ and their words."""

from functools import cache, lru_cache
from typing import NamedTuple

from rrg_rewards.findings.knowledge.concepts import SAME, Relation
from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.reading.finding import Finding
from rrg_rewards.findings.reading.phrases import WordBits, union
from rrg_rewards.findings.reading.tokens import tokenise
from rrg_rewards.utilities.package_data import package_yaml

__all__ = ["open_relation"]

# Distances of a finding in similar words and of one in wider words; equal concepts have the distance 0.
_SIMILAR = Relation("descriptor", 1, significant=False)
_WIDER = Relation("unspecific", 2, significant=True)
_NARROWER = Relation("overinterpretation", 2, significant=False)
# Letters of two words that have no class in ``knowledge/wordings.yaml`` and are equal in their first letters.
_STEM = 6


class _Wording(NamedTuple):
    """What the words of a finding say.

    Attributes:
        heads: One bit for each class of words in ``knowledge/wordings.yaml`` that the finding has a word of.
        stems: Stems of the words that no class contains.
        is_general: Whether a word can stand for any lesion.
    """

    heads: int
    stems: frozenset[str]
    is_general: bool


class _Classes(NamedTuple):
    """The compiled classes of words: a bit for each, of ``lesions`` their union, and of ``opposites`` the pairs."""

    words: WordBits
    general: int
    places: int
    lesions: int
    opposites: tuple[tuple[int, int], ...]


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
    ours, theirs = _wording(_words(reference)), _wording(_words(candidate))
    table = _classes()
    for first, second in table.opposites:
        if {ours.heads & (first | second), theirs.heads & (first | second)} == {first, second}:
            return None
    shared = (ours.heads & theirs.heads).bit_count() + len(ours.stems & theirs.stems)
    if reference.organ is None or candidate.organ is None:
        fewest = min(wording.heads.bit_count() + len(wording.stems) for wording in (ours, theirs))
        return _SIMILAR if shared > 1 and 2 * shared > fewest else None
    if shared:
        return _SIMILAR
    # "Abnormality" is wider than a "shadow" that is said to be an opacity.
    is_vague = theirs.is_general and not theirs.heads
    if ours.is_general and theirs.is_general and not (is_vague and ours.heads & table.lesions):
        return _SIMILAR
    if theirs.is_general and ours.heads & table.lesions:
        return _WIDER
    if ours.is_general and theirs.heads & table.lesions:
        return _NARROWER
    return None


def _words(finding: Finding) -> tuple[str, ...]:
    return finding.words or (*tokenise(finding.text), *finding.concept.split("_"))


@lru_cache(maxsize=4096)
def _wording(words: tuple[str, ...]) -> _Wording:
    table = _classes()
    codes = [table.words[word] for word in words]
    marked = table.general | table.places
    return _Wording(
        union(codes) & ~marked,
        frozenset(word[:_STEM].rstrip("s") for word, code in zip(words, codes, strict=True) if not code),
        bool(union(codes) & table.general),
    )


@cache
def _classes() -> _Classes:
    rules = load_knowledge("wordings")
    words = WordBits()
    bits = {name: 1 << i for i, name in enumerate((*rules["heads"], "general", "places"))}
    sites = package_yaml("rrg_rewards.findings.lexicon", "chest")["sites"].values()
    named = [word for site in sites for word in site.split() if not word.startswith("~")]
    for name, members in {**rules["heads"], "general": rules["general"], "places": [*rules["places"], *named]}.items():
        for word in members:
            words.add(word, bits[name])
    return _Classes(
        words,
        bits["general"],
        bits["places"],
        union(bits[name] for name in rules["lesions"]),
        tuple((bits[first], bits[second]) for first, second in rules["opposites"]),
    )
