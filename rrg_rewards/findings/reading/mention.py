"""A mention of a concept, and which mentions remain of those that share words."""

from collections.abc import Iterable, Sequence
from itertools import pairwise, permutations
from typing import NamedTuple

from rrg_rewards.findings.reading.attributes import Span
from rrg_rewards.findings.reading.clauses import Clauses
from rrg_rewards.findings.reading.cue_codes import ARTICLE, INSIDE, JOINT, LINKING, OTHER, PURPOSE, REASON, WITH
from rrg_rewards.findings.reading.lexicon import Rule
from rrg_rewards.findings.reading.phrases import Step, single_bits

# Cues that part two findings.
_BETWEEN_TWO = JOINT | OTHER | WITH | LINKING | REASON


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
    """Return the mentions, in the order of the text, that do not mix the words of two others.

    "Airway injury and aortic stenosis" is no stenosis of an airway. With the words that the rules need, "coronary
    calcification and hepatic steatosis" is no calcification of the liver.
    """
    if len(mentions) <= 2 or not share_words(mentions):
        return mentions
    phrases = [set(mention.words()) for mention in mentions]
    words = [phrase.union(_needed_words(mention, scope)) for mention, phrase in zip(mentions, phrases, strict=True)]
    # A finding whose words are parted is none of two. The words between those of a phrase are words of the finding.
    whole = [
        _Named(own.union(range(mention.start, mention.end)), mention.start - 1)
        for mention, own in zip(mentions, words, strict=True)
        if not scope.union(min(own), max(own)) & _BETWEEN_TWO
    ]
    by_word: dict[int, list[int]] = {}
    for k, named in enumerate(whole):
        for i in (named.before, *named.words):
            by_word.setdefault(i, []).append(k)
    kept = []
    for mention, phrase, own in zip(mentions, phrases, words, strict=True):
        near = [whole[k] for k in sorted({k for i in own for k in by_word.get(i, ())})] if len(own) > 1 else []
        if not any(_is_mixture(phrase, own, *pair, scope) for pair in permutations(near, 2)):
            kept.append(mention)
    return kept


class _Named(NamedTuple):
    """The words of a finding, and the index of the token before its phrase."""

    words: set[int]
    before: int

    def described(self, scope: Clauses, wanted: int) -> set[int]:
        """Return the words with the one before them if it describes the finding, and has one of some bits."""
        code = scope.union(self.before, self.before + 1) if self.before >= 0 else 0
        describes = code & wanted and not code & (_BETWEEN_TWO | ARTICLE | INSIDE | PURPOSE)
        return self.words | {self.before} if describes else self.words


def _is_mixture(phrase: set[int], words: set[int], one: _Named, other: _Named, scope: Clauses) -> bool:
    """Whether two findings, one after the other, contain the words of a mention, and each also has others.

    Args:
        phrase: Words of the mention's phrase.
        words: These and the words that its rule needs.
        one: The first finding.
        other: The second finding.
        scope: The clauses of the sentence.
    """
    if max(one.words) >= min(other.words):
        return False
    parting = scope.union(max(one.words) + 1, min(other.words)) & _BETWEEN_TWO
    # "Hepatic steatosis", "centrilobular emphysema": the word before a phrase is a word of the finding.
    first, second = (named.described(scope, ~0 if parting else scope.sites) for named in (one, other))
    if not words <= first | second or words <= first or words <= second or second <= words:
        return False
    if first <= words:
        # "Pericarditis with pleural effusion"
        is_next = parting & (JOINT | WITH) and min(second) == max(first) + 2
        return bool(is_next) and max(second) - min(second) < len(second)
    # Nothing needs to part them where the phrase ends before the second one: "air space opacity pleural effusion".
    return bool(parting) or (max(phrase) < max(second) and not (phrase <= first or phrase <= second))


def _needed_words(mention: Mention, scope: Clauses) -> list[int]:
    """Return the indices of the tokens outside its phrase that a mention needs: its organ, and other words.

    Of several tokens that it can need, this is the nearest one, first among those that nothing parts from the phrase.
    """
    rule, codes = mention.rule, scope.codes
    if not (rule.at or rule.needs):
        return []
    context, found = scope.context(mention.start, rule.wide), []

    def distance(i: int) -> tuple[bool, int]:
        is_parted = scope.union(min(i, mention.end), max(i, mention.start)) & _BETWEEN_TWO
        return bool(is_parted), max(mention.start - i, i - mention.end + 1)

    for bits in filter(None, (rule.at, *single_bits(rule.needs))):
        places = [i for i in context if codes[i] & bits]
        found += [min(places, key=distance)] if len(places) > 1 else places
    return found
