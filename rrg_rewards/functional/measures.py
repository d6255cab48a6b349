"""Numbers with units as answers say them: sizes, ranges, attenuations, shares and counts, in exact arithmetic."""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

__all__ = ["Measure", "UnknownUnitError", "grade_measures", "read_measures"]

FULL_BELOW, HALF_BELOW = Fraction(1, 10), Fraction(3, 10)
"""Relative errors below which an answer is right, and right in part."""

_UNITS = {
    "mm": ("length", Fraction(1)),
    "cm": ("length", Fraction(10)),
    "hu": ("attenuation", Fraction(1)),
    "ml": ("volume", Fraction(1)),
    "l": ("volume", Fraction(1000)),
    "%": ("share", Fraction(1)),
    "degrees": ("angle", Fraction(1)),
}
# Spellings that become another one before anything is read.
_SPELLINGS = [
    (re.compile(pattern), spelling)
    for pattern, spelling in (
        (r"[\u2212\u2013\u2014]", "-"),
        (r"[\u00d7*]", " x "),
        (r"(?<=[mM])[xX](?=\s?\.?\d)", " x "),
        (r"\b(?:sq(?:uare|\.)? ?)(?:mm|cm)\b|(?<=[\d\s])[mc]m(?:\u00b2|\^?2\b)", "sqmm"),
        (r"\b(?:cm3|cm\^3|cubic (?:cm|centimet(?:er|re)s?))\b|cm³|\bcc\b|\bmillilit(?:er|re)s?\b", "ml"),
        (r"\blit(?:er|re)s?\b", "l"),
        (r"\bmillimet(?:er|re)s?\b|\bmms\b", "mm"),
        (r"\bcentimet(?:er|re)s?\b|\bcms\b", "cm"),
        (r"\bhounsfield(?: units?)?\b", "hu"),
        (r"\bper ?cent\b", "%"),
        (r"°|\bdegree\b", "degrees"),
        (r"(?<![\d.])(\d{1,3})((?:,\d{3})+)(?![\d,])", ""),
        (r"(?<=\d),(?=\d)", "."),
        (r"\bminus\s+(?=[\d.])", "-"),
    )
]
_WORDS = {
    name: str(n)
    for n, name in enumerate(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"])
}
_WORDS |= {"eleven": "11", "twelve": "12", "dozen": "12", "single": "1", "solitary": "1", "couple": "2", "pair": "2"}
_WORD = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b")
_VAGUE = re.compile(r"\b(?:multiple|several|numerous|many|few|innumerable)\b")
_BETWEEN = re.compile(r"\bbetween\s+(.{1,20}?)\s+and\s+(?=[\d.])")
# Not between two measures: "3 mm - 5 mm".
_SIGN = re.compile(r"(?<![\w%.])(?<![\d%]\s)(?<!mm\s)(?<!cm\s)(?<!hu\s)(?<!ml\s)-\s?(?=\.?\d)")
_UPPER = r"<=?|≤|\bless than|\bsmaller than|\bbelow|\bunder"
_LOWER = r">=?|≥|\bmore than|\blarger than|\bgreater than|\bover|\babove|\bat least"
_UNIT = r"mm|cm|hu|ml|l|%|degrees"
_ONE = rf"~?(?:\d+(?:\.\d+)?|\.\d+)\s*(?:(?:{_UNIT})(?![a-z]))?"
_SIGNED = rf"(?:neg)?{_ONE}"
_RANGE = rf"(?:(?:{_UPPER}|{_LOWER})\s*)?{_SIGNED}(?:\s*(?:-|\bto\b|\bthrough\b)\s*{_SIGNED})?"
_MEASURE = re.compile(
    rf"(?<![a-z\d.]){_RANGE}(?:\s*(?:\bx\b|(?<=[\dm])x(?=\s*\d)|\bby\b)\s*{_RANGE})*|(?<![a-z])neg{_RANGE}"
)
_DIMENSION = re.compile(
    rf"(?P<upper>{_UPPER})?(?P<lower>{_LOWER})?\s*(?P<low>(?:neg)?~?[\d.]+)\s*(?P<unit>{_UNIT})?"
    rf"(?:\s*(?:-|to|through)\s*(?P<high>(?:neg)?~?[\d.]+)\s*(?P<high_unit>{_UNIT})?)?"
)
_FOLLOWING = re.compile(r"\s*([a-z]+)")
# What may follow a number without being its unit.
_PLAIN = frozenset(
    [
        "x",
        "by",
        "to",
        "and",
        "or",
        "in",
        "at",
        "of",
        "on",
        "with",
        "within",
        "between",
        "the",
        "a",
        "an",
        "is",
        "are",
        "was",
        "were",
        "up",
        "short",
        "long",
        "largest",
        "smallest",
        "maximum",
        "minimum",
        "maximal",
        "max",
        "min",
        "diameter",
        "diameters",
        "axis",
        "size",
        "sized",
        "sizes",
        "thick",
        "thickness",
        "deep",
        "depth",
        "wide",
        "width",
        "length",
        "height",
        "nodule",
        "nodules",
        "node",
        "nodes",
        "lymph",
        "lesion",
        "lesions",
        "mass",
        "masses",
        "focus",
        "foci",
        "cyst",
        "cysts",
        "stone",
        "stones",
        "calculus",
        "calculi",
        "effusion",
        "effusions",
        "fracture",
        "fractures",
        "opacity",
        "opacities",
        "consolidation",
        "consolidations",
        "segment",
        "segments",
        "number",
        "total",
        "each",
        "approximately",
        "about",
        "around",
        "stent",
        "stents",
        "clip",
        "clips",
        "lead",
        "leads",
        "screw",
        "screws",
        "catheter",
        "catheters",
        "tube",
        "tubes",
        "rib",
        "ribs",
        "vertebra",
        "vertebrae",
        "area",
        "areas",
        "bulla",
        "bullae",
        "for",
        "axial",
        "transverse",
        "craniocaudal",
        "anteroposterior",
        "ap",
        "micronodules",
        "nodular",
        "pulmonary",
        "solid",
        "metastases",
        "suture",
        "sutures",
        "drain",
        "drains",
        "wire",
        "wires",
        "gallstone",
        "gallstones",
        "solitary",
        "small",
        "large",
        "renal",
        "hepatic",
        "right",
        "left",
        "lung",
        "lungs",
        "separate",
        "enlarged",
        "or",
        "so",
    ]
)
_JOINING = re.compile(r"\s*(?:,|;|&|and|or|,\s*and)\s*")


class UnknownUnitError(ValueError):
    """A number is followed by a word that is no unit."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure of an answer.

    Args:
        kind: ``length`` (mm), ``attenuation`` (HU), ``volume`` (ml), ``share`` (%), ``angle`` (degrees), or ``None``
            where no unit is given: a count, or a number whose unit the other answer tells.
        ranges: Lowest and highest value of each dimension, largest first; ``None`` is an open end.
    """

    kind: str | None
    ranges: tuple[tuple[Fraction | None, Fraction | None], ...]


@lru_cache(maxsize=1 << 14)
def read_measures(text: str) -> tuple[Measure, ...]:
    """Measures that an answer states, in order.

    Raises:
        UnknownUnitError: For a number with an unknown unit.

    Example:
        >>> read_measures("up to 1.2 x 0.8 cm")
        (Measure(kind='length', ranges=((Fraction(12, 1), Fraction(12, 1)), (Fraction(8, 1), Fraction(8, 1)))),)
        >>> read_measures("none at all")
        ()
    """
    text = _spelled(text)
    matches = list(_MEASURE.finditer(text))
    if not matches:
        return (Measure(None, ((Fraction(2), None),)),) if _VAGUE.search(text) else ()
    found: list[Measure] = []
    unit: str | None = None
    # From the last one: "5 and 12 mm" tells the unit of both at the end.
    for i in range(len(matches) - 1, -1, -1):
        match = matches[i]
        end = matches[i + 1].start() if i + 1 < len(matches) else -1
        if end < 0 or not _JOINING.fullmatch(text[match.end() : end]):
            unit = None
            word = _FOLLOWING.match(text, match.end())
            if word and word[1] not in _PLAIN and not re.search(rf"(?:{_UNIT})\s*$", match[0]):
                raise UnknownUnitError(word[1])
        measure, unit = _measure(match[0], unit)
        found.append(measure)
    return tuple(reversed(found))


def _spelled(text: str) -> str:
    """An answer in one spelling: units, signs, decimal points and numbers as digits."""
    text = text.lower()
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling if spelling else lambda found: found[1] + found[2].replace(",", ""), text)
    text = _WORD.sub(lambda found: _WORDS[found[0]], text)
    text = _BETWEEN.sub(r"\1 to ", text)
    return _SIGN.sub("neg", text).replace("~", "")


