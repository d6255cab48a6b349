"""JSON documents of reports, as leaderboards and challenges exchange them: ReXrank's, VLM3D's, and lists of objects."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

from rrg_rewards.data.tables.studies import rows_by_study
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.data.tables.writers import finite, json_line, open_output
from rrg_rewards.utilities.files import note_input

DocumentLayout = Literal["rexrank", "vlm3d", "vlm3d-predictions"]
"""Layout of a JSON document: an object of studies by name, a list of generated reports, or a list of jobs with such
lists."""

STUDY_COLUMN = "study_id"
"""Column of the names of the studies of a ReXrank document."""

IMAGE_COLUMN = "input_image_name"
"""Column of the names of the volumes of a VLM3D document."""

_REPORTS, _REPORT = "generated_reports", "report"
_OUTPUTS, _VALUE, _JOB = "outputs", "value", "pk"
_PREDICTION = "model_prediction"


def parse_json(file: BinaryIO, source: str, rows: int | None = None) -> Iterator[Table]:
    r"""Yield the rows of a JSON document in tables. The whole document is read into memory.

    A document is one of the following. The keys of the objects are the columns.

    - A list of objects, one for each row. A cell may be a list, such as that of the images of a study, but no object.
    - An object of objects by the name of the study, as ReXrank's. The names are the column ``study_id``.
    - An object with a list ``generated_reports`` of objects with the keys ``input_image_name`` and ``report``, as an
      algorithm of VLM3D writes it, and the ground truth.
    - A list of jobs, as the evaluation of VLM3D reads it (``predictions.json`` of grand-challenge): each job has
      ``outputs`` with such an object as their ``value``. The reports of all jobs are read. The column ``pk`` names the
      job, if the jobs have names.

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
    table = Table.from_records(_records(_document(file, source), source), source=source)
    if not len(table):
        raise TableError(f"{source}: has no rows")
    yield from [table] if rows is None else table.batches(rows)


