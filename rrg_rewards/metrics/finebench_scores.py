"""CT-FineBench's scores of report pairs: what was asked, what was answered, and how right that is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from rrg_rewards.functional.ct_finebench import ct_finebench_score
from rrg_rewards.judges.base import JudgeFailure
from rrg_rewards.judges.examiner import GradedAnswer
from rrg_rewards.metrics.judged import JudgedScores
from rrg_rewards.schemas import AnswerType

__all__ = ["KINDS", "SIDES", "Examination", "FineBenchMode", "FineBenchScores", "Graded", "detail_names"]

FineBenchMode = Literal["recall", "precision", "f1"]
"""Whose statements are asked about: the reference's, as published; the candidate's; both."""

SIDES: dict[str, tuple[str, ...]] = {"recall": ("recall",), "precision": ("precision",), "f1": ("recall", "precision")}
"""The sides that a mode asks about."""

KINDS: tuple[str, ...] = get_args(AnswerType)
"""Kinds of questions."""

_PARTS = ("existence", "attributes", *(kind for kind in KINDS if kind != "existence"))
_COUNTS = ("items", "answered")
_NAN = float("nan")

Graded = tuple[GradedAnswer, ...]


@dataclass(frozen=True)
class Examination:
    """Questions on a report pair with their answers and grades.

    Args:
        recall: What the reference states, answered by the candidate; empty where it is not asked.
        precision: What the candidate states, answered by the reference; empty where it is not asked.
    """

    recall: Graded = ()
    precision: Graded = ()

    def side(self, name: str) -> Graded:
        """The answers of a side, by its name."""
        return self.recall if name == "recall" else self.precision


def _grades(answers: Sequence[Graded], part: str | None = None) -> Tensor:
    """Mean grade of each pair's questions, or of those of one part; NaN where there is none."""
    chosen = [[one.grade for one in row if part is None or _is_of(part, one)] for row in answers]
    return ct_finebench_score([grade for row in chosen for grade in row], [len(row) for row in chosen])


def _is_of(part: str, answer: GradedAnswer) -> bool:
    kind = answer.item.answer_type
    return kind != "existence" if part == "attributes" else kind == part


def _harmonic_mean(recall: Tensor, precision: Tensor) -> Tensor:
    """F of both sides; one without questions earns nothing: a report that says nothing is not precise."""
    sides = torch.stack([recall, precision]).nan_to_num(0.0)
    f1 = 2 * sides.prod(0) / sides.sum(0).clamp(min=torch.finfo(torch.float64).tiny)
    return f1.masked_fill(recall.isnan() & precision.isnan(), _NAN)


def detail_names(mode: str) -> list[str]:
    """Names of a mode's details; where both sides are asked about, they bear the side's name.

    Example:
        >>> detail_names("recall")
        ['existence', 'attributes', 'numeric', 'categorical', 'location', 'items', 'answered']
    """
    if mode != "f1":
        return [*_PARTS, *_COUNTS]
    return ["recall", "precision", *(f"{side}_{name}" for side in SIDES[mode] for name in (*_PARTS, *_COUNTS))]


def _details(mode: str, examinations: Sequence[Examination]) -> Iterator[tuple[str, Tensor]]:
    """Details of pairs by their names."""
    for side in SIDES[mode]:
        answers = [examination.side(side) for examination in examinations]
        prefix = f"{side}_" if mode == "f1" else ""
        if prefix:
            yield side, _grades(answers)
        yield from ((f"{prefix}{part}", _grades(answers, part)) for part in _PARTS)
        yield f"{prefix}items", torch.tensor([len(row) for row in answers], dtype=torch.float64)
        answered = [sum(one.answer is not None for one in row) for row in answers]
        yield f"{prefix}answered", torch.tensor(answered, dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class FineBenchScores(JudgedScores):
    """CT-FineBench of report pairs with questions, answers and grades.

    Args:
        value: The score, float64 tensor ``(N,)``; NaN where a pair is unscorable, nothing is asked or a judge failed.
        details: Mean grades by kind of question and numbers of questions, each ``(N,)``; see
            :meth:`CTFineBench.score`.
        results: Examination or failure of each pair; ``None`` where it was not examined.
    """

    @classmethod
    def of(cls, mode: str, results: Sequence[Examination | JudgeFailure]) -> "FineBenchScores":
        """Scores of pairs that were examined.

        Args:
            mode: Whose statements were asked about.
            results: Examination or failure of each pair.
        """
        examined = [result if isinstance(result, Examination) else Examination() for result in results]
        found = dict(_details(mode, examined))
        sides = [_grades([examination.side(side) for examination in examined]) for side in SIDES[mode]]
        values = _harmonic_mean(*sides) if mode == "f1" else sides[0]
        # Without a score there are no parts of it, not even of 0 questions.
        details = {name: found[name].masked_fill(values.isnan(), _NAN) for name in detail_names(mode)}
        return cls(values, details, results=tuple(results))

    @property
    def examinations(self) -> tuple[Examination | None, ...]:
        """Questions, answers and grades of each pair; ``None`` where there are none."""
        return tuple(result if isinstance(result, Examination) else None for result in self.results)

    @property
    def explanations(self) -> dict[str, list[str]]:
        """What each report omits, gets wrong, invents and contradicts, and why a judge failed on it.

        ``omitted`` and ``wrong`` are of what the reference states, ``invented`` and ``contradicted`` of what the
        candidate states.
        """
        found = [examination or Examination() for examination in self.examinations]
        return {
            "omitted": [_in_words(one.recall, answered=False) for one in found],
            "wrong": [_in_words(one.recall, answered=True) for one in found],
            "invented": [_in_words(one.precision, answered=False) for one in found],
            "contradicted": [_in_words(one.precision, answered=True) for one in found],
            **super().explanations,
        }


def _in_words(answers: Graded, answered: bool) -> str:
    """Questions without an answer, or those whose answer is not right."""
    told = []
    for one in answers:
        if (one.answer is not None) is not answered or one.grade == 1:
            continue
        given = f"{one.answer} for {one.item.answer}" if answered else one.item.answer
        told.append(f"{one.item.finding}, {one.item.attribute}: {given}")
    return "; ".join(told)
