"""Names of studies, and joins of tables by them. Error messages name the file, the row and the column."""

import re
from collections.abc import Mapping

from rrg_rewards.data.tables.table import Table, TableError

# Folders and ending of an image file. A name without such an ending may contain slashes of its own.
_IMAGE_FILE = re.compile(r"(?:.*[/\\])?(?P<name>.+?)\.(?:nii|nii\.gz|gz|mha|mhd|nrrd|npz)", re.IGNORECASE | re.DOTALL)


def study_name(text: str) -> str:
    """Return the name of a study without folders, the ending of an image file, and surrounding spaces.

    The endings are ``.nii``, ``.nii.gz``, ``.gz``, ``.mha``, ``.mhd``, ``.nrrd`` and ``.npz``. A name without one of
    them is returned whole.

    Example:
        >>> study_name("valid/valid_1_a_1.nii.gz"), study_name("1.2.840.5.mha"), study_name("p10/s500")
        ('valid_1_a_1', '1.2.840.5', 'p10/s500')
    """
    found = _IMAGE_FILE.fullmatch(text.strip())
    return found["name"] if found else text.strip()


def rows_by_study(table: Table, key: str) -> dict[str, int]:
    """Return the row of each study.

    Args:
        table: The table.
        key: Column of the names of the studies, which :func:`study_name` shortens.

    Raises:
        TableError: If the column does not exist, or a name is missing or repeated. The message names the rows.

    Example:
        >>> rows_by_study(Table({"VolumeName": ["a.nii.gz", "b.nii.gz"]}), "VolumeName")
        {'a': 0, 'b': 1}
    """
    rows: dict[str, int] = {}
    table.check_named("key", key)
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
