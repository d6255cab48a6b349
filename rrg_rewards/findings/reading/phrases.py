"""Compile phrases such as ``lower lobe|lobes`` or ``no <2> change*`` to bit masks, and match them with tokens.

A phrase is a sequence of words. Each word is a choice, ``word|stem*|{group}``. ``<n>`` between two words allows up to
``n`` other words there. Every distinct choice has one bit. The code of a token is the union of the bits of all choices
that it matches. One dictionary lookup per token is then enough for all phrases.
"""

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from itertools import pairwise
from operator import itemgetter, or_
from typing import Any, Generic, TypeVar

from rrg_rewards.findings.knowledge.load import cue_words, load_knowledge

# Maximum number of remembered words, because reports contain any number of numbers and misspellings.
_MAX_WORDS = 50_000
# Shorter words in -s, such as "gas", are no plurals.
_SHORTEST_PLURAL = 4
# Letters of the rest of a word that reports write apart from its prefix.
_SHORTEST_REST = 4
# Shorter words and signs, such as "of" and the comma, are in many sentences, as if this number of phrases had them.
_SHORTEST_RARE, _COMMON = 4, 100

Meaning = TypeVar("Meaning")
Key = TypeVar("Key")
Value = TypeVar("Value")
AnyPhrase = TypeVar("AnyPhrase", bound="Phrase[Any]")

Step = tuple[int, int, int]
"""A word of a phrase after the first: its bits, the number of tokens to search, and the bits that end the search."""


def union(masks: Iterable[int]) -> int:
    """Return the union of bit masks.

    Example:
        >>> union([1, 4, 5])
        5
    """
    return reduce(or_, masks, 0)


def single_bits(mask: int) -> Iterator[int]:
    """Yield the bits of a mask, the lowest first.

    Example:
        >>> list(single_bits(13))
        [1, 4, 8]
    """
    while mask:
        lowest = mask & -mask
        yield lowest
        mask ^= lowest


class Memo(dict[Key, Value]):
    """Remembers what a function returns for each key, and is emptied when it has a number of keys.

    Example:
        >>> lengths = Memo(len)
        >>> lengths["nodule"]
        6
    """

    def __init__(self, function: Callable[[Key], Value], most: int | None = None) -> None:
        super().__init__()
        self._function, self._most = function, _MAX_WORDS if most is None else most

    def __missing__(self, key: Key) -> Value:
        found = self._function(key)
        if len(self) >= self._most:
            self.clear()
        self[key] = found
        return found


class WordBits(Memo[str, int]):
    """The code of each word, computed when the word is first looked up.

    A word has the same code in British spelling, and in the plural unless the table contains the plural itself.

    Args:
        entries: Words and stems with the bits of each; see :meth:`add`.

    Example:
        >>> words = WordBits([("esophag*", 2), ("ggo", 1)])
        >>> words["esophagus"], words["oesophagus"], words["stomach"], words["ggos"]
        (2, 2, 0, 1)
    """

    def __init__(self, entries: Iterable[tuple[str, int]] = ()) -> None:
        super().__init__(self._all_bits)
        self.exact: dict[str, int] = {}
        # Conditions of words, with the bit of each.
        self.conditions: list[tuple[Callable[[str], bool], int]] = []
        self.stems: dict[str, int] = {}
        # Lengths of the stems by their first letters, as many as the shortest stem has.
        self._lengths: dict[str, list[int]] | None = None
        self._shortest = 0
        for word, bit in entries:
            self.add(word, bit)

    def add(self, word: str, bit: int) -> None:
        """Add a bit to ``word``, or to all words that start with it if it ends in ``*``."""
        entries, key = (self.stems, word[:-1]) if word.endswith("*") else (self.exact, word)
        self._lengths = None
        entries[key] = entries.get(key, 0) | bit

    def _all_bits(self, word: str) -> int:
        code = union(map(self._code, self._forms(word)))
        return code | union(bit for condition, bit in self.conditions if condition(word))

    def has(self, word: str, shortest: int) -> bool:
        """Whether a word is in the table, or begins with a stem in it of at least ``shortest`` characters."""
        return any(one in self.exact or max(self._stem_ends(one), default=-1) >= shortest for one in self._forms(word))

    def is_form(self, word: str) -> bool:
        """Whether a word is in the table or a form of a stem in it: "sternophagia" is none of "stern*"."""
        forms = self._forms(word)
        return any(one in self.exact or any(one[i:] in _endings() for i in self._stem_ends(one)) for one in forms)

    def _forms(self, word: str) -> tuple[str, ...]:
        """Return a word in all spellings; of a plural that the table does not contain, the singular too."""
        forms = _spellings(word)
        if len(word) >= _SHORTEST_PLURAL and word.endswith("s") and not any(map(self._code, forms)):
            return (*forms, word[:-1])
        return forms

    def _code(self, word: str) -> int:
        return self.exact.get(word, 0) | union(self.stems[word[:i]] for i in self._stem_ends(word))

    def _stem_ends(self, word: str) -> list[int]:
        """Return the lengths of the stems in the table that a word begins with."""
        if self._lengths is None:
            shortest, by_first = min(map(len, self.stems), default=0), dict[str, list[int]]()
            for first, size in {(stem[:shortest], len(stem)) for stem in self.stems}:
                by_first.setdefault(first, []).append(size)
            self._shortest, self._lengths = shortest, by_first
        # Few stems have the same first letters.
        lengths = self._lengths.get(word[: self._shortest])
        return [i for i in lengths if word[:i] in self.stems] if lengths else []


