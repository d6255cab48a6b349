"""Split a report into sentences with their offsets."""

import re
from collections.abc import Iterator, Sequence
from itertools import compress

from rrg_rewards.findings.lexicon.cues import cue_words
from rrg_rewards.findings.reading.layout import blank_requests, unwrap
from rrg_rewards.findings.reading.tokens import UNIT_MARK, normalise, pad, tokenise

__all__ = ["UNIT_SEPARATOR", "report_units", "split_unit", "tokenise_units"]

UNIT_SEPARATOR = ". "
"""Text between two units. A unit is one or several whole sentences; the engine remembers the results of each unit."""

# A full stop before a digit is a decimal point. Quotes and bullets separate the lines of an impression.
_STOP = re.compile(r"\.(?!\d)")
_BOUNDARY = re.compile(r'[\n\r;!"“”•\u3002\uff1b\uff01]+|\.(?!\d)')
# A full stop that can end an abbreviation, because no capital letter follows, and the word before it.
_INNER_STOP = re.compile(r"\.(?= *(?!no\b|there\b)[\da-z(~<])")
_LAST_WORD = re.compile(r"[A-Za-z]+\Z")
# A semicolon between the items of a list that are a size and a place: "nodules: 4 mm, left apex; 3 mm, right apex".
_SIZED_ITEM = re.compile(r";(?= ?\d+(?:[.,]\d+)? ?[mc]m *(?:[,(]|in\b|at\b))", re.IGNORECASE)
# Maximum length of an abbreviation in characters.
_ABBREVIATION = 8
# Maximum length of a sentence in characters; longer text without a boundary is cut.
_MAX_SENTENCE = 2000


def report_units(report: str) -> list[str]:
    """Return the units of a report without sections such as indication and technique.

    Example:
        >>> report_units("No effusion. Small hernia; clear lungs.")
        ['No effusion', 'Small hernia; clear lungs.']
        >>> report_units("Nodule, approx. 4 mm")
        ['Nodule, approx  4 mm']
    """
    return _without_abbreviations(_SIZED_ITEM.sub(",", unwrap(blank_requests(report)))).split(UNIT_SEPARATOR)


def _without_abbreviations(report: str) -> str:
    """Replace the full stop after an abbreviation such as "approx." by a space; the length does not change."""
    return _INNER_STOP.sub(lambda stop: " " if _is_abbreviation(report, stop.start()) else ".", report)


def _is_abbreviation(report: str, stop: int) -> bool:
    word = _LAST_WORD.search(report, max(0, stop - _ABBREVIATION), stop)
    return word is not None and word[0].lower() in cue_words("abbreviations", "stopped")


def split_unit(unit: str) -> list[tuple[int, str]]:
    """Return the sentences of a unit, each with its offset in the unit.

    Example:
        >>> split_unit('Size 2.5 mm." Effusion')
        [(0, 'Size 2.5 mm'), (13, ' Effusion')]
    """
    if len(unit) <= _MAX_SENTENCE and not _BOUNDARY.search(unit):
        return [(0, unit)] if unit else []
    found, start = [], 0
    for boundary in _BOUNDARY.finditer(unit):
        found += _bounded(start, unit[start : boundary.start()])
        start = boundary.end()
    return found + _bounded(start, unit[start:])


def _bounded(offset: int, sentence: str) -> list[tuple[int, str]]:
    found = []
    while len(sentence) > _MAX_SENTENCE:
        cut = sentence.rfind(" ", 1, _MAX_SENTENCE)
        cut = cut if cut > 0 else _MAX_SENTENCE
        found.append((offset, sentence[:cut]))
        offset, sentence = offset + cut, sentence[cut:]
    if sentence:
        found.append((offset, sentence))
    return found


def tokenise_units(units: Sequence[str]) -> Iterator[list[list[str]]]:
    """Yield, for each unit, the tokens of its sentences.

    The result is the same as that of :func:`split_unit` and
    :func:`~rrg_rewards.findings.reading.tokens.tokenise`, but the string operations run once for all units.

    Example:
        >>> list(tokenise_units(["No effusion; hernia", "Clear."]))
        [[['no', 'effusion'], ['hernia']], [['clear']]]
    """
    # Other units are tokenised separately: a character outside ASCII slows down the string operations on all units, and
    # a very long unit must be cut.
    plain = [unit.isascii() and len(unit) <= _MAX_SENTENCE and UNIT_MARK not in unit for unit in units]
    text = normalise(UNIT_MARK.join(compress(units, plain)))
    texts = iter(pad(_STOP.sub("\n", text)).split(UNIT_MARK))
    for unit, is_plain in zip(units, plain, strict=True):
        if is_plain:
            yield [tokens for line in next(texts).split("\n") if (tokens := line.split())]
        else:
            yield [tokenise(sentence) for _, sentence in split_unit(unit)]
