"""Counts of one text: its words, sentences, frames of sentences, letter case, findings and sizes."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.reading.coverage import is_general_word
from rrg_rewards.findings.reading.engine import read_findings
from rrg_rewards.findings.reading.finding import Finding
from rrg_rewards.findings.reading.phrases import WordTable
from rrg_rewards.judges.instructions import find_instructions
from rrg_rewards.utilities.texts import text_hash

_WORD = re.compile(r"\w+")
_LETTERS = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"\d+")
_SENTENCE_END = re.compile(r"[.!?:](?=\s|$)|[\n;]")
_OR = re.compile(r"\b(?:or|versus|vs|either)\b|/", re.IGNORECASE)
_HEDGE = re.compile(
    r"\b(?:possib\w*|probab\w*|likely|perhaps|may|might|could|cannot|exclude\w*|uncertain\w*|unclear|suspicio\w*|suspect\w*"
    r"|suggest\w*|question\w*|versus|vs|either|differential)\b|^or\b",
    re.IGNORECASE,
)
_VAGUE = re.compile(
    r"\b(?:var(?:ious|iously|ying|ied|iable|iably)|differ(?:ent|ently|ing)|diverse|assorted|miscellaneous|sundry|unspecified"
    r"|unknown|undetermined|indefinite|arbitrary|something|somewhere|somehow|one or more|and so on|and so forth|etc"
    r"|any (?:size|number|kind|type|shape|place|location|side))\b",
    re.IGNORECASE,
)
_MEASURES = load_knowledge("measurements")
_UNIT = r"(?:[mc]m|(?:milli|centi)met(?:er|re)s?)"
_VALUE = rf"(?:\d+(?:\.\d+)?|\.\d+|\b(?:{'|'.join(_MEASURES['numbers'])})\b)"
_LESS, _MORE = "less|smaller|shorter|thinner|narrower|below|under", r"\w+er|more|above|over"
# A size, the words of an upper or lower bound before it ("less than", "no more than"), and those after it ("or more").
_SIZE = re.compile(
    r"(?:(?P<no>\bnot? )?"
    rf"(?:(?P<upper>{'|'.join(_MEASURES['upper'])}|\b(?:{_LESS}) than|\bup to|\bat most|\bmaximum(?: of)?)"
    rf"|(?P<lower>{'|'.join(_MEASURES['lower'])}|\b(?:{_MORE}) than|\bexceeding|\bminimum(?: of)?))"
    r"\s*(?:or equal to|about|approximately|around)?\s*)?"
    rf"(?P<value>{_VALUE}(?:\s*(?:x|by|\u00d7|\*)\s*{_VALUE})*)\s*(?P<unit>{_UNIT})\b"
    rf"(?:\s*(?:or|and)\s*(?:(?P<or_less>{_LESS})|(?P<or_more>{_MORE}))\b)?",
    re.IGNORECASE,
)
# Nearly every lesion has less than 30 mm, as a nodule has by definition, and more than 3 mm.
_LOOSE_UPPER, _LOOSE_LOWER = 30.0, 3.0
# Texts of which at least this share of the sentences repeat another one are repetitive.
_REPETITIVE = 0.4
# What replaces findings, places and descriptions, and numbers, in the frame of a sentence.
_CONTENT_SLOT, _NUMBER_SLOT = "_", "#"
_UNIT_END, _UNIT_WORD = re.compile(rf"{_UNIT}\b", re.IGNORECASE), re.compile(_UNIT)
# Letter case of the first words of sentences and of the others.
_PLACES, _SHAPES = ("first", "other"), ("lower", "capital", "upper", "mixed")
_CASES = tuple(f"{place}_{shape}" for place in _PLACES for shape in _SHAPES)
_REMEMBERED_SENTENCES = 20_000


class TextCounts(NamedTuple):
    """What is counted in a text.

    Args:
        sums: Numerator and denominator of each series.
        distinct: Hashes of the items of each series that counts distinct items.
        items: How often the text contains each sentence (0 or 1) and each frame, by hash.
    """

    sums: Mapping[str, tuple[float, float]]
    distinct: Mapping[str, Sequence[int]]
    items: Mapping[str, Mapping[int, int]]


class _Sentence(NamedTuple):
    """What is counted in a sentence."""

    words: str
    numberless: int
    frame: int
    hedged: bool
    vague: bool
    sizes: int
    bounds: int
    loose_bounds: int
    letter_case: Sequence[tuple[str, int]]


def count_text(text: str, n_gram: int, findings: bool = True) -> TextCounts:
    """Count the properties of a text.

    Sentences, and the whole text as one sentence, are compared without case, punctuation and the values of numbers.
    The series ``words`` counts parts between spaces.

    Args:
        text: A report.
        n_gram: Number of words of the counted n-grams.
        findings: Whether to read findings.

    Example:
        >>> counted = count_text("No effusion. No effusion.", n_gram=2)
        >>> counted.sums["repeated_sentences"], counted.sums["words"], len(set(counted.distinct["distinct_ngrams"]))
        ((1, 2), (4, 1), 2)
    """
    words = _WORD.findall(text.lower())
    whole = " ".join(words)
    sentences = [sentence for part in _SENTENCE_END.split(text) if (sentence := _read_sentence(part)) is not None]
    sums: dict[str, tuple[float, float]] = {
        "words": (len(text.split()), 1),
        "instructions": (bool(find_instructions(text)), 1),
        "hedged_sentences": (sum(sentence.hedged for sentence in sentences), len(sentences)),
        "vague_sentences": (sum(sentence.vague for sentence in sentences), 1),
        **_count_sizes(sentences),
        **_count_repetitions([sentence.words for sentence in sentences]),
        **_count_letter_case(sentences),
    }
    if findings:
        sums |= _count_found(text)
    grams = [text_hash(" ".join(words[start : start + n_gram])) for start in range(len(words) - n_gram + 1)]
    same = {sentence.numberless for sentence in sentences} | {text_hash(_NUMBER.sub("0", whole))}
    return TextCounts(
        sums,
        {"distinct_ngrams": grams, "distinct_reports": [text_hash(whole)]},
        {"sentences": dict.fromkeys(same, 1), "frames": Counter(sentence.frame for sentence in sentences)},
    )


@lru_cache(_REMEMBERED_SENTENCES)
def _read_sentence(sentence: str) -> _Sentence | None:
    """Count the properties of a sentence; ``None`` if it has no words. Many sentences occur in several reports."""
    words = _WORD.findall(sentence.lower())
    if not words:
        return None
    joined = " ".join(words)
    # Few sentences have a unit, and the search for sizes is slow.
    bounds = [_count_bound(size) for size in _SIZE.finditer(sentence)] if _UNIT_END.search(sentence) else []
    shapes = [shape for word in _LETTERS.findall(sentence) if (shape := _shape(word))]
    letter_case = Counter(f"{_PLACES[row > 0]}_{shape}" for row, shape in enumerate(shapes))
    return _Sentence(
        joined,
        text_hash(_NUMBER.sub("0", joined)),
        text_hash(sentence_frame(words)),
        _is_hedged(joined),
        _VAGUE.search(joined) is not None,
        len(bounds),
        sum(is_bound for is_bound, _ in bounds),
        sum(is_loose for _, is_loose in bounds),
        tuple(letter_case.items()),
    )


def sentence_frame(words: list[str]) -> str:
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
    slots = _slots()
    frame: list[str] = []
    for word in words:
        slot = slots[word]
        if word == "x" and frame and frame[-1] == _NUMBER_SLOT:
            continue
        if slot is not word and frame and frame[-1] is slot:
            continue
        frame.append(slot)
    return " ".join(frame)


@cache
def _slots() -> WordTable[str]:
    return WordTable(_slot)


def _slot(word: str) -> str:
    if _UNIT_WORD.fullmatch(word) or any(map(str.isdigit, word)):
        return _NUMBER_SLOT
    return word if is_general_word(word) else _CONTENT_SLOT


def _shape(word: str) -> str:
    """Return the letter case of a word, or an empty text if its letters have none.

    Example:
        >>> [_shape(word) for word in ("lung", "Lung", "A", "CT", "pH")]
        ['lower', 'capital', 'capital', 'upper', 'mixed']
    """
    if word.islower():
        return "lower"
    if word.istitle():
        return "capital"
    return "upper" if word.isupper() else "mixed" if word.lower() != word.upper() else ""


def _count_letter_case(sentences: Sequence[_Sentence]) -> dict[str, tuple[float, float]]:
    """Count the first words of sentences, and the other words, in each letter case."""
    counts = dict.fromkeys(_CASES, 0)
    for sentence in sentences:
        for case, count in sentence.letter_case:
            counts[case] += count
    totals = {place: sum(counts[f"{place}_{shape}"] for shape in _SHAPES) for place in _PLACES}
    return {f"letter_case/{case}": (count, totals[case.partition("_")[0]]) for case, count in counts.items()}


def _count_sizes(sentences: Sequence[_Sentence]) -> dict[str, tuple[float, float]]:
    """Count sizes, and the reports and sizes with a bound, or with one that says little."""
    sizes, bounds, loose = (
        sum(getattr(sentence, name) for sentence in sentences) for name in ("sizes", "bounds", "loose_bounds")
    )
    return {
        "sizes": (sizes, 1),
        "bounds/reports": (bounds > 0, 1),
        "bounds/sizes": (bounds, sizes),
        "bounds/loose": (loose, sizes),
    }


def _count_bound(size: re.Match[str]) -> tuple[bool, bool]:
    """Return whether a size is a bound, and whether it is one that nearly every lesion satisfies.

    Example:
        >>> [_count_bound(_SIZE.search(text)) for text in ("5 mm", "less than 5 mm", "less than 100 mm")]
        [(False, False), (True, False), (True, True)]
    """
    upper, lower = size["upper"] or size["or_less"], size["lower"] or size["or_more"]
    if size["no"]:
        upper, lower = lower, upper
    numbers = [_MEASURES["numbers"].get(value.lower(), value) for value in re.findall(_VALUE, size["value"], re.I)]
    value = max(map(float, numbers)) * (10 if size["unit"].lower().startswith("c") else 1)
    is_loose = bool((upper and value >= _LOOSE_UPPER) or (lower and value <= _LOOSE_LOWER))
    return bool(upper or lower), is_loose


def _count_repetitions(sentences: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Count the sentences that repeat one of the same text, and whether the text repeats any, some at once, or many."""
    repeated, total = len(sentences) - len(set(sentences)), len(sentences)
    return {
        "repeated_sentences": (repeated, total),
        "repeating_reports/any": (repeated > 0, 1),
        "repeating_reports/at_once": (repeated > 0 and _repeats_at_once(sentences), 1),
        "repeating_reports/many": (repeated > 0 and repeated >= _REPETITIVE * total, 1),
    }


