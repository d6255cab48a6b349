"""Grade an answer against the true answer by its type: numeric, location, categorical or existence."""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, Literal, TypeVar, get_args

from rrg_rewards.findings.knowledge.load import cue_words
from rrg_rewards.findings.reading.measurements import Ends, Measure, NumberTooLongError, UnknownUnitError, read_measures
from rrg_rewards.questions.locations import Place, grade_place, lobes_of, opposed_details, places_in, read_places
from rrg_rewards.questions.schema import Answer, AnswerType, check_answer_type
from rrg_rewards.questions.vocabulary import answer_tokens, answer_vocabulary
from rrg_rewards.utilities.names import unknown_name_message

Grading = Literal["levels", "overlap"]
"""Grades of lists: 1, 0.5 or 0 for the whole answer, as published, or the overlap of its parts with the true ones."""

OverSpecified = Literal["right", "partial"]
"""Grade of an answer that contains the true one and says more: 1 (the paper's prompt) or 0.5 (its Section 3.3)."""

_GRADINGS, _OVER_SPECIFIED = get_args(Grading), get_args(OverSpecified)
_Part = TypeVar("_Part")
_Choice = TypeVar("_Choice")
# Types of answers that can say more than the true one; the paper grades numbers by their error only.
_SPECIFIABLE = frozenset({"location", "categorical"})
# Maximum number of words from a denial to the value, or to the place, that it denies: "not calcified".
_DENIAL_REACH = 2
_PLACE_DENIAL_REACH = 4
# Relative errors below which a number is right or partly right.
_FULL_BELOW, _HALF_BELOW = Fraction(1, 10), Fraction(3, 10)
# Separators of measures. A comma inside a number is a decimal point.
_BETWEEN = re.compile(r"\s*(?:;|,(?!\d)|\band\b)\s*")
_UNIT = re.compile(r"[a-z%]+\W*$", re.IGNORECASE)


def check_grading(grading: str, over_specified: str = "right") -> None:
    """Raise a ValueError unless a way of grading, and the grade of over-specified answers, are known."""
    for name, value, choices in (
        ("grading", grading, _GRADINGS),
        ("over_specified", over_specified, _OVER_SPECIFIED),
    ):
        if value not in choices:
            raise ValueError(unknown_name_message(name, str(value), choices))


