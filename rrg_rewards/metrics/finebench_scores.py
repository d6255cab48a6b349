"""CT-FineBench's scores of report pairs, with their questions, answers and grades."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from rrg_rewards.functional.ct_finebench import ct_finebench_score
from rrg_rewards.judges.base import JudgeFailure
from rrg_rewards.judges.question_answering import GradedAnswer
from rrg_rewards.metrics.judged import JudgedScores
from rrg_rewards.questions.schema import AnswerType, QAItem

__all__ = [
    "KINDS",
    "SIDES",
    "Examination",
    "FineBenchMode",
    "FineBenchPair",
    "FineBenchScores",
    "Graded",
    "detail_names",
    "pooled_table",
]

FineBenchMode = Literal["recall", "precision", "f1"]
"""Source of the questions: the reference (``"recall"``, as published), the candidate, or both."""

SIDES: dict[str, tuple[str, ...]] = {"recall": ("recall",), "precision": ("precision",), "f1": ("recall", "precision")}
"""Sides of a report pair whose questions each mode grades."""

KINDS: tuple[str, ...] = get_args(AnswerType)
"""Kinds of questions."""

_PARTS = ("existence", "attributes", *(kind for kind in KINDS if kind != "existence"))
_COUNTS = ("items", "answered")
_NAN = float("nan")

Graded = tuple[GradedAnswer, ...]


@dataclass(frozen=True)
class FineBenchPair:
    """A report pair, with the questions and the positive findings of its reference if they are given."""

    reference: str
    candidate: str
    items: tuple[QAItem, ...] | None
    positive: frozenset[str] | None


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


def _harmonic_mean(recall: Tensor, precision: Tensor) -> Tensor:
    """Return the harmonic mean of both sides; a side without questions has nothing wrong and counts as 1."""
    sides = torch.stack([recall, precision]).nan_to_num(1.0)
    return 2 * sides.prod(0) / sides.sum(0).clamp(min=torch.finfo(torch.float64).tiny)


def detail_names(mode: str) -> list[str]:
    """Return the names of a mode's details; in mode ``f1`` they start with the name of the side.

    Example:
        >>> detail_names("recall")
        ['existence', 'attributes', 'numeric', 'categorical', 'location', 'items', 'answered']
    """
    if mode != "f1":
        return [*_PARTS, *_COUNTS]
    return ["recall", "precision", *(f"{side}_{name}" for side in SIDES[mode] for name in (*_PARTS, *_COUNTS))]


def _details(mode: str, examinations: Sequence[Examination]) -> Iterator[tuple[str, Tensor]]:
    """Yield the names and values of details."""
    for side in SIDES[mode]:
        answers = [examination.side(side) for examination in examinations]
        prefix = f"{side}_" if mode == "f1" else ""
        if prefix:
            yield side, _grades(answers)
        yield from ((f"{prefix}{part}", _grades(answers, part)) for part in _PARTS)
        yield f"{prefix}items", torch.tensor([len(row) for row in answers], dtype=torch.float64)
        answered = [sum(one.answer is not None for one in row) for row in answers]
        yield f"{prefix}answered", torch.tensor(answered, dtype=torch.float64)


def joined_sides(sides: Sequence[str], found: Sequence[Graded | JudgeFailure]) -> Examination | JudgeFailure:
    """Return the examination of a pair from its sides, or the first failure of a judge."""
    graded: dict[str, Graded] = {}
    for side, one in zip(sides, found, strict=True):
        if isinstance(one, JudgeFailure):
            return one
        graded[side] = one
    return Examination(**graded)


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
            values = _harmonic_mean(found["recall"], found["precision"]).masked_fill(failed, _NAN)
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


def pooled_table(names: Mapping[str, Sequence[str]], cells: Sequence[tuple[int, int, float]]) -> list[dict[str, Any]]:
    """Return the rows of a table: sums of the cells with equal names, without empty groups."""
    sums: dict[tuple[str, ...], tuple[int, int, float]] = {}
    for name, cell in zip(zip(*names.values(), strict=True), cells, strict=True):
        items, answered, grades = sums.get(name, (0, 0, 0.0))
        sums[name] = (items + cell[0], answered + cell[1], grades + cell[2])
    return [
        {**dict(zip(names, name, strict=True)), "items": items, "answered": answered / items, "score": grades / items}
        for name, (items, answered, grades) in sums.items()
        if items
    ]
