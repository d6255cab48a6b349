"""ReFiSco, on small files in the layouts of both versions."""

import json
import math

import pytest

from rrg_rewards.data import AnnotationWarning, TableError, read_refisco
from tests.helpers.annotated_files import V0, V1, write_csv, write_refisco

# Study, indication, original, edited, score, annotator, source.
V0_ROWS = (
    ("s1", "Cough.", "No edema.", "[no edit]", "0", "r1", "X-REM"),
    ("s1", "Cough.", "Old fracture.", "[delete]", "Not actionable", "r1", "X-REM"),
    ("s1", "Cough.", "Small effusion.", "Large effusion.", "urgent-error", "r1", "X-REM"),
    ("s1", "Cough.", None, "Pneumothorax.", "4", "r1", "X-REM"),
    ("s1", "Cough.", "Clear lungs.", "[no edit]", "0.0", "r2", "MIMIC-CXR"),
    ("s1", "Cough.", "Compared to before.", "[no edit]", "1", "r1", "X-REM"),
)
# Data id, subject, study, type, report, original, corrected, severity, comments, annotator.
V1_ROWS = (
    ("1", "p", "s", "generated", "No edema. Mass.", "No edema.", None, None, None, "a1"),
    ("1", "p", "s", "generated", "No edema. Mass.", "Mass.", "[delete]", "Emergent error", "none", "a1"),
    ("1", "p", "s", "ground", "No edema. Mass.", "Mass.", None, None, None, "a1"),
)


def write(folder, header, *rows):
    return write_csv(folder / "refisco.csv", header.split(","), *rows)


def test_read_refisco_v0_takes_the_corrected_text_as_reference(tmp_path):
    first, second = read_refisco(write(tmp_path, V0, *V0_ROWS))
    assert first.candidate == "No edema. Old fracture. Small effusion. Compared to before."
    assert first.reference == "No edema. Large effusion. Pneumothorax. Compared to before."
    assert (second.candidate, second.reference, second.total) == ("Clear lungs.", "Clear lungs.", 0.0)
    assert (first.study, second.study) == ("s1", "s1")
    assert first.attributes == {"annotator": "r1", "source": "X-REM", "indication": "Cough."}


def test_read_refisco_counts_lines_with_errors_without_a_category(tmp_path):
    first, _ = read_refisco(write(tmp_path, V0, *V0_ROWS))
    assert (first.counts, first.other, first.total) == ((None,) * 6, 4.0, 4.0)
    assert first.ratings == {
        "insertions": 1.0,
        "deletions": 1.0,
        "edits": 1.0,
        "unchanged": 1.0,
        "max_severity": 4.0,
        "sum_severity": 9.0,
    }
    # Errors of grade 2 or more are actionable.
    assert first.judgement("significant") == 2.0
    assert [error["kind"] for error in first.edits] == ["deletion", "edit", "insertion", "unchanged"]


def test_read_refisco_v1_reads_empty_corrections_as_unchanged_lines(tmp_path):
    first, second = read_refisco(write(tmp_path, V1, *V1_ROWS))
    assert (first.candidate, first.reference, first.total) == ("No edema. Mass.", "No edema.", 1.0)
    assert first.ratings["deletions"] == 1.0
    assert (second.candidate, second.reference, second.total) == ("Mass.", "Mass.", 0.0)
    assert first.attributes == {"annotator_id": "a1", "report_type": "generated", "subject_id": "p"}


def test_read_refisco_warns_of_corrections_that_contradict_their_grade(tmp_path):
    rows = [
        ("s1", "", "A.", "B.", None, "r1", "X-REM"),
        ("s1", "", "C.", "D.", "no error", "r1", "X-REM"),
    ]
    with pytest.warns(
        AnnotationWarning, match="1 corrected lines have no grade .* 1 corrected lines are graded as no error"
    ):
        (record,) = read_refisco(write(tmp_path, V0, *rows))
    assert (record.reference, record.total, record.significant_other) == ("B. D.", 1.0, None)
    assert math.isnan(record.judgement("significant"))
    assert math.isnan(record.judgement("max_severity"))


def test_read_refisco_takes_severities_of_further_grades(tmp_path):
    path = write(tmp_path, V0, ("s1", "", "A.", "[no edit]", "Invalid comparison", "r1", "X-REM"))
    assert read_refisco(path, severities={"invalid comparison": 0})[0].total == 0.0
    with pytest.raises(TableError, match=r"\(line 2\), column 'score': must be 0 to 4 or one of no error.*severities="):
        read_refisco(path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("s1", "", "A.", None, "0", "r1", "X-REM"), r"column 'impression_edited': is empty; must be \[no edit\]"),
        ((None, "", "A.", "[no edit]", "0", "r1", "X-REM"), "column 'id': is empty; each row needs it"),
        (("s1", "", "A.", "[no edit]", "5", "r1", "X-REM"), "column 'score': must be 0 to 4"),
    ],
)
def test_read_refisco_names_a_bad_row(tmp_path, row, message):
    with pytest.raises(TableError, match=rf"refisco\.csv: data row 7 \(line 8\), {message}"):
        read_refisco(write(tmp_path, V0, *V0_ROWS, row))


def test_read_refisco_names_studies_that_differ_and_missing_columns(tmp_path):
    other = ("1", "p", "s2", "generated", "", "Other.", None, None, None, "a1")
    with pytest.raises(TableError, match="column 'study_id': is 's2', but 's' in earlier rows of 1 generated a1"):
        read_refisco(write(tmp_path, V1, *V1_ROWS, other))
    with pytest.raises(TableError, match="lacks id, annotator, source, impression_original, impression_edited, score"):
        read_refisco(write_csv(tmp_path / "refisco.csv", ["study_id", "line"], ("s", "a")))


def test_read_refisco_reads_each_annotation_of_the_small_file(tmp_path):
    assert [record.total for record in read_refisco(write_refisco(tmp_path / "v0.csv"))] == [1.0, 2.0, 3.0, 0.0]


def test_read_refisco_reads_nan_as_a_missing_cell_and_tags_in_any_case(tmp_path):
    rows = [(*V0_ROWS[0][:3], "[No Edit]", math.nan, "r1", "X-REM"), (*V0_ROWS[1][:3], "[DELETE]", 2.0, "r1", "X-REM")]
    path = tmp_path / "refisco.jsonl"
    path.write_text("\n".join(json.dumps(dict(zip(V0.split(","), row, strict=True))) for row in rows))
    (record,) = read_refisco(path)
    assert (record.reference, record.total, record.ratings["max_severity"]) == ("No edema.", 1.0, 2.0)
    path.write_text(path.read_text().replace('"r1"', "NaN", 1))
    with pytest.raises(TableError, match="column 'annotator': is empty; each row needs it"):
        read_refisco(path)