@lru_cache(maxsize=_MAX_WORDS)
def _spellings(word: str) -> tuple[str, ...]:
    """Return a word with its American spelling, or an abbreviation with its whole word."""
    spellings = load_knowledge("spellings")
    if word in spellings["short"]:
        return (word, spellings["short"][word])
    parts = spellings["parts"].items()
    return (word, *(word.replace(british, american) for british, american in parts if british in word))


@cache
def _endings() -> frozenset[str]:
    return frozenset(("", *load_knowledge("plain_words")["endings"].split()))


@dataclass(frozen=True, slots=True)
class Phrase(Generic[Meaning]):
    """A compiled phrase.

    Args:
        first: Bits of the first word.
        rest: The further words.
        words: Bits of all words. A sentence without one of them cannot contain the phrase.
        meaning: What the phrase means.
        at: Bits of which the sentence must contain one; 0 for none.
    """

    first: int
    rest: tuple[Step, ...]
    words: int
    meaning: Meaning
    at: int = 0


def match_end(codes: Sequence[int], start: int, rest: tuple[Step, ...]) -> int:
    """Return the index after a phrase whose first word is at ``start``, or 0 if the other words do not match."""
    position, size = start + 1, len(codes)
    for bits, reach, stops in rest:
        if reach == 1:
            # Most words of phrases are adjacent.
            if position < size and codes[position] & bits:
                position += 1
                continue
            return 0
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


@cache
def cue_bits(section: str, *lists: str) -> WordBits:
    """Return codes of words in which each of some lists in a section of ``cues.yaml`` has one bit, in their order."""
    return WordBits((word, 1 << i) for i, name in enumerate(lists) for word in cue_words(section, name))


Anchored = tuple[AnyPhrase, int, int, int]
"""A phrase, its rank among all phrases, and the fewest and the most tokens from its first to its rarest word."""