def _measure(text: str, unit: str | None) -> tuple[Measure, str | None]:
    """A measure of one or more dimensions, and its unit; dimensions without one take the next one's."""
    ranges: list[tuple[Fraction | None, Fraction | None]] = []
    for found in reversed(list(_DIMENSION.finditer(text))):
        high_unit = found["high_unit"] or found["unit"] or unit
        low_unit = found["unit"] or high_unit
        unit = low_unit
        low = _number(found["low"]) * _factor(low_unit)
        high = low if found["high"] is None else _number(found["high"]) * _factor(high_unit)
        if found["upper"]:
            ranges.append((None, high))
        elif found["lower"]:
            ranges.append((low, None))
        else:
            ranges.append((min(low, high), max(low, high)))
    kind = None if unit is None else _UNITS[unit][0]
    return Measure(kind, tuple(sorted(ranges, key=_middle, reverse=True))), unit


def _number(text: str) -> Fraction:
    value = Fraction(text.removeprefix("neg").rstrip(".") or "0")
    return -value if text.startswith("neg") else value


def _factor(unit: str | None) -> Fraction:
    return Fraction(1) if unit is None else _UNITS[unit][1]


def _middle(ends: tuple[Fraction | None, Fraction | None]) -> Fraction:
    known = [end for end in ends if end is not None]
    return sum(known, Fraction(0)) / len(known)