def compare_answers(
    prediction: str | None,
    target: str,
    answer_type: AnswerType,
    grading: Grading = "levels",
    over_specified: OverSpecified = "right",
) -> float:
    r"""Grade an answer against the true answer.

    - ``numeric``: A relative error below 10 % gives 1, below 30 % gives 0.5, any other 0, in exact arithmetic.
      Units of one quantity are converted (mm, cm; HU; ml, cc; %). A number without a unit takes the unit of the other
      answer. Units of different quantities give 0. Words such as "about" and "up to" are ignored. Any value within a
      target range is right. The dimensions of "12 x 8 mm" match in any order. The answer "12 mm" is partly right for
      the target "12 x 8 mm". For the target "12 mm" only the largest dimension of the answer "12 x 8 mm" is compared.
      Only zero is right for zero. "Several" means two or more.
    - ``location``: Places consist of a side, a part of the body, and details such as "subpleural". The same place or a
      place within it is right. A wider place ("right lung" for "right lower lobe") and a part of several places are
      partly right. Another side, part or segment is wrong.
    - ``categorical``: Synonyms are equal. A narrower value ("platelike" for "linear") and additional values are right.
      A wider value, a part of several values, and a similar value are partly right. An opposite value is wrong.
    - ``existence``: Answers are affirmative, negative or doubtful. A doubtful answer is partly right for the other two.

    Words outside the vocabulary are compared literally.

    With ``grading="levels"``, as published, the answer as a whole gets one of these grades. A list that contains the
    true answer among others is then partly right, however long it is. With ``grading="overlap"``, lists of places,
    values or numbers are graded by the overlap of the true parts :math:`W` and the given parts :math:`S`:

    .. math::
        \frac{\sum_{w \in W} \max_{s \in S} g(w, s)}{|W| + |\{s \in S: g(w, s) = 0 \; \forall w \in W\}|}

    with the grades :math:`g` of single parts. It is the Jaccard index if all parts are right or wrong. A part of a
    categorical answer is surplus only if it competes with a true value: if both are values of the same property, or
    exclude each other. A similar value is surplus if the answer also contains the true one. A doubtful answer is wrong
    for a denied finding, and vice versa.

    With ``"overlap"``, an answer that leaves everything open answers nothing. If a list has surplus parts, its grade is
    multiplied by

    .. math::
        \min\left(1, \frac{n - s}{n - w}\right)

    with the number :math:`n` of choices (the lobes of both lungs, or the values of the property), :math:`s` of those
    that the answer names and :math:`w` of the true ones: a list of all choices gets 0. A range or a bound that contains
    the true number is graded by its width, beside the margin of 10 % on both sides of the true number :math:`t`, or
    of the larger end of a true range of width :math:`d`:

    .. math::
        \min\left(1, \frac{0.2 \, t + d}{\text{width}}\right)

    An upper bound begins at zero; a lower bound has no end and gets 0.

    The paper grades a correct answer that says more than the true one in two ways: 1 in the prompt of its appendix
    ("correct but more specific", "correct additional detail"), and 0.5 in its Section 3.3 ("over-specified").
    ``over_specified="right"`` follows the appendix. With ``"partial"``, an answer on a location or a category that
    would get 1 gets 0.5 if it is over-specified: if the true answer, graded against it, would not get 1.

    Args:
        prediction: The answer, or ``None``.
        target: The true answer.
        answer_type: ``numeric``, ``categorical``, ``location`` or ``existence``.
        grading: ``levels`` or ``overlap``.
        over_specified: ``right`` or ``partial``.

    Returns:
        1 (right), 0.5 (partly right) or 0 (wrong, or no answer); with ``overlap`` any value in [0, 1].

    Raises:
        ValueError: If the type, the grading or ``over_specified`` is unknown, if the true answer is blank, or if a
            numeric true answer has no number or an unknown unit, or a number of more than 100 characters. A prediction
            without a number, or with such a unit or number, is graded 0.

    Example:
        >>> compare_answers("1.3 cm", "12 mm", "numeric"), compare_answers("16 mm", "12 mm", "numeric")
        (1.0, 0.0)
        >>> compare_answers("right lower lobe", "both lower lobes", "location")
        0.5
        >>> compare_answers("subsolid", "part-solid", "categorical"), compare_answers(None, "solid", "categorical")
        (1.0, 0.0)
        >>> said = "right upper, middle and lower lobe, left upper and lower lobe"
        >>> [compare_answers(said, "left upper lobe", "location", grading) for grading in ("levels", "overlap")]
        [0.5, 0.0]
        >>> [compare_answers(said, "5 mm", "numeric", "overlap") for said in ("4-6 mm", "< 10 mm", "< 100 mm", "5 mm")]
        [0.5, 0.1, 0.01, 1.0]
        >>> compare_answers("superior segment of the right lower lobe", "right lower lobe", "location")
        1.0
        >>> compare_answers("spiculated, solid", "solid", "categorical", over_specified="partial")
        0.5
    """
    check_answer_type(answer_type)
    check_grading(grading, over_specified)
    if not isinstance(target, str) or not target.strip():
        raise ValueError("target must be an answer in words, got a blank one; leave the question out instead")
    grade = _compared(prediction, target, answer_type, grading)
    if over_specified == "right" or grade < 1 or prediction is None or answer_type not in _SPECIFIABLE:
        return grade
    return 1.0 if _compared(target, prediction, answer_type, grading) == 1 else 0.5


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


