"""Merlin: reports of abdominal CT and labels of 30 findings, joined by study."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table, TableError, is_missing
from rrg_rewards.schemas import MERLIN

NotMentioned = Literal["missing", "negative"]
"""What the label -1 of Merlin becomes."""

_STUDY, _REPORT, _SPLIT, _FEW_SHOT = "study id", "Findings", "Split", "Few Shot"
_IMPRESSION = "IMPRESSION:"
_STATES = {"1": 1, "1.0": 1, "0": 0, "0.0": 0, "-1": -1, "-1.0": -1}


@dataclass(frozen=True)
class MerlinCounts:
    """Numbers of rows and labels that :func:`read_merlin` read or left out.

    Args:
        reports: Studies in the report table.
        labels: Studies in the label table; ``None`` without a label table.
        joined: Number of rows of the result.
        reports_without_labels: Reports left out because their study is not in the label table.
        labels_without_reports: Studies of the label table without a report.
        blank_findings: Rows of the result without findings.
        without_impression: Rows of the result whose text has no impression.
        repeated_rows: Rows of both tables that repeat an earlier row.
        positive: Labels of the result that are 1.
        negative: Labels of the result that are 0 in the file: findings that the report denies.
        not_mentioned: Labels of the result that are -1 in the file.
    """

    reports: int
    labels: int | None = None
    joined: int = 0
    reports_without_labels: int = 0
    labels_without_reports: int = 0
    blank_findings: int = 0
    without_impression: int = 0
    repeated_rows: int = 0
    positive: int = 0
    negative: int = 0
    not_mentioned: int = 0


def read_merlin(
    reports: str | Path, labels: str | Path | None = None, not_mentioned: NotMentioned = "missing"
) -> tuple[Table, MerlinCounts]:
    r"""Read the reports of the Merlin Abdominal CT Dataset, and the labels of 30 findings.

    The data set is available under the data use agreement of Stanford AIMI. The files and the meaning of the labels are
    those of its documentation (StanfordMIMI/Merlin, ``documentation/download.md``); the names of the columns are those
    that ``alibaba-damo-academy/damo-radar`` reads. The reader was tested on files in this layout, but not on the data.

    ``reports_final.xlsx`` has a row for each scan with the columns ``study id``, ``Findings``, ``Split`` and
    ``Few Shot``. The text in ``Findings`` may contain ``IMPRESSION:``, after which the impression follows.
    ``zero_shot_findings_disease_cls.csv`` has the column ``study id`` and one for each finding, named in lower case
    with underscores, such as ``renal_cyst``: 1 if the report mentions the finding, 0 if it denies it, -1 if it does not
    mention it.

    Args:
        reports: ``reports_final.xlsx`` (extra ``xlsx``), or the same table as CSV, JSON lines or Parquet.
        labels: ``zero_shot_findings_disease_cls.csv``.
        not_mentioned: What -1 becomes. ``"missing"``: ``None``; an evaluation of this finding leaves the study out, as
            RADAR's evaluation on Merlin does. ``"negative"``: 0, as labelers of reports have it, for which a finding
            that the report does not mention is not positive; ``target_labels`` of metrics need this.

    Returns:
        The table and its counts, in the order of the reports. Columns: ``study_id``; the texts ``findings`` and
        ``impression``, ``None`` if missing or blank; ``split`` and ``few_shot`` as in the file, if it has them; with
        labels ``labels``, lists of 30 values in the order of :data:`rrg_rewards.schemas.MERLIN`.

    Raises:
        TableError: If a file cannot be read, lacks a column or has a row without a study, two different rows belong to
            one study, or a label is not 1, 0 or -1. The message names the file, the row and the column.
        ValueError: If ``not_mentioned`` is unknown.
        ModuleNotFoundError: If ``reports`` is a workbook and openpyxl is not installed. The message gives the pip
            command.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "reports_final.csv"
        ...     text = 'study id,Findings,Split,Few Shot\nAC1,"LIVER: Normal. IMPRESSION: No acute findings.",test,0\n'
        ...     _ = path.write_text(text)
        ...     table, counts = read_merlin(path)
        >>> table.column("findings"), table.column("impression"), counts.joined
        (['LIVER: Normal.'], ['No acute findings.'], 1)
    """
    if not_mentioned not in get_args(NotMentioned):
        raise ValueError(f"not_mentioned must be one of {', '.join(get_args(NotMentioned))}, got {not_mentioned!r}")
    texts, repeated = _read_reports(read_table(reports))
    states, repeated_labels = _read_labels(read_table(labels)) if labels is not None else (None, 0)
    kept = [study for study in texts if states is None or study in states]
    rows = [{"study_id": study, **texts[study]} for study in kept]
    found = [] if states is None else [states[study] for study in kept]
    if states is not None:
        meaning = {1: 1, 0: 0, -1: None if not_mentioned == "missing" else 0}
        for row, values in zip(rows, found, strict=True):
            row["labels"] = [meaning[value] for value in values]
    counts = MerlinCounts(
        reports=len(texts),
        labels=None if states is None else len(states),
        joined=len(kept),
        reports_without_labels=len(texts) - len(kept),
        labels_without_reports=0 if states is None else sum(study not in texts for study in states),
        blank_findings=sum(row["findings"] is None for row in rows),
        without_impression=sum(row["impression"] is None for row in rows),
        repeated_rows=repeated + repeated_labels,
        positive=sum(values.count(1) for values in found),
        negative=sum(values.count(0) for values in found),
        not_mentioned=sum(values.count(-1) for values in found),
    )
    names = ("study_id", "findings", "impression")
    return Table.from_records(rows, names, source=str(reports)), counts


def _read_reports(table: Table) -> tuple[dict[str, dict[str, Any]], int]:
    further = {name: column for name, column in (("split", _SPLIT), ("few_shot", _FEW_SHOT)) if column in table.columns}
    rows = []
    for row, text in enumerate(table.texts(_REPORT)):
        findings, _, impression = (text or "").partition(_IMPRESSION)
        cells = {name: table.column(column)[row] for name, column in further.items()}
        rows.append({"findings": findings.strip() or None, "impression": impression.strip() or None, **cells})
    return _by_study(table, rows)


def _read_labels(table: Table) -> tuple[dict[str, tuple[int, ...]], int]:
    names = [label.lower().replace(" ", "_") for label in MERLIN.labels]
    if missing := [name for name in names if name not in table.columns]:
        raise TableError(f"{table.source}: lacks {', '.join(missing)}; it has {', '.join(table.names)}")
    return _by_study(table, [tuple(_state(table, row, name) for name in names) for row in range(len(table))])


def _state(table: Table, row: int, name: str) -> int:
    cell = table.column(name)[row]
    state = _STATES.get(str(cell).strip())
    if state is None:
        raise TableError(
            f"{table.where(row)}, column {name!r}: must be 1 (mentioned), 0 (denied) or -1 (not mentioned), "
            f"got {cell!r}"
        )
    return state


def _by_study(table: Table, rows: list[Any]) -> tuple[dict[str, Any], int]:
    """Return the content of each study, and the number of rows that repeat an earlier one."""
    found: dict[str, tuple[int, Any]] = {}
    for row, (cell, content) in enumerate(zip(table.column(_STUDY), rows, strict=True)):
        if is_missing(cell) or not str(cell).strip():
            raise TableError(f"{table.where(row)}, column {_STUDY!r}: is empty; each row needs a study")
        before, known = found.setdefault(str(cell).strip(), (row, content))
        if known != content:
            raise TableError(
                f"{table.where(row)}: {cell} is also in data row {before + 1}, with other content; remove one of them"
            )
    return {study: content for study, (_, content) in found.items()}, len(rows) - len(found)
