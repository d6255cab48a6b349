"""Scores of report pairs in a data frame."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rrg_rewards.analysis.metric_choice import metrics_by_name
from rrg_rewards.analysis.report_pairs import PairReader
from rrg_rewards.analysis.scoring import Scoring
from rrg_rewards.analysis.settings import PairColumns, ScoreSettings
from rrg_rewards.data.tables.table import Table, check_header
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError


def score_frame(
    frame: Any,
    metrics: Mapping[str, ReportMetric] | Sequence[str],
    *,
    prediction_column: str = "prediction",
    reference_column: str | Sequence[str] = "reference",
    context: Mapping[str, str] | None = None,
    settings: ScoreSettings = ScoreSettings(),  # noqa: B008 (frozen)
    log: RunLog | None = None,
) -> Any:
    """Score the report pairs of a pandas data frame, and return it with columns of scores.

    The scores are those of :func:`~rrg_rewards.analysis.score_table`, as columns: for each metric the score of the
    pair, then the parts of the score and explanations. Numbers of unscorable pairs are NaN, their explanations
    ``None``. References in another table, or labels set by hand, are options of ``score_table`` only.

    Args:
        frame: A ``pandas.DataFrame``, which is not changed. Cells that pandas regards as missing are missing reports.
        metrics: Metrics by name, or names as in :func:`~rrg_rewards.metrics.make_metric`.
        prediction_column: Column of predictions, or a template as in
            :class:`~rrg_rewards.analysis.PairColumns`.
        reference_column: Column of references, or several, each with a reference of every report.
        context: Context columns by the name of their argument, such as ``{"age": "patient_age"}``.
        settings: Bootstrap, seed, batches, workers and prefix of new columns.
        log: Receives notes, warnings and progress.

    Returns:
        The frame with its index and columns, and those of the scores, of which one replaces a column of the same name.
        ``attrs["summary"]`` is the summary that ``score_table`` returns, with corpus values and intervals.

    Raises:
        SettingError: If a setting is wrong or contradicts another, or ``frame`` is no data frame of pandas.
        TableError: If the frame lacks a column, or a cell is not of its kind. The message names the row, from 1.

    Example:
        >>> import pandas
        >>> frame = pandas.DataFrame({"prediction": ["Enlarged heart."], "report": ["Cardiomegaly. Hiatal hernia."]})
        >>> scored = score_frame(frame, ["crg"], reference_column="report")
        >>> scored["crg_missed"].tolist(), scored.attrs["summary"]["metrics"]["crg"]["value"]
        (['Hiatal hernia'], 0.5)
    """
    log = log or RunLog()
    made = metrics_by_name(metrics)
    if not made:
        raise SettingError("metrics", "at least one is needed")
    columns = PairColumns(prediction_column=prediction_column, reference_column=reference_column, context=context or {})
    table = _table(frame)
    pairs = PairReader(columns, [*table.batches(settings.batch_size)], made, table.source)
    pairs.check(log)
    scoring = Scoring(pairs, settings, log=log)
    cells: dict[str, list[Any]] = {}
    for batch in scoring.tables():
        # The input has no types.
        for name, kind in batch.types.items():
            new = batch.columns[name]
            cells.setdefault(name, []).extend(math.nan if kind == "double" and cell is None else cell for cell in new)
    scored = frame.assign(**cells)
    scored.attrs = {**frame.attrs, "summary": scoring.summary()}
    return scored


def _table(frame: Any) -> Table:
    """Return the columns of a data frame whose names are texts, with ``None`` for missing cells."""
    if not (hasattr(frame, "assign") and hasattr(frame, "isna")):
        raise SettingError(
            "frame", f"must be a data frame of pandas, got {type(frame).__name__}; score_table takes files"
        )
    names = [name for name in frame.columns if isinstance(name, str)]
    check_header(names, "frame")
    columns = {}
    for name in names:
        cells = zip(frame[name].tolist(), frame[name].isna().tolist(), strict=True)
        columns[name] = [None if is_missing else cell for cell, is_missing in cells]
    return Table(columns, "frame")
