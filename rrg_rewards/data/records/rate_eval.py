"""Reader of RaTE-Eval's sentence pairs with error counts."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rrg_rewards.data.records.column_names import check_names, column_names
from rrg_rewards.data.records.error_records import ErrorRecord, parse_count
from rrg_rewards.data.tables.table import TableError
from rrg_rewards.findings.editing.injected_report import LETTERS

__all__ = ["read_rate_eval"]

_KEYS = {"reference": "gt", "candidate": "pred", "errors": "errors", "potential": "potential_errors"}
_SOURCE = "rate_eval"


def read_rate_eval(
    path: str | Path, normalise: bool = False, columns: Mapping[str, str] | None = None
) -> list[ErrorRecord]:
    """Read the sentence-level human ratings of RaTE-Eval: sentence pairs of nine imaging modalities.

    The reader was tested on files in the layout below, but not on the data, whose keys may differ. The file is JSON: a
    list of objects, or an object of objects by id. Each object has the reference sentence ``gt``, the candidate
    sentence ``pred``, the numbers of errors of the six categories of ReXVal in ``errors`` (a list of six, or an
    object by letter A to F or number 1 to 6, 0 for absent ones), and the number of possible errors in
    ``potential_errors``, which is required only with ``normalise``.

    Args:
        path: Path of the JSON file.
        normalise: Whether to divide the counts by the number of possible errors, as RaTE-Eval does. The paper of CREPE
            reports both variants (Appendix A.3.4).
        columns: Names of keys that differ from the layout, by content: ``reference``, ``candidate``, ``errors`` and
            ``potential``.

    Returns:
        One record for each pair, in order.

    Raises:
        TableError: If the file is no JSON of this layout. The message names the entry and all missing keys.
        ValueError: If ``columns`` has an unknown key.
    """
    names = column_names(_KEYS, columns)
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise TableError(f"{path}: not a readable JSON file: {error}") from None
    if not isinstance(content, Mapping | list):
        raise TableError(f"{path}: must be a list or an object of entries, got {type(content).__name__}")
    entries = content.items() if isinstance(content, Mapping) else enumerate(content, start=1)
    return [_record(entry, names, normalise, f"{path}: entry {key}") for key, entry in entries]


def _record(entry: Any, names: Mapping[str, str], normalise: bool, where: str) -> ErrorRecord:
    if not isinstance(entry, Mapping):
        raise TableError(f"{where}: must be an object, got {type(entry).__name__}")
    required = list(names.values()) if normalise else [names[key] for key in ("reference", "candidate", "errors")]
    check_names(list(entry), required, where, "name the keys of the file, as in columns={'candidate': 'output'}")
    reference, candidate = (_text(entry[names[key]], names[key], where) for key in ("reference", "candidate"))
    counts = _counts(entry[names["errors"]], f"{where}, {names['errors']!r}")
    if normalise:
        potential = parse_count(entry[names["potential"]], f"{where}, {names['potential']!r}")
        if not potential:
            raise TableError(f"{where}, {names['potential']!r}: must be a positive number, got {potential}")
        counts = [None if count is None else count / potential for count in counts]
    return ErrorRecord(reference, candidate, tuple(counts), _SOURCE)


def _text(value: Any, name: str, where: str) -> str:
    if not isinstance(value, str):
        raise TableError(f"{where}, {name!r}: must be a text, got {type(value).__name__}")
    return value


def _counts(value: Any, where: str) -> list[float | None]:
    if isinstance(value, Mapping):
        letters = {**{letter: letter for letter in LETTERS}, **dict(zip("123456", LETTERS, strict=True))}
        if unknown := [key for key in value if str(key) not in letters]:
            raise TableError(f"{where}: category must be A to F or 1 to 6, got {unknown[0]!r}")
        by_letter = {letters[str(key)]: count for key, count in value.items()}
        if len(by_letter) < len(value):
            raise TableError(f"{where}: a category has two counts, one by letter and one by number")
        value = [by_letter.get(letter, 0) for letter in LETTERS]
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != len(LETTERS):
        raise TableError(f"{where}: must be {len(LETTERS)} numbers")
    return [parse_count(count, f"{where}, {letter}") for letter, count in zip(LETTERS, value, strict=True)]
