"""Scores of CT-FineBench with the questions, answers and grades of each report pair."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from rrg_rewards.functional.ct_finebench import ct_finebench_f1, ct_finebench_score
from rrg_rewards.judges.base import JudgeFailure
from rrg_rewards.judges.question_answering import GradedAnswer
from rrg_rewards.metrics.judged import JudgedScores
from rrg_rewards.questions.schema import AnswerType

SIDES: dict[str, tuple[str, ...]] = {"recall": ("recall",), "precision": ("precision",), "f1": ("recall", "precision")}
"""Sides of a report pair whose questions each mode grades."""

KINDS: tuple[str, ...] = get_args(AnswerType)
"""Kinds of questions."""

_PARTS = ("existence", "attributes", *(kind for kind in KINDS if kind != "existence"))
_COUNTS = ("items", "answered", "not_verbatim")
_NAN = float("nan")

Graded = tuple[GradedAnswer, ...]
"""The questions of one side of a report pair with their answers and grades."""


@dataclass(frozen=True)
class Examination:
    """Questions on a report pair with their answers and grades.

    Args:
        recall: Questions made from the reference, answered from the candidate; empty if the mode does not grade them.
        precision: Questions made from the candidate, answered from the reference; empty if the mode does not grade
            them.
    """

    recall: Graded = ()
    precision: Graded = ()

    def side(self, name: str) -> Graded:
        """Return the graded answers of a side by its name."""
        return self.recall if name == "recall" else self.precision


def _grades(answers: Sequence[Graded], part: str | None = None) -> Tensor:
    """Return the mean grade of each pair's questions, or of those in ``part``; NaN if there are none."""
    chosen = [[one.grade for one in row if part is None or _is_of(part, one)] for row in answers]
    return ct_finebench_score([grade for row in chosen for grade in row], [len(row) for row in chosen])


def _is_of(part: str, answer: GradedAnswer) -> bool:
    kind = answer.item.answer_type
    return kind != "existence" if part == "attributes" else kind == part


def detail_names(mode: str) -> list[str]:
    """Return the names of a mode's details; in mode ``f1`` they start with the name of the side.

    Example:
        >>> detail_names("recall")
        ['existence', 'attributes', 'numeric', 'categorical', 'location', 'items', 'answered', 'not_verbatim']
    """
    if mode != "f1":
        return [*_PARTS, *_COUNTS]
    sides = [f"{side}_{name}" for side in SIDES[mode] for name in (*_PARTS, *_COUNTS)]
    return ["recall", "precision", *sides]


def _details(mode: str, examinations: Sequence[Examination]) -> Iterator[tuple[str, Tensor]]:
    """Yield the names and values of details."""
    for side in SIDES[mode]:
        answers = [examination.side(side) for examination in examinations]
        prefix = f"{side}_" if mode == "f1" else ""
        if prefix:
            yield side, _grades(answers)
        yield from ((f"{prefix}{part}", _grades(answers, part)) for part in _PARTS)
        counts = (
            [len(row) for row in answers],
            [sum(one.answer is not None for one in row) for row in answers],
            [sum(one.not_verbatim for one in row) for row in answers],
        )
        for name, numbers in zip(_COUNTS, counts, strict=True):
            yield f"{prefix}{name}", torch.tensor(numbers, dtype=torch.float64)


@dataclass(frozen=True, kw_only=True, repr=False)
class FineBenchScores(JudgedScores):
    """CT-FineBench of report pairs with questions, answers and grades.

    Args:
        value: Score, float64 tensor ``(N,)``; NaN if a pair is unscorable, has no question (not in mode ``f1``), or a
            judge failed.
        details: Mean grades and numbers of questions, each ``(N,)``; see :meth:`CTFineBench.score`.
        results: Examination or failure of each pair; ``None`` if it was not examined.
    """

    @classmethod
    def of(cls, mode: str, results: Sequence[Examination | JudgeFailure]) -> "FineBenchScores":
        """Compute the scores of pairs from their examinations.

        Args:
            mode: Mode of the metric.
            results: Examination or failure of each pair.
        """
        examined = [result if isinstance(result, Examination) else Examination() for result in results]
        found = dict(_details(mode, examined))
        if mode == "f1":
            failed = torch.tensor([not isinstance(result, Examination) for result in results], dtype=torch.bool)
            values = ct_finebench_f1(found["recall"], found["precision"]).masked_fill(failed, _NAN)
        else:
            values = _grades([examination.side(mode) for examination in examined])
        # A pair without a score has no details either, not even numbers of questions.
        details = {name: found[name].masked_fill(values.isnan(), _NAN) for name in detail_names(mode)}
        return cls(values, details, results=tuple(results))

    @property
    def examinations(self) -> tuple[Examination | None, ...]:
        """Questions, answers and grades of each pair; ``None`` if there are none."""
        return tuple(result if isinstance(result, Examination) else None for result in self.results)

    @property
    def explanations(self) -> dict[str, list[str]]:
        """Columns of descriptions of errors, and the judge's ``failure``.

        ``omitted`` and ``wrong`` list statements of the reference, ``invented`` and ``contradicted`` statements of the
        candidate.
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
    """Describe the questions without an answer, or those with an answer that is not fully correct."""
    described = []
    for one in answers:
        if (one.answer is not None) is not answered or one.grade == 1:
            continue
        given = f"{one.answer} for {one.item.answer}" if answered else one.item.answer
        described.append(f"{one.item.finding}, {one.item.attribute}: {given}")
    return "; ".join(described)
