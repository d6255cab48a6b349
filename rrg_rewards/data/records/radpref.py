"""Reader of RadPref's annotations as error records."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rrg_rewards.data.records.error_records import ErrorRecord
from rrg_rewards.data.tables.table import TableError

__all__ = ["read_radpref"]

# Categories of RadPref's attribute errors. ReXVal has no category for its other errors (descriptor, certainty,
# unspecific, overinterpretation, temporal).
_ATTRIBUTES = {"location": "C", "severity": "D", "measurement": "D"}
_CANDIDATES = ("C1", "C2")


def read_radpref(path: str | Path, radiologist: int | None = None) -> list[ErrorRecord]:
    """Read RadPref: chest X-ray references with two candidates each, annotated by radiologists.

    A false finding counts as an error A, a missing finding as B, a wrong location as C, and a wrong severity or
    measurement as D. Each category counts at most once per finding. Significant and insignificant errors count.
    Errors in descriptor, certainty, specificity, interpretation and time have no category and do not count. E and F are
    None, because comparisons were not annotated.

    Args:
        path: Path of ``pairs.json``.
        radiologist: Index from 0 of the radiologist whose counts are used. Default: the mean over all radiologists.

    Returns:
        Two records for each reference, C1 and C2, in order.

    Raises:
        TableError: If the file is malformed. The message names the entry.
        ValueError: If an entry lacks this radiologist.
    """
    try:
        entries = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise TableError(f"{path}: not a readable JSON file: {error}") from None
    if not isinstance(entries, list):
        raise TableError(f"{path}: must be a list of entries, got {type(entries).__name__}")
    return [
        record
        for number, entry in enumerate(entries, start=1)
        for record in _records(entry, f"{path}: entry {number}", radiologist)
    ]


def _records(entry: Any, where: str, radiologist: int | None) -> list[ErrorRecord]:
    try:
        judged = entry["radiologists"]
        if not judged:
            raise TableError(f"{where}: has no radiologist")
        if radiologist is not None and not 0 <= radiologist < len(judged):
            raise ValueError(f"radiologist must be below {len(judged)} in {where}, got {radiologist}")
        judged = judged if radiologist is None else [judged[radiologist]]
        records = []
        for candidate in _CANDIDATES:
            counts = [_counts(judgement[candidate]) for judgement in judged]
            means = tuple(sum(values) / len(counts) for values in zip(*counts, strict=True))
            texts = entry["ground_truth_report"], entry[f"{candidate}_report"]
            records.append(ErrorRecord(*texts, (*means, None, None), "radpref"))
        return records
    except (KeyError, TypeError, AttributeError) as error:
        raise TableError(f"{where}: is no RadPref annotation: {type(error).__name__}: {error}") from None


def _counts(judgement: Mapping[str, Any]) -> list[int]:
    """Return the numbers of errors A to D that one radiologist found in one candidate."""
    found = ["B"] * len(judgement["missing_findings"])
    for error in judgement["finding_errors"].values():
        if error["error_type"] == "false":
            found.append("A")
        else:
            found += sorted({_ATTRIBUTES[name] for name in error["attributes"] if name in _ATTRIBUTES})
    return [found.count(letter) for letter in "ABCD"]
