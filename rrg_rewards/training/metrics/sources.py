"""Sources of annotated report pairs: files, injected errors in reports and phantom studies, and compared reports."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from rrg_rewards.data.phantom.studies import phantom_studies
from rrg_rewards.data.records.error_records import ErrorRecord, read_error_records
from rrg_rewards.data.records.graded_reports import GradedReport, grade_by_errors, read_graded_reports
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.findings.comparing.matching import compare_findings
from rrg_rewards.findings.comparing.significance import clinical_significance
from rrg_rewards.findings.editing.inject_errors import inject_errors
from rrg_rewards.findings.editing.injected_report import (
    LETTERS,
    WHOLE_EXAMINATION,
    ErrorEdit,
    InjectedReport,
    draw_counts,
)
from rrg_rewards.findings.knowledge.patient import Patient
from rrg_rewards.findings.reading.finding import Attributes
from rrg_rewards.schemas.scoring import ScoringSystem
from rrg_rewards.training.metrics.splits import report_key
from rrg_rewards.utilities.random_draws import seeded_draws


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


# A simple pattern that suffices to cut reports into parts. A decimal point is not followed by a space.
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
# Additional errors by category: wrong location, wrong severity, omitted comparison.
_RARE = (0, 0, 1, 1, 0, 1)
_SIGNIFICANT = ("urgent", "actionable_not_urgent")
_CATEGORY_OF_TYPE = {"location": 2, "severity": 3, "measurement": 3}


@dataclass(eq=False)
class PhantomErrors(RecordSource):
    """Phantom studies with injected errors of which the finding engine is certain; see :class:`ReportErrors`.

    Args:
        studies: Number of studies.
        per_study: Number of candidates per study, with different errors.
        style: ``full``, or ``compact`` for short reports without a prior study.
        section: The whole ``report``, or only its ``findings`` section.
        max_words: Maximum number of words of a reference. Training on short pairs is faster. Default: no limit.
        seed: Seed of studies and errors.
        name: Name of the source.

    Example:
        >>> records = PhantomErrors(studies=2, per_study=3, style="compact").read()
        >>> len(records), len(records[0].counts)
        (6, 6)
    """

    studies: int
    per_study: int = 1
    style: str = "compact"
    section: Literal["report", "findings"] = "report"
    max_words: int | None = None
    seed: int = 0
    name: str = "phantom"

    def read(self) -> list[ErrorRecord]:
        """Generate the studies and inject the errors."""
        studies = phantom_studies(self.studies, seed=self.seed, style=self.style)
        reports = [study.findings_text if self.section == "findings" else study.report for study in studies]
        seeds = range(self.seed * self.per_study, (self.seed + 1) * self.per_study)
        made = (
            inject_errors(report, seed=seed, modality="ct")
            for report in reports
            if not _is_long(report, self.max_words)
            for seed in seeds
        )
        return [_record(injected, "") for injected in made if injected is not None]


@dataclass(eq=False)
class _ReportsFile(RecordSource):
    """Base class of sources that make records from the reports of a file."""

    path: str
    column: str = "report"
    _: KW_ONLY
    per_report: int = 1
    limit: int | None = None
    max_words: int | None = None

    def reports(self) -> Iterator[str]:
        """Yield the reports that are not missing, blank or too long."""
        for report in read_table(self.path).texts(self.column)[: self.limit]:
            if report is not None and report.strip() and not _is_long(report, self.max_words):
                yield report


@dataclass(eq=False, kw_only=True)
class ReportErrors(_ReportsFile):
    """Real reports with injected errors of which the finding engine is certain.

    The numbers of errors are drawn as by :func:`rrg_rewards.findings.inject_errors`. Reports that the engine cannot
    read reliably are excluded. An error is clinically significant (``ErrorRecord.significant``) if its finding is
    urgent or actionable by the profile ``published``, without regard to the finding's attributes.

    Args:
        path: CSV, JSON lines or Parquet file of reports.
        column: Column of the reports. Missing and blank reports are excluded.
        per_report: Number of candidates per report, with different errors.
        limit: Number of reports to use, from the start of the file. Default: all.
        max_words: Maximum number of words of a report. Training on short pairs is faster. Default: no limit.
        sentences: Number of sentences of a part. Reports are cut into parts, which are used for training only. Training
            on parts is much faster, and they contain as many errors as whole reports. Default: whole reports.
        rare: Whether to request a wrong location, a wrong severity and an omitted comparison for every second
            candidate, in addition to the drawn errors. Otherwise, these errors are rare, because few findings permit
            them.
        seed: Seed of the errors.
        name: Name of the source. Default: the file name without its suffix.

    Example:
        >>> ReportErrors("data/train_reports.jsonl", per_report=2).name
        'train_reports'
    """

    sentences: int | None = None
    rare: bool = True
    seed: int = 0
    name: str | None = None  # type: ignore[assignment]  # replaced below

    def __post_init__(self) -> None:
        self.name: str = self.name or Path(self.path).stem

    def read(self) -> list[ErrorRecord]:
        """Inject the errors."""
        records = []
        for report in self.reports():
            for part in [report] if self.sentences is None else _parts(report, self.sentences):
                for draw in range(self.per_report):
                    seed = self.seed * self.per_report + draw
                    injected = inject_errors(part, self._requested(part, draw), seed=seed)
                    if injected is not None:
                        records.append(_record(injected, "" if self.sentences is None else report))
        return records

    def _requested(self, report: str, draw: int) -> tuple[int, ...] | None:
        if not self.rare or draw % 2 == 0:
            return None
        drawn = draw_counts(seeded_draws(self.seed * self.per_report + draw, "requested", report))
        return tuple(count + more for count, more in zip(drawn, _RARE, strict=True))


@dataclass(eq=False, kw_only=True)
class ComparedReports(_ReportsFile):
    """Pairs of reports of different patients, whose errors are counted by the finding engine.

    Candidates with injected errors share most words with their reference, but candidates of models do not. This source
    draws ``drawn`` reports of other patients at random. The candidate is alternately the first of these reports and the
    report that has the most words in common with the reference. :func:`rrg_rewards.findings.compare_findings` counts
    false and missing findings, wrong locations and wrong severities; these counts are approximate. Comparisons are not
    annotated. The records therefore have no total count and do not affect Kendall's tau.

    Args:
        path: CSV, JSON lines or Parquet file of reports.
        column: Column of the reports. Missing and blank reports are excluded.
        per_report: Number of candidates per report.
        drawn: Number of reports from which a candidate is chosen.
        limit: Number of reports to use, from the start of the file. Default: all.
        max_words: Maximum number of words of a report. Training on short pairs is faster. Default: no limit.
        seed: Seed of the draws.
        name: Name of the source.

    Raises:
        ValueError: If ``drawn`` is not positive. In :meth:`read`, if there are fewer than two different reports.

    Example:
        >>> ComparedReports("data/train_reports.jsonl").name
        'compared'
    """

    drawn: int = 20
    seed: int = 0
    name: str = "compared"

    def __post_init__(self) -> None:
        if self.drawn < 1:
            raise ValueError(f"drawn must be positive, got {self.drawn}")

    def read(self) -> list[ErrorRecord]:
        """Draw the pairs and count their errors."""
        # Remove copies, because a report must not be compared with itself.
        reports = list({report_key(report): report for report in self.reports()}.values())
        if len(reports) < 2:
            raise ValueError(f"{self.path}: has {len(reports)} different reports; at least two are required")
        words = [frozenset(report_key(report).split()) for report in reports]
        rng = np.random.default_rng(self.seed)
        records = []
        for index, reference in enumerate(reports):
            for draw in range(self.per_report):
                drawn = [other + (other >= index) for other in rng.integers(len(reports) - 1, size=self.drawn).tolist()]
                likeness = [len(words[index] & words[other]) / len(words[index] | words[other]) for other in drawn]
                nearest = drawn[max(range(self.drawn), key=likeness.__getitem__)]
                candidate = reports[drawn[0] if (index + draw) % 2 else nearest]
                records.append(ErrorRecord(reference, candidate, _compared_counts(reference, candidate), self.name))
        return records


def _compared_counts(reference: str, candidate: str) -> tuple[float | None, ...]:
    comparison = compare_findings(reference, candidate)
    counts: list[float | None] = [len(comparison.false), len(comparison.missing), 0, 0, None, None]
    for match in comparison.matches:
        # Count several errors of the same category in one finding once.
        for category in {_CATEGORY_OF_TYPE.get(error.type) for error in match.discrepancies if error.significant}:
            if category is not None:
                counts[category] = (counts[category] or 0) + 1
    return tuple(counts)


def _record(injected: InjectedReport, whole: str) -> ErrorRecord:
    significant = _significant_counts(injected)
    return ErrorRecord(injected.reference, injected.candidate, injected.counts, significant=significant, whole=whole)


def _significant_counts(injected: InjectedReport) -> tuple[int, ...]:
    """Return the numbers of errors in findings that are urgent or actionable, without regard to their attributes."""
    made = [edit.category for edit in injected.edits if edit.category is not None and _is_significant(edit)]
    return tuple(made.count(letter) for letter in LETTERS)


def _is_significant(edit: ErrorEdit) -> bool:
    concept = edit.detail.partition(":")[0]
    if concept == WHOLE_EXAMINATION:
        return False
    return clinical_significance(concept, Attributes(), Patient()) in _SIGNIFICANT


def _parts(report: str, sentences: int) -> list[str]:
    parts = _SENTENCE_END.split(report.strip())
    return [" ".join(parts[start : start + sentences]) for start in range(0, len(parts), sentences)]


def _is_long(report: str, max_words: int | None) -> bool:
    return max_words is not None and len(report.split()) > max_words
