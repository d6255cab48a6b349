"""Counts of the errors of existing reports by a language model, in a file that CREPE is trained on."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rrg_rewards.analysis.answers import AnswerRun, choose_model, distinct_items
from rrg_rewards.analysis.judge_choice import JudgeSetting
from rrg_rewards.analysis.settings import CountingSettings
from rrg_rewards.data.records.error_records import read_error_records
from rrg_rewards.data.tables.table import Table
from rrg_rewards.judges.base import Judge, ReportPair
from rrg_rewards.judges.tasks.counting import CountedErrors, CountingTask, CountPromptTask
from rrg_rewards.judges.tasks.prompt_files import read_prompt_task
from rrg_rewards.schemas.errors import ERROR_CATEGORIES
from rrg_rewards.utilities.run_log import RunLog


class CountingRun(AnswerRun[ReportPair, CountedErrors]):
    """A run of :func:`count_errors`.

    Args:
        pairs: The report pairs; equal ones count once.
        output: JSON lines file to append to.
        judge: The judge; ``None`` if nothing is requested.
        settings: The settings; ``source`` and ``prompt`` are used.

    Raises:
        SettingError: If the prompt is wrong.
        OSError: If its file cannot be read.

    Example:
        >>> run = CountingRun([ReportPair("Small left effusion.", "Clear.")] * 2, "counts.jsonl")
        >>> run.estimate().requests
        1
    """

    activity = "counting"
    noun = "pairs"
    columns = ("reference", "candidate", "counts", "significant")

    def __init__(
        self,
        pairs: Sequence[ReportPair],
        output: str | Path,
        judge: Judge | None = None,
        settings: CountingSettings = CountingSettings(),
    ) -> None:
        prompt = settings.prompt
        task = CountingTask() if prompt is None else read_prompt_task("prompt", prompt, CountPromptTask)
        super().__init__(task, pairs, output, judge)
        self._source = settings.source
        self.categories = {category: {"errors": 0, "significant": 0} for category in ERROR_CATEGORIES}
        """Numbers of all and of significant errors that this run has written, by category."""

    def _key(self, item: ReportPair) -> Hashable:
        return item.reference, item.candidate

    def _answers(self, table: Table) -> Mapping[Hashable, Any]:
        texts = table.required_texts("reference"), table.required_texts("candidate")
        return dict.fromkeys(zip(*texts, strict=True))

    def _check(self) -> None:
        read_error_records(self.output)

    def _expected_answer(self, item: ReportPair) -> str:
        # The quotes are about as long as both reports.
        return item.reference + item.candidate

    def _sent(self) -> str:
        return f"{len(self.missing)} pairs of reports"

    def _record(self, item: ReportPair, result: CountedErrors) -> Mapping[str, Any]:
        return {
            "reference": item.reference,
            "candidate": item.candidate,
            "counts": list(result.counts),
            "significant": list(result.significant),
            "source": self._source,
            "errors": [asdict(error) for error in result.errors],
            "matched": result.matched,
        }

    def _count(self, item: ReportPair, result: CountedErrors) -> None:  # noqa: ARG002 (as the others)
        for row, errors, significant in zip(self.categories.values(), result.counts, result.significant, strict=True):
            row["errors"] += errors
            row["significant"] += significant

    def to_dict(self) -> dict[str, Any]:
        """Return the counts of the run."""
        return {
            "prompt_hash": self.task.prompt_hash,
            "judge": None if self.judge is None else self.judge.signature,
            "pairs": len(self.items),
            "held": self.num_held,
            "written": self.written,
            "categories": self.categories,
            **self._outcome(),
        }


def count_errors(
    pairs: Sequence[ReportPair],
    judge: JudgeSetting,
    output: str | Path,
    settings: CountingSettings = CountingSettings(),
    *,
    log: RunLog | None = None,
) -> CountingRun:
    """Let a language model count the errors of candidate reports, and append each answer to a file.

    Pairs that the file contains are not requested again, so the same call continues an interrupted run.

    Args:
        pairs: Pairs of a reference and a candidate; equal ones count once.
        judge: Judge, its name or its settings, as for :func:`~rrg_rewards.judges.get_judge`; a language model.
        output: JSON lines file to append to.
        settings: The settings; ``source`` is used.
        log: Receives notes, warnings and progress.

    Returns:
        The run, with its counts.

    Raises:
        SettingError: If the judge is invalid, or no language model.
        TableError: If the file has other content, or another process appends to it.

    Example:
        >>> count_errors([ReportPair("Edema.", "Clear.")], "rules", "counts.jsonl")
        Traceback (most recent call last):
        ...
        rrg_rewards.utilities.settings.SettingError: judge: rules counts no errors; name a language model...
    """
    return CountingRun(pairs, output, choose_model(judge, "counts no errors"), settings).complete(log)


def read_pairs(
    table: Table, settings: CountingSettings = CountingSettings(), log: RunLog | None = None
) -> list[ReportPair]:
    """Return the distinct pairs of a table whose reports are not blank.

    Args:
        table: The table.
        settings: Columns, and the maximum number of pairs.
        log: Receives notes and warnings.

    Example:
        >>> read_pairs(Table({"reference": ["Edema."], "prediction": ["Clear."]}))
        [ReportPair(reference='Edema.', candidate='Clear.', context=())]
    """
    rows = zip(table.texts(settings.reference_column), table.texts(settings.prediction_column), strict=True)
    pairs = [
        ReportPair(reference, candidate)
        if reference and reference.strip() and candidate and candidate.strip()
        else None
        for reference, candidate in rows
    ]
    return distinct_items(pairs, "pairs", "lack a report", log or RunLog())[: settings.max_pairs]