class PhraseTable(Memo[str, tuple[Anchored[AnyPhrase], ...]]):
    """Finds phrases by their rarest words, because many begin with a word such as "in" that most sentences contain.

    The fewer phrases contain the words of a choice, the rarer it is. The table maps a word to the phrases of which it
    can be the rarest word.

    Args:
        phrases: The phrases.
        compiler: The compiler of the phrases.

    Attributes:
        phrases: The phrases, by rank.
        bits: Bits of the rarest words. A sentence without one of them contains no phrase.
    """

    def __init__(self, phrases: Iterable[AnyPhrase], compiler: "PhraseCompiler") -> None:
        self.phrases = tuple(phrases)
        words, commonness = compiler.words, compiler.commonness()
        self._by_rarest: dict[int, list[Anchored[AnyPhrase]]] = {}
        for rank, phrase in enumerate(self.phrases):
            bits = [phrase.first, *[step[0] for step in phrase.rest]]
            places = sorted(range(len(bits)), key=[commonness[bit.bit_length() - 1] for bit in bits].__getitem__)
            place, rarest = places[0], bits[places[0]]
            most = sum(reach for _, reach, _ in phrase.rest[:place])
            self._by_rarest.setdefault(rarest, []).append((phrase, rank, place, most))
        self.bits = rarest = union(self._by_rarest)
        of_bits = cache(self._of_bits)
        super().__init__(lambda word: of_bits(words[word] & rarest))

    def _of_bits(self, bits: int) -> tuple[Anchored[AnyPhrase], ...]:
        return tuple([phrase for bit in single_bits(bits) for phrase in self._by_rarest[bit]])

    def matches(
        self, tokens: Sequence[str], codes: Sequence[int], sentence: int
    ) -> list[tuple[int, int, int, AnyPhrase]]:
        """Return the start, the rank and the end of the phrases in a sentence, and the phrases.

        Args:
            tokens: Tokens of the sentence.
            codes: Their codes.
            sentence: The union of the codes.
        """
        found = []
        for i, phrases in enumerate(map(self.__getitem__, tokens)):
            for phrase, rank, least, most in phrases:
                if phrase.words & sentence != phrase.words or (phrase.at and not phrase.at & sentence):
                    continue
                if not phrase.rest:
                    found.append((i, rank, i + 1, phrase))
                    continue
                for start in range(max(0, i - most), i - least + 1) if most else (i,):
                    if codes[start] & phrase.first and (end := match_end(codes, start, phrase.rest)):
                        found.append((start, rank, end, phrase))
        return found


class CompoundTable(PhraseTable[Phrase[str]]):
    """Finds the phrases that are replaced by one word, and words that are written in two parts.

    Args:
        phrases: The phrases. Of those that start at one token, the first one given is found.
        compiler: The compiler of the phrases.
        prefixes: Beginnings of words that may be written apart: a prefix and the rest of a word that has a code are
            found as a phrase with the meaning of the word.
        prefixed: Bits of the prefixes.
    """

    def __init__(
        self,
        phrases: Iterable[Phrase[str]],
        compiler: "PhraseCompiler",
        prefixes: Collection[str] = (),
        prefixed: int = 0,
    ) -> None:
        super().__init__(phrases, compiler)
        self._words, self._prefixes, self.prefixed = compiler.words, frozenset(prefixes), prefixed
        self.bits |= self.prefixed
        self._written_apart: Memo[str, Phrase[str] | None] = Memo(self._phrase_of_parts)

    def find(self, tokens: Sequence[str], codes: Sequence[int], sentence: int) -> list[tuple[int, int, Phrase[str]]]:
        """Return the phrases in a sentence, in order, each with its first token and the token after it.

        Of phrases that overlap, the one that starts first is returned.

        Args:
            tokens: Tokens of the sentence.
            codes: Their codes.
            sentence: The union of the codes.
        """
        found = self.matches(tokens, codes, sentence)
        if sentence & self.prefixed:
            apart = ((i, self.whole(*parts)) for i, parts in enumerate(pairwise(tokens)))
            # Words in two parts are ranked after all phrases.
            found += [(i, sys.maxsize, i + 2, phrase) for i, phrase in apart if phrase is not None]
        found.sort(key=itemgetter(0, 1))
        # "Mediastinal mass with mediastinal shift": a phrase begins at the last of its possible first words.
        latest = {(rank, end): start for start, rank, end, _ in found}
        kept: list[tuple[int, int, Phrase[str]]] = []
        for start, rank, end, phrase in found:
            if start == latest[rank, end] and (not kept or start >= kept[-1][1]):
                kept.append((start, end, phrase))
        return kept

    def whole(self, prefix: str, rest: str) -> Phrase[str] | None:
        """Return the word of which two tokens are the parts, as a phrase; ``None`` if they are not."""
        return self._written_apart[f"{prefix} {rest}"] if prefix in self._prefixes else None

    def _phrase_of_parts(self, parts: str) -> Phrase[str] | None:
        """Return a word in two parts as a phrase, or ``None`` if it is no word with a code."""
        word, shortest = parts.replace(" ", ""), parts.index(" ") + _SHORTEST_REST
        return Phrase(0, (), 0, word) if len(word) >= shortest and self._words.has(word, shortest) else None


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
        self._of_choice: dict[str, int] = {}
        self._uses: Counter[int] = Counter()
        self._boundary = self.bit(boundary) if boundary else 0
        self._comma = self.bit(comma) if comma else 0

    def end_at(self, choice: str) -> None:
        """Let no phrase compiled from now on contain the tokens of a choice between its words."""
        self._boundary |= self.bit(choice)

    def bit(self, choice: str) -> int:
        """Return the bit of a choice ``word|stem*|{group}``."""
        if choice not in self._of_choice:
            members = frozenset(self._members(choice))
            if members not in self.bits:
                self.bits[members] = bit = 1 << len(self.bits)
                for word in members:
                    self.words.add(word, bit)
            self._of_choice[choice] = self.bits[members]
        return self._of_choice[choice]

    def _members(self, choice: str) -> Iterable[str]:
        for part in choice.split("|"):
            is_group = part.startswith("{")
            yield from self._members(self.groups[part[1:-1]].replace(" ", "|")) if is_group else (part,)

    def condition_bit(self, condition: Callable[[str], bool]) -> int:
        """Return a bit of the words that fulfil a condition."""
        self.bits[frozenset()] = bit = 1 << len(self.bits)
        self.words.conditions.append((condition, bit))
        return bit

    def any_of(self, choices: Iterable[str]) -> int:
        """Return the union of the bits of some choices."""
        return union(map(self.bit, choices))

    def commonness(self) -> list[int]:
        """Return, by the number of a bit, how common its words are: in phrases, or because they are short."""
        uses = {word: _COMMON * (len(word) < _SHORTEST_RARE) for members in self.bits for word in members}
        for number, members in enumerate(self.bits):
            for word in members:
                uses[word] += self._uses[number]
        return [sum([uses[word] for word in members]) for members in self.bits]

    def phrase(self, text: str, meaning: Meaning) -> Phrase[Meaning]:
        """Compile a phrase."""
        steps: list[Step] = []
        reach, stops = 1, 0
        for part in text.split():
            if part.startswith("<"):
                stops = self._boundary if part.endswith(",>") else self._boundary | self._comma
                reach = int(part[1:-1].rstrip(",")) + 1
            else:
                bit = self.bit(part)
                self._uses[bit.bit_length() - 1] += 1
                steps.append((bit, reach, stops))
                reach, stops = 1, 0
        return Phrase(steps[0][0], tuple(steps[1:]), union(step[0] for step in steps), meaning)


