"""Files of report pairs with CRIMSON's evaluation by a judge, and the agreement of another judge with them."""

from collections import Counter
from collections.abc import Mapping, Sequence
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
    crimson_score,
    crimson_score_from_statistics,
    crimson_statistics,
)
from rrg_rewards.judges.base import JudgeFailure, ReportPair

_COLUMNS = ("reference", "candidate", "context", "evaluation", "judge", "prompt")
# Decimals of scores that are compared.
_DIGITS = 9


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
        undefined, because one side is constant or there is no valid pair, is ``None``.

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
    }


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
