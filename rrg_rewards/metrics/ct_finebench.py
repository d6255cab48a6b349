"""CT-FineBench as a metric on report text: questions on single attributes, answered by the finding engine or judges."""

import asyncio
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from rrg_rewards.data.records.question_items import check_question_items
from rrg_rewards.findings.reading.modality import Modality
from rrg_rewards.judges.base import Judge, JudgeFailure, JudgeWarning
from rrg_rewards.judges.question_answering import ENGINE, Examiner, GradedAnswer, JudgeSetting
from rrg_rewards.metrics.base import Column
from rrg_rewards.metrics.chance import AboveChance
from rrg_rewards.metrics.ct_finebench_scores import KINDS, SIDES, Examination, FineBenchScores, Graded, detail_names
from rrg_rewards.metrics.finebench_chance import ChanceScores
from rrg_rewards.metrics.judged import JudgedScores
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.questions.grading import Grading, OverSpecified
from rrg_rewards.questions.schema import QAItem, QuestionSchema, check_finding_labels, items_on
from rrg_rewards.utilities.names import shown
from rrg_rewards.utilities.signature import format_signature

FineBenchMode = Literal["recall", "precision", "f1"]
"""Source of the questions: the reference (``"recall"``, as published), the candidate, or both."""

_NAN = float("nan")


@dataclass(frozen=True)
class _Pair:
    """A report pair, with the questions and the positive findings of its reference if they are given."""

    reference: str
    candidate: str
    items: tuple[QAItem, ...] | None
    positive: frozenset[str] | None


def _joined_sides(sides: Sequence[str], found: Sequence[Graded | JudgeFailure]) -> Examination | JudgeFailure:
    """Return the examination of a pair from its sides, or the first failure of a judge."""
    graded: dict[str, Graded] = {}
    for side, one in zip(sides, found, strict=True):
        if isinstance(one, JudgeFailure):
            return one
        graded[side] = one
    return Examination(graded.get("recall", ()), graded.get("precision", ()))


def _pooled_table(names: Mapping[str, Sequence[str]], cells: Sequence[tuple[int, int, float]]) -> list[dict[str, Any]]:
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


@lru_cache(maxsize=16)
def _table_columns(schema: QuestionSchema) -> Mapping[tuple[str, str], int]:
    pairs = ((finding.name, attribute.name) for finding in schema.findings for attribute in finding.attributes)
    return {pair: column for column, pair in enumerate(pairs)}