def _repeats_at_once(sentences: Sequence[str]) -> bool:
    """Whether one or several sentences are followed by the same ones.

    Example:
        >>> _repeats_at_once(["a", "b", "c", "b", "c"]), _repeats_at_once(["a", "b", "a", "c"])
        (True, False)
    """
    return any(
        sentences[start : start + length] == sentences[start + length : start + 2 * length]
        for length in range(1, len(sentences) // 2 + 1)
        for start in range(len(sentences) - 2 * length + 1)
    )


def _count_found(text: str) -> dict[str, tuple[float, float]]:
    """Count findings, hedged findings and the words that rules have not read."""
    reading = read_findings(text)
    findings, hedged = _count_findings(text, reading.findings)
    return {
        "findings": (findings, 1),
        "hedged_findings": (hedged, 1),
        "unread_words": (reading.num_unread, reading.num_words),
    }


def _count_findings(report: str, mentions: Sequence[Finding]) -> tuple[int, int]:
    """Count the findings that a report does not deny, and the hedged ones among them.

    A finding is hedged if the report calls it uncertain or likely, names alternatives to it, or joins it to the finding
    before it by "or".

    Args:
        report: A report.
        mentions: Its mentions of findings.

    Returns:
        Numbers of findings and of hedged findings.

    Example:
        >>> report = "8 mm nodule or granuloma. Possible effusion. No edema or pneumothorax."
        >>> _count_findings(report, read_findings(report).findings)
        (3, 2)
    """
    found = [finding for finding in mentions if finding.presence != "absent"]
    joined = {
        second
        for first, second in pairwise(found)
        if first.sentence == second.sentence and _OR.search(report[first.end : second.start])
    }
    hedged = sum(
        finding.presence == "uncertain" or bool(finding.certainty or finding.alternatives) or finding in joined
        for finding in found
    )
    return len(found), hedged


def _is_hedged(sentence: str) -> bool:
    """Whether a sentence contains a word of uncertainty, or begins with "or".

    Example:
        >>> _is_hedged("Possibly the heart is enlarged"), _is_hedged("No effusion or edema")
        (True, False)
    """
    return _HEDGE.search(sentence) is not None
