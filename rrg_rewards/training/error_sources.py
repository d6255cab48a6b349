"""Records whose errors were made in phantom studies or real reports, or counted by the finding engine."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from rrg_rewards.data.error_records import ErrorRecord
from rrg_rewards.data.phantom import FINDINGS_HEADER, IMPRESSION_HEADER, phantom_studies
from rrg_rewards.data.phantom_errors import inject_phantom_errors
from rrg_rewards.data.readers import read_table
from rrg_rewards.findings.compare import compare_findings
from rrg_rewards.findings.errors import InjectedReport, draw_counts, seeded_draws
from rrg_rewards.findings.inject import inject_errors
from rrg_rewards.training.sources import RecordSource
from rrg_rewards.training.splits import ExcerptRecord, report_key

__all__ = ["ComparedReports", "PhantomErrors", "ReportErrors"]

# Enough for parts; a decimal point has no space behind it.
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_RARE = (0, 0, 1, 1, 0, 1)
_CATEGORY_OF_TYPE = {"location": 2, "severity": 3, "measurement": 3}


class PhantomErrors(RecordSource):
    """Phantom studies told once more with a known number of errors.

    Args:
        studies: Number of studies.
        per_study: Candidates of each, with other errors each time.
        style: ``full`` or ``compact``, which is short and tells of no earlier scan.
        section: The whole ``report``, or its ``findings`` section alone, which holds all that is counted.
        max_words: Leave out candidates whose reference has more words: short pairs train faster.
        seed: Seed of studies and errors.
        name: What the source is called.

    Example:
        >>> records = PhantomErrors(studies=2, per_study=3, style="compact").read()
        >>> len(records), len(records[0].counts)
        (6, 6)
    """

    def __init__(
        self,
        studies: int,
        per_study: int = 1,
        style: str = "compact",
        section: Literal["report", "findings"] = "report",
        max_words: int | None = None,
        seed: int = 0,
        name: str = "phantom",
    ) -> None:
        super().__init__(name)
        self.section = section
        self.max_words = max_words
        self.studies = studies
        self.per_study = per_study
        self.style = style
        self.seed = seed

    def read(self) -> list[ErrorRecord]:
        """Make the records."""
        records = [
            _record(inject_phantom_errors(study, seed=self.seed * self.per_study + draw).report)
            for study in phantom_studies(self.studies, seed=self.seed, style=self.style)
            for draw in range(self.per_study)
        ]
        if self.section == "findings":
            records = [_findings_alone(record) for record in records]
        return [record for record in records if not _is_long(record.reference, self.max_words)]


class ReportErrors(RecordSource):
    """Real reports with errors made in them, as many as the finding engine can make with certainty.

    Errors are drawn as by :func:`rrg_rewards.findings.error_counts`. Few reports have a finding that can be moved,
    graded or compared, so that these errors would be rare: where ``rare`` is set, every other candidate is asked to
    have one of each besides. Reports that the engine cannot read without doubt give no record.

    Args:
        path: CSV, JSON lines or Parquet file of reports.
        column: Column of the reports; missing and blank ones are left out.
        per_report: Candidates of each, with other errors each time.
        limit: Use the first so many reports; default: all.
        max_words: Leave out reports of more words: short pairs train faster.
        sentences: Cut reports into parts of so many sentences, which are trained on only: a short pair takes a fraction
            of the time, and holds as many errors. Default: whole reports.
        rare: Ask every other candidate for a wrong location, a wrong severity and an omitted comparison besides.
        seed: Seed of the errors.
        name: What the source is called; default: the file's name without its ending.

    Example:
        >>> ReportErrors("data/train_reports.jsonl", per_report=2).name
        'train_reports'
    """

    def __init__(
        self,
        path: str,
        column: str = "report",
        per_report: int = 1,
        limit: int | None = None,
        max_words: int | None = None,
        sentences: int | None = None,
        rare: bool = True,
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(name or Path(path).stem)
        self.path = path
        self.column = column
        self.per_report = per_report
        self.limit = limit
        self.max_words = max_words
        self.sentences = sentences
        self.rare = rare
        self.seed = seed

    def read(self) -> list[ErrorRecord]:
        """Make the records."""
        records = []
        for report in _reports(self.path, self.column, self.limit, self.max_words):
            for part in [report] if self.sentences is None else _parts(report, self.sentences):
                for draw in range(self.per_report):
                    seed = self.seed * self.per_report + draw
                    injected = inject_errors(part, self._requested(part, draw), seed=seed)
                    if injected is not None:
                        records.append(_record(injected, None if self.sentences is None else report))
        return records

    def _requested(self, report: str, draw: int) -> tuple[int, ...] | None:
        if not self.rare or draw % 2 == 0:
            return None
        drawn = draw_counts(seeded_draws(self.seed * self.per_report + draw, "requested", report))
        return tuple(count + more for count, more in zip(drawn, _RARE, strict=True))


class ComparedReports(RecordSource):
    """Pairs of different real reports, with errors counted by the finding engine: labels that are nearly true.

    Injected candidates share their reference's words; candidates of models do not. Here a candidate is another
    patient's report: of ``drawn`` drawn at random the one with the most words in common, every other time the first.
    False and missing findings, wrong places and wrong severities are what
    :func:`rrg_rewards.findings.compare_findings` finds; comparisons are not annotated, so that these records have no
    total count and take no part in Kendall's tau.

    Args:
        path: CSV, JSON lines or Parquet file of reports.
        column: Column of the reports; missing and blank ones are left out.
        per_report: Candidates of each.
        drawn: Reports that the most similar one is chosen from.
        limit: Use the first so many reports; default: all.
        max_words: Leave out reports of more words: short pairs train faster.
        seed: Seed of the draws.
        name: What the source is called.

    Raises:
        ValueError: If ``drawn`` is not positive; when read, if there are fewer than two different reports.

    Example:
        >>> ComparedReports("data/train_reports.jsonl").name
        'compared'
    """

    def __init__(
        self,
        path: str,
        column: str = "report",
        per_report: int = 1,
        drawn: int = 20,
        limit: int | None = None,
        max_words: int | None = None,
        seed: int = 0,
        name: str = "compared",
    ) -> None:
        super().__init__(name)
        if drawn < 1:
            raise ValueError(f"drawn must be positive, got {drawn}")
        self.path = path
        self.column = column
        self.per_report = per_report
        self.drawn = drawn
        self.limit = limit
        self.max_words = max_words
        self.seed = seed

    def read(self) -> list[ErrorRecord]:
        """Draw the pairs and count their errors."""
        # Copies of one report would only ever be compared with themselves.
        read = _reports(self.path, self.column, self.limit, self.max_words)
        reports = list({report_key(report): report for report in read}.values())
        if len(reports) < 2:
            raise ValueError(f"{self.path}: has {len(reports)} different reports; two are needed to compare any")
        words = [frozenset(report_key(report).split()) for report in reports]
        rng = np.random.default_rng(self.seed)
        records = []
        for place, reference in enumerate(reports):
            for draw in range(self.per_report):
                drawn = [other + (other >= place) for other in rng.integers(len(reports) - 1, size=self.drawn).tolist()]
                likeness = [len(words[place] & words[other]) / len(words[place] | words[other]) for other in drawn]
                nearest = drawn[max(range(self.drawn), key=likeness.__getitem__)]
                candidate = reports[drawn[0] if (place + draw) % 2 else nearest]
                records.append(ErrorRecord(reference, candidate, _compared_counts(reference, candidate), self.name))
        return records


def _compared_counts(reference: str, candidate: str) -> tuple[float | None, ...]:
    comparison = compare_findings(reference, candidate)
    counts: list[float | None] = [len(comparison.false), len(comparison.missing), 0, 0, None, None]
    for match in comparison.matches:
        # A finding with two errors of a category has one place or severity that is wrong.
        for category in {_CATEGORY_OF_TYPE.get(error.type) for error in match.discrepancies if error.significant}:
            if category is not None:
                counts[category] = (counts[category] or 0) + 1
    return tuple(counts)


def _findings_alone(record: ErrorRecord) -> ErrorRecord:
    reference, candidate = (
        text.removeprefix(FINDINGS_HEADER).partition(f"\n{IMPRESSION_HEADER}")[0].strip()
        for text in (record.reference, record.candidate)
    )
    return replace(record, reference=reference, candidate=candidate)


def _record(injected: InjectedReport, whole: str | None = None) -> ErrorRecord:
    fields = (injected.reference, injected.candidate, injected.counts)
    return ErrorRecord(*fields) if whole is None else ExcerptRecord(*fields, whole=whole)


def _parts(report: str, sentences: int) -> list[str]:
    found = _SENTENCE_END.split(report.strip())
    return [" ".join(found[start : start + sentences]) for start in range(0, len(found), sentences)]


def _reports(path: str, column: str, limit: int | None, max_words: int | None) -> Iterator[str]:
    for report in read_table(path).texts(column)[:limit]:
        if report is not None and report.strip() and not _is_long(report, max_words):
            yield report


def _is_long(report: str, max_words: int | None) -> bool:
    return max_words is not None and len(report.split()) > max_words
