"""Grade a number with a unit against the true one, in exact arithmetic."""

import re
from fractions import Fraction

from rrg_rewards.findings.reading.measurements import Ends, Measure, read_measures

__all__ = ["grade_measures", "largest_measure"]

FULL_BELOW, HALF_BELOW = Fraction(1, 10), Fraction(3, 10)
"""Relative errors below which an answer is right or partly right."""

# Separators of measures. A comma inside a number is a decimal point.
_BETWEEN = re.compile(r"\s*(?:;|,(?!\d)|\band\b)\s*")
_UNIT = re.compile(r"[a-z%]+\W*$", re.IGNORECASE)


def largest_measure(answer: str) -> str:
    """Return the largest measure of an answer that lists those of several lesions, or else the answer.

    Args:
        answer: Answer to a numeric question, with known units.

    Example:
        >>> largest_measure("8 mm and 1.2 x 0.9 cm"), largest_measure("3 and 2 cm"), largest_measure("1,2 cm")
        ('1.2 x 0.9 cm', '3 cm', '1,2 cm')
    """
    parts, measures = _BETWEEN.split(answer), read_measures(answer)
    if len(parts) < 2 or len(parts) != len(measures) or len({measure.kind for measure in measures}) > 1:
        return answer
    greatest = max(range(len(parts)), key=lambda i: max(end for end in measures[i].ranges[0] if end is not None))
    part = parts[greatest].strip()
    unit = _UNIT.search(parts[-1])
    return part if unit is None or _UNIT.search(part) else f"{part} {unit[0]}"


def grade_measures(target: Measure, said: Measure) -> float:
    """Grade a measure: 1, 0.5 or 0.

    Errors are relative to the target. The dimension with the largest error determines the grade. A value within a
    target range has no error. Two ranges are compared by their ends. A range is compared with a single target value by
    its farther end. Surplus dimensions are ignored, smallest first. With too few dimensions the grade is at most 0.5.
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
    """Return a ratio such as 0.55 in percent, and measures with a unit or a number outside (0, 1) unchanged."""
    ranges = [(low, high) for low, high in measure.ranges if low is not None and high is not None]
    if measure.kind or len(ranges) < len(measure.ranges) or not all(0 < end < 1 for ends in ranges for end in ends):
        return measure
    return Measure("share", tuple((100 * low, 100 * high) for low, high in ranges))


def _grade(target: Ends, said: Ends) -> float:
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
    """Return the error relative to the target. If the target is zero, any other value is wrong."""
    if target == said:
        return Fraction(0)
    return abs(said - target) / abs(target) if target else HALF_BELOW


def _grade_open(target: Ends, said: Ends) -> float:
    """Grade ranges with an open end ("less than 10 mm"): 1 if within the target, 0.5 if they contain it."""
    closed = [_grade((a, a), (b, b)) for a, b in zip(target, said, strict=True) if a is not None and b is not None]
    if [end is None for end in target] == [end is None for end in said]:
        return min(closed)
    if None not in said:
        return 1.0 if _within(said, target) else max(closed, default=0.0) if said[0] == said[1] else 0.0
    return 0.5 if _within(target, said) else 0.0


def _within(inner: Ends, outer: Ends) -> bool:
    above = outer[0] is None or (inner[0] is not None and inner[0] >= outer[0])
    below = outer[1] is None or (inner[1] is not None and inner[1] <= outer[1])
    return above and below
