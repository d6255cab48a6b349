"""CT-RATE: reports, labels and image features, joined by the names of its volumes."""

import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.studies import study_name
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.schemas import CT_RATE
from rrg_rewards.utilities.features import FEATURE_ENDINGS
from rrg_rewards.utilities.texts import PlaceholderWarning, without_placeholders

_KEYS = ("VolumeName", "AccessionNo")
_SECTIONS = {"findings": "Findings_EN", "impression": "Impressions_EN"}
_CONTEXT = {"indication": "ClinicalInformation_EN", "technique": "Technique_EN"}
_NAME = re.compile(r"(?P<patient>[A-Za-z]+_\d+)(?P<scan>_[a-z]+)?(?:_(?P<reconstruction>\d+))?")


class CtRateName(NamedTuple):
    """Parts of the name of a CT-RATE volume.

    Args:
        volume: Name without its ending.
        patient: Patient, such as ``train_1``.
        scan: Scan of the patient, such as ``train_1_a``.
        reconstruction: Number of the reconstruction of the scan; 0 if the name has none.
    """

    volume: str
    patient: str
    scan: str
    reconstruction: int


def parse_ct_rate_name(name: str) -> CtRateName:
    """Parse the name of a CT-RATE volume, with or without its ending ``.nii.gz``.

    Names of scans and patients are also accepted. Older tables have them in ``AccessionNo``.

    Raises:
        ValueError: If the name is not of this form.

    Example:
        >>> parse_ct_rate_name("train_12_b_2.nii.gz")
        CtRateName(volume='train_12_b_2', patient='train_12', scan='train_12_b', reconstruction=2)
        >>> parse_ct_rate_name("valid_3").patient
        'valid_3'
    """
    volume = study_name(name)
    match = _NAME.fullmatch(volume)
    if match is None:
        raise ValueError(f"must be the name of a CT-RATE volume, such as train_1_a_1.nii.gz, got {name!r}")
    patient = match["patient"]
    return CtRateName(volume, patient, patient + (match["scan"] or ""), int(match["reconstruction"] or 0))


@dataclass(frozen=True)
class CtRateCounts:
    """Numbers of rows and files that :func:`read_ct_rate` joined or left out.

    A report that is not in the result is counted in exactly one of ``without_chest``, ``reports_without_labels``,
    ``reports_without_features`` and ``other_reconstructions``.

    Args:
        reports: Volumes in the report table.
        labels: Volumes with labels in the label table; ``None`` without a label table.
        features: Volumes in the feature folder; ``None`` without a feature folder.
        joined: Number of rows of the result.
        without_chest: Reports left out because their volume does not show the chest.
        reports_without_labels: Reports left out because their volume is not in the label table.
        reports_without_features: Reports left out because they have no feature file.
        other_reconstructions: Reports left out because the result has another reconstruction of the scan.
        labels_without_reports: Volumes of the label table without a report.
        features_without_reports: Volumes of the feature folder without a report.
        blank_findings: Rows of the result without findings.
        blank_impressions: Rows of the result without an impression.

    Example:
        >>> print(CtRateCounts(reports=3, labels=2, joined=2, reports_without_labels=1, blank_findings=1))
        CT-RATE studies: 2
        read: reports 3, labelled volumes 2
        left out: reports without labels 1
        missing texts: findings 1
    """

    reports: int
    labels: int | None = None
    features: int | None = None
    joined: int = 0
    without_chest: int = 0
    reports_without_labels: int = 0
    reports_without_features: int = 0
    other_reconstructions: int = 0
    labels_without_reports: int = 0
    features_without_reports: int = 0
    blank_findings: int = 0
    blank_impressions: int = 0

    def __str__(self) -> str:
        parts: dict[str, dict[str, int | None]] = {
            "read": {"reports": self.reports, "labelled volumes": self.labels, "volumes with features": self.features},
            "left out": {
                "volumes without a chest": self.without_chest,
                "reports without labels": self.reports_without_labels,
                "reports without features": self.reports_without_features,
                "other reconstructions": self.other_reconstructions,
                "labelled volumes without reports": self.labels_without_reports,
                "volumes with features without reports": self.features_without_reports,
            },
            "missing texts": {"findings": self.blank_findings, "impressions": self.blank_impressions},
        }
        lines = [f"CT-RATE studies: {self.joined:,}"]
        for part, numbers in parts.items():
            counts = [f"{name} {number:,}" for name, number in numbers.items() if number]
            lines += [f"{part}: {', '.join(counts)}"] if counts else []
        return "\n".join(lines)