def _compared(prediction: str | None, target: str, answer_type: AnswerType, grading: Grading) -> float:
    if isinstance(prediction, Answer) and isinstance(target, Answer):
        # Equal texts are answers with equal values.
        return 1.0 if prediction == target else _GRADE[answer_type](target.values, prediction.values, grading)
    if answer_type == "numeric":
        _numeric_target(target)
    if prediction is None or _is_unanswered(prediction):
        return 0.0
    if " ".join(prediction.lower().split()) == " ".join(target.lower().split()):
        return 1.0
    if answer_type == "location":
        return _compare_places(prediction, target, grading)
    wanted, said = (
        answer.values if isinstance(answer, Answer) else _READ[answer_type](answer) for answer in (target, prediction)
    )
    return _GRADE[answer_type](wanted, said, grading)


def _is_unanswered(prediction: str) -> bool:
    text = " ".join(prediction.lower().strip(" .[]").split())
    return not text or text in _unanswered()


@lru_cache(maxsize=1)
def _unanswered() -> frozenset[str]:
    phrases = answer_vocabulary().answers["unanswered"]
    # "not stated|mentioned" means "not stated" and "not mentioned".
    negated = (f"not {word}" for text in phrases if text.startswith("not ") for word in text[4:].split("|"))
    return frozenset({*negated, *(text.strip("[]") for text in phrases)})


def _numeric_target(target: str) -> None:
    """Raise an error if a numeric true answer has no number or an unknown unit."""
    try:
        measures = read_measures(target)
    except UnknownUnitError:
        raise ValueError(
            "target of a numeric item has a number with an unknown unit; known are mm, cm, HU, ml, cc, l, % and degrees"
        ) from None
    except NumberTooLongError as error:
        raise ValueError(f"target of a numeric item contains {error}; a measure has at most 100") from None
    if not measures:
        raise ValueError("target of a numeric item must contain a number")


def _as_share(measure: Measure) -> Measure:
    """Return a ratio such as 0.55 in percent, and measures with a unit or a number outside (0, 1) unchanged."""
    ranges = [(low, high) for low, high in measure.ranges if low is not None and high is not None]
    if measure.kind or len(ranges) < len(measure.ranges) or not all(0 < end < 1 for ends in ranges for end in ends):
        return measure
    return Measure("share", tuple((100 * low, 100 * high) for low, high in ranges))


def _grade_range(target: Ends, said: Ends) -> float:
    if None in target or None in said:
        return _grade_open(target, said)
    low, high = target[0] or Fraction(0), target[1] or Fraction(0)
    first, last = said[0] or Fraction(0), said[1] or Fraction(0)
    if first == last:
        error = Fraction(0) if low <= first <= high else min(_error(low, first), _error(high, first))
    else:
        error = max(_error(low, first), _error(high, last))
    return 1.0 if error < _FULL_BELOW else 0.5 if error < _HALF_BELOW else 0.0


def _grade_by_width(target: Ends, said: Ends) -> float:
    """Grade a range that contains the true number or range by its width, and any other as :func:`_grade_range`."""
    low, high = target
    if low is None or high is None or said == target or said[0] == said[1] or not _within(target, said):
        return _grade_range(target, said)
    first, last = said
    if last is None or (first is None and low < 0):
        return 0.0
    width = last - (first or Fraction(0))
    return float(min(Fraction(1), (2 * _FULL_BELOW * max(abs(low), abs(high)) + high - low) / width)) if width else 1.0


