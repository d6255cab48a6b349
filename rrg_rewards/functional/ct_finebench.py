"""CT-FineBench: answers to questions on single attributes of findings, compared by type (Yuan et al., 2026)."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, TypeVar, get_args

import torch
from torch import Tensor

from rrg_rewards.functional.answer_words import answer_tokens, answer_vocabulary
from rrg_rewards.functional.measures import UnknownUnitError, grade_measures, read_measures
from rrg_rewards.functional.places import Place, grade_place, places_in, read_places
from rrg_rewards.schemas import AnswerType
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["compare_answers", "ct_finebench_score"]

_Part = TypeVar("_Part")
# Words before a value that deny it: "not calcified".
_DENIALS = frozenset({"no", "not", "without", "non", "never"})
_DENIAL_REACH = 2
# "Cannot be excluded" is a doubt, "excluded" a denial.
_EXCLUDED = frozenset({"exclude", "excluded", "excludes", "rule", "ruled"})
_NOT_EXCLUDED = frozenset({"not", "cannot", "can", "couldn", "never", "difficult", "impossible"})
_PLACE_DENIAL_REACH = 4


def compare_answers(prediction: str | None, target: str, answer_type: AnswerType) -> float:
    """Grade an answer against the true one.

    - ``numeric``: units are converted (mm, cm; HU; ml, cc; %). A relative error below 10 % is 1, below 30 % is 0.5, all
      else 0, in exact arithmetic: 10 % is 0.5 and 30 % is 0. Words such as "about" and "up to" are left out; a number
      without a unit takes the other answer's; units of different kinds are 0. A range is answered by a value in it. "12
      x 8 mm" is answered by both, in any order; "12 mm" alone is in part right; asked for "12 mm" it is right by its
      largest. Zero is answered by zero only. "Several" stands for two or more.
    - ``location``: sides, parts of the body and details such as "subpleural". The same place or one in it is right, a
      wider one ("right lung" for "right lower lobe") is right in part, as is part of several places; another side, part
      or segment is wrong.
    - ``categorical``: values by synonyms. A kind of what is asked for ("platelike" for "linear") and more besides is
      right, something wider, a part of several values or a shade of it is right in part, its opposite is wrong.
    - ``existence``: yes, no, or doubtful, which is right in part.

    Words that the vocabulary does not know are compared as they are.

    Args:
        prediction: The answer; ``None`` where there is none.
        target: The true answer.
        answer_type: ``numeric``, ``categorical``, ``location`` or ``existence``.

    Returns:
        1 (right), 0.5 (right in part) or 0 (wrong, or none).

    Raises:
        ValueError: If the true answer is blank or, being numeric, holds no number or an unknown unit, or the type is
            unknown. A prediction that cannot be read is wrong instead.

    Example:
        >>> compare_answers("1.3 cm", "12 mm", "numeric"), compare_answers("16 mm", "12 mm", "numeric")
        (1.0, 0.0)
        >>> compare_answers("right lower lobe", "both lower lobes", "location")
        0.5
        >>> compare_answers("subsolid", "part-solid", "categorical"), compare_answers(None, "solid", "categorical")
        (1.0, 0.0)
    """
    if answer_type not in get_args(AnswerType):
        raise ValueError(unknown_name_message("answer_type", str(answer_type), get_args(AnswerType)))
    if not isinstance(target, str) or not target.strip():
        raise ValueError("target must be an answer in words, got a blank one; leave the question out instead")
    return _compared(prediction, target, answer_type)


@lru_cache(maxsize=1 << 16)
def _compared(prediction: str | None, target: str, answer_type: AnswerType) -> float:
    if answer_type == "numeric":
        _numeric_target(target)
    if prediction is None or _is_unanswered(prediction):
        return 0.0
    if " ".join(prediction.lower().split()) == " ".join(target.lower().split()):
        return 1.0
    return _COMPARE[answer_type](prediction, target)


def _is_unanswered(prediction: str) -> bool:
    text = " ".join(prediction.lower().strip(" .[]").split())
    return not text or text in _unanswered()


@lru_cache(maxsize=1)
def _unanswered() -> frozenset[str]:
    phrases = answer_vocabulary().answers["unanswered"]
    starts = ("not ", "")
    told = {phrase.removeprefix(starts[0]) for text in phrases if text.startswith("not ") for phrase in text.split("|")}
    return frozenset({*(f"not {word}" for word in told), *(text.strip("[]") for text in phrases)})


def _numeric_target(target: str) -> None:
    """Raise if a numeric item's own answer cannot be compared."""
    try:
        measures = read_measures(target)
    except UnknownUnitError:
        raise ValueError(
            "target of a numeric item has a number with an unknown unit; known are mm, cm, HU, ml, cc, l, % and degrees"
        ) from None
    if not measures:
        raise ValueError("target of a numeric item must hold a number")


