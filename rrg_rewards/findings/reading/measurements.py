"""Read numbers with units: sizes in tokens, and measures of any kind in the text of an answer or a sentence."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, NamedTuple

from rrg_rewards.findings.knowledge.load import load_knowledge

Ends = tuple[Fraction | None, Fraction | None]
"""Lowest and highest value of a range; ``None`` if unbounded."""

_DIMENSION = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(mm|cm|m)?")
# One or more dimensions in a token: "<5mm", "12x8", "4mmx3mm", "x3mm".
_TOKEN = re.compile(rf"(?:[<>]|x(?=.))?{_DIMENSION.pattern}(?:x{_DIMENSION.pattern})*x?")
# A number with or without a unit in a token: "30%", "45hu".
_VALUE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})([a-z%]*)")
_TIMES = ("x", "by", "times")
_LISTING = ("and", "or")
# Number of tokens of "one point five".
_SPELLED_SIZE = 3
# Number of words before a number in which a word such as "diameter" calls it a size.
_SIZE_WORD_REACH = 4
# Number of words before a number in which "ratio" calls it one: "the ratio of RV to LV is 1.4".
_RATIO_REACH = 7
# "m" after a number of a size means mm.
_METRES_MEANT = 1.0
_BETWEEN = re.compile(r"\bbetween\s+(.{1,20}?)\s+and\s+(?=[\d.])")
# A minus sign, unless it is between two measures: "3 mm - 5 mm".
_SIGN = re.compile(r"(?<![\w%.])(?<![\d%]\s)(?<!mm\s)(?<!cm\s)(?<!hu\s)(?<!ml\s)-\s?(?=\.?\d)")
_FOLLOWING = re.compile(r"\s*([a-z]+)")
_MOST_CHARACTERS = 100
_JOINING = re.compile(r"\s*(?:,|;|&|and|or|,\s*and)\s*")


class UnknownUnitError(ValueError):
    """A number is followed by a word that is not a known unit."""


class NumberTooLongError(ValueError):
    """A number has more digits than any measure. Exact arithmetic with such numbers would take unlimited time."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure of an answer.

    Args:
        kind: ``length`` (mm), ``attenuation`` (HU), ``volume`` (ml), ``share`` (%) or ``angle`` (degrees). ``None`` for
            a number without a unit: a count, or a number in the unit of the other answer.
        ranges: Lowest and highest value of each dimension, largest dimension first; ``None`` if unbounded.
    """

    kind: str | None
    ranges: tuple[Ends, ...]


@cache
def _named_units() -> dict[str, tuple[str, float]]:
    """Return the kind and the factor of each unit, by its names."""
    rules = load_knowledge("measurements")
    return {
        word: (kind, float(factor))
        for unit, (kind, factor) in rules["units"].items()
        for word in (unit, *rules["words"].get(unit, ()))
    }


@cache
def _millimetres() -> dict[str, float]:
    """Return the length in mm of each unit of length, by its names."""
    return {word: factor for word, (kind, factor) in _named_units().items() if kind == "length"}


@cache
def _words(name: str) -> frozenset[str]:
    return frozenset(load_knowledge("measurements")[name])


class TokenSize(NamedTuple):
    """A size in the tokens of a sentence: its two largest dimensions in mm, its end, and other sizes of its list."""

    largest: float
    second: float | None
    end: int
    others: tuple[float, ...] = ()


def size_at(tokens: Sequence[str], start: int) -> TokenSize | None:
    """Return the size that starts at a token, or ``None`` if no unit follows the number.

    A dimension without a unit has the unit of the next dimension, and the last one that of the dimension before. A
    number of more than 100 characters is no size.

    Example:
        >>> size_at("2.5 x 3 cm nodule".split(), 0), size_at("5 nodules".split(), 0)
        (TokenSize(largest=30.0, second=25.0, end=4, others=()), None)
        >>> size_at("4mmx3mm".split(), 0).second, size_at("5 to 7 mm".split(), 0).largest
        (3.0, 7.0)
        >>> size_at("8 , 3 and 5 mm".split(), 0)
        TokenSize(largest=8.0, second=None, end=6, others=(5.0, 3.0))
    """
    factors = _millimetres()
    numbers: list[float] = []
    units: list[float | None] = []
    i = end = start
    is_range = is_list = False
    while i < len(tokens):
        if match := _TOKEN.fullmatch(tokens[i]):
            for number, unit in _DIMENSION.findall(match[0]):
                if len(number) > _MOST_CHARACTERS:
                    return None
                numbers.append(float(number))
                units.append(factors.get(unit))
            i += 1
        elif numbers and (spelled := _spelled_number(tokens, i)):
            numbers.append(spelled)
            units.append(None)
            i += _SPELLED_SIZE
        else:
            break
        if units[-1] is None and i < len(tokens) and tokens[i] in factors:
            units[-1] = factors[tokens[i]]
            i += 1
        end = i
        if tokens[end - 1].endswith("x") or (i < len(tokens) and tokens[i].startswith("x") and tokens[i] != "x"):
            continue
        joins = tokens[i] if i < len(tokens) else ""
        # "8, 3 and 5 mm"
        is_item = joins in _LISTING or (joins == "," and tokens[i + 2 : i + 3] in (["and"], ["or"], [","]))
        if (joins == "to" and len(numbers) == 1) or (is_item and not any(units) and (is_list or len(numbers) == 1)):
            is_range, is_list = True, is_item
        elif joins not in _TIMES:
            break
        i += 1
    if not numbers:
        return None
    unit = _METRES_MEANT if tokens[start].endswith("m") and not any(units) and _is_meant(tokens, start) else None
    unit = next(filter(None, reversed(units)), unit)
    if unit is None:
        return None
    lengths = []
    for number, stated in zip(reversed(numbers), reversed(units), strict=True):
        unit = stated or unit
        lengths.append(number * unit)
    lengths.sort(reverse=True)
    second = None if is_range else next(iter(lengths[1:]), None)
    return TokenSize(lengths[0], second, end, tuple(lengths[1:]) if is_list else ()) if lengths[0] else None


class TokenValue(NamedTuple):
    """A value that is no length in the tokens of a sentence: its kind, the number, and the index after it."""

    kind: str
    number: float
    end: int


def value_at(tokens: Sequence[str], start: int) -> TokenValue | None:
    """Return the ratio, or the value with a unit that is no length, that starts at a token; ``None`` if none does.

    Example:
        >>> value_at("30% height loss".split(), 0), value_at("attenuation of 45 hu".split(), 2)
        (TokenValue(kind='share', number=30.0, end=1), TokenValue(kind='attenuation', number=45.0, end=4))
        >>> value_at("cardiothoracic ratio of 55 %".split(), 3)
        TokenValue(kind='ratio', number=0.55, end=5)
    """
    match = _VALUE.fullmatch(tokens[start])
    if match is None:
        return None
    units, end = _named_units(), start + 1
    unit = match[2]
    if not unit:
        unit = next((words for k in (2, 1) if (words := " ".join(tokens[end : end + k])) in units), "")
        end += len(unit.split())
    number = float(match[1])
    kind, factor = units.get(unit, (None, 1.0))
    if kind in (None, "share") and not _words("ratio_words").isdisjoint(tokens[max(0, start - _RATIO_REACH) : start]):
        return TokenValue("ratio", number if kind is None else number / 100, end)
    return None if kind in (None, "length") else TokenValue(kind, number * factor, end)


def _spelled_number(tokens: Sequence[str], start: int) -> float | None:
    """Return the number that "one point five" spells at a token, or ``None``."""
    words = tokens[start : start + _SPELLED_SIZE]
    names = load_knowledge("measurements")["numbers"]
    if len(words) < _SPELLED_SIZE or words[1] != "point" or not {words[0], words[2]} <= names.keys():
        return None
    return float(f"{names[words[0]]}.{names[words[2]]}")


def _is_meant(tokens: Sequence[str], start: int) -> bool:
    """Whether a number is called a size: "diameter of about 4m" means millimetres."""
    return not _words("size_words").isdisjoint(tokens[max(0, start - _SIZE_WORD_REACH) : start])


class _Grammar:
    """Regular expressions for measures in text, built from ``knowledge/measurements.yaml``."""

    def __init__(self, rules: dict[str, Any]) -> None:
        self.units = {unit: (kind, Fraction(factor)) for unit, (kind, factor) in rules["units"].items()}
        self.spellings = [(re.compile(pattern), spelling) for pattern, spelling in rules["spellings"]]
        self.numbers = {word: str(number) for word, number in rules["numbers"].items()}
        self.number_word = re.compile(rf"\b(?:{'|'.join(self.numbers)})\b")
        self.several = re.compile(rf"\b(?:{'|'.join(rules['several'])})\b")
        self.followers = frozenset(rules["followers"].split())
        unit, upper, lower = "|".join(self.units), "|".join(rules["upper"]), "|".join(rules["lower"])
        signed = rf"(?:neg)?~?(?:\d+(?:\.\d+)?|\.\d+)\s*(?:(?:{unit})(?![a-z]))?"
        span = rf"(?:(?:{upper}|{lower})\s*)?{signed}(?:\s*(?:-|\bto\b|\bthrough\b)\s*{signed})?"
        self.measure = re.compile(
            rf"(?<![a-z\d.]){span}(?:\s*(?:\bx\b|(?<=[\dm])x(?=\s*\d)|\bby\b)\s*{span})*|(?<![a-z])neg{span}"
        )
        self.ends_in_unit = re.compile(rf"(?:{unit})\s*$")
        self.dimension = re.compile(
            rf"(?P<upper>{upper})?(?P<lower>{lower})?\s*(?P<low>(?:neg)?~?[\d.]+)\s*(?P<unit>{unit})?"
            rf"(?:\s*(?:-|to|through)\s*(?P<high>(?:neg)?~?[\d.]+)\s*(?P<high_unit>{unit})?)?"
        )

    def spelled(self, text: str) -> str:
        """Return an answer with a uniform spelling of units, signs, decimal points and numbers."""
        text = text.lower()
        for pattern, spelling in self.spellings:
            text = pattern.sub(spelling or (lambda found: found[0].replace(",", "")), text)
        text = self.number_word.sub(lambda found: self.numbers[found[0]], text)
        text = _BETWEEN.sub(r"\1 to ", text)
        return _SIGN.sub("neg", text).replace("~", "")

    def factor(self, unit: str | None) -> Fraction:
        """Return the factor of a unit to the first unit of its kind; 1 without a unit."""
        return Fraction(1) if unit is None else self.units[unit][1]


@cache
def _grammar() -> _Grammar:
    return _Grammar(load_knowledge("measurements"))


@lru_cache(maxsize=1 << 14)
def read_measures(text: str) -> tuple[Measure, ...]:
    """Return the measures that an answer states, in order.

    Raises:
        UnknownUnitError: If a number has an unknown unit.
        NumberTooLongError: If a number has more than 100 characters.

    Example:
        >>> read_measures("up to 1.2 x 0.8 cm")
        (Measure(kind='length', ranges=((Fraction(12, 1), Fraction(12, 1)), (Fraction(8, 1), Fraction(8, 1)))),)
        >>> read_measures("none at all")
        ()
    """
    grammar = _grammar()
    text = grammar.spelled(text)
    matches = list(grammar.measure.finditer(text))
    if not matches:
        return (Measure(None, ((Fraction(2), None),)),) if grammar.several.search(text) else ()
    measures: list[Measure] = []
    unit: str | None = None
    # Backwards, because in "5 and 12 mm" the unit of the last number applies to both.
    for i in range(len(matches) - 1, -1, -1):
        match = matches[i]
        end = matches[i + 1].start() if i + 1 < len(matches) else -1
        if end < 0 or not _JOINING.fullmatch(text[match.end() : end]):
            unit = None
            word = _FOLLOWING.match(text, match.end())
            if word and word[1] not in grammar.followers and not grammar.ends_in_unit.search(match[0]):
                raise UnknownUnitError(word[1])
        measure, unit = _measure(grammar, match[0], unit)
        measures.append(measure)
    return tuple(reversed(measures))


def _measure(grammar: _Grammar, text: str, unit: str | None) -> tuple[Measure, str | None]:
    """Return a measure and its unit; a dimension without a unit has the unit of the next one."""
    ranges: list[Ends] = []
    for match in reversed(list(grammar.dimension.finditer(text))):
        high_unit = match["high_unit"] or match["unit"] or unit
        unit = match["unit"] or high_unit
        low = _number(match["low"]) * grammar.factor(unit)
        high = low if match["high"] is None else _number(match["high"]) * grammar.factor(high_unit)
        if match["upper"]:
            ranges.append((None, high))
        elif match["lower"]:
            ranges.append((low, None))
        else:
            ranges.append((min(low, high), max(low, high)))
    kind = None if unit is None else grammar.units[unit][0]
    return Measure(kind, tuple(sorted(ranges, key=_middle, reverse=True))), unit


def _number(text: str) -> Fraction:
    if len(text) > _MOST_CHARACTERS:
        raise NumberTooLongError(f"a number of {len(text)} characters")
    value = Fraction(text.removeprefix("neg").rstrip(".") or "0")
    return -value if text.startswith("neg") else value


def _middle(ends: Ends) -> Fraction:
    stated = [end for end in ends if end is not None]
    return sum(stated, Fraction(0)) / len(stated)
