"""The words of a caller's vocabulary in a sentence, which the reader of attributes assigns to findings."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rrg_rewards.findings.knowledge.load import cue_words
from rrg_rewards.findings.reading.attributes import Span
from rrg_rewards.findings.reading.finding import Attributes
from rrg_rewards.findings.reading.lexicon import Lexicon, load_lexicon
from rrg_rewards.findings.reading.mention import Mention, without_parts
from rrg_rewards.findings.reading.mentions import find_mentions
from rrg_rewards.findings.reading.modifiers import Modifier, modifier_reader
from rrg_rewards.findings.reading.phrases import PhraseBook

# Stations of lymph nodes; "upper" before the second one is the first.
_UPPER_STATION, _LOWER_STATION = "upper paratracheal", "lower paratracheal"
# Maximum number of words before a size that make it an upper bound: "not greater than about 5 mm".
_BOUND_REACH = 4
_LONE_UNIT = re.compile(r"(?<=\d) ?m\b(?! ?m)")
_RANGE_SIGNS = "-~\u2013"
# Words of "nodules, mainly with ground glass density".
_NODULES = frozenset({"nodule", "nodules"})
_DEGREES = frozenset({"mainly", "mostly", "predominantly", "partly", "a", "some", "pure"})
_DENSITIES = frozenset({"density", "densities", "attenuation"})


LENGTH = "length"
"""Kind of the words that are sizes."""
HARD = 1 << 20
"""Sections of one part of an answer, between two semicolons, or of one sentence."""


class Word(NamedTuple):
    """A word of a vocabulary.

    Attributes:
        kind: What it states.
        name: Its name.
        section: Section of the sentence; a separator is between words of different sections.
    """

    kind: str
    name: str
    section: int = 0

    def after(self, words: Sequence["Word"]) -> "Word":
        """Return the word as one of the sentence after that of other words."""
        last = max((word.section for word in words), default=0)
        return self._replace(section=self.section + last - last % HARD + HARD)


Meanings = tuple[tuple[str, Word], ...]
"""The meanings of a phrase: words, each with the attribute that has it, ``place_words`` before ``words``."""


class Numbers(NamedTuple):
    """Words with numbers: whether a word can begin one, and the end and the meanings of the one at a token."""

    can_begin: Callable[[str], bool]
    at: Callable[[Sequence[str], int], tuple[int, Meanings] | None]


class WordBook:
    """Finds the words of a caller's vocabulary.

    Args:
        phrases: Phrases with their meanings; none if they must not be read as other phrases.
        numbers: Words with numbers, such as vertebrae.
        signs: Names of the words that are signs of a finding if they name another one: "with air bronchograms".

    Example:
        >>> book = WordBook([("round|rounded", (("words", Word("shape", "round")),))])
        >>> [hit.start for hit in book.matches("a rounded nodule".split())]
        [1]
    """

    def __init__(
        self,
        phrases: Iterable[tuple[str, Meanings]],
        numbers: Numbers | None = None,
        signs: frozenset[str] = frozenset(),
    ) -> None:
        others = None if numbers is None else (numbers.can_begin, ())
        self._book: PhraseBook[Meanings] = PhraseBook(phrases, boundary=",|;|:|.", others=others)
        self._numbers, self._signs = numbers, signs
        self._separators = cue_words("connectives", "places")

    def is_sign(self, hit: Modifier) -> bool:
        """Whether a phrase is a sign of a finding."""
        return any(word.name in self._signs for _, word in hit.values)

    def matches(self, tokens: Sequence[str]) -> list[Modifier]:
        """Return the phrases among tokens, in order. If several phrases start at a token, the longest is returned."""
        hits: list[Modifier] = []
        end = last_place = section = 0
        for i, (after, meanings) in self._book.matches(tokens).items():
            if i < end:
                continue
            if not meanings and self._numbers and (numbered := self._numbers.at(tokens, i)):
                after, meanings = numbered
            if meanings and meanings[0][0] == "place_words":
                between = tokens[last_place:i]
                # The sections of stations are odd.
                section += 2 * (not self._separators.isdisjoint(between)) + HARD * (";" in between)
                last_place = after
                meanings = tuple((field, word._replace(section=section)) for field, word in meanings)
            hits.append(Modifier(i, after, meanings))
            if meanings and meanings[0][1].name == _LOWER_STATION:
                _complete_station(tokens, hits)
            end = after
        return hits


def _complete_station(tokens: Sequence[str], hits: list[Modifier]) -> None:
    """Complete a station whose name is left out: "right upper" of "right upper, both lower paratracheal"."""
    k = len(hits) - 2
    while k >= 0 and hits[k].values and hits[k].values[0][1].kind == "side":
        k -= 1
    if k < 0 or tokens[hits[k].start : hits[k].end] != ["upper"]:
        return
    section = hits[k].values[0][1].section
    hits[k] = hits[k]._replace(values=(("place_words", Word("part", _UPPER_STATION, section)),))
    for later in range(k + 1, len(hits)):
        # A comma may be left out.
        words = ((field, word._replace(section=max(word.section, section + 1))) for field, word in hits[later].values)
        hits[later] = hits[later]._replace(values=tuple(words))


def stated_words(vocabulary: WordBook, tokens: Sequence[str]) -> list[Modifier]:
    """Return the words of a vocabulary in a sentence that are not denied, and the text of each size.

    Example:
        >>> book = WordBook([("round", (("words", Word("shape", "round")),))])
        >>> [found.values[0][1][:2] for found in stated_words(book, "round nodule of less than 4 mm".split())]
        [('shape', 'round'), ('length', '< 4 mm')]
    """
    reader = modifier_reader()
    sizes = [
        Modifier(size.start, size.end, (("words", Word(LENGTH, _size_text(tokens, size))),))
        for size in reader.modifiers(tokens)
        if size.values[0][0] == "size_mm"
    ]
    return [*reader.undenied(tokens, [hit for hit in vocabulary.matches(tokens) if hit.values]), *sizes]


def _size_text(tokens: Sequence[str], size: Modifier) -> str:
    # "4m" means millimetres.
    text = _LONE_UNIT.sub(" mm", " ".join(tokens[size.start : size.end]))
    return f"< {text}" if _is_bound(tokens[max(0, size.start - _BOUND_REACH) : size.start]) else text


def _is_bound(before: Sequence[str]) -> bool:
    """Whether the words before a size make it an upper bound: "less than", "not greater than"."""
    words = [word for word in before if word not in cue_words("comparisons", "about")]
    if words[-1:] != ["than"]:
        is_denied = not cue_words("denials", "always").isdisjoint(words[-2:-1])
        return words[-1:] in (["below"], ["under"]) or (is_denied and words[-1].startswith(("exceed", "reach")))
    kinds = {kind for kind in ("less", "more") if words[-2:-1] and words[-2] in cue_words("comparisons", kind)}
    is_denied = not cue_words("denials", "always").isdisjoint(words[-3:-2])
    return "less" in kinds or ("more" in kinds and is_denied)


def with_ranges(attributes: Attributes, sentence: str) -> Attributes:
    """Return attributes in which the sizes have both ends of their ranges."""
    words = (
        word._replace(name=_with_lower_end(sentence, word.name)) if word.kind == LENGTH else word
        for word in attributes.words
    )
    return attributes._replace(words=tuple(words))


def _with_lower_end(sentence: str, text: str) -> str:
    """Return the text of a size with the lower end of its range, which tokens leave out: "3-5 mm".

    Example:
        >>> _with_lower_end("Nodules of 3 - 5 mm.", "5 mm"), _with_lower_end("Nodule of 5 mm.", "5 mm")
        ('3-5 mm', '5 mm')
    """
    if not any(sign in sentence for sign in _RANGE_SIGNS):
        return text
    range_of = re.search(
        rf"(\d+(?:\.\d+)?)\s*(?:mm|cm)?\s*[{_RANGE_SIGNS}]\s*{re.escape(text)}", sentence, re.IGNORECASE
    )
    return text if range_of is None else f"{range_of[1]}-{text}"


def foreign_spans(
    lexicon: Lexicon,
    tokens: Sequence[str],
    mentions: Sequence[Mention],
    words: Sequence[Modifier],
    vocabulary: WordBook | None,
) -> list[Span]:
    """Return the names of findings of ``chest`` beside those of a label lexicon; they own the words around them."""
    chest = load_lexicon("chest")
    concepts = {lexicon.concepts[mention.concept] for mention in mentions}
    taken = {i for mention in mentions for i in range(mention.start, mention.end)}
    edges = {edge for mention in mentions for edge in (mention.start, mention.end)}
    signs = {word.start for word in words if vocabulary is not None and vocabulary.is_sign(word)}
    spans = []
    for mention in without_parts(find_mentions(chest, tokens, with_presence=False)[0]):
        if chest.concepts[mention.concept] in concepts and (
            mention.rule.needs or not edges.isdisjoint((mention.start, mention.end))
        ):
            # "And the coronaries" is a finding only with "calcified", which the lexicon reads as its name; and "bands"
            # in "sequelae bands" are no others.
            continue
        named = range(mention.start, mention.end)
        if not taken.isdisjoint(named):
            # "Ground-glass density areas" is one name, also if two of its parts are names that overlap.
            taken.update(named)
        elif mention.start not in signs:
            spans.append(mention.last_word())
    return spans


def density_names(tokens: Sequence[str], spans: Sequence[Span]) -> set[Span]:
    """Return the names that only state the density of the nodules before them.

    Example:
        >>> density_names("nodules mainly with ground glass density".split(), [Span(0, 1), Span(4, 5, 3)])
        {Span(start=4, end=5, first=3)}
    """
    if _NODULES.isdisjoint(tokens) or _DENSITIES.isdisjoint(tokens):
        return set()
    found = set()
    before: Span | None = None
    for span in sorted(spans):
        if before is not None and _is_density(tokens, before, span):
            found.add(span)
        else:
            before = span
    return found


def _is_density(tokens: Sequence[str], before: Span, span: Span) -> bool:
    """Whether a name only states the density of the nodule before it: "nodules, mainly with ground glass density"."""
    if tokens[before.end - 1] not in _NODULES or _DENSITIES.isdisjoint(tokens[span.end - 1 : span.end + 1]):
        return False
    i = (span.start if span.first is None else span.first) - 1
    while i >= before.end and tokens[i] in _DEGREES:
        i -= 1
    return i >= before.end and (tokens[i] == "with" or (tokens[i] in ("of", "in") and i == before.end))