def _compare_numeric(prediction: str, target: str) -> float:
    try:
        said = read_measures(prediction)
    except UnknownUnitError:
        return 0.0
    wanted = read_measures(target)
    if all(measure.kind for measure in wanted) and any(measure.kind for measure in said):
        # Not the numbers of images and series: "5 mm (image 45)".
        said = tuple(measure for measure in said if measure.kind)
    return _combined(wanted, said, grade_measures)


def _compare_places(prediction: str, target: str) -> float:
    wanted, said = read_places(target), _undenied_places(prediction)
    if not said and read_places(prediction):
        return 0.0
    if not wanted or not said:
        return _compare_values(prediction, target)
    return _combined(wanted, said, grade_place)


def _undenied_places(text: str) -> tuple[Place, ...]:
    """Places of an answer but those that it denies: "not in the right lung"."""
    tokens = answer_tokens(text)
    hits = answer_vocabulary().hits(tokens)
    return places_in(
        tokens, [hit for hit in hits if _DENIALS.isdisjoint(tokens[_before(tokens, hit.start) : hit.start])]
    )


def _before(tokens: Sequence[str], start: int) -> int:
    """Where the words that may deny what stands at ``start`` begin; a separator ends their reach."""
    first = max(0, start - _PLACE_DENIAL_REACH)
    return max((i + 1 for i in range(first, start) if not tokens[i][0].isalnum()), default=first)


def _combined(wanted: Sequence[_Part], said: Sequence[_Part], grade: Callable[[_Part, _Part], float]) -> float:
    """1 if each part is answered and nothing is said besides, 0.5 if any is answered, else 0."""
    grades = [[grade(part, own) for own in said] for part in wanted]
    best = [max(row, default=0.0) for row in grades]
    if not any(best):
        return 0.0
    is_whole = all(value == 1.0 for value in best) and all(any(row[i] for row in grades) for i in range(len(said)))
    return 1.0 if is_whole else 0.5


def _compare_values(prediction: str, target: str) -> float:
    vocabulary = answer_vocabulary()
    wanted, said = _values(target), _values(prediction)
    grades = []
    for value in wanted:
        if value in said or any(value in vocabulary.broader.get(own, ()) for own in said):
            grades.append(1.0)
        elif any(own in vocabulary.broader.get(value, ()) or (own, value) in vocabulary.near for own in said):
            grades.append(0.5)
        elif any(_opposed(value, own) for own in said - wanted):
            return 0.0
        else:
            grades.append(0.0)
    if not any(grades):
        return 0.0
    contradicted = any(_opposed(value, own) for value in wanted for own in said - wanted)
    return 1.0 if all(value == 1.0 for value in grades) and not contradicted else 0.5


def _opposed(value: str, said: str) -> bool:
    """Whether a finding that is the one cannot be the other."""
    if value.startswith("not ") != said.startswith("not "):
        return value.removeprefix("not ") == said.removeprefix("not ")
    return (value, said) in answer_vocabulary().opposed


