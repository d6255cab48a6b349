"""Public data sets of annotated report pairs by name, and their tables of judgements."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrg_rewards.data.records.annotated_pairs import read_radpref, read_rate_eval, read_rexval
from rrg_rewards.data.records.chest2error import read_chest2error
from rrg_rewards.data.records.error_records import ErrorRecord
from rrg_rewards.data.records.radeval_expert import read_radeval_expert
from rrg_rewards.data.records.radevalx import read_radevalx
from rrg_rewards.data.records.refisco import read_refisco
from rrg_rewards.data.tables.table import Table
from rrg_rewards.utilities.names import unknown_name_message

_TOTALS = ("errors", "significant", "insignificant")
# Of all other judgements, a lower number is better.
_HIGHER_IS_BETTER = ("rating",)


@dataclass(frozen=True)
class AnnotatedSet:
    """A public data set of report pairs that people annotated.

    Args:
        read: Its reader.
        files: What the reader takes.
        judgement: The judgement that metrics are compared with by default.
        takes_counts: Whether the reader may take a second file with the counts.
    """

    read: Callable[..., list[ErrorRecord]]
    files: str
    judgement: str = "significant"
    takes_counts: bool = False


ANNOTATED_SETS: Mapping[str, AnnotatedSet] = {
    "rexval": AnnotatedSet(read_rexval, "folder of the release"),
    "radevalx": AnnotatedSet(
        read_radevalx, "folder of the release, or a table of reports and one of counts", takes_counts=True
    ),
    "radevalexpert": AnnotatedSet(read_radeval_expert, "reader_study_final_with_annotationsv3.csv"),
    "chest2error": AnnotatedSet(read_chest2error, "gold_pairs.parquet"),
    "refisco": AnnotatedSet(read_refisco, "refisco-v0.csv or refisco-v1.csv", "errors"),
    "radpref": AnnotatedSet(read_radpref, "pairs.json", "rating"),
    "rate_eval": AnnotatedSet(read_rate_eval, "JSON file of sentence pairs", "errors"),
}
"""The data sets by name."""


def read_annotated_set(
    name: str, path: str | Path, counts: str | Path | None = None, **options: Any
) -> list[ErrorRecord]:
    """Read a public data set of annotated report pairs by its name.

    Args:
        name: A name in :data:`ANNOTATED_SETS`.
        path: Its file or folder.
        counts: Its second file, with the counts (RadEvalX only).
        options: Further arguments of the reader, such as ``rater``.

    Raises:
        ValueError: If the name is unknown, or the data set has no second file.
        TableError: As the reader.

    Example:
        >>> read_annotated_set("rexvall", "folder")
        Traceback (most recent call last):
        ...
        ValueError: unknown data set 'rexvall'; did you mean 'rexval'? ...
    """
    if name not in ANNOTATED_SETS:
        raise ValueError(unknown_name_message("data set", name, ANNOTATED_SETS))
    chosen = ANNOTATED_SETS[name]
    if counts is not None and not chosen.takes_counts:
        raise ValueError(f"{name} has no second file with counts; it is read from: {chosen.files}")
    return chosen.read(path, *([] if counts is None else [counts]), **options)


def judgement_table(records: Sequence[ErrorRecord], source: str = "table") -> Table:
    """Return annotated report pairs as a table with a column for each judgement.

    Args:
        records: The pairs.
        source: Name of the table in messages.

    Returns:
        Columns: ``prediction`` and ``reference``; ``study``, the name of the study, or the reference if it has none;
        ``errors``, ``significant`` and ``insignificant``, the numbers of these errors, and the ratings of the records,
        each only if a record has it, ``None`` if it is missing; and the attributes, if no other column has their name.

    Example:
        >>> record = ErrorRecord("Clear.", "Edema.", (1, 0, 0, 0, 0, 0), study="7", ratings={"weighted_error": 0.25})
        >>> judgement_table([record]).columns  # doctest: +NORMALIZE_WHITESPACE
        {'prediction': ['Edema.'], 'reference': ['Clear.'], 'study': ['7'], 'errors': [1.0],
         'weighted_error': [0.25]}
    """
    columns: dict[str, list[Any]] = {
        "prediction": [record.candidate for record in records],
        "reference": [record.reference for record in records],
        "study": [record.study or record.reference for record in records],
    }
    for name in dict.fromkeys([*_TOTALS, *(name for record in records for name in record.ratings)]):
        rated = [name in _TOTALS or name in record.ratings for record in records]
        values = [record.judgement(name) if one else math.nan for record, one in zip(records, rated, strict=True)]
        if not all(map(math.isnan, values)):
            columns[name] = [None if math.isnan(value) else value for value in values]
    for name in dict.fromkeys(name for record in records for name in record.attributes):
        columns.setdefault(name, [record.attributes.get(name) for record in records])
    return Table(columns, source)


def lower_is_better(name: str) -> bool:
    """Whether a lower number of a judgement of the data sets is better; only of ratings, a higher one is.

    Example:
        >>> lower_is_better("significant"), lower_is_better("rating")
        (True, False)
    """
    return name not in _HIGHER_IS_BETTER
