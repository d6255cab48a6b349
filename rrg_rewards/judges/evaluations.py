"""Files of report pairs with CRIMSON's evaluation by a judge."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrg_rewards.data.tables.appending import read_whole_lines
from rrg_rewards.data.tables.table import TableError
from rrg_rewards.functional.crimson import crimson_score
from rrg_rewards.functional.crimson_evaluation import CrimsonEvaluation
from rrg_rewards.judges.base import ReportPair

__all__ = ["EvaluatedPair", "read_evaluations"]

_COLUMNS = ("reference", "candidate", "context", "evaluation", "judge", "prompt")


@dataclass(frozen=True)
class EvaluatedPair:
    """A report pair with the evaluation of a judge.

    Args:
        pair: The report pair.
        evaluation: The evaluation.
        judge: Signature of the judge.
        prompt: Name and hash of the prompt; empty if the judge uses none.
        source: Source of the candidate, such as ``edited``.

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

    def to_record(self) -> dict[str, Any]:
        """Return one record of a JSON lines file: the pair, the evaluation in the published form, and its score."""
        return {
            "reference": self.pair.reference,
            "candidate": self.pair.candidate,
            "context": dict(self.pair.context),
            "source": self.source,
            "score": crimson_score(self.evaluation).item(),
            "evaluation": self.evaluation.to_dict(),
            "judge": self.judge,
            "prompt": self.prompt,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "EvaluatedPair":
        """Read a record that :meth:`to_record` returned.

        Raises:
            ValueError: If a value has another type, the evaluation does not have the published form, or it names a
                finding that it does not list.
        """
        evaluation = CrimsonEvaluation.from_dict(record["evaluation"])
        crimson_score(evaluation)  # Checks the ids.
        context = record["context"]
        if not isinstance(context, Mapping):
            raise ValueError(f"context must be a mapping, got {type(context).__name__}")
        for name in ("reference", "candidate", "judge", "prompt"):
            if not isinstance(record[name], str):
                raise ValueError(f"{name} must be a text, got {type(record[name]).__name__}")
        if wrong := [name for name, text in context.items() if not isinstance(text, str)]:
            raise ValueError(f"context: {wrong[0]!r} must be a text, got {type(context[wrong[0]]).__name__}")
        pair = ReportPair(record["reference"], record["candidate"], tuple(context.items()))
        return cls(pair, evaluation, record["judge"], record["prompt"], record.get("source") or "")


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
