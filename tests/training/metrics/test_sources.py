"""Sources of records: the same records each time, with counts that the finding engine confirms."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rrg_rewards.data.phantom.studies import phantom_studies
from rrg_rewards.data.records.error_records import ErrorRecord
from rrg_rewards.data.records.graded_reports import grade_by_errors
from rrg_rewards.data.tables.table import TableError
from rrg_rewards.findings import compare_findings
from rrg_rewards.schemas import get_scoring_system
from rrg_rewards.training import (
    ComparedReports,
    GradedReports,
    JsonlRecords,
    PhantomErrors,
    RecordSource,
    ReportErrors,
)
from rrg_rewards.training.metrics.sources import read_graded, read_sources
from rrg_rewards.training.metrics.splits import split_by_reference

REPORTS = [
    "Small left pleural effusion. The heart is normal.",
    "Mild cardiomegaly. No pneumothorax.",
    "The lungs are clear. No effusion.",
    "Moderate right pleural effusion, increased since the prior study. Left lower lobe consolidation.",
    "Large hiatal hernia. The heart is enlarged.",
]


@pytest.fixture
def reports(tmp_path: Path) -> str:
    path = tmp_path / "reports.jsonl"
    rows = [{"report": report} for report in [*REPORTS, " ", None, "word " * 90]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def sources(reports: str) -> list[RecordSource]:
    return [
        ReportErrors(reports, per_report=4, max_words=50),
        ComparedReports(reports, per_report=3, max_words=50),
        PhantomErrors(5, per_study=2, section="findings"),
    ]


def test_sources_a_source_gives_the_same_records_each_time(reports: str) -> None:
    first, second = (read_sources(sources(reports)) for _ in range(2))
    assert first == second
    assert {record.source for record in first} == {"reports", "compared", "phantom"}
    other = read_sources([ReportErrors(reports, per_report=4, max_words=50, seed=1)])
    assert [record for record in first if record.source == "reports"] != other


def test_report_errors_blank_and_long_reports_are_left_out(reports: str) -> None:
    for source in sources(reports)[:2]:
        assert {record.reference for record in source.read()} <= set(REPORTS)


def test_report_errors_rare_errors_are_asked_for(reports: str) -> None:
    def rare(records: list[ErrorRecord]) -> float:
        return sum(record.counts[place] or 0 for record in records for place in (2, 3, 5)) / len(records)

    many = {"per_report": 20, "max_words": 50}
    assert rare(ReportErrors(reports, **many).read()) > 1.5 * rare(ReportErrors(reports, rare=False, **many).read())


def test_compared_reports_are_counted_by_the_engine(reports: str) -> None:
    records = ComparedReports(reports, per_report=4, max_words=50).read()
    assert len(records) == 4 * len(REPORTS)
    for record in records:
        found = compare_findings(record.reference, record.candidate)
        assert record.candidate != record.reference
        assert record.counts[:2] == (len(found.false), len(found.missing))
        assert record.counts[4:] == (None, None)


def test_compared_reports_a_wrong_place_and_a_wrong_severity_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "two.jsonl"
    texts = ("Small left pleural effusion.", "Large right pleural effusion.")
    path.write_text("".join(json.dumps({"report": text}) + "\n" for text in texts))
    for record in ComparedReports(str(path)).read():
        assert record.counts == (0, 0, 1, 1, None, None)


def test_phantom_errors_the_findings_section_stands_alone() -> None:
    studies = phantom_studies(5, style="compact")
    whole, alone = (PhantomErrors(5, section=section).read() for section in ("report", "findings"))
    assert {record.reference for record in whole} <= {study.report for study in studies}
    assert {record.reference for record in alone} <= {study.findings_text for study in studies}
    assert any(sum(filter(None, record.counts)) for record in alone)


def test_sources_wrong_input_is_told(reports: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="drawn must be positive, got 0"):
        ComparedReports(reports, drawn=0)
    with pytest.raises(ValueError, match="has 1 different reports; at least two are required"):
        ComparedReports(reports, limit=1).read()
    with pytest.raises(ValueError, match="no such file"):
        JsonlRecords(str(tmp_path / "nowhere.jsonl")).read()


def test_report_errors_parts_are_trained_on_only_and_where_their_report_is(reports: str, tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    texts = [
        f"Small left effusion of {size} mm. The heart is normal. No pneumothorax. Clear lungs." for size in range(80)
    ]
    path.write_text("".join(json.dumps({"report": text}) + "\n" for text in texts))
    sources = [ReportErrors(str(path), name="whole"), ReportErrors(str(path), sentences=2, name="parts")]
    split = split_by_reference(read_sources(sources), 0.2, 0.2, seed=0)
    assert {record.source for record in split.validation + split.test} == {"whole"}
    held_out = {record.reference for record in split.validation + split.test}
    parts = [record for record in split.train if record.source == "parts"]
    assert len(parts) > 20
    for part in parts:
        assert part.whole not in held_out
        assert part.reference in part.whole
        assert part.reference.count(".") == 2


def test_record_source_counted_errors_are_graded_by_what_criteria_name(reports: str) -> None:
    system = get_scoring_system("mrscore")
    source = ReportErrors(reports, per_report=2)
    graded = source.graded(system)
    assert graded == [grade_by_errors(record, system) for record in source.read()]
    assert any(score for report in graded for score in report.scores)


def test_record_source_parts_are_graded_as_parts(reports: str) -> None:
    graded = ReportErrors(reports, sentences=1).graded(get_scoring_system("radcliq"))
    assert {report.whole for report in graded} <= set(REPORTS)
    split = split_by_reference(graded, 0.4, 0.4, seed=1)
    assert split.crossing > 0
    assert not [*split.validation, *split.test]


def test_graded_reports_are_read_under_the_system(tmp_path: Path) -> None:
    row = {"reference": "Clear.", "candidate": "Edema.", "scores": {"false_finding": 1}}
    (tmp_path / "graded.jsonl").write_text(json.dumps(row) + "\n")
    source = GradedReports(str(tmp_path / "graded.jsonl"))
    (report,) = read_graded([source], get_scoring_system("radcliq"))
    assert (report.source, report.scores[0]) == ("graded", 1)
    with pytest.raises(TableError, match="unknown criterion 'false_finding'"):
        source.graded(get_scoring_system("mrscore"))


@pytest.mark.slow
def test_sources_yaml_files_may_name_classes_without_their_path():
    """In a new process, because jsonargparse only finds classes that are loaded."""
    code = (
        "from jsonargparse import ArgumentParser\n"
        "from rrg_rewards.training import CrepeDataModule\n"
        "parser = ArgumentParser(exit_on_error=False)\n"
        "parser.add_class_arguments(CrepeDataModule, 'data')\n"
        "source = {'class_path': 'ReportErrors', 'init_args': {'path': 'x'}}\n"
        "print(parser.parse_object({'data': {'tokenizer': 't', 'sources': [source]}}).data.sources[0].class_path)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["rrg_rewards.training.ReportErrors"]
