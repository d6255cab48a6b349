"""Find words that may be a misspelt denial or doubt, so that what they govern is neither present nor absent."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from rrg_rewards.findings.knowledge.load import cue_endings, cue_words
from rrg_rewards.findings.reading.coverage import CoverageReader, coverage_reader, is_verb, precedes_noun
from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.findings.reading.near_words import edits
from rrg_rewards.findings.reading.phrases import Memo
from rrg_rewards.utilities.yaml_files import package_yaml

# Lists of cues.yaml whose words deny a finding or put it in doubt.
_GOVERNING = ("none", "ended", "not", "doubt")
# Cues of at least this many letters may have two wrong letters, those of at least four one. "No" and "not" are like so
# many words that their place counts as well.
_LONG, _SHORTEST_CUE = 6, 4
# What one wrong letter can make of "no" and of "not".
_LIKE_NO = re.compile("on|[no]|.o|n.|.no|n.o|no.")
_LIKE_NOT = re.compile("ont|nto|ot|nt|.ot|n.t|no.|.not|n.ot|no.t|not.")
# Longest unknown word that may be a denial only because of its place, such as one of another language.
_LONGEST = 6
# Words with more letters are not divided.
_MOST_LETTERS = 40
# Shortest known word that another word can be glued to.
_SHORTEST = 4


class CueErrors:
    """Divides words that are glued to a cue, and finds words that stand in the place of one.

    Args:
        coverage: Knows the words of the reports' lexicon. Those of ``chest`` are known as well.

    Example:
        >>> from rrg_rewards.findings.reading.lexicon import load_lexicon
        >>> errors = CueErrors(coverage_reader(load_lexicon("chest")))
        >>> errors.divided("thereis nopleural effusion".split())
        ['there', 'is', 'no', 'pleural', 'effusion']
        >>> list(errors.governed("wihtot effusion or nodule".split(), [(1, 2), (3, 4)]))
        [0, 1]
    """

    def __init__(self, coverage: CoverageReader) -> None:
        self._coverages = (coverage, coverage_reader(load_lexicon("chest")))
        self._doubtful = Memo[str, bool](lambda word: not self._knows(word) or _is_like_no(word) or _is_like_not(word))
        self._parts = Memo(self._divide)
        self._like_cues = Memo(_is_like_cue)

    def is_certain(self, words: Iterable[str]) -> bool:
        """Whether all words of a sentence are known, and "no" and "not" are not easily mistyped as one of them."""
        return not any(map(self._doubtful.__getitem__, words))

    def _knows(self, word: str) -> bool:
        return any(coverage.knows(word) for coverage in self._coverages)

    def divided(self, tokens: Sequence[str]) -> list[str]:
        """Return the tokens of a sentence, in which glued words are divided."""
        return [part for token in tokens for part in self._parts[token]]

    def _divide(self, word: str) -> tuple[str, ...]:
        """Return the parts of an unknown word if it begins with one that is often glued, else the word."""
        if len(word) > _MOST_LETTERS or not (word.isascii() and word.isalpha()) or self._knows(word):
            return (word,)
        for size in range(len(word) - 1, 0, -1):
            first, rest = word[:size], word[size:]
            if first in cue_words("errors", "glued"):
                parts = self._divide(rest)
                if (
                    len(parts) > 1
                    or rest in cue_words("errors", "glued")
                    or (len(rest) >= _SHORTEST and self._knows(rest))
                ):
                    return (first, *parts)
        return (word,)

    def governed(self, tokens: Sequence[str], findings: Sequence[tuple[int, int]]) -> Iterator[int]:
        """Yield the indices of the findings that a word in the place of a cue may deny or put in doubt.

        Args:
            tokens: Tokens of a sentence.
            findings: First token, and token after the last, of each finding.
        """
        named = {i for start, end in findings for i in range(start, end)}
        places = [
            i
            for i in range(len(tokens))
            if self._doubtful[tokens[i]] and i not in named and self._is_in_place(tokens, i, named)
        ]
        for k, (start, end) in enumerate(findings):
            if any(_is_one_clause(tokens, i, start, end) for i in places):
                yield k

    def _is_in_place(self, tokens: Sequence[str], i: int, named: set[int]) -> bool:
        """Whether an unread word is like a cue, or stands where a denial would."""
        word = tokens[i]
        if not word.isascii() or not word[0].isalpha():
            return False
        if _is_like_not(word) and not cue_words("adjectives", "predicating").isdisjoint(tokens[i - 1 : i]):
            # "Was nov observed"
            return True
        if _is_like_no(word):
            following, is_particle = tokens[i + 1 : i + 2], word in cue_words("errors", "particles")
            is_evidence = not cue_words("errors", "evidence").isdisjoint(following)
            # "To exclude edema", "do you see edema?", "is nt seen"
            if (is_particle and not is_evidence and any(map(is_verb, following))) or (word == "nt" and i > 0):
                return False
            return (is_evidence or _begins(tokens, i)) and _leads_to(tokens, i + 1, named, is_particle)
        if self._knows(word):
            return False
        if self._like_cues[word]:
            return True
        if len(word) > _LONGEST or word.endswith(cue_endings("errors")):
            return False
        return _begins(tokens, i) and self._describes_next(tokens, i + 1, named)

    def _describes_next(self, tokens: Sequence[str], i: int, named: set[int]) -> bool:
        """Whether only adjectives and unknown words stand between a token and a finding."""
        foreign = cue_words("errors", "foreign")
        while (
            i < len(tokens)
            and i not in named
            and (precedes_noun(tokens[i]) or tokens[i] in foreign or not self._knows(tokens[i]))
        ):
            i += 1
        return i in named


def _begins(tokens: Sequence[str], i: int) -> bool:
    """Whether a clause or what it states begins with a token."""
    return i == 0 or tokens[i - 1] in cue_words("errors", "before_denials")


def _leads_to(tokens: Sequence[str], i: int, named: set[int], is_particle: bool) -> bool:
    """Whether a finding follows in the clause; after "on" and "to", before a comma or the name of an examination."""
    ending = cue_words("errors", "ending", *(["ending_places"] if is_particle else []))
    return next((k in named for k in range(i, len(tokens)) if k in named or tokens[k] in ending), False)


def _is_one_clause(tokens: Sequence[str], i: int, start: int, end: int) -> bool:
    """Whether no word between a token and a finding begins another statement."""
    between = tokens[i + 1 : start] if i < start else tokens[end:i]
    return cue_words("errors", "ending").isdisjoint(between)


@cache
def _cues() -> tuple[str, ...]:
    """Return the words that deny a finding or put it in doubt."""
    lists = package_yaml("rrg_rewards.findings.lexicon", "cues")["cues"]
    return tuple(
        word for name in _GOVERNING for word in lists[name].split() if word.isalpha() and len(word) >= _SHORTEST_CUE
    )


def _is_like_cue(word: str) -> bool:
    """Whether a word is a cue with one or two wrong letters."""
    letters = set(word)
    for cue in _cues():
        most = 2 if len(cue) >= _LONG else 1
        is_form = word.startswith(cue) or (cue.startswith(word) and cue.endswith("ed"))
        # Each wrong letter takes at most one letter away and adds one.
        if len(letters.symmetric_difference(cue)) <= 2 * most and not is_form and edits(word, cue) <= most:
            return True
    return False


def _is_like_no(word: str) -> bool:
    """Whether one wrong letter can make "no" a word of at most three letters that means something else.

    Example:
        >>> [word for word in "no on mo not nor now of np".split() if _is_like_no(word)]
        ['on', 'mo', 'np']
    """
    return _LIKE_NO.fullmatch(word) is not None and word not in cue_words("errors", "distinct")


def _is_like_not(word: str) -> bool:
    """Whether one wrong letter can make "not" a word that no denial is, and that no form of "be" precedes.

    Example:
        >>> [word for word in "not nod lot now no knot".split() if _is_like_not(word)]
        ['nod', 'lot', 'knot']
    """
    return _LIKE_NOT.fullmatch(word) is not None and word not in cue_words("errors", "distinct_from_not")