def read_json_document(path: str | Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        TableError: If the file is not JSON, or an object has a key twice.
        OSError: If the file cannot be read.
    """
    with Path(path).open("rb") as file:
        note_input(file)
        return _document(file, str(path))


def _document(file: BinaryIO, source: str) -> Any:
    try:
        return json.loads(file.read().decode("utf-8-sig"), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise TableError(f"{source}: not a JSON document: {error}") from error


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, for the ``object_pairs_hook`` of ``json.loads``; raise a ValueError for a repeated key."""
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands more than once")
    return record


def _records(document: Any, source: str) -> list[dict[str, Any]]:
    if isinstance(document, dict) and _REPORTS not in document:
        return _studies(document, source)
    if _has_jobs(document) or isinstance(document, dict):
        return [record for _, records in _report_lists(document, source) for record in records]
    if not isinstance(document, list):
        raise TableError(f"{source}: must be a list of objects or an object, got {type(document).__name__}")
    records = []
    for row, entry in enumerate(document, start=1):
        record = _record(entry, f"{source}: data row {row}")
        nested = next((key for key, cell in record.items() if isinstance(cell, dict)), None)
        if nested is not None:
            raise TableError(
                f"{source}: data row {row}: the value of {nested!r} is an object, which is no cell of a table; write "
                f"its values as keys of the row. A list of jobs with generated reports has the keys {_OUTPUTS!r} and "
                f"{_VALUE!r}, as in [{{'outputs': [{{'value': {{'generated_reports': [...]}}}}]}}]"
            )
        records.append(record)
    return records


def _studies(document: dict[str, Any], source: str) -> list[dict[str, Any]]:
    """Return the studies of ReXrank's layout."""
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


def _has_jobs(document: Any) -> bool:
    """Whether a document is a list of jobs of grand-challenge; one with an entry of another kind is one, too."""
    return isinstance(document, list) and any(
        isinstance(entry, dict) and isinstance(entry.get(_OUTPUTS), list) for entry in document
    )


def _report_lists(document: Any, source: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the place and the reports of each output of each job, or those of a document without jobs."""
    if isinstance(document, dict):
        yield source, _generated_reports(document, source)
        return
    for number, job in enumerate(document, start=1):
        outputs = _record(job, f"{source}: job {number}").get(_OUTPUTS)
        if not isinstance(outputs, list) or not outputs:
            raise TableError(f"{source}: job {number}: {_OUTPUTS!r} must be a list of outputs, got {outputs!r}")
        name = {_JOB: job[_JOB]} if _JOB in job else {}
        for place, output in enumerate(outputs, start=1):
            where = f"{source}: job {number}, output {place}"
            value = _record(output, where).get(_VALUE)
            if not isinstance(value, dict):
                raise TableError(f"{where}: {_VALUE!r} must be an object with the key {_REPORTS!r}, got {value!r:.60}")
            yield where, [{**name, **record} for record in _generated_reports(value, where)]


def _generated_reports(document: dict[str, Any], source: str) -> list[dict[str, Any]]:
    reports = document.get(_REPORTS)
    if not isinstance(reports, list):
        raise TableError(f"{source}: {_REPORTS!r} must be a list of objects, got {type(reports).__name__}")
    records = []
    for row, entry in enumerate(reports, start=1):
        record = _record(entry, f"{source}: {_REPORTS}, entry {row}")
        for key in (IMAGE_COLUMN, _REPORT):
            if key not in record:
                raise TableError(
                    f"{source}: {_REPORTS}, entry {row}: has no key {key!r}; its keys are {', '.join(record)}"
                )
        records.append(record)
    return records


def read_report_lists(path: str | Path) -> list[Table]:
    r"""Read the reports of a VLM3D document, one table for each output of each job.

    Args:
        path: Path of the document: a list of jobs, or the object of a single job or of the ground truth.

    Raises:
        TableError: If the document has another layout. The message names the key and the entry.
        OSError: If the file cannot be read.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "predictions.json"
        ...     reports = '{"generated_reports": [{"input_image_name": "s1.mha", "report": "Normal."}]}'
        ...     _ = path.write_text(f'[{{"outputs": [{{"value": {reports}}}]}}]')
        ...     [table.columns for table in read_report_lists(path)]
        [{'input_image_name': ['s1.mha'], 'report': ['Normal.']}]
    """
    document = read_json_document(path)
    if not _has_jobs(document) and not (isinstance(document, dict) and _REPORTS in document):
        raise TableError(
            f"{path}: is no document of VLM3D: an object with the key {_REPORTS!r}, or a list of jobs with such objects"
        )
    return [Table.from_records(records, source=where) for where, records in _report_lists(document, str(path))]


def write_report_document(
    table: Table,
    path: str | Path,
    layout: DocumentLayout,
    *,
    study_column: str,
    prediction_column: str = "prediction",
    missing_section: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write predicted reports as a JSON document of a leaderboard or challenge.

    - ``rexrank``: an object of studies by name. Each has the other columns of the table, and the prediction as
      ``model_prediction``.
    - ``vlm3d``: an object with the list ``generated_reports``. Each entry has the name of the study as
      ``input_image_name`` and the prediction as ``report``. This is the layout of the ground truth, and of the
      ``results.json`` of an algorithm on grand-challenge, which wraps it.
    - ``vlm3d-predictions``: the same object in a list of one job, ``[{"outputs": [{"value": {...}}]}]``: the
      ``predictions.json`` that the evaluation reads.

    The evaluation of VLM3D removes what follows the last dot of a name. Names of volumes are therefore written without
    folder and ending (:func:`~rrg_rewards.data.tables.studies.study_name`), and with ``.mha`` if the name itself has a
    dot.

    Args:
        table: The predicted reports.
        path: Path of the file, or ``-`` for standard output.
        layout: ``"rexrank"``, ``"vlm3d"`` or ``"vlm3d-predictions"``.
        study_column: Column of the names of the studies.
        prediction_column: Column of the predicted reports, or a template as in :meth:`Table.texts`.
        missing_section: Text in place of a missing section of a template, as in :meth:`Table.texts`.
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
    predictions = table.required_texts(prediction_column, missing_section)
    studies = table.row_by_name(study_column)
    document: Any
    if layout == "rexrank":
        document = _rexrank_document(table, predictions, studies, study_column, prediction_column)
    else:
        document = _vlm3d_document(table, predictions, study_column, is_job=layout == "vlm3d-predictions")
    text = json_line(finite(document), indent=2, default=str)
    with open_output(path, overwrite) as file:
        file.write(text)


def _rexrank_document(
    table: Table, predictions: Sequence[str], studies: dict[str, int], study_column: str, prediction_column: str
) -> dict[str, Any]:
    others = [name for name in table.names if name not in (study_column, prediction_column)]
    if _PREDICTION in others:
        raise TableError(
            f"{table.source}: has a column {_PREDICTION!r} besides the predictions, {prediction_column!r}; the "
            "layout has a key of this name: rename or remove the column"
        )
    return {
        study: {**{name: table.columns[name][row] for name in others}, _PREDICTION: predictions[row]}
        for study, row in studies.items()
    }


def _vlm3d_document(table: Table, predictions: Sequence[str], study_column: str, *, is_job: bool) -> Any:
    entries = [
        {IMAGE_COLUMN: f"{study}.mha" if "." in study else study, _REPORT: predictions[row]}
        for study, row in rows_by_study(table, study_column).items()
    ]
    document = {
        "name": "Generated reports",
        "type": "Report generation",
        _REPORTS: entries,
        # As the example algorithms write them: that of grand-challenge, and that of the later platform.
        "version": "1.0" if is_job else {"major": 1, "minor": 0},
    }
    return [{_OUTPUTS: [{_VALUE: document}]}] if is_job else document