def read_ct_rate(
    reports: str | Path,
    labels: str | Path | None = None,
    features: str | Path | None = None,
    one_per_scan: bool = False,
    no_chest: str | Path | Sequence[str | Path] = (),
) -> tuple[Table, CtRateCounts]:
    r"""Join the reports of CT-RATE with labels and image features.

    The result contains the reports that have an entry in each given source, in the order of the report table. All other
    entries are counted.

    All reconstructions of a scan have the same report: the 3,039 validation volumes are reconstructions of 1,564 scans.
    For an evaluation, set ``one_per_scan``; otherwise most reports and labels count twice. :func:`ct_rate_scans` does
    the same for another table of volumes.

    Args:
        reports: Table of reports (CSV, JSON lines or Parquet) with the columns ``VolumeName`` (``AccessionNo`` in older
            tables), ``Findings_EN``, ``Impressions_EN`` and optionally ``ClinicalInformation_EN`` and ``Technique_EN``.
        labels: Table of labels with ``VolumeName`` or ``AccessionNo`` and one 0/1 column for each of the 18 labels.
        features: Folder with one file per volume, at any depth: ``train_1_a_1.npz``, ``.npy`` or ``.safetensors``.
            Symbolic links to folders are not followed. Files are not opened.
        one_per_scan: Whether to keep only one volume of each scan. Of the volumes with an entry in each source, the one
            with the lowest number is kept.
        no_chest: Lists of volumes that do not show the chest, which are left out: ``no_chest_train.txt`` and
            ``no_chest_valid.txt`` of CT-RATE's ``dataset/metadata``, with the name or path of a volume in each line.

    Returns:
        The table and its counts. Columns: ``study_id`` (name of the volume without its ending), ``scan`` and
        ``patient``; the texts ``findings``, ``impression``, ``indication`` and ``technique``, ``None`` if missing or
        blank; with labels ``labels``, lists of 18 ints in the order of CT-RATE; with features ``image``, the path of a
        file that can be read with ``rrg_rewards.utilities.features.read_features``.

    Raises:
        TableError: If a table cannot be read, lacks a column, or has a row without a volume; if two different rows of a
            table or two feature files belong to one volume; if the folder does not exist; or if a list has a line that
            names no volume.
        OSError: If a file cannot be read.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "reports.csv"
        ...     _ = path.write_text("VolumeName,Findings_EN,Impressions_EN\nvalid_1_a_1.nii.gz,Large heart.,\n")
        ...     table, counts = read_ct_rate(path)
        >>> table.column("study_id"), table.column("findings"), counts.blank_impressions
        (['valid_1_a_1'], ['Large heart.'], 1)
    """
    report_rows = _read_reports(reports)
    label_rows = _read_labels(labels) if labels is not None else None
    files = _find_features(features) if features is not None else None
    excluded = read_no_chest(no_chest)
    chest = [name for name in report_rows if name.volume not in excluded]
    labelled = [name for name in chest if label_rows is None or name in label_rows]
    complete = [name for name in labelled if files is None or name.volume in files]
    kept = keep_first_of_scans(complete) if one_per_scan else complete
    table = _joined(kept, report_rows, label_rows, files, str(reports))
    volumes = {name.volume for name in report_rows}
    counts = CtRateCounts(
        reports=len(report_rows),
        labels=None if label_rows is None else len(label_rows),
        features=None if files is None else len(files),
        joined=len(kept),
        without_chest=len(report_rows) - len(chest),
        reports_without_labels=len(chest) - len(labelled),
        reports_without_features=len(labelled) - len(complete),
        other_reconstructions=len(complete) - len(kept),
        labels_without_reports=0 if label_rows is None else sum(name not in report_rows for name in label_rows),
        features_without_reports=0 if files is None else sum(volume not in volumes for volume in files),
        blank_findings=sum(text is None for text in table.column("findings")),
        blank_impressions=sum(text is None for text in table.column("impression")),
    )
    return table, counts


