"""A mention of a concept, and which mentions remain of those that share words."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from rrg_rewards.findings.reading.attributes import Span
from rrg_rewards.findings.reading.clauses import Clauses
from rrg_rewards.findings.reading.cue_codes import ARTICLE, INSIDE, JOINT, LINKING, OTHER, PURPOSE, REASON, WITH
from rrg_rewards.findings.reading.lexicon import Rule
from rrg_rewards.findings.reading.phrases import Step

# Cues that part two findings.
_BETWEEN_TWO = JOINT | OTHER | WITH | LINKING | REASON
# Cues before a finding that do not describe it.
_UNDESCRIBED = _BETWEEN_TWO | ARTICLE | INSIDE | PURPOSE


class Mention(NamedTuple):
    """A concept that the phrase of a rule names at tokens ``start`` to ``end`` of a sentence with some codes."""

    concept: int
    presence: int
    start: int
    end: int
    rule: Rule
    codes: Sequence[int]

    def words(self) -> list[int]:
        """Return the indices of the tokens that the phrase matched."""
        return matched_words(self.codes, self.start, self.end, self.rule.rest)

    def last_word(self) -> Span:
        """Return the span of the last word of the phrase."""
        return Span(self.end - 1, self.end, self.start)


def matched_words(codes: Sequence[int], start: int, end: int, rest: Iterable[Step]) -> list[int]:
    """Return the indices of the tokens from ``start`` to before ``end`` that a phrase matched."""
    places = [start]
    for bits, *_ in rest:
        places.append(next(i for i in range(places[-1] + 1, end) if codes[i] & bits))
    return places


def share_words(mentions: Sequence[Mention]) -> bool:
    """Whether two of some mentions in the order of the text can have a word in common."""
    return any(first.end > second.start for first, second in pairwise(mentions))


def joined(mentions: Iterable[Mention]) -> list[Mention]:
    """Return the mentions in order, in which adjacent ones of one concept are one: "ground-glass opacities"."""
    names: list[Mention] = []
    last: dict[int, int] = {}
    for mention in sorted(mentions, key=lambda mention: (mention.start, mention.end)):
        k = last.get(mention.concept)
        if k is not None and mention.start <= names[k].end and mention.presence == names[k].presence:
            end = max(names[k].end, mention.end)
            names[k] = mention._replace(start=names[k].start, end=end)
        else:
            last[mention.concept] = len(names)
            names.append(mention)
    return names


def without_parts(mentions: list[Mention]) -> list[Mention]:
    """Return the mentions, in the order of the text, whose words are not part of a longer one."""
    if not share_words(mentions):
        return mentions
    words = [mention.words() for mention in mentions]
    # A longer mention contains the first word of each of its parts.
    containing: dict[int, list[set[int]]] = {}
    for mentioned in map(set, words):
        for i in mentioned:
            containing.setdefault(i, []).append(mentioned)
    return [
        mention
        for mention, places in zip(mentions, words, strict=True)
        if not any(len(longer) > len(places) and longer.issuperset(places) for longer in containing[places[0]])
    ]


def without_mixtures(mentions: list[Mention], scope: Clauses) -> list[Mention]:
    """Return the mentions that do not mix the words of two others, which a word such as "and" parts.

    "Airway injury and aortic stenosis" is no stenosis of an airway, "pericarditis with pleural effusion" no pericardial
    effusion. The words of "pericardial effusion and thickening" have the organ in common.
    """
    if len(mentions) <= 2 or not share_words(mentions):
        return mentions
    whole = [mention for mention in mentions if not scope.union(mention.start, mention.end) & _BETWEEN_TWO]
    return [mention for mention in mentions if not _is_mixture(mention, whole, scope)]


def _is_mixture(mention: Mention, whole: Sequence[Mention], scope: Clauses) -> bool:
    """Whether a mention begins in one finding and ends in the next, and each of these has other words."""
    words, start, end = set(mention.words()), mention.start, mention.end
    is_parted = scope.union(start, end) & _BETWEEN_TWO
    return any(
        first.start <= start < first.end <= second.start < end <= second.end
        # "Air space opacity pleural effusion" is no air in the pleura.
        and (second.start > first.end if is_parted else end < second.end and end - start > len(words))
        and (second.end - second.start > 1 or not scope.union(second.start - 1, second.start) & _UNDESCRIBED)
        and (second.start <= first.end + 2 or not words.issuperset(range(first.start, first.end)))
        for first in whole
        for second in whole
    )