class CTFineBench(AboveChance[ChanceScores]):
    r"""CT-FineBench: the mean grade of a candidate's answers to questions on the findings of the reference.

    Questions are made from the reference: one on the existence of each stated finding, and one on each stated attribute
    of the finding (size, location, density, margin and others). They are answered from the candidate, and each answer
    is graded 1, 0.5 or 0 (:func:`rrg_rewards.questions.compare_answers`); a missing answer is graded 0. With the grades
    :math:`g_1, \dots, g_K` of a pair,

    .. math::
        R = \frac{1}{K} \sum_{k=1}^{K} g_k

    The corpus value is the mean over scored pairs: float64 in [0, 1], higher is better; NaN if no pair is scored.

    The published metric has questions only about statements of the reference and does not penalise invented findings.
    ``mode`` is an extension for this:

    - ``"recall"``: :math:`R`, as published. A pair is unscorable if its reference gives no question.
    - ``"precision"``: :math:`P`, the mean grade of questions made from the candidate and answered from the reference. A
      pair is unscorable if its candidate gives no question.
    - ``"f1"``: the harmonic mean :math:`2RP/(R+P)`, 0 if both are 0. A side without questions has nothing wrong and
      counts as 1. All pairs are scored: for a normal reference, a candidate that invents nothing scores 1, and one
      whose findings are all invented 0. For an abnormal reference, an empty candidate scores 0. Use this mode for
      rewards; it is the default of ``make_reward("ct_finebench")``.

    Questions from candidates also cover uncertain findings, so that "possible nodule" is not free.

    ``grading`` tells how rules grade lists of places, values and numbers: ``"levels"`` (1, 0.5 or 0), as published, the
    default of ``"recall"``; or ``"overlap"``, the default of the other modes, by which a list of everything earns
    little (:func:`rrg_rewards.questions.compare_answers`).

    ``chance`` is an extension for rewards, by which no text that is the same for all studies earns more than a blank
    one, which earns 0. It weighs by how much the score :math:`S` of a candidate :math:`c_i` exceeds that of a blank
    text, :math:`\emptyset`, and subtracts what the same text earns on average over the references
    :math:`y_1, \dots, y_M` of the training set:

    .. math::
        \rho_i = w_i \, (S(c_i, y_i) - S(\emptyset, y_i)) - \max\bigl(0, \bar S(c_i)\bigr), \qquad
        \bar S(c) = \frac{1}{M} \sum_{j=1}^{M} w_j \, (S(c, y_j) - S(\emptyset, y_j))

    In mode ``f1``, :math:`S(\emptyset, y)` is 1 for a normal reference, whose weight is
    :func:`rrg_rewards.functional.normal_reference_weight`; all others are 0, with the weight 1. Over the training
    references, a constant text has the mean :math:`\min(\bar S(c), 0)`. The range is -2 to 1.

    Source: Yuan et al., "CT-FineBench".

    Args:
        schema: Question schema (findings and attributes) as a name, a YAML file or an object.
        answerer: Answers questions from a report: ``"engine"`` for the finding engine, or a judge, its name or settings
            as :func:`rrg_rewards.judges.get_judge` accepts them.
        builder: Makes questions from a report; accepts the same values as ``answerer``.
        comparer: Grades answers; accepts the same values. ``"engine"`` grades by rules.
        mode: ``"recall"``, ``"precision"`` or ``"f1"``.
        grading: ``"levels"`` or ``"overlap"``; ``None`` for ``"levels"`` in mode ``recall`` and ``"overlap"`` in the
            others. It does not change the grades of a judge.
        over_specified: Grade of a correct answer on a place or a category that says more than the true one: ``"right"``
            for 1, as in the paper's prompt, or ``"partial"`` for 0.5, as in its Section 3.3
            (:func:`rrg_rewards.questions.compare_answers`). The prompts of judges state the same rule.
        chance: ``None`` for the score as published. ``"dataset"`` weighs it and subtracts what is earned by chance,
            which :meth:`fit_references`, or ``fit`` of the reward, measures on at most 512 training references; or the
            text that :meth:`fitted_options` returned. Rules must make, answer and grade the questions.
        answer_prompt: File with a prompt of yours for the judge that answers, such as the one that the paper prints
            (:class:`rrg_rewards.judges.tasks.finebench_prompt_files.AnswerPromptTask`). Each question is then a request
            of its own, and answers need not be in the words of the report.
        grade_prompt: The same for the judge that grades
            (:class:`rrg_rewards.judges.tasks.finebench_prompt_files.GradePromptTask`).
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: If the schema, a judge, the mode, the grading or ``over_specified`` is unknown, or a prompt file has
            wrong placeholders or no judge that uses it; if ``chance`` is no setting of this schema, or is set with a
            judge.
        OSError: If a prompt file cannot be read.
        TypeError: If an object is not a judge, or has an argument that the judge does not accept.

    Example:
        >>> from rrg_rewards.metrics import CTFineBench
        >>> metric = CTFineBench()
        >>> reference = "Nodule of 8 mm in the left upper lobe."
        >>> metric.score([reference, "Nodule of 8 mm in the right upper lobe.", "Normal."], [reference] * 3).value
        tensor([1.0000, 0.6667, 0.0000], dtype=torch.float64)
        >>> trained = CTFineBench(mode="f1", chance="dataset")
        >>> references = [reference, "Normal.", "Normal.", "Normal."]
        >>> trained.fit_references(references)
        >>> trained.score(references, references).value, trained.score(["Normal."] * 4, references).value
        (tensor([0.7812, 0.0000, 0.0000, 0.0000], ...), tensor([0., 0., 0., 0.], ...))
    """

    name = "ct_finebench"
    context = required_context = ("items", "labels")
    # Because the mode "recall" does not penalise inventions.
    reward_options: ClassVar[Mapping[str, Any]] = {"mode": "f1"}
    plot_lower_bound: float = 0.0
    plot_upper_bound: float = 1.0

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
        grading: Grading | None = None,
        over_specified: OverSpecified = "right",
        chance: str | None = None,
        answer_prompt: str | Path | None = None,
        grade_prompt: str | Path | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if mode not in get_args(FineBenchMode):
            raise ValueError(f"mode must be one of {', '.join(get_args(FineBenchMode))}; got {shown(mode)}")
        self.mode = mode
        self.examiner = Examiner(
            schema,
            builder=builder,
            answerer=answerer,
            comparer=comparer,
            grading=grading or ("levels" if mode == "recall" else "overlap"),
            over_specified=over_specified,
            answer_prompt=answer_prompt,
            grade_prompt=grade_prompt,
        )
        if chance is not None and self.examiner.judges():
            raise ValueError(
                f"chance needs rules for {', '.join(self.examiner.judges())}: a judge would have to grade each report "
                "by all training references"
            )
        self._set_chance(chance, lambda text: ChanceScores.from_text(text, *self._rules))
        self.detail_names = detail_names(mode)
        if self.is_above_chance:
            self.detail_names += self.chance_details
            # torchmetrics lets no subclass assign the bounds of plots.
            vars(self)["plot_lower_bound"] = -2.0
        # One column per attribute of the schema, then one per kind of question.
        table = (len(SIDES[mode]), len(self.index) + len(KINDS))
        self.add_state("num_without_items", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("detail_sums", torch.zeros(len(self.detail_names), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("detail_counts", torch.zeros(len(self.detail_names), dtype=torch.long), dist_reduce_fx="sum")
        self.add_state("grade_sums", torch.zeros(table, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("item_counts", torch.zeros(table, dtype=torch.long), dist_reduce_fx="sum")
        self.add_state("answered_counts", torch.zeros(table, dtype=torch.long), dist_reduce_fx="sum")

    @property
    def _rules(self) -> tuple[QuestionSchema, FineBenchMode, Grading, OverSpecified]:
        """Settings of the scores whose mean is chance."""
        return self.examiner.schema, self.mode, self.examiner.grading, self.examiner.over_specified

    def _measured(self, references: Sequence[str], context: Mapping[str, Sequence[Any]]) -> ChanceScores:  # noqa: ARG002 (none is allowed)
        return ChanceScores.of_reports(references, *self._rules)

    def _are_normal(self, scores: JudgedScores) -> Tensor:
        asked = [isinstance(result, Examination) and bool(result.recall) for result in scores.results]
        return ~torch.tensor(asked, dtype=torch.bool)

    def needs_references(self, context: Collection[str]) -> bool:
        """Whether pairs without a reference report are unscorable: unless mode ``recall`` gets ``items``."""
        return self.mode != "recall" or "items" not in context

    def judges(self) -> Mapping[str, Judge]:
        """Return the judges that make ``"questions"``, ``"answers"`` and ``"grades"``; the finding engine is none."""
        return self.examiner.judges()

    @property
    def index(self) -> Mapping[tuple[str, str], int]:
        """Column in the states of each attribute of each finding of the schema."""
        return _table_columns(self.examiner.schema)

    @property
    def signature(self) -> str:
        """Metric, mode, question schema, builder, answerer, comparer and chance, unless ``None``, in one line."""
        return format_signature("ct_finebench", mode=self.mode, **self.examiner.signature, **self._chance_fields)

    def score(self, preds: Sequence[str | None], target: Sequence[str | None], **context: Column) -> FineBenchScores:
        """Compute CT-FineBench of each report pair.

        Args:
            preds: ``N`` candidate reports.
            target: ``N`` reference reports. In mode ``recall`` with ``items`` they are not used and may be ``None``.
            context: ``items``, optional: the questions of each reference, as
                :func:`rrg_rewards.data.check_question_items` accepts them. No questions are then made from the
                references, and a row with ``None`` or, except in mode ``f1``, without questions is unscorable.
                ``labels``, optional: the labels of each reference
                (:func:`rrg_rewards.questions.positive_findings`). References then have questions on positive
                findings only. A row with ``None`` is unscorable.

        Returns:
            ``value``: the score. ``details``, each ``(N,)``: mean grades of the questions on ``existence`` and on
            ``attributes``, and of the ``numeric``, ``categorical`` and ``location`` questions on attributes, NaN if
            there is no such question; the numbers of questions (``items``), of answered questions (``answered``) and of
            questions without an answer because the judge's answers were not in the words of the report, with a warning
            (``not_verbatim``). In mode ``f1``: ``recall`` and ``precision``, and the other details twice, with the
            prefixes ``recall_`` and ``precision_``. With ``chance``: what is subtracted (``chance``), and ``weight``.
            ``examinations``: questions, answers and grades.

        Raises:
            TypeError: If a report is not a text, or a row of ``items`` or ``labels`` has another type, naming argument
                and row; if a context column is unknown, or is given with ``chance`` or in mode ``precision``, which
                makes questions from candidates.
            ValueError: If lengths differ, a question is not in the schema or has no comparable answer, or labels do not
                fit the schema, naming the row; if ``chance="dataset"`` is not fitted.
        """
        scores = super().score(preds, target, **context)
        assert isinstance(scores, FineBenchScores)
        return scores

    def _read_context(self, context: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
        names = " and ".join(context)
        if names and self.mode == "precision":
            raise TypeError(f"mode 'precision' makes its questions from the candidates, so it takes no column {names}")
        if names and self.is_above_chance:
            raise TypeError(f"chance is measured with the questions of the reports, so it allows no column {names}")
        schema = self.examiner.schema
        read: dict[str, Callable[..., Sequence[Any]]] = {"items": check_question_items, "labels": check_finding_labels}
        return {name: read[name](column, schema) for name, column in context.items()}

    def _items(self, preds: Sequence[str], target: Sequence[str], context: Mapping[str, Sequence[Any]]) -> list[_Pair]:
        given = [context.get(name, [None] * len(preds)) for name in self.context]
        return [_Pair(*row) for row in zip(target, preds, *given, strict=True)]

    async def _query(self, items: Sequence[_Pair]) -> list[Examination | JudgeFailure]:
        found = await asyncio.gather(*(self._query_side(side, items) for side in SIDES[self.mode]))
        return [_joined_sides(SIDES[self.mode], sides) for sides in zip(*found, strict=True)]

    async def _query_side(self, side: str, pairs: Sequence[_Pair]) -> list[Graded | JudgeFailure]:
        """Make questions from the reports of one side; grade the answers that the reports of the other side give."""
        recall = side == "recall"
        given = [pair.items if recall else None for pair in pairs]
        sources = [pair.reference if recall else pair.candidate for pair in pairs]
        made = iter(
            await self.examiner.build(
                [report for report, items in zip(sources, given, strict=True) if items is None],
                # References recur in later batches; candidates do not.
                remember=recall,
                include_uncertain=not recall,
            )
        )
        positive = [pair.positive if recall else None for pair in pairs]
        asked = [next(made) if items is None else items for items in given]
        questions = [
            items if isinstance(items, JudgeFailure) else items_on(items, findings)
            for items, findings in zip(asked, positive, strict=True)
        ]
        answering = [pair.candidate if recall else pair.reference for pair in pairs]
        rows = [row for row, items in enumerate(questions) if not isinstance(items, JudgeFailure)]
        usable = [items for items in questions if not isinstance(items, JudgeFailure)]
        graded = iter(await self.examiner.examine([answering[row] for row in rows], usable, share_reports=not recall))
        return [items if isinstance(items, JudgeFailure) else next(graded) for items in questions]

    def _judged(self, results: Sequence[Examination | JudgeFailure]) -> FineBenchScores:
        self._warn_of_other_words(results)
        return FineBenchScores.of(self.mode, results)

    def _warn_of_other_words(self, results: Sequence[Examination | JudgeFailure]) -> None:
        """Warn if answers of the judge are not in the words of the report."""
        refused = [
            sum(one.not_verbatim for side in SIDES[self.mode] for one in result.side(side))
            for result in results
            if isinstance(result, Examination)
        ]
        if any(refused):
            warnings.warn(
                f"{self.name}: the judge answered {sum(refused)} questions on {sum(map(bool, refused))} of "
                f"{len(results)} report pairs in other words than the report's, also when asked again; they count as "
                "not answered",
                JudgeWarning,
                stacklevel=2,
            )

    def _accumulate(self, scores: Scores) -> None:
        super()._accumulate(scores)
        assert isinstance(scores, FineBenchScores)
        examined = [one for one in scores.examinations if one is not None]
        self.num_without_items = self.num_without_items + len(examined) - int(scores.scored.sum())
        details = torch.stack([scores.details[name] for name in self.detail_names])
        self.detail_sums = self.detail_sums + details.nansum(1).to(self.device)
        self.detail_counts = self.detail_counts + (~details.isnan()).sum(1).to(self.device)
        for row, side in enumerate(SIDES[self.mode]):
            self._count(row, [one for examination in examined for one in examination.side(side)])

    def _count(self, row: int, answers: Sequence[GradedAnswer]) -> None:
        """Add the graded answers of a side to its row of the states."""
        columns = [self.index[one.item.finding, one.item.attribute] for one in answers]
        kinds = [len(self.index) + KINDS.index(one.item.answer_type) for one in answers]
        index = torch.tensor(columns + kinds, dtype=torch.long, device=self.device)
        for name, values in (
            ("grade_sums", [one.grade for one in answers]),
            ("item_counts", [1] * len(answers)),
            ("answered_counts", [int(one.answer is not None) for one in answers]),
        ):
            table: Tensor = getattr(self, name)
            added = torch.zeros_like(table)
            added[row].index_add_(0, index, torch.tensor(values * 2, dtype=table.dtype, device=self.device))
            setattr(self, name, table + added)

    def _modality(self) -> tuple[Modality | None, str]:
        remedy = "use a schema file with a lexicon of radiographs (lexicon: chest_xray)"
        return self.examiner.lexicon.modality, remedy

    def _unscorable_reasons(self) -> str:
        reasons = super()._unscorable_reasons()
        return (
            f"{int(self.num_without_items)} have no question about a finding of {self.examiner.schema.name}; {reasons}"
        )

    def counts(self) -> dict[str, Tensor]:
        """Numbers of pairs so far, synced over processes as in ``compute``; every process must call this method.

        Returns:
            int64 scalars: ``scored``; ``unscorable``, and among these ``without_items`` (pairs without a question; 0 in
            mode ``f1``) and the failures of a judge by kind (``failed_deadline`` and so on); ``not_verbatim``, the
            number of questions of scored pairs that count as not answered because the judge's answers were not in the
            words of the report.
        """
        refused = [index for index, name in enumerate(self.detail_names) if name.endswith("not_verbatim")]
        with self._synced():
            return {
                **self._pair_counts(),
                "without_items": self.num_without_items.clone(),
                "not_verbatim": self.detail_sums[refused].sum().long(),
            }

    def statistics(self) -> dict[str, Tensor]:
        """Means of the details, each over the pairs that have it, synced as in ``compute``.

        Returns:
            float64 scalars by the names of the details of :meth:`score`; NaN if no pair has the detail.
        """
        with self._synced():
            means = self.detail_sums / self.detail_counts
        return dict(zip(self.detail_names, means, strict=True))

    def tables(self, side: str | None = None) -> dict[str, list[dict[str, Any]]]:
        """Grades pooled over all questions so far, synced as in ``compute``; every process must call this method.

        Args:
            side: ``"recall"`` or ``"precision"``; default: the side that the mode grades, and ``"recall"`` in mode
                ``f1``.

        Returns:
            Tables ``finding``, ``attribute``, ``finding_attribute`` and ``answer_type``. Each has one row per group
            with at least one question: the names of the group, the number of questions (``items``), the share of
            answered questions (``answered``) and the mean grade (``score``).

        Raises:
            ValueError: If the mode does not grade the side.

        Example:
            >>> metric = CTFineBench()
            >>> metric.update(["Normal."], ["Nodule of 8 mm in the left upper lobe."])
            >>> metric.tables()["finding"]
            [{'finding': 'Lung nodule', 'items': 3, 'answered': 0.0, 'score': 0.0}]
        """
        sides = SIDES[self.mode]
        if side is not None and side not in sides:
            raise ValueError(f"mode {self.mode!r} grades {' and '.join(sides)}, not {side!r}")
        row = sides.index(side) if side is not None else 0
        with self._synced():
            columns = [states[row].tolist() for states in (self.item_counts, self.answered_counts, self.grade_sums)]
        cells = list(zip(*columns, strict=True))
        pairs, kinds = cells[: len(self.index)], cells[len(self.index) :]
        findings, attributes = zip(*self.index, strict=True)
        return {
            "finding": _pooled_table({"finding": findings}, pairs),
            "attribute": _pooled_table({"attribute": attributes}, pairs),
            "finding_attribute": _pooled_table({"finding": findings, "attribute": attributes}, pairs),
            "answer_type": _pooled_table({"answer_type": KINDS}, kinds),
        }