@lru_cache(maxsize=1 << 14)
def _values(text: str) -> frozenset[str]:
    """Values that an answer names, and the words that mean nothing to the vocabulary, without plural endings."""
    vocabulary = answer_vocabulary()
    tokens = answer_tokens(text)
    known = [False] * len(tokens)
    found = set()
    for hit in vocabulary.hits(tokens):
        names = [name for kind, name in hit.meanings if kind == "value"] or [
            name for _, name in hit.meanings if tokens[hit.start] not in vocabulary.noise
        ]
        denied = any(token in _DENIALS for token in tokens[max(0, hit.start - _DENIAL_REACH) : hit.start])
        found |= {f"not {name}" if denied else name for name in names}
        known[hit.start : hit.end] = [True] * (hit.end - hit.start)
    for token, is_known in zip(tokens, known, strict=True):
        if not is_known and token[0].isalnum() and token not in vocabulary.noise and token not in _DENIALS:
            found.add(token[:-1] if len(token) > 3 and token.endswith("s") and not token.endswith("ss") else token)
    kept = {value for value in found if not any(value in vocabulary.broader.get(own, ()) for own in found)}
    # An answer of nothing but noise is the words themselves.
    return frozenset(kept) or frozenset(tokens)


def _compare_existence(prediction: str, target: str) -> float:
    wanted, said = _polarity(target), _polarity(prediction)
    if wanted == said:
        return 1.0
    return 0.5 if "doubted" in (wanted, said) else 0.0


def _polarity(text: str) -> str:
    """``denied``, ``doubted``, or ``affirmed``, which also a mere description does."""
    tokens = answer_tokens(text)
    answers = answer_vocabulary().answers
    if tokens[:1] and tokens[0] in answers["affirmed"]:
        # "Yes, without calcification."
        return "affirmed"
    if not _EXCLUDED.isdisjoint(tokens):
        return "denied" if _NOT_EXCLUDED.isdisjoint(tokens) else "doubted"
    for kind in ("denied", "doubted"):
        if not answers[kind].isdisjoint(tokens):
            return kind
    return "affirmed"


_COMPARE: dict[str, Callable[[str, str], float]] = {
    "numeric": _compare_numeric,
    "location": _compare_places,
    "categorical": _compare_values,
    "existence": _compare_existence,
}


def ct_finebench_score(grades: Tensor | Sequence[float], counts: Sequence[int] | Tensor) -> Tensor:
    r"""Mean grade of each report's questions (CT-FineBench, Section 3.3).

    .. math:: \text{score}_i = \frac{1}{n_i} \sum_{j=1}^{n_i} g_{ij}, \quad g_{ij} \in \{0, 0.5, 1\}

    Higher is better; the range is 0 to 1.

    Args:
        grades: Grades of all questions, one report's after the other's, ``(sum of counts,)``.
        counts: Questions of each report, ``(N,)``.

    Returns:
        ``(N,)`` in double precision; NaN for a report without questions.

    Raises:
        ValueError: If there are not as many grades as counts say, a count is negative, or a grade lies outside 0 to 1.

    Example:
        >>> ct_finebench_score([1.0, 0.5, 0.0], [2, 0, 1])
        tensor([0.7500,    nan, 0.0000], dtype=torch.float64)
    """
    values = torch.as_tensor(grades, dtype=torch.float64).reshape(-1)
    sizes: list[Any] = [int(count) for count in counts]
    if any(size < 0 for size in sizes):
        raise ValueError(f"counts must not be negative, got {sizes}")
    if sum(sizes) != len(values):
        raise ValueError(f"grades and counts differ: {len(values)} grades, but counts add up to {sum(sizes)}")
    if not bool(((values >= 0) & (values <= 1)).all()):
        raise ValueError("grades must lie between 0 and 1")
    ends = list(accumulate(sizes))
    means = [
        values[end - size : end].mean() if size else torch.tensor(float("nan"))
        for end, size in zip(ends, sizes, strict=True)
    ]
    return torch.stack([mean.double() for mean in means]) if means else torch.empty(0, dtype=torch.float64)
