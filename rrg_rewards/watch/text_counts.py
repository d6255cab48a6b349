"""Counts of one text: its words, its repeated sentences and the frames of its sentences."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from rrg_rewards.findings.reading.coverage import is_general_word
from rrg_rewards.findings.reading.engine import read_findings
from rrg_rewards.utilities.texts import text_hash

_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"\d+")
_SENTENCE_END = re.compile(r"[.!?:](?=\s|$)|[\n;]")
_UNIT_WORD = re.compile(r"[mc]m|(?:milli|centi)met(?:er|re)s?")
# What replaces findings, places and descriptions, and numbers, in the frame of a sentence.
_CONTENT_SLOT, _NUMBER_SLOT = "_", "#"
_REMEMBERED_SENTENCES, _REMEMBERED_WORDS = 20_000, 50_000


class TextCounts(NamedTuple):
    """What is counted in a text.

    Args:
        sums: Numerator and denominator of each series.
        distinct: Hashes of the items of each series that counts distinct items.
        frames: Number of sentences with each frame, and 1 for the whole text, by hash.
    """

    sums: Mapping[str, tuple[float, float]]
    distinct: Mapping[str, Sequence[int]]
    frames: Mapping[int, int]


def count_text(text: str) -> TextCounts:
    """Count the properties of a text.

    Sentences and whole texts are compared without case and punctuation, and frames also without numbers.
    The series ``words`` counts parts between spaces.

    Args:
        text: A report.

    Example:
        >>> counted = count_text("No effusion. No effusion.")
        >>> counted.sums["repeated_sentences"], counted.sums["words"], len(set(counted.distinct["distinct_ngrams"]))
        ((1, 2), (4, 1), 2)
    """
    words = _WORD.findall(text.lower())
    whole = " ".join(words)
    sentences = [sentence for part in _SENTENCE_END.split(text) if (sentence := _read_sentence(part)) is not None]
    plain = [sentence for sentence, _ in sentences]
    reading = read_findings(text)
    sums: dict[str, tuple[float, float]] = {
        "words": (len(text.split()), 1),
        "repeated_sentences": (len(plain) - len(set(plain)), len(plain)),
        "repeating_reports": (_repeats_at_once(plain), 1),
        "unread_words": (reading.num_unread, reading.num_words),
    }
    grams = [text_hash(" ".join(pair)) for pair in pairwise(words)]
    frames = Counter(frame for _, frame in sentences)
    # No frame has a line break.
    frames[text_hash("\n" + _NUMBER.sub("0", whole))] = 1
    return TextCounts(sums, {"distinct_ngrams": grams, "distinct_reports": [text_hash(whole)]}, frames)


@lru_cache(_REMEMBERED_SENTENCES)
def _read_sentence(sentence: str) -> tuple[str, int] | None:
    """Return the words and the hash of the frame of a sentence; ``None`` if it has no words."""
    words = _WORD.findall(sentence.lower())
    return (" ".join(words), text_hash(sentence_frame(words))) if words else None


def sentence_frame(words: Sequence[str]) -> str:
    """Return the frame of a sentence.

    Findings, parts of the body, positions, descriptions and words that no list contains become the slot ``_``. Numbers
    and units of length become the slot ``#``, also with an "x" between them. Slots that follow each other are one slot.
    Other words remain.

    Args:
        words: Words of the sentence, in lower case.

    Example:
        >>> sentence_frame("several small nodules of up to 5 x 8 mm in the right lung".split())
        '_ of up to # in the _'
        >>> sentence_frame("no pleural effusion or pneumothorax".split())
        'no _ or _'
    """
    frame: list[str] = []
    for word in words:
        slot = _slot(word)
        if word == "x" and frame and frame[-1] == _NUMBER_SLOT:
            continue
        if frame and slot == frame[-1] and slot in (_CONTENT_SLOT, _NUMBER_SLOT):
            continue
        frame.append(slot)
    return " ".join(frame)


def _repeats_at_once(sentences: Sequence[str]) -> bool:
    """Whether one or several sentences are followed by the same ones.

    Example:
        >>> _repeats_at_once(["a", "b", "c", "b", "c"]), _repeats_at_once(["a", "b", "a", "c"])
        (True, False)
    """
    return len(set(sentences)) < len(sentences) and any(
        sentences[start : start + length] == sentences[start + length : start + 2 * length]
        for length in range(1, len(sentences) // 2 + 1)
        for start in range(len(sentences) - 2 * length + 1)
    )


@lru_cache(_REMEMBERED_WORDS)
def _slot(word: str) -> str:
    if _UNIT_WORD.fullmatch(word) or any(map(str.isdigit, word)):
        return _NUMBER_SLOT
    return word if is_general_word(word) else _CONTENT_SLOT