def _grade_measures(target: Measure, said: Measure, grade_range: Callable[[Ends, Ends], float] = _grade_range) -> float:
    """Grade a measure: 1, 0.5 or 0, or the least grade that ``grade_range`` gives to a dimension.

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
    return min(grade, *(grade_range(wanted, given) for wanted, given in zip(target.ranges, said.ranges, strict=False)))


def readable_measures(text: str) -> tuple[Measure, ...]:
    """Return the measures of a text; none if it has one that cannot be read."""
    try:
        return read_measures(text)
    except (UnknownUnitError, NumberTooLongError):
        return ()


@lru_cache(maxsize=1 << 14)
def _grade_numbers(wanted: Sequence[Measure], said: Sequence[Measure], grading: Grading) -> float:
    if all(measure.kind for measure in wanted) and any(measure.kind for measure in said):
        # Ignore the numbers of images and series: "5 mm (image 45)".
        said = tuple(measure for measure in said if measure.kind)
    if grading == "levels":
        return _combined(wanted, said, _grade_measures)
    return _overlap(wanted, said, partial(_grade_measures, grade_range=_grade_by_width))


def is_open_bound(answer: str) -> bool:
    """Whether a number has an open end: "less than 10 mm".

    Example:
        >>> is_open_bound("< 10 mm"), is_open_bound("8-10 mm")
        (True, False)
    """
    return any(None in ends for measure in read_measures(answer) for ends in measure.ranges)


def is_vacuous_bound(answer: str) -> bool:
    """Whether a number is a bound that nearly every value of its kind satisfies (``vocabulary.yaml``).

    Example:
        >>> is_vacuous_bound("< 200 mm"), is_vacuous_bound("< 10 mm")
        (True, False)
    """
    return any(_is_vacuous(measure.kind, ends) for measure in read_measures(answer) for ends in measure.ranges)


def _is_vacuous(kind: str | None, ends: Ends) -> bool:
    if None not in ends or kind not in answer_vocabulary().vacuous_bounds:
        return False
    below, above = answer_vocabulary().vacuous_bounds[kind]
    low, high = ends
    return (low is None or low <= below) and (high is None or high >= above)


def _error(target: Fraction, said: Fraction) -> Fraction:
    """Return the error relative to the target. If the target is zero, any other value is wrong."""
    if target == said:
        return Fraction(0)
    return abs(said - target) / abs(target) if target else _HALF_BELOW


def _grade_open(target: Ends, said: Ends) -> float:
    """Grade ranges with an open end ("less than 10 mm"): 1 if within the target, 0.5 if they contain it."""
    closed = [
        _grade_range((a, a), (b, b)) for a, b in zip(target, said, strict=True) if a is not None and b is not None
    ]
    if [end is None for end in target] == [end is None for end in said]:
        return min(closed)
    if None not in said:
        return 1.0 if _within(said, target) else max(closed, default=0.0) if said[0] == said[1] else 0.0
    return 0.5 if _within(target, said) else 0.0


def _within(inner: Ends, outer: Ends) -> bool:
    above = outer[0] is None or (inner[0] is not None and inner[0] >= outer[0])
    below = outer[1] is None or (inner[1] is not None and inner[1] <= outer[1])
    return above and below


def _compare_places(prediction: str, target: str, grading: Grading) -> float:
    """Grade places of which a text names at least one side; texts without places are compared by their words."""
    wanted = target.values if isinstance(target, Answer) else read_places(target)
    said = prediction.values if isinstance(prediction, Answer) else _undenied_places(prediction)
    if not said and read_places(prediction):
        return 0.0
    if not wanted or not said:
        return _grade_values(_values(target), _values(prediction), grading)
    return _grade_places(wanted, said, grading)


@lru_cache(maxsize=1 << 16)
def _grade_places(wanted: Sequence[Place], said: Sequence[Place], grading: Grading) -> float:
    if grading == "levels":
        return _combined(wanted, said, grade_place)
    true, named = (frozenset[tuple[str, str]]().union(*map(lobes_of, places)) for places in (wanted, said))
    return _overlap(wanted, said, _alternative_place, _openness(true, named, len(answer_vocabulary().lobes)))


def _openness(wanted: frozenset[_Choice], said: frozenset[_Choice], choices: int) -> float:
    """Return how much an answer with surplus parts still says: 1, or less the more choices it names; 0 for all.

    Args:
        wanted: The choices that are true; empty if the answer has no choices.
        said: Those that the answer names.
        choices: Number of all choices.
    """
    return min(1.0, (choices - len(said)) / (choices - len(wanted))) if 0 < len(wanted) < choices else 1.0


def _alternative_place(target: Place, said: Place) -> float:
    """Grade a place whose details may be alternatives: "central or peripheral" for "peripheral"."""
    return grade_place(target, said) / (1 + len(opposed_details(target, said)))


@lru_cache(maxsize=1 << 14)
def _undenied_places(text: str) -> tuple[Place, ...]:
    """Return the places of an answer, without denied ones: "not in the right lung"."""
    tokens = answer_tokens(text)
    stated = (
        hit
        for hit in answer_vocabulary().answer_hits(tokens)
        if _denials().isdisjoint(tokens[_before(tokens, hit.start) : hit.start])
    )
    return places_in([word for hit in stated for _, word in hit.values if word.kind != "value"])


def _denials() -> frozenset[str]:
    return cue_words("denials", "always", "in_answers")


def _before(tokens: Sequence[str], start: int) -> int:
    """Return the index of the first token that can deny the place at ``start``. Denials end at punctuation."""
    first = max(0, start - _PLACE_DENIAL_REACH)
    return max((i + 1 for i in range(first, start) if not tokens[i][0].isalnum()), default=first)


def _combined(wanted: Sequence[_Part], said: Sequence[_Part], grade: Callable[[_Part, _Part], float]) -> float:
    """Return 1 if each part of both answers matches, 0.5 if any part matches, else 0."""
    grades = [[grade(part, own) for own in said] for part in wanted]
    best = [max(row, default=0.0) for row in grades]
    if not any(best):
        return 0.0
    is_whole = all(value == 1.0 for value in best) and all(any(row[i] for row in grades) for i in range(len(said)))
    return 1.0 if is_whole else 0.5


def _overlap(
    wanted: Sequence[_Part], said: Sequence[_Part], grade: Callable[[_Part, _Part], float], openness: float = 1.0
) -> float:
    """Return the sum of the best grades of the true parts, divided by the number of true and of surplus parts.

    With surplus parts, it is multiplied by ``openness``.
    """
    grades = [[grade(part, own) for own in said] for part in wanted]
    surplus = sum(not any(row[i] for row in grades) for i in range(len(said)))
    overlap = sum(max(row, default=0.0) for row in grades) / (len(wanted) + surplus)
    return overlap * openness if surplus else overlap


@lru_cache(maxsize=1 << 16)
def _grade_values(target: Sequence[str], prediction: Sequence[str], grading: Grading) -> float:
    wanted, said = frozenset(target), frozenset(prediction)
    if grading == "overlap":
        return _value_overlap(wanted, said)
    grades = []
    for value in wanted:
        grade = max((_grade_value(value, own) for own in said), default=0.0)
        if not grade and any(_opposed(value, own) for own in said - wanted):
            return 0.0
        grades.append(grade)
    if not any(grades):
        return 0.0
    contradicted = any(_opposed(value, own) for value in wanted for own in said - wanted)
    return 1.0 if all(value == 1.0 for value in grades) and not contradicted else 0.5


def _grade_value(value: str, said: str) -> float:
    """Grade a value: 1 if it equals the true one or is narrower, 0.5 if it is wider or similar, else 0."""
    vocabulary = answer_vocabulary()
    if value == said or value in vocabulary.broader.get(said, ()):
        return 1.0
    return 0.5 if said in vocabulary.broader.get(value, ()) or (said, value) in vocabulary.near else 0.0


def _value_overlap(wanted: frozenset[str], said: frozenset[str]) -> float:
    best = {value: max((_grade_value(value, own) for own in said), default=0.0) for value in wanted}
    surplus = [
        own
        for own in said
        if not any(_grade_value(value, own) == best[value] > 0 for value in wanted)
        and any(_opposed(value, own) or _same_property(value, own) for value in wanted)
    ]
    overlap = sum(best.values()) / (len(wanted) + len(surplus))
    if not surplus:
        return overlap
    if any(value not in best and _negated(value) in said for value in surplus):
        # "Calcified or not calcified"
        return 0.0
    properties = [frozenset(values) for values in answer_vocabulary().groups.values()]
    return overlap * min(
        (_openness(wanted & values, said & values, len(values)) for values in properties if values & {*surplus}),
        default=1.0,
    )


def _same_property(value: str, said: str) -> bool:
    """Whether two values are in one group of the vocabulary, such as margins."""
    return any(value in values and said in values for values in answer_vocabulary().groups.values())


def _negated(value: str) -> str:
    return value.removeprefix("not ") if value.startswith("not ") else f"not {value}"


def _opposed(value: str, said: str) -> bool:
    """Whether two values exclude each other."""
    if value.startswith("not ") != said.startswith("not "):
        return value.removeprefix("not ") == said.removeprefix("not ")
    return (value, said) in answer_vocabulary().opposed


@lru_cache(maxsize=1 << 14)
def _values(text: str) -> tuple[str, ...]:
    """Return the values in an answer, and its words outside the vocabulary without a plural ending."""
    vocabulary = answer_vocabulary()
    tokens = answer_tokens(text)
    known = [False] * len(tokens)
    found = set()
    for hit in vocabulary.answer_hits(tokens):
        words = [word for _, word in hit.values]
        names = [word.name for word in words if word.kind == "value"] or [
            word.name for word in words if tokens[hit.start] not in vocabulary.noise
        ]
        denied = any(token in _denials() for token in tokens[max(0, hit.start - _DENIAL_REACH) : hit.start])
        found |= {f"not {name}" if denied else name for name in names}
        known[hit.start : hit.end] = [True] * (hit.end - hit.start)
    for token, is_known in zip(tokens, known, strict=True):
        if not is_known and token[0].isalnum() and token not in vocabulary.noise and token not in _denials():
            found.add(token[:-1] if len(token) > 3 and token.endswith("s") and not token.endswith("ss") else token)
    kept = {value for value in found if not any(value in vocabulary.broader.get(own, ()) for own in found)}
    # An answer that consists only of noise words is compared by these words.
    return tuple(sorted(kept or set(tokens)))


def _grade_existence(target: Sequence[str], prediction: Sequence[str], grading: Grading) -> float:
    (wanted,), (said,) = target, prediction
    if wanted == said:
        return 1.0
    if grading == "overlap" and "denied" in (wanted, said):
        return 0.0
    return 0.5 if "doubted" in (wanted, said) else 0.0


def _polarity(text: str) -> str:
    """Return ``denied``, ``doubted`` or ``affirmed``. A description of the finding affirms it."""
    tokens = answer_tokens(text)
    answers = answer_vocabulary().answers
    if tokens[:1] and tokens[0] in answers["affirmed"]:
        # The denial in "Yes, without calcification." does not deny the finding.
        return "affirmed"
    if not cue_words("exclusions", "excluded").isdisjoint(tokens):
        return "denied" if cue_words("exclusions", "in_doubt").isdisjoint(tokens) else "doubted"
    for kind in ("denied", "doubted"):
        if not answers[kind].isdisjoint(tokens):
            return kind
    return "affirmed"


# How the values of answers are read from texts, and graded.
_READ: dict[str, Callable[[str], Sequence[Any]]] = {
    "numeric": readable_measures,
    "categorical": _values,
    "existence": lambda text: (_polarity(text),),
}
_GRADE: dict[str, Callable[[Sequence[Any], Sequence[Any], Grading], float]] = {
    "numeric": _grade_numbers,
    "location": _grade_places,
    "categorical": _grade_values,
    "existence": _grade_existence,
}
