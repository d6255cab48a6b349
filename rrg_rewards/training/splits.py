"""Splits in which no reference report stands on two sides."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol

from typing_extensions import TypeVar

from rrg_rewards.data.error_records import ErrorRecord

__all__ = ["ExcerptRecord", "RecordSplit", "ReportRecord", "report_key", "split_by_reference"]

_NOT_WORD = re.compile(r"[\W_]+")


def report_key(report: str) -> str:
    r"""What two copies of a report have in common: its words in lower case, without punctuation and line breaks.

    Example:
        >>> report_key("No  effusion.\nHeart: normal.") == report_key("no effusion; heart normal")
        True
    """
    return _NOT_WORD.sub(" ", report.casefold()).strip()


class ReportRecord(Protocol):
    """What is split: a candidate and its reference, with whatever is known of them.

    :class:`rrg_rewards.data.ErrorRecord` and :class:`rrg_rewards.data.GradedReport` are such records. One that has an
    attribute ``whole`` which is not empty is on a part of that report.
    """

    @property
    def reference(self) -> str:
        """Reference report."""
        ...

    @property
    def candidate(self) -> str:
        """Candidate report."""
        ...

    @property
    def source(self) -> str:
        """Where the pair is from."""
        ...


Record = TypeVar("Record", bound=ReportRecord, default=ErrorRecord)


@dataclass(frozen=True)
class ExcerptRecord(ErrorRecord):
    """A record on a part of a report: it is trained on where the whole report is, and no other side holds it.

    Args:
        whole: The report that the reference was cut from.
    """

    whole: str = ""


@dataclass(frozen=True)
class RecordSplit(Generic[Record]):
    """Records to train on, to choose a checkpoint by, and to report on.

    Args:
        train: Records to train on.
        validation: Records that choose the checkpoint.
        test: Records that nothing is chosen by.
        duplicates: How many records were left out since another has the same two reports.
        crossing: How many records were left out of one side since their candidate is a reference of another, or since
            they are of a part of a report that is not trained on.
    """

    train: list[Record]
    validation: list[Record]
    test: list[Record]
    duplicates: int
    crossing: int


def split_by_reference(
    records: Sequence[Record], validation_fraction: float, test_fraction: float, seed: int
) -> RecordSplit[Record]:
    """Split records so that no reference report, and none of its candidates as a reference, stands on two sides.

    Reports are told apart by their words alone. A reference falls on a side by a hash of the seed and its words: it
    stays there whatever other records there are, and all processes agree. Of two records with the same reference and
    candidate the first is kept. A record whose candidate is a reference of another side is left out. Parts of reports
    are trained on only, where the whole is.

    Args:
        records: Records of reference and candidate, of one kind or several.
        validation_fraction: Expected share of references in ``validation``.
        test_fraction: Expected share of references in ``test``.
        seed: Seed of the split.

    Returns:
        The sides, each in the order of ``records``.

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
            "validation_fraction and test_fraction must not be negative and must leave something to train on, got "
            f"{validation_fraction} and {test_fraction}"
        )
    kept: dict[tuple[str, str], Record] = {}
    for record in records:
        kept.setdefault((report_key(record.reference), report_key(record.candidate)), record)
    wholes = {key: report_key(getattr(record, "whole", "")) for key, record in kept.items()}
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
    place = int.from_bytes(digest[:8], "big") / 2**64
    if place < test_fraction:
        return 2
    return 1 if place < test_fraction + validation_fraction else 0
