"""Join tables by the names of their studies."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rrg_rewards.data.tables.table import Table, TableError

__all__ = ["JoinedTable", "matching_rows", "rows_by_study", "study_name"]

_ENDING = re.compile(r"(\.nii)?(\.gz)?$")


def study_name(text: str) -> str:
    """Return the name of a study without the ending of an image file and surrounding spaces.

    Example:
        >>> study_name("valid_1_a_1.nii.gz")
        'valid_1_a_1'
    """
    return _ENDING.sub("", text.strip())


def rows_by_study(table: Table, key: str) -> dict[str, int]:
    """Return the row of each study.

    Args:
        table: The table.
        key: Column of the names of the studies, with or without ``.nii.gz``.

    Raises:
        TableError: If the column does not exist, or a name is missing or repeated. The message names the rows.

    Example:
        >>> rows_by_study(Table({"VolumeName": ["a.nii.gz", "b.nii.gz"]}), "VolumeName")
        {'a': 0, 'b': 1}
    """
    rows: dict[str, int] = {}
    for name, row in table.row_by_name(key).items():
        study = study_name(name)
        if study in rows:
            raise TableError(
                f"{table.where(row)}, column {key!r}: {study!r} is also in {table.where(rows[study])}; each study must "
                "have one row"
            )
        rows[study] = row
    return rows


def matching_rows(first: Table, first_key: str, other: Table, other_key: str) -> list[int]:
    """Return the row of ``other`` that has the study of each row of ``first``.

    Raises:
        TableError: If one of the tables lacks a study of the other, or as :func:`rows_by_study`.

    Example:
        >>> matching_rows(Table({"id": ["a", "b"]}), "id", Table({"name": ["b", "a"]}), "name")
        [1, 0]
    """
    wanted, places = rows_by_study(first, first_key), rows_by_study(other, other_key)
    _check_none_missing(other, places, first, wanted)
    _check_none_missing(first, wanted, other, places)
    return [places[study] for study in wanted]


def _check_none_missing(table: Table, rows: Mapping[str, int], other: Table, wanted: Mapping[str, int]) -> None:
    missing = [study for study in wanted if study not in rows]
    if missing:
        raise TableError(
            f"{table.source}: has no row with the study {missing[0]!r} of {other.source} ({len(missing)} of "
            f"{len(wanted)} are missing); both must have the same studies"
        )


@dataclass
class JoinedTable:
    """Batches of a table with the columns of a second table, joined by the names of studies.

    A column of the second table whose name the first has too gets the name ``reference NAME``.

    Args:
        batches: Batches of the first table.
        other: The second table.
        key: Column of the names of the studies in the first table.
        other_key: The same column in the second table.

    Raises:
        TableError: In iterations, if one of the tables lacks a study of the other, or a name is missing or repeated.

    Example:
        >>> batches = [Table({"id": ["b", "a"], "report": ["Clear.", "Nodule."]})]
        >>> truth = Table({"name": ["a", "b"], "report": ["Nodule of 4 mm.", "Normal."]})
        >>> next(iter(JoinedTable(batches, truth, "id", "name"))).columns["reference report"]
        ['Normal.', 'Nodule of 4 mm.']
    """

    batches: Iterable[Table]
    other: Table
    key: str
    other_key: str
    _rows: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._rows = rows_by_study(self.other, self.other_key)

    def __iter__(self) -> Iterator[Table]:
        found: dict[str, str] = {}
        source = ""
        for table in self.batches:
            source = table.source
            rows = []
            for study, row in rows_by_study(table, self.key).items():
                if study in found:
                    raise TableError(f"{table.where(row)}, column {self.key!r}: {study!r} is also in {found[study]}")
                if study not in self._rows:
                    raise TableError(
                        f"{table.where(row)}, column {self.key!r}: {self.other.source} has no study {study!r}"
                    )
                found[study] = table.where(row)
                rows.append(self._rows[study])
            columns = {
                self.column(name, table): [cells[row] for row in rows] for name, cells in self.other.columns.items()
            }
            yield table.with_columns(columns)
        missing = [study for study in self._rows if study not in found]
        if missing:
            raise TableError(
                f"{source}: has no row with the study {missing[0]!r} of {self.other.source} ({len(missing)} of "
                f"{len(self._rows)} are missing); add rows with an empty cell for reports that were not generated"
            )

    @staticmethod
    def column(name: str, table: Table) -> str:
        """Return the name of a column of the second table in the joined table."""
        return f"reference {name}" if name in table.columns else name
