"""What a report earns in CT-FineBench by chance, above a blank one, over the references of a training set."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from rrg_rewards.functional.chance import normal_reference_weight
from rrg_rewards.functional.ct_finebench import ct_finebench_f1
from rrg_rewards.judges.base import remember_results
from rrg_rewards.metrics.chance import Chance
from rrg_rewards.questions.engine import StatedAnswer, stated_answers
from rrg_rewards.questions.grading import Grading, OverSpecified, compare_answers
from rrg_rewards.questions.schema import AnswerType, QuestionSchema

# Answers whose grades against all references are kept in memory, 8 kB each for 512 references.
_REMEMBERED = 2048
_Question = tuple[str, str]
_NOT_STATED = -1


class ChanceScores(Chance):
    """The weighted CT-FineBench score of a report over training references, from the references' answers.

    In mode ``"f1"``, references without a question are normal, and a blank report has the score 1 for them, and 0 for
    others. In other modes no reference is normal. In mode ``"recall"`` the mean is over the references that have
    questions. Only the answers of the references are kept, in the words of the vocabulary, and no text of a report.

    Args:
        schema: The question schema.
        references: For each reference its answers by finding and attribute.
        mode: Mode of the score: ``"recall"``, ``"precision"`` or ``"f1"``.
        grading: Grading of answers by rules.
        over_specified: Grade of over-specified answers.

    Raises:
        ValueError: If there is no reference, or none has a question in mode ``"recall"`` or ``"f1"``.
    """

    most_references = 512
    _separators = (", ", ": ")

    def __init__(
        self,
        schema: QuestionSchema,
        references: Sequence[Mapping[_Question, StatedAnswer]],
        mode: str,
        grading: Grading,
        over_specified: OverSpecified,
    ) -> None:
        if not references:
            raise ValueError("chance needs references to be measured on, got none")
        self.schema, self.mode = schema, mode
        self.grading, self.over_specified = grading, over_specified
        self._answers: dict[_Question, list[str]] = {}
        self._places: dict[_Question, Tensor] = {}
        self._asked: dict[_Question, Tensor] = {}
        for finding in schema.findings:
            for spec in finding.attributes:
                self._add((finding.name, spec.name), references)
        questions = list(self._asked.values())
        self._counts = torch.stack(questions).sum(0) if questions else torch.zeros(len(references))
        if mode != "precision" and not bool(self._counts.any()):
            raise ValueError(f"chance in mode {mode!r} needs references with questions of {schema.name}, got none")
        normal = self._counts == 0 if mode == "f1" else torch.zeros_like(self._counts, dtype=torch.bool)
        self.normal_weight = normal_reference_weight(float(normal.double().mean()))
        self.normal_blank = float(mode == "f1")
        self._blank = normal.double()
        self._weights = torch.ones_like(self._blank).masked_fill(normal, self.normal_weight)
        self._grades: dict[tuple[_Question, str], Tensor] = {}

    def _add(self, question: _Question, references: Sequence[Mapping[_Question, StatedAnswer]]) -> None:
        """Add the answers to a question, if a reference has one."""
        given = [reference.get(question) for reference in references]
        distinct = {one.answer: place for place, one in enumerate({o.answer: o for o in given if o}.values())}
        if distinct:
            self._answers[question] = list(distinct)
            self._places[question] = torch.tensor([distinct[one.answer] if one else _NOT_STATED for one in given])
            self._asked[question] = torch.tensor([one is not None and one.of_reference for one in given])

    @classmethod
    def of_reports(
        cls,
        reports: Sequence[str],
        schema: QuestionSchema,
        mode: str,
        grading: Grading,
        over_specified: OverSpecified,
    ) -> Self:
        """Read the answers of references; of more than 512, those of evenly spaced rows.

        Raises:
            ValueError: See the class.
        """
        chosen = cls.spread(reports)
        answers = [stated_answers(report, schema, grading == "overlap") for report in chosen]
        return cls(schema, answers, mode, grading, over_specified)

    @classmethod
    def from_text(
        cls, text: str, schema: QuestionSchema, mode: str, grading: Grading, over_specified: OverSpecified
    ) -> Self:
        """Restore what :meth:`to_text` has saved.

        Raises:
            ValueError: If the text is no saved one, or was saved with another schema.
        """

        def restore(saved: Any) -> tuple[Any, list[dict[_Question, StatedAnswer]]]:
            questions = [(finding, attribute) for finding, attribute, _ in saved["answers"]]
            answers = [given for _, _, given in saved["answers"]]
            references = [
                {
                    questions[q]: StatedAnswer(answers[q][place], bool(asked), of_candidate=True)
                    for q, place, asked in zip(row[::3], row[1::3], row[2::3], strict=True)
                }
                for row in saved["references"]
            ]
            return saved.get("schema"), references

        measured_with, references = cls._restored(text, restore)
        if measured_with != schema.digest:
            raise ValueError(
                f"chance was measured with another question schema ({measured_with}) than {schema.name} "
                f"({schema.digest}); fit the reward again"
            )
        return cls(schema, references, mode, grading, over_specified)

    def _content(self) -> dict[str, Any]:
        rows: list[list[int]] = [[] for _ in range(len(self))]
        for q, question in enumerate(self._answers):
            places, asked = self._places[question].tolist(), self._asked[question].tolist()
            for row, place, is_asked in zip(rows, places, asked, strict=True):
                if place != _NOT_STATED:
                    row += [q, place, int(is_asked)]
        answers = [[*question, given] for question, given in self._answers.items()]
        return {"schema": self.schema.digest, "answers": answers, "references": rows}

    def __len__(self) -> int:
        return len(self._counts)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_grades": {}}

    def scores(self, report: str) -> Tensor:
        """Return the score of a report against each reference ``(M,)``; NaN where it has none.

        Args:
            report: The candidate report.
        """
        stated = stated_answers(report, self.schema, self.grading == "overlap")
        none = torch.zeros(2, len(self), dtype=torch.float64)
        sums = none.clone()
        for question, one in stated.items():
            grades = self._graded(question, one.answer) if question in self._answers else none
            sums[0] += grades[0]
            if one.of_candidate:
                sums[1] += grades[1]
        # Without a question, 0/0 is NaN.
        recall = sums[0] / self._counts
        precision = sums[1] / sum(one.of_candidate for one in stated.values())
        if self.mode == "f1":
            return ct_finebench_f1(recall, precision)
        return recall if self.mode == "recall" else precision

    def mean(self, report: str) -> float:
        """See :meth:`Chance.mean`."""
        return float(((self.scores(report) - self._blank) * self._weights).nanmean())

    def _graded(self, question: _Question, answer: str) -> Tensor:
        """Return the grades of an answer by the references' answers, and of theirs by it: ``(2, M)``.

        The first are 0 where the reference is not asked, and both where it has no answer.
        """
        found = self._grades.get((question, answer))
        if found is None:
            kind = self.schema.finding(question[0]).attribute(question[1]).answer_type
            pairs = [
                (self._grade(answer, own, kind), self._grade(own, answer, kind)) for own in self._answers[question]
            ]
            # The last column is that of references without an answer, whose place is -1.
            table = torch.tensor([*pairs, (0.0, 0.0)], dtype=torch.float64).T
            found = table[:, self._places[question]]
            found[0] *= self._asked[question]
            remember_results(self._grades, {(question, answer): found}, _REMEMBERED)
        return found

    def _grade(self, prediction: str, target: str, kind: AnswerType) -> float:
        return compare_answers(prediction, target, kind, self.grading, self.over_specified)