class PhraseBook(Generic[Meaning]):
    """Finds the longest phrase that starts at each token; of equally long phrases, the first one given.

    Args:
        phrases: Phrases with their meanings.
        boundary: Choice of tokens that a phrase never contains between its words.
        others: Condition of other words, and their meaning: a word that fulfils it and starts no phrase is found, too.

    Example:
        >>> book = PhraseBook([("lung|lungs", "part"), ("lower <1> lobe*", "part"), ("lower", "level")])
        >>> book.matches("the lower left lobe".split())
        {1: (4, 'part')}
        >>> PhraseBook([("lower", "level")], others=(str.isdigit, "number")).matches(["lower", "10", "lobes"])
        {0: (1, 'level'), 1: (2, 'number')}
    """

    def __init__(
        self,
        phrases: Iterable[tuple[str, Meaning]],
        boundary: str = "",
        others: tuple[Callable[[str], bool], Meaning] | None = None,
    ) -> None:
        compiler = PhraseCompiler({}, boundary)
        compiled = [compiler.phrase(text, meaning) for text, meaning in phrases]
        compiled.sort(key=lambda phrase: -len(phrase.rest))
        if others is not None:
            compiled.append(Phrase(bit := compiler.condition_bit(others[0]), (), bit, others[1]))
        self._words = compiler.words
        self._table = PhraseTable(compiled, compiler)

    def matches(self, tokens: Sequence[str]) -> dict[int, tuple[int, Meaning]]:
        """Return the end and the meaning of the phrase that starts at each token, by the ascending indices of these."""
        codes = list(map(self._words.__getitem__, tokens))
        found = self._table.matches(tokens, codes, union(codes))
        if len(found) > 1:
            # Of the phrases that start at a token, the one of the lowest rank is put last.
            found.sort(key=_first_last)
        return {start: (end, phrase.meaning) for start, _, end, phrase in found}


def _first_last(match: tuple[int, int, int, Phrase[Any]]) -> tuple[int, int]:
    return match[0], -match[1]
