"""Sources of annotated report pairs: base classes, and sources that read files."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rrg_rewards.data.records.error_records import ErrorRecord, read_error_records
from rrg_rewards.data.records.graded_reports import GradedReport, grade_by_errors, read_graded_reports
from rrg_rewards.schemas.scoring import ScoringSystem

__all__ = [
    "FileSource",
    "GradedReports",
    "JsonlRecords",
    "RecordSource",
    "ReportSource",
    "check_sources",
    "read_graded",
    "read_sources",
]


class ReportSource(ABC):
    """Base class of sources of candidate reports with references and sub-scores.

    Args:
        name: Name of the source in logs and reports.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def graded(self, system: ScoringSystem) -> list[GradedReport]:
        """Return all reports with their sub-scores under a scoring system."""


class RecordSource(ReportSource):
    """Base class of sources of error records. Each call of :meth:`read` returns the same records.

    Args:
        name: Name of the source in logs and reports.
    """

    @abstractmethod
    def read(self) -> list[ErrorRecord]:
        """Return all records."""

    def graded(self, system: ScoringSystem) -> list[GradedReport]:
        """Return all records with sub-scores, which are computed from the error categories of each criterion.

        Raises:
            ValueError: If no criterion has error categories.
        """
        if not any(criterion.errors for criterion in system.criteria):
            raise ValueError(
                f"source {self.name!r} counts errors, but no criterion of {system.name} lists error categories; add "
                "the key errors to its YAML file, or use graded reports"
            )
        return [grade_by_errors(record, system) for record in self.read()]


class FileSource(ReportSource):
    """Base class of sources that read a file.

    Args:
        path: Path of the file.
        name: Name of the source. Default: the file name without its suffix.
    """

    def __init__(self, path: str, name: str | None = None) -> None:
        super().__init__(name or Path(path).stem)
        self.path = path


class GradedReports(FileSource):
    """Reports with sub-scores from a file; see :func:`rrg_rewards.data.read_graded_reports`.

    Args:
        path: JSON lines with ``reference``, ``candidate`` and ``scores``, an object of numbers by criterion.
        name: Name of the source. Default: the file name without its suffix.

    Example:
        >>> GradedReports("data/graded.jsonl").name
        'graded'
    """

    def graded(self, system: ScoringSystem) -> list[GradedReport]:
        """Return all reports of the file."""
        return read_graded_reports(self.path, system)


class JsonlRecords(FileSource, RecordSource):
    """Records of error counts from a file; see :func:`rrg_rewards.data.read_error_records`.

    Args:
        path: JSON lines with ``reference``, ``candidate`` and ``counts``.
        name: Name of the source. Default: the file name without its suffix.

    Example:
        >>> JsonlRecords("data/errors.jsonl").name
        'errors'
    """

    def read(self) -> list[ErrorRecord]:
        """Return all records of the file."""
        return read_error_records(self.path)


def check_sources(sources: Sequence[ReportSource]) -> None:
    """Check that there is a source and that names are unique.

    Raises:
        ValueError: If there is no source, or two have the same name.
    """
    names = [source.name for source in sources]
    if not sources or len(set(names)) < len(names):
        raise ValueError(f"sources must contain at least one source, and their names must be unique, got {names}")


def read_sources(sources: Sequence[RecordSource]) -> list[ErrorRecord]:
    """Return the records of all sources in order, and set their ``source`` to its name."""
    return [replace(record, source=source.name) for source in sources for record in source.read()]


def read_graded(sources: Sequence[ReportSource], system: ScoringSystem) -> list[GradedReport]:
    """Return the graded reports of all sources in order, and set their ``source`` to its name."""
    return [replace(report, source=source.name) for source in sources for report in source.graded(system)]
