"""Labels of the reports of a table."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from rrg_rewards.analysis.answers import Estimate
from rrg_rewards.analysis.input_tables import with_new_columns
from rrg_rewards.analysis.judge_choice import choose_labeler
from rrg_rewards.analysis.label_estimate import estimate_labels
from rrg_rewards.analysis.outcomes import RunUsage
from rrg_rewards.analysis.settings import LabelSettings
from rrg_rewards.data.ct_rate import ct_rate_scans
from rrg_rewards.data.tables.table import Table
from rrg_rewards.judges.base import JudgeFailure
from rrg_rewards.labelers.base import Labeler, LabelledReports, label_reports, labeler_judge
from rrg_rewards.labelers.judge import JudgeLabeler
from rrg_rewards.labelers.registry import needs_judge
from rrg_rewards.schemas import get_label_schema
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError
from rrg_rewards.utilities.worker_pool import LABELER_MODULES, WorkerPool, calls, divided, worker_count
from rrg_rewards.version import __version__


@dataclass(frozen=True)
class LabelledTable:
    """A table with a 0/1 column for each label.

    Args:
        table: The input columns and those of the labels; the label cells of a report without labels are ``None``.
        text_column: Column of the report texts.
        labeler: Signature of the labeler.
        labelled: Number of labelled reports.
        failed: Number of reports on which a judge failed, by kind of failure.
        positives: Number of reports with each label.
        left_out: Rows of the input that are not in the table, by reason.
        errors: What is wrong if no report has labels because the judge failed.
        usage: What the judge of the labeler has used.
    """

    table: Table
    text_column: str
    labeler: str
    labelled: int
    failed: Mapping[str, int]
    positives: Mapping[str, int]
    left_out: Mapping[str, int] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    usage: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as plain data."""
        return {
            "version": __version__,
            "table": self.table.source,
            "text_column": self.text_column,
            "labeler": self.labeler,
            "rows": len(self.table),
            "labelled": self.labelled,
            "unscorable": len(self.table) - self.labelled,
            **({"failed": dict(self.failed)} if self.failed else {}),
            **({"left_out": dict(self.left_out)} if self.left_out else {}),
            "positives": dict(self.positives),
            **({"usage": dict(self.usage)} if self.usage else {}),
        }


def label_table(table: Table, settings: LabelSettings, log: RunLog | None = None) -> LabelledTable:
    """Label the reports of a table. A missing or blank report has no labels, nor has one on which a judge fails.

    With ``settings.one_per_scan``, only one reconstruction of each scan of CT-RATE is kept, so that ``positives``
    counts scans (:func:`rrg_rewards.data.ct_rate_scans`). A note says how many rows this and ``settings.no_chest``
    leave out.

    Args:
        table: The table, as :func:`~rrg_rewards.data.read_table` returns it.
        settings: The labeler and the column of the reports.
        log: Receives warnings and progress. Default: Python warnings.

    Raises:
        SettingError: If the labeler or the judge is unknown, or the labeler lacks the labels of the schema.
        TableError: If the column does not exist, or a cell is not a text.

    Example:
        >>> table = Table({"report": ["Hiatal hernia.", "Normal chest."]})
        >>> labelled = label_table(table, LabelSettings(text_column="report"))
        >>> labelled.table.columns["Hiatal hernia"], labelled.positives["Hiatal hernia"]
        ([1, 0], 1)
    """
    log = log or RunLog()
    table, left_out = _without_left_out(table, settings, log)
    reports = _reports(table, settings)
    labeler = _labeler(settings)
    judge = labeler_judge(labeler)
    usage = RunUsage({"labels": {} if judge is None else {"judge": judge}})
    try:
        found = label_in_batches(labeler, list(reports.values()), settings.batch_size, log, settings.workers)
    finally:
        usage.note(log)
    failures = found.failures or ()
    failed = Counter(failure.kind for failure in failures if failure is not None)
    if blank := len(table) - len(reports):
        log.warn(f"{blank} of {len(table)} reports are missing or blank: their label cells are empty")
    errors: tuple[str, ...] = ()
    if failed:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(failed.items()))
        first = next(f"{failure.kind}: {failure.reason}" for failure in failures if failure is not None)
        log.warn(
            f"the judge failed on {failed.total()} of {len(reports)} reports ({kinds}): their label cells are empty; "
            f"the first: {first}"
        )
        if failed.total() == len(reports):
            errors = (f"no report has labels, because the judge failed on all {len(reports)}; the first: {first}",)
    columns: dict[str, list[int | None]] = {label: [None] * len(table) for label in labeler.labels}
    for row, failure, cells in zip(reports, failures, found.labels.int().tolist(), strict=True):
        if failure is None:
            for label, cell in zip(labeler.labels, cells, strict=True):
                columns[label][row] = cell
    return LabelledTable(
        with_new_columns(table, columns, settings.prefix, log),
        settings.text_column,
        labeler.signature,
        len(reports) - failed.total(),
        dict(sorted(failed.items())),
        dict(zip(labeler.labels, found.labels.sum(0).tolist(), strict=True)),
        left_out,
        errors,
        usage.to_dict("labels"),
    )


