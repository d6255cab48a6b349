"""JSON documents of reports, as leaderboards and challenges exchange them: ReXrank's, VLM3D's, and lists of objects."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.data.tables.writers import finite, json_line, open_output

DocumentLayout = Literal["rexrank", "vlm3d"]
"""Layout of a JSON document: an object of studies by name, or a list of generated reports."""

STUDY_COLUMN = "study_id"
"""Column of the names of the studies of a ReXrank document."""

_REPORTS, _IMAGE, _REPORT = "generated_reports", "input_image_name", "report"
_PREDICTION = "model_prediction"


def parse_json(file: BinaryIO, source: str, rows: int | None = None) -> Iterator[Table]:
    r"""Yield the rows of a JSON document in tables. The whole document is read into memory.

    A document is a list of objects, one for each row; an object of objects by the name of the study, as ReXrank's; or
    an object with a list ``generated_reports`` of objects with the keys ``input_image_name`` and ``report``, as that of
    VLM3D. The keys of the objects are the columns; names of studies are the column ``study_id``.

    Args:
        file: The file.
        source: Name of the file in messages.
        rows: Maximum number of rows in a table; ``None`` for one table.

    Yields:
        Tables with the same columns; at least one.

    Raises:
        TableError: If the file is not JSON in UTF-8, has another layout, or lacks a key. The message names the key and
            the row.

    Example:
        >>> from io import BytesIO
        >>> table = next(parse_json(BytesIO(b'{"p1": {"report": "Normal.", "model_prediction": "Clear."}}'), "rexrank"))
        >>> table.columns
        {'study_id': ['p1'], 'report': ['Normal.'], 'model_prediction': ['Clear.']}
        >>> document = b'{"generated_reports": [{"input_image_name": "valid_1_a_1", "report": "Normal."}]}'
        >>> next(parse_json(BytesIO(document), "vlm3d")).columns
        {'input_image_name': ['valid_1_a_1'], 'report': ['Normal.']}
    """
    try:
        document = json.loads(file.read().decode("utf-8-sig"), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise TableError(f"{source}: not a JSON document: {error}") from error
    table = Table.from_records(_records(document, source), source=source)
    if not len(table):
        raise TableError(f"{source}: has no rows")
    if rows is None:
        yield table
        return
    for first in range(0, len(table), rows):
        part = {name: cells[first : first + rows] for name, cells in table.columns.items()}
        yield Table(part, source, first=first)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, for the ``object_pairs_hook`` of ``json.loads``; raise a ValueError for a repeated key."""
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands more than once")
    return record


def _records(document: Any, source: str) -> list[dict[str, Any]]:
    if isinstance(document, list):
        return [_record(entry, f"{source}: data row {row}") for row, entry in enumerate(document, start=1)]
    if not isinstance(document, dict):
        raise TableError(f"{source}: must be a list of objects or an object, got {type(document).__name__}")
    if _REPORTS in document:
        return _generated_reports(document[_REPORTS], source)
    wrong = [name for name, study in document.items() if not isinstance(study, dict)]
    if wrong:
        raise TableError(
            f"{source}: has no key {_REPORTS!r}, as VLM3D's layout has, and the value of {wrong[0]!r} is "
            f"{type(document[wrong[0]]).__name__}, not the object of a study, as in ReXrank's layout"
        )
    for name, study in document.items():
        if str(study.get(STUDY_COLUMN, name)) != name:
            raise TableError(f"{source}: the study {name!r} has another {STUDY_COLUMN}, {study[STUDY_COLUMN]!r}")
    return [{STUDY_COLUMN: name, **study} for name, study in document.items()]


def _record(entry: Any, where: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise TableError(f"{where}: must be an object, as in {{'report': '...'}}, got {type(entry).__name__}")
    return entry


def _generated_reports(reports: Any, source: str) -> list[dict[str, Any]]:
    if not isinstance(reports, list):
        raise TableError(f"{source}: {_REPORTS!r} must be a list of objects, got {type(reports).__name__}")
    records = []
    for row, entry in enumerate(reports, start=1):
        record = _record(entry, f"{source}: {_REPORTS}, entry {row}")
        for key in (_IMAGE, _REPORT):
            if key not in record:
                raise TableError(
                    f"{source}: {_REPORTS}, entry {row}: has no key {key!r}; its keys are {', '.join(record)}"
                )
        records.append(record)
    return records


def write_report_document(
    table: Table,
    path: str | Path,
    layout: DocumentLayout,
    *,
    study_column: str,
    prediction_column: str = "prediction",
    overwrite: bool = False,
) -> None:
    """Write predicted reports as a JSON document of a leaderboard or challenge.

    - ``rexrank``: an object of studies by name. Each has the other columns of the table, and the prediction as
      ``model_prediction``.
    - ``vlm3d``: an object with the list ``generated_reports``. Each entry has the name of the study as
      ``input_image_name`` and the prediction as ``report``.

    Args:
        table: The predicted reports.
        path: Path of the file, or ``-`` for standard output.
        layout: ``"rexrank"`` or ``"vlm3d"``.
        study_column: Column of the names of the studies.
        prediction_column: Column of the predicted reports.
        overwrite: Whether an existing file may be replaced.

    Raises:
        TableError: If a column is missing, a prediction or a name is missing, a name is repeated, another column is
            named ``model_prediction`` (``rexrank``), or the file cannot be written.
        ValueError: If the layout is unknown.

    Example:
        >>> table = Table({"study": ["valid_1_a_1"], "prediction": ["Normal."]})
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "results.json"
        ...     write_report_document(table, path, "vlm3d", study_column="study")
        ...     json.loads(path.read_text())["generated_reports"]
        [{'input_image_name': 'valid_1_a_1', 'report': 'Normal.'}]
    """
    if layout not in get_args(DocumentLayout):
        raise ValueError(f"layout must be one of {', '.join(get_args(DocumentLayout))}, got {layout!r}")
    predictions = table.required_texts(prediction_column)
    studies = table.row_by_name(study_column)
    document: Mapping[str, Any]
    if layout == "vlm3d":
        entries = [{_IMAGE: study, _REPORT: predictions[row]} for study, row in studies.items()]
        document = {
            "name": "Generated reports",
            "type": "Report generation",
            _REPORTS: entries,
            "version": {"major": 1, "minor": 0},
        }
    else:
        others = [name for name in table.names if name not in (study_column, prediction_column)]
        if _PREDICTION in others:
            raise TableError(
                f"{table.source}: has a column {_PREDICTION!r} besides the predictions, {prediction_column!r}; the "
                "layout has a key of this name: rename or remove the column"
            )
        document = {
            study: {**{name: table.columns[name][row] for name in others}, _PREDICTION: predictions[row]}
            for study, row in studies.items()
        }
    text = json_line(finite(document), indent=2, default=str)
    with open_output(path, overwrite) as file:
        file.write(text)
