"""Splits of records into training, validation and test without common reference reports."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rrg_rewards.data.records.error_records import ErrorRecord
from rrg_rewards.data.records.graded_reports import GradedReport

_NOT_WORD = re.compile(r"[\W_]+")


def report_key(report: str) -> str:
    r"""Return the words of a report in lower case without punctuation, which identify copies of the report.

    Example:
        >>> report_key("No  effusion.\nHeart: normal.") == report_key("no effusion; heart normal")
        True
    """
    return _NOT_WORD.sub(" ", report.casefold()).strip()


Record = TypeVar("Record", bound=ErrorRecord | GradedReport)


@dataclass(frozen=True)
class RecordSplit(Generic[Record]):
    """Records of training, validation and test.

    Args:
        train: Training records.
        validation: Records that select the checkpoint.
        test: Records on which the training report is based.
        duplicates: Number of excluded records with the same reference and candidate as another record.
        crossing: Number of excluded records whose candidate is a reference in another part of the split, or whose
            reference is an excerpt of a report outside the training data.
    """

    train: list[Record]
    validation: list[Record]
    test: list[Record]
    duplicates: int
    crossing: int


def split_by_reference(
    records: Sequence[Record], validation_fraction: float, test_fraction: float, seed: int
) -> RecordSplit[Record]:
    """Split records so that no reference of training, validation or test is a report in another part of the split.

    Reports are identified by :func:`report_key`. A hash of the seed and this key determines the part to which a
    reference belongs, independently of other records and of the process. Of several records with the same reference and
    candidate, the first is kept. A record is excluded if its candidate is a reference in another part. Excerpts of
    reports are training records; an excerpt is excluded if the whole report is not in the training data.

    Args:
        records: Error records or graded reports.
        validation_fraction: Expected fraction of references in ``validation``.
        test_fraction: Expected fraction of references in ``test``.
        seed: Seed of the split.

    Returns:
        The split. Records are in the order of ``records``.

    Raises:
        ValueError: If a fraction is out of range.

    Example:
        >>> records = [ErrorRecord(f"Nodule of {i} mm.", "No nodule.", (0, 1, 0, 0, 0, 0)) for i in range(200)]
        >>> split = split_by_reference(records, 0.1, 0.2, seed=0)
        >>> len(split.train), len(split.validation), len(split.test)
        (138, 23, 39)
    """
    if min(validation_fraction, test_fraction) < 0 or validation_fraction + test_fraction >= 1:
        raise ValueError(
            "validation_fraction and test_fraction must not be negative, and their sum must be less than 1, got "
            f"{validation_fraction} and {test_fraction}"
        )
    kept: dict[tuple[str, str], Record] = {}
    for record in records:
        kept.setdefault((report_key(record.reference), report_key(record.candidate)), record)
    wholes = {key: report_key(record.whole) for key, record in kept.items()}
    references = {whole or key[0] for key, whole in wholes.items()}
    side_of = {reference: _side(reference, validation_fraction, test_fraction, seed) for reference in references}
    sides: tuple[list[Record], ...] = ([], [], [])
    crossing = 0
    for key, record in kept.items():
        reference, whole = key[0], wholes[key]
        side = 0 if whole else side_of[reference]
        if all(side_of.get(text, side) == side for text in (*key, *filter(None, [whole]))):
            sides[side].append(record)
        else:
            crossing += 1
    return RecordSplit(
        train=sides[0], validation=sides[1], test=sides[2], duplicates=len(records) - len(kept), crossing=crossing
    )


def _side(key: str, validation_fraction: float, test_fraction: float, seed: int) -> int:
    digest = hashlib.sha256(f"{seed}:{key}".encode()).digest()
    fraction = int.from_bytes(digest[:8], "big") / 2**64
    if fraction < test_fraction:
        return 2
    return 1 if fraction < test_fraction + validation_fraction else 0
