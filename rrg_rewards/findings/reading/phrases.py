"""Compile phrases such as ``lower lobe|lobes`` or ``no <2> change*`` to bit masks, and match them with tokens.

A phrase is a sequence of words. Each word is a choice, ``word|stem*|{group}``. ``<n>`` between two words allows up to
``n`` other words there. Every distinct choice has one bit. The code of a token is the union of the bits of all choices
that it matches. One dictionary lookup per token is then enough for all phrases.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rrg_rewards.findings.knowledge.load import load_knowledge

__all__ = ["Phrase", "PhraseBook", "PhraseCompiler", "PhraseTable", "Step", "WordBits", "match_end", "union"]

# Maximum number of remembered words, because reports contain any number of numbers and misspellings.
_MAX_WORDS = 50_000

Meaning = TypeVar("Meaning")
AnyPhrase = TypeVar("AnyPhrase", bound="Phrase[Any]")

Step = tuple[int, int, int]
"""A word of a phrase after the first: its bits, the number of tokens to search, and the bits that end the search."""


def union(masks: Iterable[int]) -> int:
    """Return the union of bit masks.

    Example:
        >>> union([1, 4, 5])
        5
    """
    mask = 0
    for bits in masks:
        mask |= bits
    return mask


class WordBits(dict[str, int]):
    """The code of each word, computed when the word is first looked up; a word has the same code in British spelling.

    Example:
        >>> words = WordBits()
        >>> words.add("esophag*", 2)
        >>> words["esophagus"], words["oesophagus"], words["stomach"]
        (2, 2, 0)
    """

    def __init__(self) -> None:
        super().__init__()
        self.exact: dict[str, int] = {}
        # Stems by their first two letters; most words share these letters with no stem.
        self.stems: dict[str, list[tuple[str, int]]] = {}
        self.spellings = tuple(load_knowledge("spellings").items())

    def add(self, word: str, bit: int) -> None:
        """Add a bit to ``word``, or to all words that start with it if it ends in ``*``."""
        if word.endswith("*"):
            self.stems.setdefault(word[:2], []).append((word[:-1], bit))
        else:
            self.exact[word] = self.exact.get(word, 0) | bit

    def __missing__(self, word: str) -> int:
        code = self._code(word)
        for british, american in self.spellings:
            if british in word:
                code |= self._code(word.replace(british, american))
        if len(self) < _MAX_WORDS:
            self[word] = code
        return code

    def _code(self, word: str) -> int:
        code = self.exact.get(word, 0)
        for stem, bit in self.stems.get(word[:2], ()):
            if word.startswith(stem):
                code |= bit
        return code


@dataclass(frozen=True, slots=True)
class Phrase(Generic[Meaning]):
    """A compiled phrase.

    Args:
        first: Bits of the first word.
        rest: The further words.
        words: Bits of all words. A sentence without one of them cannot contain the phrase.
        meaning: What the phrase means.
    """

    first: int
    rest: tuple[Step, ...]
    words: int
    meaning: Meaning


def match_end(codes: Sequence[int], start: int, rest: tuple[Step, ...]) -> int:
    """Return the index after a phrase whose first word is at ``start``, or 0 if the other words do not match."""
    position, size = start + 1, len(codes)
    for bits, reach, stops in rest:
        for i in range(position, min(size, position + reach)):
            code = codes[i]
            if code & bits:
                position = i + 1
                break
            if code & stops:
                return 0
        else:
            return 0
    return position


class PhraseTable(dict[int, tuple[AnyPhrase, ...]]):
    """Maps the code of a word to the phrases that can start there, computed when the code is first looked up."""

    def __init__(self, phrases: Iterable[AnyPhrase]) -> None:
        super().__init__()
        self.phrases: tuple[AnyPhrase, ...] = tuple(phrases)
        self.heads = union(phrase.first for phrase in self.phrases)
        self.bits = union(phrase.words for phrase in self.phrases)
        self._possible: dict[int, bool] = {}
        self._by_first: dict[int, list[int]] = {}
        for i, phrase in enumerate(self.phrases):
            self._by_first.setdefault(phrase.first, []).append(i)

    def __missing__(self, code: int) -> tuple[AnyPhrase, ...]:
        places: list[int] = []
        bits = code & self.heads
        while bits:
            # The first word of a phrase has one bit.
            lowest = bits & -bits
            places += self._by_first[lowest]
            bits ^= lowest
        places.sort()
        self[code] = found = tuple(self.phrases[i] for i in places)
        return found

    def possible(self, codes: int) -> bool:
        """Whether a sentence with this union of codes can contain one of the phrases."""
        bits = codes & self.bits
        found = self._possible.get(bits)
        if found is None:
            found = self._has_all_words(bits)
            if len(self._possible) < _MAX_WORDS:
                self._possible[bits] = found
        return found

    def _has_all_words(self, codes: int) -> bool:
        """Whether the union of codes contains all words of one of the phrases."""
        bits = codes & self.heads
        while bits:
            lowest = bits & -bits
            for i in self._by_first[lowest]:
                words = self.phrases[i].words
                if words & codes == words:
                    return True
            bits ^= lowest
        return False


class PhraseCompiler:
    """Compiles phrases to one common set of bits.

    Args:
        groups: Words of each ``{group}``, separated by spaces.
        boundary: Choice of tokens that a phrase never contains between its words.
        comma: Choice of tokens that a phrase contains between its words only at ``<n,>``.
    """

    def __init__(self, groups: Mapping[str, str], boundary: str = "", comma: str = "") -> None:
        self.groups = groups
        self.words = WordBits()
        self.bits: dict[frozenset[str], int] = {}
        self._boundary = self.bit(boundary) if boundary else 0
        self._comma = self.bit(comma) if comma else 0

    def end_at(self, choice: str) -> None:
        """Let no phrase compiled from now on contain the tokens of a choice between its words."""
        self._boundary |= self.bit(choice)

    def bit(self, choice: str) -> int:
        """Return the bit of a choice ``word|stem*|{group}``."""
        members = frozenset(self._members(choice))
        if members not in self.bits:
            self.bits[members] = bit = 1 << len(self.bits)
            for word in members:
                self.words.add(word, bit)
        return self.bits[members]

    def _members(self, choice: str) -> Iterable[str]:
        for part in choice.split("|"):
            if part.startswith("{"):
                yield from self._members(self.groups[part[1:-1]].replace(" ", "|"))
            else:
                yield part

    def any_of(self, choices: Iterable[str]) -> int:
        """Return the union of the bits of some choices."""
        return union(map(self.bit, choices))

    def steps(self, text: str) -> tuple[int, tuple[Step, ...]]:
        """Return the bits of the first word of a phrase, and its other words."""
        steps: list[Step] = []
        reach, stops = 1, 0
        for part in text.split():
            if part.startswith("<"):
                stops = self._boundary if part.endswith(",>") else self._boundary | self._comma
                reach = int(part[1:-1].rstrip(",")) + 1
            else:
                steps.append((self.bit(part), reach, stops))
                reach, stops = 1, 0
        return steps[0][0], tuple(steps[1:])

    def phrase(self, text: str, meaning: Meaning) -> Phrase[Meaning]:
        """Compile a phrase."""
        first, rest = self.steps(text)
        return Phrase(first, rest, first | union(step[0] for step in rest), meaning)


class PhraseBook(Generic[Meaning]):
    """Finds the longest phrase that starts at each token; of equally long phrases, the first one given.

    Args:
        phrases: Phrases with their meanings.
        boundary: Choice of tokens that a phrase never contains between its words.

    Example:
        >>> book = PhraseBook([("lung|lungs", "part"), ("lower <1> lobe*", "part"), ("lower", "level")])
        >>> book.matches("the lower left lobe".split())
        {1: (4, 'part')}
    """

    def __init__(self, phrases: Iterable[tuple[str, Meaning]], boundary: str = "") -> None:
        compiler = PhraseCompiler({}, boundary)
        compiled = [compiler.phrase(text, meaning) for text, meaning in phrases]
        self.words = compiler.words
        self._table = PhraseTable(sorted(compiled, key=lambda phrase: -len(phrase.rest)))

    def matches(self, tokens: Sequence[str]) -> dict[int, tuple[int, Meaning]]:
        """Return the end and the meaning of the phrase that starts at each token, by the index of this token."""
        codes = list(map(self.words.__getitem__, tokens))
        table, heads, sentence = self._table, self._table.heads, union(codes)
        found: dict[int, tuple[int, Meaning]] = {}
        for i, code in enumerate(codes):
            if not code & heads:
                continue
            for phrase in table[code]:
                # Most phrases that start with a frequent word such as "the" have no other word in the sentence.
                if phrase.words & sentence == phrase.words and (end := match_end(codes, i, phrase.rest)):
                    found[i] = end, phrase.meaning
                    break
        return found