@dataclass(frozen=True)
class ScanCounts:
    """Numbers of rows that :func:`ct_rate_scans` kept or left out.

    Args:
        rows: Rows of the table.
        kept: Rows of the result.
        without_chest: Rows left out because their volume does not show the chest.
        other_reconstructions: Rows left out because the result has another reconstruction of the scan.
    """

    rows: int
    kept: int
    without_chest: int
    other_reconstructions: int

    def __str__(self) -> str:
        return (
            f"{self.kept} of {self.rows} volumes are used; left out: {self.without_chest} that do not show the chest, "
            f"{self.other_reconstructions} other reconstructions of a scan"
        )


def ct_rate_scans(
    table: Table,
    column: str = "VolumeName",
    no_chest: str | Path | Sequence[str | Path] = (),
    one_per_scan: bool = True,
) -> tuple[Table, ScanCounts]:
    """Keep one reconstruction of each scan of CT-RATE in a table, such as one of predictions, for an evaluation.

    Reconstructions of a scan have the same report and are no independent samples: CT-RATE's 3,039 validation volumes
    are reconstructions of 1,564 scans. Of the volumes of a scan in the table, the one with the lowest number is kept.

    Args:
        table: Table with a row for each volume.
        column: Column of the names of the volumes, with or without ``.nii.gz``.
        no_chest: Lists of volumes that do not show the chest, which are left out, as in :func:`read_ct_rate`.
        one_per_scan: Whether to keep only one volume of each scan.

    Returns:
        The rows that are kept, in order, and the numbers of rows that are not.

    Raises:
        TableError: If the column does not exist, a name is not that of a volume, or two rows name one volume.

    Example:
        >>> volumes = ["valid_1_a_2", "valid_1_a_1", "valid_1_b_1"]
        >>> table, counts = ct_rate_scans(Table({"VolumeName": volumes, "prediction": ["Normal."] * 3}))
        >>> table.column("VolumeName"), counts.other_reconstructions
        (['valid_1_a_1', 'valid_1_b_1'], 1)
    """
    names = _names(table, column)
    rows: dict[CtRateName, int] = {}
    for row, name in enumerate(names):
        if rows.setdefault(name, row) != row:
            raise TableError(
                f"{table.where(row)}, column {column!r}: {name.volume} is also in data row {rows[name] + 1}; each "
                "volume must have one row"
            )
    excluded = read_no_chest(no_chest)
    chest = [name for name in names if name.volume not in excluded]
    kept = keep_first_of_scans(chest) if one_per_scan else chest
    counts = ScanCounts(len(names), len(kept), len(names) - len(chest), len(chest) - len(kept))
    chosen = [rows[name] for name in kept]
    lines = None if table.lines is None else tuple(table.lines[row] for row in chosen)
    columns = {name: [cells[row] for row in chosen] for name, cells in table.columns.items()}
    return replace(table, columns=columns, lines=lines), counts


def read_no_chest(paths: str | Path | Sequence[str | Path]) -> frozenset[str]:
    """Return the volumes, without their ending, in lists of volumes that do not show the chest.

    Args:
        paths: One file or several. Each line has the name of a volume, or its path; empty lines are skipped.

    Raises:
        TableError: If a line names no volume. The message names the file and the line.
        OSError: If a file cannot be read.
    """
    volumes: set[str] = set()
    for path in [paths] if isinstance(paths, str | Path) else paths:
        for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
            if not line.strip():
                continue
            try:
                name = parse_ct_rate_name(line.strip().replace("\\", "/").rpartition("/")[2])
            except ValueError as error:
                raise TableError(f"{path}: line {number}: {error}") from None
            if not name.reconstruction:
                raise TableError(f"{path}: line {number}: {name.volume!r} is no volume, such as train_1_a_1.nii.gz")
            volumes.add(name.volume)
    return frozenset(volumes)


