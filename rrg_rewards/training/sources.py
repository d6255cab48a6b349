"""Where judged reports come from: what a source is, and files."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rrg_rewards.data.error_records import ErrorRecord, read_error_records
from rrg_rewards.data.graded_reports import GradedReport, grade_by_errors, read_graded_reports
from rrg_rewards.schemas.scoring import ScoringSystem

__all__ = [
    "GradedReports",
    "JsonlRecords",
    "RecordSource",
    "ReportSource",
    "check_sources",
    "read_graded",
    "read_sources",
]


class ReportSource(ABC):
    """Something that candidate reports with their references come from, and a judgement of them.

    Args:
        name: What the source is called in logs and reports.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def graded(self, system: ScoringSystem) -> list[GradedReport]:
        """All reports with their sub-scores under a scoring system."""


class RecordSource(ReportSource):
    """Something that records of error counts come from; the same ones each time it is read.

    Args:
        name: What the source is called in logs and reports.
    """

    @abstractmethod
    def read(self) -> list[ErrorRecord]:
        """All records."""

    def graded(self, system: ScoringSystem) -> list[GradedReport]:
        """All records, graded by the error categories that the system's criteria name.

        Raises:
            ValueError: If no criterion names any.
        """
        if not any(criterion.errors for criterion in system.criteria):
            raise ValueError(
                f"source {self.name!r} counts errors, and no criterion of {system.name} says by errors: which of them "
                "it is about; say so in its YAML file, or give graded reports"
            )
        return [grade_by_errors(record, system) for record in self.read()]


class GradedReports(ReportSource):
    """Reports from a file with sub-scores, whoever gave them; see :func:`rrg_rewards.data.read_graded_reports`.

    Args:
        path: JSON lines with ``reference``, ``candidate`` and ``scores``, an object of numbers by criterion.
        name: What the source is called; default: the file's name without its ending.

    Example:
        >>> GradedReports("data/graded.jsonl").name
        'graded'
    """

    def __init__(self, path: str, name: str | None = None) -> None:
        super().__init__(name or Path(path).stem)
        self.path = path

    def graded(self, system: ScoringSystem) -> list[GradedReport]:
        """All reports of the file."""
        return read_graded_reports(self.path, system)


def check_sources(sources: Sequence[ReportSource]) -> None:
    """See that there is a source, and that each has a name of its own.

    Raises:
        ValueError: If not.
    """
    names = [source.name for source in sources]
    if not sources or len(set(names)) < len(names):
        raise ValueError(f"sources must be one or more, each with a name of its own, got {names}")


def read_sources(sources: Sequence[RecordSource]) -> list[ErrorRecord]:
    """Records of all sources in order, each marked by the name of its source."""
    return [replace(record, source=source.name) for source in sources for record in source.read()]


def read_graded(sources: Sequence[ReportSource], system: ScoringSystem) -> list[GradedReport]:
    """Graded reports of all sources in order, each marked by the name of its source."""
    return [replace(report, source=source.name) for source in sources for report in source.graded(system)]


class JsonlRecords(RecordSource):
    """Records from a file, whoever counted their errors; see :func:`rrg_rewards.data.read_error_records`.

    Args:
        path: JSON lines with ``reference``, ``candidate`` and ``counts``.
        name: What the source is called; default: the file's name without its ending.

    Example:
        >>> JsonlRecords("data/errors.jsonl").name
        'errors'
    """

    def __init__(self, path: str, name: str | None = None) -> None:
        super().__init__(name or Path(path).stem)
        self.path = path

    def read(self) -> list[ErrorRecord]:
        """All records of the file."""
        return read_error_records(self.path)