def estimate_label_table(
    table: Table, settings: LabelSettings, log: RunLog | None = None
) -> tuple[JudgeLabeler, Estimate] | None:
    """Estimate the cost of :func:`label_table` with a language model; nothing is labelled or sent.

    Args:
        table: The table.
        settings: The labeler and the column of the reports.
        log: Receives notes. Default: Python warnings.

    Returns:
        The labeler, and the cost of its requests (:func:`~rrg_rewards.analysis.label_estimate.estimate_labels`);
        ``None`` if the labeler asks no language model.

    Raises:
        SettingError: As :func:`label_table`.
        TableError: As :func:`label_table`.

    Example:
        >>> table = Table({"report": ["Hiatal hernia.", "Normal chest."]})
        >>> settings = LabelSettings(text_column="report", labeler="judge", judge="openai:my-model")
        >>> estimate_label_table(table, settings)[1].requests
        2
    """
    table, _ = _without_left_out(table, settings, log or RunLog())
    reports = list(_reports(table, settings).values())
    labeler = _labeler(settings)
    if not isinstance(labeler, JudgeLabeler):
        return None
    batches = (reports[rows] for rows in divided(len(reports), settings.batch_size))
    return labeler, estimate_labels(labeler, batches)


def _without_left_out(table: Table, settings: LabelSettings, log: RunLog) -> tuple[Table, dict[str, int]]:
    """Return the rows of the table that are labelled, and the numbers of the others by reason."""
    if settings.key is None or not (settings.one_per_scan or settings.no_chest):
        return table, {}
    table, counts = ct_rate_scans(table, settings.key, settings.no_chest, settings.one_per_scan)
    log.note(str(counts))
    return table, {
        "other_reconstructions": counts.other_reconstructions,
        "without_chest": counts.without_chest,
    }


def _reports(table: Table, settings: LabelSettings) -> dict[int, str]:
    """Return the reports with text by their rows."""
    texts = table.texts(settings.text_column)
    return {row: text for row, text in enumerate(texts) if text is not None and text.strip()}


def _labeler(settings: LabelSettings) -> Labeler:
    name, schema = settings.labeler, settings.schema
    setting = f"{name}:{schema or 'ct_rate'}" if name in ("rules", "judge") else name
    if settings.judge is not None and not needs_judge(setting):
        raise SettingError("judge", f"the labeler {name} takes none; --labeler judge:SCHEMA does")
    labeler = choose_labeler(setting, settings.judge)
    if schema is not None and tuple(labeler.labels) != get_label_schema(schema).labels:
        raise SettingError(
            None, f"--labeler {name} does not have the labels of --schema {schema}; omit one of the two options"
        )
    return labeler


def label_in_batches(
    labeler: Labeler, reports: Sequence[str], batch_size: int = 256, log: RunLog | None = None, workers: int = 1
) -> LabelledReports:
    """Label ``batch_size`` reports at a time, so that memory does not grow with their number.

    Args:
        labeler: The labeler.
        reports: ``N`` report texts.
        batch_size: Maximum number of reports in a batch.
        log: Receives the progress.
        workers: Number of processes; 0 for one for each core. With several, ``labeler`` must have no model.

    Raises:
        SettingError: If there are several workers and the labeler has a model or asks a language model.

    Example:
        >>> from rrg_rewards.labelers import RuleLabeler
        >>> label_in_batches(RuleLabeler("ct_rate"), ["Hiatal hernia.", "Normal."]).failures
        (None, None)
    """
    labels = torch.zeros(len(reports), len(labeler.labels), dtype=torch.bool)
    failures: list[JudgeFailure | None] = []
    with (log or RunLog()).progress("labelling") as progress:
        progress(0, len(reports))
        for rows, found in _labelled(labeler, reports, divided(len(reports), batch_size), workers):
            labels[rows] = found.labels
            failures += found.failures or (None,) * len(found.labels)
            progress(len(found.labels), 0)
    return LabelledReports(labels, tuple(failures))


def _labelled(
    labeler: Labeler, reports: Sequence[str], batches: Sequence[slice], workers: int
) -> Iterator[tuple[slice, LabelledReports]]:
    """Yield the labels of each batch of reports, in order."""
    label = partial(label_reports, labeler)
    with ExitStack() as stack:
        pool = None if worker_count(workers) == 1 else stack.enter_context(WorkerPool(label, workers, LABELER_MODULES))
        for rows, result in calls(label, ((rows, reports[rows]) for rows in batches), pool):
            yield rows, result()
