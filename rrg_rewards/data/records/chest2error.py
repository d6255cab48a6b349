"""Reader of chest2error-bench: chest CT report pairs with the errors that a radiologist found."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rrg_rewards.data.records.annotation_cells import AnnotationWarning, check_names, number_cell
from rrg_rewards.data.records.error_records import ErrorRecord
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table, TableError, parse_json_cell
from rrg_rewards.findings.editing.injected_report import LETTERS

_ATTRIBUTES = ("reference_style", "variant_id")
_TEXTS = ("anchor_id", *_ATTRIBUTES, "reference_report", "candidate_report")
_CATEGORIES = tuple(
    f"rad_cat_count_{name}"
    for name in (
        "1_false_finding",
        "2_omission",
        "3_location",
        "4_severity",
        "5_spurious_comparison",
        "6_omitted_comparison",
    )
)
_RATINGS = {
    "errors": "rad_error_count",
    "significant": "rad_critical_count",
    "insignificant": "rad_minor_count",
    "weighted_error": "rad_weighted_error",
}
_ERRORS = "rad_errors"
_CRITICALITIES = {"critical": True, "minor": False}


def read_chest2error(path: str | Path) -> list[ErrorRecord]:
    r"""Read chest2error-bench: 400 chest CT report pairs with error counts of a thoracic radiologist.

    The data set is on Hugging Face (``chest2vec/chest2error-bench``, CC BY-NC 4.0): 50 findings sections of CT-RATE
    ("anchors") in two styles, as written (``GT-U``) and structured (``GT-S``), with four candidates each. The columns
    of ``gold_pairs.parquet`` are those of the data set's page. The reader was tested on files in this layout, but not
    on the data. ``gt_equiv_pairs.parquet``, pairs without errors, is not read.

    - ``anchor_id`` is ``ErrorRecord.study``: pairs of one anchor depend on each other, in both styles.
    - ``rad_cat_count_1_false_finding``, ``..._2_omission``, ``..._3_location``, ``..._4_severity``,
      ``..._5_spurious_comparison`` and ``..._6_omitted_comparison`` are the counts A to F.
    - ``rad_errors`` is a JSON list of objects with ``category`` (1 to 6), ``criticality`` (``Critical`` or ``Minor``)
      and ``section``: ``ErrorRecord.edits``. The critical errors of each category are ``ErrorRecord.significant``,
      unless the list does not have the counts of the columns; such pairs are counted in a warning.
    - The totals ``rad_error_count``, ``rad_critical_count`` and ``rad_minor_count`` are the ratings ``errors``,
      ``significant`` and ``insignificant``; ``rad_weighted_error``, in which a minor error counts 0.25, is
      ``weighted_error``.
    - ``reference_style`` and ``variant_id`` are attributes.

    Args:
        path: ``gold_pairs.parquet`` (extra ``parquet``), or the same table as CSV or JSON lines.

    Returns:
        One record for each pair, in order.

    Raises:
        TableError: If a column is missing, naming all missing columns, a report is missing, or a cell is malformed.

    Example:
        >>> import json
        >>> from tempfile import TemporaryDirectory
        >>> row = {"anchor_id": "valid_1_a_1.npz", "reference_style": "GT-U", "variant_id": "V1"}
        >>> row |= {"reference_report": "No nodule.", "candidate_report": "Nodule of 4 mm.", "rad_error_count": 1}
        >>> row |= {"rad_critical_count": 0, "rad_minor_count": 1, "rad_weighted_error": 0.25}
        >>> row |= dict.fromkeys(_CATEGORIES, 0) | {"rad_cat_count_1_false_finding": 1}
        >>> row["rad_errors"] = '[{"category": 1, "criticality": "Minor", "section": "Lungs"}]'
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "gold_pairs.jsonl"
        ...     _ = path.write_text(json.dumps(row))
        ...     (record,) = read_chest2error(path)
        >>> record.counts, record.judgement("significant"), record.judgement("weighted_error")
        ((1.0, 0.0, 0.0, 0.0, 0.0, 0.0), 0.0, 0.25)
    """
    table = read_table(path)
    check_names(table.names, [*_TEXTS, *_RATINGS.values(), *_CATEGORIES, _ERRORS], table.source)
    texts = {name: table.required_texts(name) for name in _TEXTS}
    records, differing = [], 0
    for row in range(len(table)):
        counts = tuple(number_cell(table, row, name) for name in _CATEGORIES)
        errors = _errors(table, row)
        significant = _critical(errors, counts)
        differing += significant is None
        records.append(
            ErrorRecord(
                texts["reference_report"][row],
                texts["candidate_report"][row],
                counts,
                "chest2error",
                edits=errors,
                significant=significant,
                study=texts["anchor_id"][row],
                attributes={name: texts[name][row] for name in _ATTRIBUTES},
                ratings={name: number_cell(table, row, column) for name, column in _RATINGS.items()},
            )
        )
    if differing:
        warnings.warn(
            f"{path}: the list {_ERRORS} of {differing} of {len(table)} pairs does not have the counts of the columns "
            f"{_CATEGORIES[0]} to {_CATEGORIES[-1]}; their critical errors are not divided by category",
            AnnotationWarning,
            stacklevel=2,
        )
    return records


def _errors(table: Table, row: int) -> tuple[Mapping[str, Any], ...]:
    where = f"{table.where(row)}, column {_ERRORS!r}"
    errors = parse_json_cell(table.column(_ERRORS)[row], where, "list of errors")
    if not isinstance(errors, Sequence) or not all(isinstance(error, Mapping) for error in errors):
        raise TableError(f"{where}: must be a list of objects, got {errors!r}")
    for error in errors:
        if str(error.get("category")) not in tuple("123456"):
            raise TableError(f"{where}: category must be 1 to 6, got {error.get('category')!r}")
        if str(error.get("criticality")).lower() not in _CRITICALITIES:
            raise TableError(f"{where}: criticality must be Critical or Minor, got {error.get('criticality')!r}")
    return tuple(errors)


def _critical(errors: Sequence[Mapping[str, Any]], counts: Sequence[float | None]) -> tuple[float | None, ...] | None:
    """Return the critical errors of each category; ``None`` if the errors are not those of the counts."""
    listed = [int(error["category"]) - 1 for error in errors]
    if [listed.count(place) for place in range(len(LETTERS))] != [*counts]:
        return None
    critical = [
        place for place, one in zip(listed, errors, strict=True) if _CRITICALITIES[str(one["criticality"]).lower()]
    ]
    return tuple(float(critical.count(place)) for place in range(len(LETTERS)))
