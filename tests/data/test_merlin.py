"""Merlin, on small files in its layout."""

import pytest

from rrg_rewards.data import MerlinCounts, TableError, read_merlin
from rrg_rewards.schemas import MERLIN

FINDINGS = [label.lower().replace(" ", "_") for label in MERLIN.labels]
REPORTS = [
    ["study id", "Findings", "Split", "Few Shot"],
    ["AC1", "LIVER: Cyst. IMPRESSION: Renal cyst.", "train", 1],
    ["AC2", "LIVER: Normal.", "test", 0],
    ["AC3", None, "test", 0],
]


def label_rows(**states):
    """Rows of the label table: all findings of a study are not mentioned, but those that are named."""
    rows = [["study id", *FINDINGS]]
    for study, named in states.items():
        rows.append([study, *(named.get(name, -1) for name in FINDINGS)])
    return rows


@pytest.fixture
def write(tmp_path):
    def writer(name, rows):
        lines = [",".join("" if cell is None else f'"{cell}"' for cell in row) for row in rows]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        return tmp_path / name

    return writer


@pytest.fixture
def labels(write):
    return write("labels.csv", label_rows(AC1={"renal_cyst": 1, "ascites": 0}, AC2={}, AC9={}))


def test_read_merlin_splits_the_impression_and_keeps_the_split(write):
    table, counts = read_merlin(write("reports.csv", REPORTS))
    assert dict(table.columns) == {
        "study_id": ["AC1", "AC2", "AC3"],
        "findings": ["LIVER: Cyst.", "LIVER: Normal.", None],
        "impression": ["Renal cyst.", None, None],
        "split": ["train", "test", "test"],
        "few_shot": ["1", "0", "0"],
    }
    assert counts == MerlinCounts(reports=3, joined=3, blank_findings=1, without_impression=2)


def test_read_merlin_joins_labels_and_counts_what_is_left_out(write, labels):
    table, counts = read_merlin(write("reports.csv", REPORTS), labels)
    assert table.column("study_id") == ["AC1", "AC2"]
    first = dict(zip(MERLIN.labels, table.column("labels")[0], strict=True))
    assert (first["Renal cyst"], first["Ascites"], first["Free air"]) == (1, 0, None)
    assert table.column("labels")[1] == [None] * 30
    assert counts == MerlinCounts(
        reports=3,
        labels=3,
        joined=2,
        reports_without_labels=1,
        labels_without_reports=1,
        without_impression=1,
        positive=1,
        negative=1,
        not_mentioned=58,
    )


def test_read_merlin_counts_findings_that_are_not_mentioned_as_negative_if_asked(write, labels):
    table, counts = read_merlin(write("reports.csv", REPORTS), labels, not_mentioned="negative")
    assert [sum(row) for row in table.column("labels")] == [1, 0]
    assert (counts.negative, counts.not_mentioned) == (1, 58)
    with pytest.raises(ValueError, match="not_mentioned must be one of missing, negative, got 'zero'"):
        read_merlin("reports.csv", not_mentioned="zero")


def test_read_merlin_reads_the_workbook(tmp_path, labels):
    openpyxl = pytest.importorskip("openpyxl", reason="the extra xlsx is not installed")
    book = openpyxl.Workbook()
    for row in REPORTS:
        book.active.append(row)
    book.save(tmp_path / "reports_final.xlsx")
    table, _ = read_merlin(tmp_path / "reports_final.xlsx", labels)
    assert (table.column("impression"), table.column("few_shot")) == (["Renal cyst.", None], [1, 0])


def test_read_merlin_reads_repeated_rows_once_and_refuses_different_ones(write):
    table, counts = read_merlin(write("twice.csv", [*REPORTS, REPORTS[1]]))
    assert (len(table), counts.repeated_rows) == (3, 1)
    with pytest.raises(TableError, match=r"data row 4 \(line 5\): AC1 is also in data row 1, with other content"):
        read_merlin(write("different.csv", [*REPORTS, ["AC1", "Other.", "train", 1]]))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (label_rows(AC1={"ascites": 2}), r"line 2\), column 'ascites': must be 1 \(mentioned\), 0 \(denied\) or -1"),
        (label_rows(**{"": {}}), "column 'study id': is empty; each row needs a study"),
        ([["study id", *FINDINGS[2:]], ["AC1", *[0] * 28]], "lacks submucosal_edema, renal_hypodensities; it has"),
    ],
)
def test_read_merlin_names_a_bad_label(write, rows, message):
    with pytest.raises(TableError, match=message):
        read_merlin(write("reports.csv", REPORTS), write("labels.csv", rows))
