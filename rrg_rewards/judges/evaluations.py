"""Files of report pairs with CRIMSON's evaluation by a judge, and the agreement of another judge with them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from rrg_rewards.data.tables.appending import read_whole_lines
from rrg_rewards.data.tables.table import TableError
from rrg_rewards.functional.agreement import agreement_interval, human_agreement
from rrg_rewards.functional.crimson import (
    CrimsonChecks,
    CrimsonEvaluation,
    CrimsonFinding,
    crimson_score,
    crimson_score_from_statistics,
    crimson_statistics,
)
from rrg_rewards.judges.base import JudgeFailure, ReportPair
from rrg_rewards.judges.tasks.grounding import content_words
from rrg_rewards.schemas.errors import SIGNIFICANCE_WEIGHTS

_COLUMNS = ("reference", "candidate", "context", "evaluation", "judge", "prompt")
# Decimals of scores that are compared.
_DIGITS = 9
# Least share of the words of two findings that they have in common if they are one.
_SIMILAR = 0.5


@dataclass(frozen=True)
class EvaluatedPair:
    """A report pair with the evaluation of a judge.

    Args:
        pair: The report pair.
        evaluation: The evaluation.
        judge: Signature of the judge.
        prompt: Name and hash of the prompt; empty if the judge uses none.
        source: Source of the candidate, such as ``edited``.
        checks: Checks that the evaluation has passed, by which its score is computed; see
            :class:`rrg_rewards.judges.tasks.crimson.CrimsonTask`.

    Example:
        >>> pair = EvaluatedPair(ReportPair("Clear.", "Normal."), CrimsonEvaluation(), "rules")
        >>> pair.to_record()["score"], EvaluatedPair.from_record(pair.to_record()) == pair
        (1.0, True)
    """

    pair: ReportPair
    evaluation: CrimsonEvaluation
    judge: str
    prompt: str = ""
    source: str = ""
    checks: CrimsonChecks = "strict"

    def to_record(self) -> dict[str, Any]:
        """Return one record of a JSON lines file: the pair, the evaluation in the published form, and its score."""
        return {
            "reference": self.pair.reference,
            "candidate": self.pair.candidate,
            "context": dict(self.pair.context),
            "source": self.source,
            "score": crimson_score(self.evaluation, self.checks).item(),
            "evaluation": self.evaluation.to_dict(),
            "judge": self.judge,
            "prompt": self.prompt,
            "checks": self.checks,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "EvaluatedPair":
        """Read a record that :meth:`to_record` returned.

        Raises:
            ValueError: If a value has another type, the evaluation does not have the published form, or, with strict
                checks, it names a finding that it does not list.
        """
        evaluation = CrimsonEvaluation.from_dict(record["evaluation"])
        checks: CrimsonChecks = record.get("checks") or "strict"
        crimson_score(evaluation, checks)  # Checks the ids.
        context = record["context"]
        if not isinstance(context, Mapping):
            raise ValueError(f"context must be a mapping, got {type(context).__name__}")
        for name in ("reference", "candidate", "judge", "prompt"):
            if not isinstance(record[name], str):
                raise ValueError(f"{name} must be a text, got {type(record[name]).__name__}")
        if wrong := [name for name, text in context.items() if not isinstance(text, str)]:
            raise ValueError(f"context: {wrong[0]!r} must be a text, got {type(context[wrong[0]]).__name__}")
        pair = ReportPair(record["reference"], record["candidate"], tuple(context.items()))
        return cls(pair, evaluation, record["judge"], record["prompt"], record.get("source") or "", checks)


def read_evaluations(path: str | Path) -> list[EvaluatedPair]:
    """Read the evaluated pairs that ``rrg-rewards judge label`` wrote.

    An incomplete last line is left out. A file that does not exist has no pairs.

    Args:
        path: JSON lines file.

    Raises:
        TableError: If a line is malformed or lacks a key, naming it.
    """
    table = read_whole_lines(path)
    if table is None:
        return []
    if missing := [name for name in _COLUMNS if name not in table.columns]:
        raise TableError(f"{path}: is not an output of rrg-rewards judge label: it lacks {', '.join(missing)}")
    rows = []
    for row, cells in enumerate(zip(*table.columns.values(), strict=True)):
        try:
            rows.append(EvaluatedPair.from_record(dict(zip(table.names, cells, strict=True))))
        except ValueError as error:
            raise TableError(f"{table.where(row)}: {error}") from error
    return rows


def judge_agreement(
    teacher: Sequence[CrimsonEvaluation], results: Sequence[CrimsonEvaluation | JudgeFailure], num_resamples: int = 1000
) -> dict[str, Any]:
    """Compare the results of a judge with the evaluations of another one.

    Args:
        teacher: ``N`` evaluations of the other judge.
        results: ``N`` results of the judge.
        num_resamples: Number of bootstrap draws of report pairs.

    Returns:
        ``pairs``: ``N``. ``valid``: number of pairs with an evaluation. ``failures``: failures by kind. ``agreement``:
        for ``score`` (CRIMSON), ``false_findings``, ``missing_findings``, ``attribute_errors`` and ``errors`` (their
        sum), over the valid pairs: Kendall's ``tau`` with the ends ``low`` and ``high`` of its percentile bootstrap 95
        % interval, the mean absolute difference ``mae``, and the share of pairs that are ``equal``. A value that is
        undefined, because one side is constant or there is no valid pair, is ``None``. ``severity``: the clinical
        significance of errors that both judges list, as :func:`severity_agreement` returns it.

    Raises:
        ValueError: If lengths differ.

    Example:
        >>> empty = CrimsonEvaluation()
        >>> found = judge_agreement([empty] * 2, [empty, JudgeFailure("malformed", "no JSON")])
        >>> found["valid"], found["failures"], found["agreement"]["score"]["equal"]
        (1, {'malformed': 1}, 1.0)
    """
    if len(teacher) != len(results):
        raise ValueError(f"teacher and results must have the same length, got {len(teacher)} and {len(results)}")
    failures = Counter(result.kind for result in results if isinstance(result, JudgeFailure))
    pairs = [
        (ours, theirs) for ours, theirs in zip(results, teacher, strict=True) if not isinstance(ours, JudgeFailure)
    ]
    columns = [_columns([pair[side] for pair in pairs]) for side in (0, 1)]
    return {
        "pairs": len(teacher),
        "valid": len(pairs),
        "failures": dict(failures),
        "agreement": {name: _compare(columns[0][name], columns[1][name], num_resamples) for name in columns[0]},
        "severity": severity_agreement(*([pair[side] for pair in pairs] for side in (1, 0))),
    }


def severity_agreement(teacher: Sequence[CrimsonEvaluation], judge: Sequence[CrimsonEvaluation]) -> dict[str, Any]:
    """Compare the clinical significance that two judges give to the false and missing findings that both list.

    An error of one judge is the error of the other that is named in the most similar words: with at least half of the
    words of both together in common. Findings with a level that is none of the four are left out.

    Source: Baharoon et al., "CRIMSON", arXiv:2603.06183, Figure 4B.

    Args:
        teacher: ``N`` evaluations of one judge.
        judge: ``N`` evaluations of the other one.

    Returns:
        ``levels``: the four levels, the most significant first. ``matrix``: number of errors by level of the teacher
        (rows) and of the judge (columns). ``matched``: their sum. ``equal``: share of errors with the same level, and
        ``equal_by_level``: the same for each level of the teacher; ``None`` without errors.

    Example:
        >>> from rrg_rewards.judges import RuleJudge
        >>> empty = RuleJudge().evaluation(ReportPair("Large left pneumothorax.", "Clear."))
        >>> severity_agreement([empty], [empty])["matched"]
        1
    """
    levels = sorted(SIGNIFICANCE_WEIGHTS, key=SIGNIFICANCE_WEIGHTS.__getitem__, reverse=True)
    matrix = [[0] * len(levels) for _ in levels]
    for theirs, ours in zip(teacher, judge, strict=True):
        for first, second in zip(_listed_errors(theirs), _listed_errors(ours), strict=True):
            for level, other in _matched_levels(first, second):
                if level in levels and other in levels:
                    matrix[levels.index(level)][levels.index(other)] += 1
    totals, right = [sum(row) for row in matrix], [row[place] for place, row in enumerate(matrix)]
    shares = (hits / total if total else None for hits, total in zip(right, totals, strict=True))
    return {
        "levels": levels,
        "matrix": matrix,
        "matched": sum(totals),
        "equal": sum(right) / sum(totals) if any(totals) else None,
        "equal_by_level": dict(zip(levels, shares, strict=True)),
    }


def _listed_errors(evaluation: CrimsonEvaluation) -> Iterator[list[CrimsonFinding]]:
    """Yield the false and the missing findings."""
    for findings, ids in (
        (evaluation.predicted_findings, evaluation.false_findings),
        (evaluation.reference_findings, evaluation.missing_findings),
    ):
        yield [finding for finding in findings if finding.id in ids]


def _matched_levels(theirs: Sequence[CrimsonFinding], ours: Sequence[CrimsonFinding]) -> Iterator[tuple[str, str]]:
    """Yield the levels of findings in similar words, the most similar pairs first, each finding once."""
    words = [[content_words(finding.finding) for finding in side] for side in (theirs, ours)]
    similar = sorted(
        (-len(first & second) / len(first | second), row, column)
        for row, first in enumerate(words[0])
        for column, second in enumerate(words[1])
        if first | second and len(first & second) >= _SIMILAR * len(first | second)
    )
    rows, columns = set[int](), set[int]()
    for _, row, column in similar:
        if row not in rows and column not in columns:
            rows.add(row)
            columns.add(column)
            yield theirs[row].clinical_significance, ours[column].clinical_significance


def _columns(evaluations: Sequence[CrimsonEvaluation]) -> dict[str, Tensor]:
    # Evaluations were checked when they were made or read, and published checks accept those of strict ones.
    statistics = crimson_statistics(evaluations, "published")
    return {
        # Scores are quotients of sums of weights; equal ones may differ by rounding, and are ties.
        "score": crimson_score_from_statistics(*statistics[:3]).round(decimals=_DIGITS),
        "false_findings": statistics.num_false,
        "missing_findings": statistics.num_missing,
        "attribute_errors": statistics.num_attribute,
        "errors": statistics.num_false + statistics.num_missing + statistics.num_attribute,
    }


def _compare(ours: Tensor, theirs: Tensor, num_resamples: int) -> dict[str, float | None]:
    if not len(ours):
        return dict.fromkeys(("tau", "low", "high", "mae", "equal"))
    low, high = agreement_interval(ours, theirs, num_resamples=num_resamples)
    differences = (ours - theirs).abs()
    values = {
        "tau": human_agreement(ours, theirs).item(),
        "low": low,
        "high": high,
        "mae": differences.mean().item(),
        "equal": (differences == 0).double().mean().item(),
    }
    return {name: None if value != value else value for name, value in values.items()}