def grade_measures(target: Measure, said: Measure) -> float:
    """How well one measure answers for another: 1, 0.5 or 0.

    The error of a dimension is relative to the target's; the worst one counts. A range is answered by a value in it, or
    by its ends; a value is answered by a range as well as by the range's farther end. What has more dimensions than
    were asked for is compared by its largest; what has fewer is right in part at best.
    """
    if target.kind and said.kind and target.kind != said.kind:
        return 0.0
    grade = 1.0
    if {target.kind, said.kind} == {None, "share"}:
        target, said = _as_share(target), _as_share(said)
    if len(said.ranges) < len(target.ranges):
        grade = 0.5
    return min(grade, *(_grade(wanted, given) for wanted, given in zip(target.ranges, said.ranges, strict=False)))


def _as_share(measure: Measure) -> Measure:
    """A ratio such as 0.55 in percent; what has a unit, and whole numbers, stay."""
    ranges = [(low, high) for low, high in measure.ranges if low is not None and high is not None]
    if measure.kind or len(ranges) < len(measure.ranges) or not all(0 < end < 1 for ends in ranges for end in ends):
        return measure
    return Measure("share", tuple((100 * low, 100 * high) for low, high in ranges))


def _grade(target: tuple[Fraction | None, Fraction | None], said: tuple[Fraction | None, Fraction | None]) -> float:
    if None in target or None in said:
        return _grade_open(target, said)
    low, high = target[0] or Fraction(0), target[1] or Fraction(0)
    first, last = said[0] or Fraction(0), said[1] or Fraction(0)
    if first == last:
        error = Fraction(0) if low <= first <= high else min(_error(low, first), _error(high, first))
    else:
        error = max(_error(low, first), _error(high, last))
    return 1.0 if error < FULL_BELOW else 0.5 if error < HALF_BELOW else 0.0


def _error(target: Fraction, said: Fraction) -> Fraction:
    """Error relative to the target; zero has none but itself."""
    if target == said:
        return Fraction(0)
    return abs(said - target) / abs(target) if target else HALF_BELOW


def _grade_open(
    target: tuple[Fraction | None, Fraction | None], said: tuple[Fraction | None, Fraction | None]
) -> float:
    """Where an end is open, "less than 10 mm": right within it, in part around it."""
    closed = [_grade((a, a), (b, b)) for a, b in zip(target, said, strict=True) if a is not None and b is not None]
    if [end is None for end in target] == [end is None for end in said]:
        return min(closed)
    if None not in said:
        return 1.0 if _within(said, target) else max(closed, default=0.0) if said[0] == said[1] else 0.0
    return 0.5 if _within(target, said) else 0.0


def _within(inner: tuple[Fraction | None, Fraction | None], outer: tuple[Fraction | None, Fraction | None]) -> bool:
    above = outer[0] is None or (inner[0] is not None and inner[0] >= outer[0])
    below = outer[1] is None or (inner[1] is not None and inner[1] <= outer[1])
    return above and below
