"""CT-FineBench as a metric on report text: questions on single attributes, by the finding engine or by judges."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from rrg_rewards.judges.base import JudgeFailure
from rrg_rewards.judges.examiner import ENGINE, Examiner, GradedAnswer, JudgeSetting
from rrg_rewards.metrics.base import Scores
from rrg_rewards.metrics.finebench_scores import (
    KINDS,
    SIDES,
    Examination,
    FineBenchMode,
    FineBenchScores,
    Graded,
    detail_names,
)
from rrg_rewards.metrics.judged import FAILURE_KINDS, AskingMetric
from rrg_rewards.metrics.question_items import QuestionIndex, question_index, read_items
from rrg_rewards.schemas import QAItem, QuestionSchema
from rrg_rewards.utilities.signature import format_signature

__all__ = ["CTFineBench", "FineBenchMode", "FineBenchScores"]


@dataclass(frozen=True)
class FineBenchPair:
    """A report pair, with its questions where they are given."""

    reference: str
    candidate: str
    items: tuple[QAItem, ...] | None


class CTFineBench(AskingMetric[FineBenchPair, Examination]):
    r"""CT-FineBench: how many questions on single attributes of findings a candidate answers as the reference does.

    From the reference questions are made, on the existence of each finding that it states and on each attribute that
    it states of it (size, place, density, margin, ...); they are answered from the candidate, and each answer is graded
    1, 0.5 or 0 (:func:`rrg_rewards.functional.compare_answers`); no answer is 0. A report's score is the mean grade of
    its questions, the corpus value the mean over scored reports. float64 in [0, 1], higher is better; NaN where no pair
    is scored.

    As published the metric asks for what the reference states only, so that a candidate may invent what it likes. Our
    own answer to this is ``mode``:

    - ``"recall"``: as published. A pair whose reference gives no question is unscorable.
    - ``"precision"``: questions made of the candidate, answered by the reference. A candidate that gives no question is
      unscorable.
    - ``"f1"``: the harmonic mean :math:`2RP/(R+P)` of both, 0 where both are 0. Where one side alone gives no question
      it counts 0: a candidate that says nothing, or one that invents findings for a normal reference, scores 0. A pair
      is unscorable where neither does.

    Source: Yuan et al., "CT-FineBench".

    Args:
        schema: Name or YAML file of the question schema, or the schema: which findings and attributes are asked about.
        answerer: Who answers questions from a report: ``"engine"``, the finding engine, or a judge, its name or
            settings as :func:`rrg_rewards.judges.get_judge` takes them.
        builder: Who makes questions, likewise.
        comparer: Who grades answers, likewise; ``"engine"`` grades by rules.
        mode: ``"recall"``, ``"precision"`` or ``"f1"``.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: For an unknown schema, judge or mode.
        TypeError: For something that is no judge, or an argument that the judge does not take.

    Example:
        >>> from rrg_rewards.metrics import CTFineBench
        >>> metric = CTFineBench()
        >>> reference = "Nodule of 8 mm in the left upper lobe."
        >>> metric.score([reference, "Nodule of 8 mm in the right upper lobe.", "Normal."], [reference] * 3).value
        tensor([1.0000, 0.6667, 0.0000], dtype=torch.float64)
    """

    name = "ct_finebench"
    plot_lower_bound: float = 0.0
    plot_upper_bound: float = 1.0

    score_sum: Tensor
    num_scored: Tensor
    num_without_items: Tensor
    detail_sums: Tensor
    detail_counts: Tensor
    grade_sums: Tensor
    item_counts: Tensor
    answered_counts: Tensor

    def __init__(
        self,
        schema: str | Path | QuestionSchema = "ct_rate",
        *,
        answerer: JudgeSetting = ENGINE,
        builder: JudgeSetting = ENGINE,
        comparer: JudgeSetting = ENGINE,
        mode: FineBenchMode = "recall",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if mode not in get_args(FineBenchMode):
            raise ValueError(f"mode must be one of {', '.join(get_args(FineBenchMode))}; got {mode!r}")
        self.mode = mode
        self.examiner = Examiner(schema, builder=builder, answerer=answerer, comparer=comparer)
        self.detail_names = detail_names(mode)
        # The last columns are of the kinds of questions.
        table = (len(SIDES[mode]), len(self.index) + len(KINDS))
        for name in ("score_sum", "num_scored", "num_without_items"):
            dtype = torch.float64 if name == "score_sum" else torch.long
            self.add_state(name, torch.tensor(0, dtype=dtype), dist_reduce_fx="sum")
        self.add_state("detail_sums", torch.zeros(len(self.detail_names), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("detail_counts", torch.zeros(len(self.detail_names), dtype=torch.long), dist_reduce_fx="sum")
        self.add_state("grade_sums", torch.zeros(table, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("item_counts", torch.zeros(table, dtype=torch.long), dist_reduce_fx="sum")
        self.add_state("answered_counts", torch.zeros(table, dtype=torch.long), dist_reduce_fx="sum")

    @property
    def index(self) -> QuestionIndex:
        """Where each attribute of the schema stands in the tables."""
        return question_index(self.examiner.schema)

    @property
    def is_immediate(self) -> bool:
        """Whether no judge is waited for."""
        return self.examiner.is_immediate

    @property
    def signature(self) -> str:
        """What exactly is computed: mode, question schema, and who makes, answers and grades questions."""
        return format_signature("ct_finebench", mode=self.mode, **self.examiner.signature)

    def score(
        self, preds: Sequence[str | None], target: Sequence[str | None], **context: Sequence[Any]
    ) -> FineBenchScores:
        """CT-FineBench of each report pair.

        Args:
            preds: ``N`` candidate reports.
            target: ``N`` reference reports; with ``items`` in mode ``recall`` they are not read, and may be ``None``.
            context: ``items``, if given: each reference's questions in place of those made of it, as
                :func:`rrg_rewards.metrics.question_items.read_items` takes them. A row of ``None`` or of no question is
                unscorable.

        Returns:
            ``value``: the score. ``details``, each ``(N,)``: mean grades of the questions on ``existence``, of those on
            ``attributes``, and of the ``numeric``, ``categorical`` and ``location`` ones among these, NaN where there
            is none; the numbers of questions (``items``) and of those ``answered``. In mode ``f1`` ``recall`` and
            ``precision``, and all these with ``recall_`` or ``precision_`` before their names.
            ``examinations``: questions, answers and grades.

        Raises:
            TypeError: If a report is no text or a row of ``items`` no list of questions, by argument and row; if a
                context column is not known, or ``items`` are given in mode ``precision``, which asks about candidates.
            ValueError: If lengths differ, or a question is not of the schema or has no answer that can be compared, by
                row and number.
        """
        scores = super().score(preds, target, **context)
        assert isinstance(scores, FineBenchScores)
        return scores

    def _choose(
        self, preds: Sequence[str | None], target: Sequence[str | None], context: Mapping[str, Sequence[Any]]
    ) -> tuple[Tensor, list[str], list[str], dict[str, list[Any]]]:
        self._check_columns(context, ("items",))
        if "items" in context and self.mode == "precision":
            raise TypeError("mode 'precision' makes its questions of the candidates, so it takes no column items")
        # What is no column at all is told by the checks of every metric.
        if hasattr(context.get("items"), "__len__") and not isinstance(context["items"], str):
            context = {"items": read_items(context["items"], self.index)}
        return super()._choose(preds, target, context)

    def _scorable(
        self, preds: Sequence[str | None], target: Sequence[str | None], context: Mapping[str, Sequence[Any]]
    ) -> Tensor:
        if "items" not in context:
            return super()._scorable(preds, target, context)
        asked = torch.tensor([items is not None for items in context["items"]], dtype=torch.bool)
        if self.mode == "f1":
            return asked & super()._scorable(preds, target, context)
        return asked & torch.tensor([report is not None for report in preds], dtype=torch.bool)

    def _items(
        self, preds: Sequence[str], target: Sequence[str], context: Mapping[str, Sequence[Any]]
    ) -> list[FineBenchPair]:
        items = context.get("items", [None] * len(preds))
        return [FineBenchPair(*row) for row in zip(target, preds, items, strict=True)]

    async def _ask(self, items: Sequence[FineBenchPair]) -> list[Examination | JudgeFailure]:
        found = await asyncio.gather(*(self._ask_side(side, items) for side in SIDES[self.mode]))
        return [_joined(SIDES[self.mode], sides) for sides in zip(*found, strict=True)]

    async def _ask_side(self, side: str, pairs: Sequence[FineBenchPair]) -> list[Graded | JudgeFailure]:
        """Ask what one side states, of the other."""
        recall = side == "recall"
        given = [pair.items if recall else None for pair in pairs]
        asking = [pair.reference if recall else pair.candidate for pair in pairs]
        made = iter(
            await self.examiner.build(
                [report for report, items in zip(asking, given, strict=True) if items is None],
                # References come again; candidates do not.
                remember=recall,
            )
        )
        asked = [next(made) if items is None else items for items in given]
        rows = [row for row, items in enumerate(asked) if not isinstance(items, JudgeFailure)]
        answering = [pair.candidate if recall else pair.reference for pair in pairs]
        questions = [items for items in asked if not isinstance(items, JudgeFailure)]
        graded = iter(await self.examiner.examine([answering[row] for row in rows], questions))
        return [items if isinstance(items, JudgeFailure) else next(graded) for items in asked]

    def _judged(self, results: Sequence[Examination | JudgeFailure]) -> FineBenchScores:
        return FineBenchScores.of(self.mode, results)

    def _accumulate(self, scores: Scores) -> None:
        super()._accumulate(scores)
        assert isinstance(scores, FineBenchScores)
        scored = scores.scored
        self.score_sum += scores.value[scored].sum().to(self.device)
        self.num_scored += int(scored.sum())
        examined = [one for one in scores.examinations if one is not None]
        self.num_without_items += len(examined) - int(scored.sum())
        details = torch.stack([scores.details[name] for name in self.detail_names])
        self.detail_sums += details.nansum(1).to(self.device)
        self.detail_counts += (~details.isnan()).sum(1).to(self.device)
        for row, side in enumerate(SIDES[self.mode]):
            self._count(row, [one for examination in examined for one in examination.side(side)])

    def _count(self, row: int, answers: Sequence[GradedAnswer]) -> None:
        """Add answers of a side to its rows of the tables."""
        places = [self.index.place(one.item) for one in answers]
        kinds = [len(self.index) + KINDS.index(one.item.answer_type) for one in answers]
        index = torch.tensor(places + kinds, dtype=torch.long, device=self.device)
        for name, values in (
            ("grade_sums", [one.grade for one in answers]),
            ("item_counts", [1] * len(answers)),
            ("answered_counts", [int(one.answer is not None) for one in answers]),
        ):
            table: Tensor = getattr(self, name)
            table[row].index_add_(0, index, torch.tensor(values * 2, dtype=table.dtype, device=self.device))

    def compute(self) -> Tensor:
        """Mean score of the pairs scored so far: float64 scalar, NaN where there is none."""
        return self.score_sum / self.num_scored

    def counts(self) -> dict[str, Tensor]:
        """Numbers of pairs so far, synced over processes as ``compute`` is, so every process must call it.

        Returns:
            int64 scalars: ``scored``, ``unscorable``, and among the latter ``without_items``, pairs on which there is
            no question, and those that a judge failed on, by kind (``failed_deadline`` and so on).
        """
        with self._synced():
            return {
                "scored": self.num_scored.clone(),
                "unscorable": self.num_unscorable.clone(),
                "without_items": self.num_without_items.clone(),
                **dict(zip((f"failed_{kind}" for kind in FAILURE_KINDS), self.num_failed.clone(), strict=True)),
            }

    def statistics(self) -> dict[str, Tensor]:
        """Means over reports of the details, each over the reports that have it, synced as ``compute`` is.

        Returns:
            float64 scalars by the names of :meth:`score`'s details; NaN where no report has any.
        """
        with self._synced():
            means = self.detail_sums / self.detail_counts
        return dict(zip(self.detail_names, means, strict=True))

    def tables(self, side: str | None = None) -> dict[str, list[dict[str, Any]]]:
        """Grades pooled over all questions so far, synced as ``compute`` is, so every process must call it.

        Args:
            side: ``"recall"`` or ``"precision"``; default: the mode's, and ``"recall"`` in mode ``f1``.

        Returns:
            Tables ``finding``, ``attribute``, ``finding_attribute`` and ``answer_type``: of each a row for what was
            asked about, with its names, the number of questions (``items``), the share of them that has an answer
            (``answered``) and their mean grade (``score``).

        Raises:
            ValueError: If the mode does not ask about the side.

        Example:
            >>> metric = CTFineBench()
            >>> metric.update(["Normal."], ["Nodule of 8 mm in the left upper lobe."])
            >>> metric.tables()["finding"]
            [{'finding': 'Lung nodule', 'items': 3, 'answered': 0.0, 'score': 0.0}]
        """
        sides = SIDES[self.mode]
        if side is not None and side not in sides:
            raise ValueError(f"mode {self.mode!r} asks about {' and '.join(sides)}, not about {side!r}")
        row = sides.index(side) if side is not None else 0
        with self._synced():
            columns = [states[row].tolist() for states in (self.item_counts, self.answered_counts, self.grade_sums)]
        cells = list(zip(*columns, strict=True))
        pairs, kinds = cells[: len(self.index)], cells[len(self.index) :]
        findings, attributes = zip(*self.index.pairs, strict=True)
        return {
            "finding": _pooled({"finding": findings}, pairs),
            "attribute": _pooled({"attribute": attributes}, pairs),
            "finding_attribute": _pooled({"finding": findings, "attribute": attributes}, pairs),
            "answer_type": _pooled({"answer_type": KINDS}, kinds),
        }


def _joined(sides: Sequence[str], found: Sequence[Graded | JudgeFailure]) -> Examination | JudgeFailure:
    graded: dict[str, Graded] = {}
    for side, one in zip(sides, found, strict=True):
        if isinstance(one, JudgeFailure):
            return one
        graded[side] = one
    return Examination(**graded)


def _pooled(names: Mapping[str, Sequence[str]], cells: Sequence[tuple[int, int, float]]) -> list[dict[str, Any]]:
    """Rows of a table: sums of the cells of the same names, without those that are empty."""
    sums: dict[tuple[str, ...], tuple[int, int, float]] = {}
    for name, cell in zip(zip(*names.values(), strict=True), cells, strict=True):
        items, answered, grades = sums.get(name, (0, 0, 0.0))
        sums[name] = (items + cell[0], answered + cell[1], grades + cell[2])
    return [
        {**dict(zip(names, name, strict=True)), "items": items, "answered": answered / items, "score": grades / items}
        for name, (items, answered, grades) in sums.items()
        if items
    ]
