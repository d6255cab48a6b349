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

# A number with or without a unit in a token: "30%", "45hu".
_VALUE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})([a-z%]*)")
# Maximum number of tokens of a size.
_MOST_TOKENS = 64
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
    size, dimension = _size_patterns()
    match = size.match(" ".join(tokens[start : start + _MOST_TOKENS]))
    if match is None:
        return None
    factors = _millimetres()
    stated = [(_spelled(number), factors.get(glued or apart)) for number, glued, apart in dimension.findall(match[0])]
    # "Diameter of about 4m" means millimetres.
    is_meant = tokens[start].endswith("m") and not _words("size_words").isdisjoint(
        tokens[max(0, start - _SIZE_WORD_REACH) : start]
    )
    unit = next((factor for _, factor in reversed(stated) if factor), _METRES_MEANT if is_meant else None)
    if unit is None:
        return None
    lengths = []
    for number, factor in reversed(stated):
        unit = factor or unit
        lengths.append(number * unit)
    lengths.sort(reverse=True)
    if not lengths[0]:
        return None
    others = tuple(lengths[1:])
    second = others[0] if others and not (match["range"] or match["list"]) else None
    return TokenSize(lengths[0], second, start + 1 + match[0].count(" "), others if match["list"] else ())


@cache
def _size_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the pattern of a size in tokens with spaces between them, and that of each of its dimensions."""
    digits, names = rf"\d{{1,{_MOST_CHARACTERS}}}", "|".join(load_knowledge("measurements")["numbers"])
    number = rf"(?:{digits}(?:\.{digits})?|\.{digits})"
    value, unit = rf"(?:{number}|(?:{names}) point (?:{names}))", rf"(?:{'|'.join(_millimetres())})(?= |$)"
    length = rf"[<>]?{value}(?:mm|cm|m?(?: {unit})?)"
    more = rf"(?: ?x ?{length}| (?:by|times) {length})*"
    # "8, 3 and 5 mm"
    items = rf"[<>]?{number}(?: (?:and|or|,) [<>]?{number})* (?:and|or)"
    size = rf"(?:(?P<range>x?{length} to {length}{more})|(?P<list>{items} {length}{more})|x?{length}{more})x?(?= |$)"
    return re.compile(size), re.compile(rf"({value})(mm|cm)?m?(?: ({unit}))?")


def _spelled(number: str) -> float:
    """Return the value of a number, or of "one point five"."""
    names, words = load_knowledge("measurements")["numbers"], number.split()
    return float(number) if len(words) == 1 else float(f"{names[words[0]]}.{names[words[2]]}")


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