def _names(table: Table, column: str | None = None) -> list[CtRateName]:
    """Return the volume of each row; by default from the column that CT-RATE's tables have."""
    key = column or next((name for name in _KEYS if name in table.columns), _KEYS[0])
    names = []
    for row, cell in enumerate(table.column(key)):
        try:
            names.append(parse_ct_rate_name("" if cell is None else str(cell)))
        except ValueError as error:
            raise TableError(f"{table.where(row)}, column {key!r}: {error}") from None
    return names


def _by_name(table: Table, rows: Iterable[Any]) -> dict[CtRateName, Any]:
    """Return the row of each volume; a row that repeats an earlier one is read once."""
    found: dict[CtRateName, tuple[int, Any]] = {}
    for row, (name, content) in enumerate(zip(_names(table), rows, strict=True)):
        before, known = found.setdefault(name, (row, content))
        if known != content:
            raise TableError(
                f"{table.where(row)}: {name.volume} is also in data row {before + 1}, with other content; "
                "remove one of them"
            )
    return {name: content for name, (_, content) in found.items()}


def _read_reports(path: str | Path) -> dict[CtRateName, tuple[str | None, ...]]:
    table = read_table(path)
    columns = [*map(table.texts, _SECTIONS.values())]
    with warnings.catch_warnings():
        # "Not given." is what the tables have in place of a missing request.
        warnings.simplefilter("ignore", PlaceholderWarning)
        for name in _CONTEXT.values():
            texts = table.optional_texts(name)
            columns.append(without_placeholders(texts))
    return _by_name(table, ([(cell or "").strip() or None for cell in row] for row in zip(*columns, strict=True)))


def _read_labels(path: str | Path) -> dict[CtRateName, tuple[int, ...]]:
    table = read_table(path)
    rows = _by_name(table, table.labels(CT_RATE.labels))
    return {name: labels for name, labels in rows.items() if labels is not None}


def _find_features(folder: str | Path) -> dict[str, Path]:
    """Return the feature file of each volume."""
    if not Path(folder).is_dir():
        raise TableError(f"{folder}: is no folder of features")
    files: dict[str, Path] = {}
    # os.walk lists a folder of 25,000 files several times faster than Path.rglob.
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            stem, ending = os.path.splitext(name)  # noqa: PTH122
            if ending.lower() not in FEATURE_ENDINGS:
                continue
            volume, path = study_name(stem), Path(parent, name)
            if volume in files:
                raise TableError(f"{folder}: {volume} has two feature files, {files[volume]} and {path}; remove one")
            files[volume] = path
    return files


def keep_first_of_scans(names: Sequence[CtRateName]) -> list[CtRateName]:
    """Return the volume with the lowest number of each scan, in the order of ``names``."""
    first: dict[str, CtRateName] = {}
    for name in sorted(names, key=lambda name: name.reconstruction):
        first.setdefault(name.scan, name)
    kept = set(first.values())
    return [name for name in names if name in kept]


def _joined(
    names: Sequence[CtRateName],
    reports: Mapping[CtRateName, Sequence[str | None]],
    labels: Mapping[CtRateName, tuple[int, ...]] | None,
    files: Mapping[str, Path] | None,
    source: str,
) -> Table:
    columns: dict[str, list[Any]] = {
        "study_id": [name.volume for name in names],
        "scan": [name.scan for name in names],
        "patient": [name.patient for name in names],
    }
    for index, column in enumerate((*_SECTIONS, *_CONTEXT)):
        columns[column] = [reports[name][index] for name in names]
    if labels is not None:
        columns["labels"] = [list(labels[name]) for name in names]
    if files is not None:
        columns["image"] = [str(files[name.volume]) for name in names]
    return Table(columns, source)
