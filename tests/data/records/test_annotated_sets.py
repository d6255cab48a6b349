"""The data sets of annotated report pairs by name, on small files in their layouts, and their tables of judgements."""

import json
import math
import re
from typing import ClassVar

import pytest

from rrg_rewards.data import (
    ANNOTATED_SETS,
    AnnotationWarning,
    ErrorRecord,
    Table,
    TableError,
    judgement_table,
    read_annotated_set,
    read_table,
    write_table,
)
from tests.helpers.annotated_files import (
    ERRORS,
    V0,
    V1,
    WRITERS,
    chest2error_row,
    write_chest2error,
    write_csv,
    write_radevalx,
)

pytestmark = pytest.mark.filterwarnings("ignore::rrg_rewards.data.AnnotationWarning")


def write_json(path, content):
    path.write_text(json.dumps(content))
    return path


def edited(path, row, name, cell):
    """Rewrite a table with another cell."""
    table = read_table(path)
    columns = {key: list(cells) for key, cells in table.columns.items()}
    columns[name][row] = cell
    return write_csv(path, list(columns), *zip(*columns.values(), strict=True))


@pytest.mark.parametrize("name", ANNOTATED_SETS)
def test_read_annotated_set_reads_each_set_by_name(name, tmp_path):
    write, file = WRITERS[name]
    records = read_annotated_set(name, write(tmp_path / file))
    table = judgement_table(records, file)
    judgement = ANNOTATED_SETS[name]["judgement"]
    values = table.column(judgement)
    assert len(values) == len(records) >= 4
    assert len(set(values)) > 1, f"the default judgement {judgement} of {name} does not vary"
    assert len(set(table.column("study"))) == 4
    assert {record.source for record in records} == {name}
    if name in ("rexval", "radevalx", "refisco", "rate_eval"):
        assert values == ERRORS


def test_read_annotated_set_passes_options(tmp_path):
    write, file = WRITERS["rexval"]
    assert read_annotated_set("rexval", write(tmp_path / file), rater=1)[2].total == 3.0
    with pytest.raises(ValueError, match="did you mean 'radevalx'"):
        read_annotated_set("radeval", "folder")


def test_judgement_table_has_the_columns_that_records_have():
    records = [
        ErrorRecord("a", "b", (1, 0, 0, 0, 0, 0), significant=(1, 0, 0, 0, 0, 0), ratings={"x": None, "y": 2}),
        ErrorRecord(
            "c", "d", (None,) * 6, study="s", attributes={"reference": "hidden", "style": "S"}, ratings={"x": None}
        ),
    ]
    assert dict(judgement_table(records).columns) == {
        "prediction": ["b", "d"],
        "reference": ["a", "c"],
        "study": ["a", "s"],
        "errors": [1.0, None],
        "significant": [1.0, None],
        "insignificant": [0.0, None],
        "y": [2.0, None],
        "style": [None, "S"],
    }


class TestReXVal:
    HEADER = "study_number,candidate_type,error_category,clinically_significant,rater_index,num_errors\n"
    ROWS = (
        *("0,radgraph,1,True,0,2", "0,radgraph,1,False,0,1", "0,radgraph,1,True,1,1", "0,radgraph,2,True,0,0"),
        *("1,bertscore,2,True,0,1", "1,bertscore,2,True,1,0", "1,bertscore,6,False,1,4"),
    )

    def write(self, folder, rows=ROWS, name="categories"):
        texts = "gt_report,radgraph,bertscore\nClear.,Edema.,Clear lungs.\nSmall effusion.,Effusion.,Clear.\n"
        (folder / "50_samples_gt_and_candidates.csv").write_text(texts)
        table = self.HEADER + "".join(f"{row}\n" for row in rows)
        (folder / f"6_valid_raters_per_rater_error_{name}.csv").write_text(table)
        return folder

    @pytest.mark.parametrize("name", ["categories", "counts"])
    def test_means_of_raters(self, tmp_path, name):
        first, second = read_annotated_set("rexval", self.write(tmp_path, name=name))
        assert (first.reference, first.candidate) == ("Clear.", "Edema.")
        # Rater 0 counts three false findings, rater 1 one.
        assert first.counts == (2.0, 0.0, None, None, None, None)
        assert first.other is None
        assert (second.reference, second.candidate) == ("Small effusion.", "Clear.")
        assert second.counts == (None, 0.5, None, None, None, 4.0)
        assert (second.study, second.attributes) == ("1", {"candidate_type": "bertscore"})
        assert (second.judgement("significant"), second.judgement("insignificant")) == (0.5, 4.0)

    def test_significant_counts_are_means_over_the_raters_with_any_count(self, tmp_path):
        (record,) = read_annotated_set("rexval", self.write(tmp_path, ["0,radgraph,1,True,0,2", "0,radgraph,1,0,1,1"]))
        assert (record.counts[0], record.significant[0]) == (1.5, 1.0)

    def test_one_rater(self, tmp_path):
        folder = self.write(tmp_path)
        assert read_annotated_set("rexval", folder, rater=1)[0].counts[:2] == (1.0, None)
        with pytest.raises(ValueError, match="rater must be one of 0, 1, got 6"):
            read_annotated_set("rexval", folder, rater=6)

    @pytest.mark.parametrize(
        ("row", "column"),
        [
            ("2,radgraph,1,True,0,1", "study_number"),
            ("0,radgraph,7,True,0,1", "error_category"),
            ("0,radgraph,1,perhaps,0,1", "clinically_significant"),
            ("0,radgraph,1,True,0,few", "num_errors"),
            ("0,radgraph,1,True,0.5,1", "rater_index"),
            ("0,,1,True,0,1", "candidate_type"),
            ("0,radgraph,1,True,0,2", None),
        ],
    )
    def test_a_bad_row_is_named(self, tmp_path, row, column):
        place = f", column '{column}'" if column else ": repeats"
        with pytest.raises(TableError, match=rf"data row 8 \(line 9\){place}"):
            read_annotated_set("rexval", self.write(tmp_path, [*self.ROWS, row]))

    def test_what_is_missing_is_named(self, tmp_path):
        with pytest.raises(TableError, match=r"50_samples_gt_and_candidates\.csv: no such file"):
            read_annotated_set("rexval", tmp_path)
        with pytest.raises(TableError, match="unknown column 'bleu'"):
            read_annotated_set("rexval", self.write(tmp_path, ["0,bleu,1,True,0,1"]))
        (tmp_path / "6_valid_raters_per_rater_error_categories.csv").write_text("study_number,num_errors\n0,1\n")
        with pytest.raises(TableError, match="lacks candidate_type, error_category, clinically_significant"):
            read_annotated_set("rexval", tmp_path)


class TestRadEvalX:
    SIGNIFICANT = "RadEval_clinically_significant_errors.csv"

    def test_the_release_joins_both_files(self, tmp_path):
        with pytest.warns(AnnotationWarning, match=r"44 of 64 counts are empty"):
            first, second, *_ = read_annotated_set("radevalx", write_radevalx(tmp_path / "x"))
        assert (first.reference, first.candidate) == ("Small pleural effusion.", "Pleural effusion.")
        assert second.study == "CXR1"
        assert second.counts == (0.0, 2.0, 0.0, 0.0, 0.0, 0.0)
        # One insignificant error of uncertainty, which belongs to no category.
        assert (second.other, second.significant_other, second.total) == (1.0, 0.0, 3.0)
        assert [second.judgement(name) for name in ("errors", "significant", "insignificant")] == [3.0, 2.0, 1.0]

    @pytest.mark.parametrize(
        ("row", "name", "cell", "message"),
        [
            (1, "2", "-1", r"data row 2 \(line 3\), column '2'"),
            (1, "report_id", "CXR9", "report 'CXR9' needs"),
            (0, "ground_truth", "Other.", "the reports of 'CXR0' differ"),
            (0, "report_id", "CXR1", "'CXR1'"),
        ],
    )
    def test_a_bad_row_is_named(self, tmp_path, row, name, cell, message):
        folder = write_radevalx(tmp_path / "x")
        edited(folder / self.SIGNIFICANT, row, name, cell)
        with pytest.raises(TableError, match=message):
            read_annotated_set("radevalx", folder)

    def test_a_missing_file_and_columns_are_named(self, tmp_path):
        folder = write_radevalx(tmp_path / "x")
        write_csv(folder / self.SIGNIFICANT, ["report_id", "ground_truth", "1"], ("a", "b", 1))
        with pytest.raises(TableError, match=r"errors\.csv: lacks M2Tr-Generation, 2, 3, 4, 5, 6, 7, 8; it has"):
            read_annotated_set("radevalx", folder)
        (folder / self.SIGNIFICANT).unlink()
        with pytest.raises(TableError, match=f"{self.SIGNIFICANT}: no such file"):
            read_annotated_set("radevalx", folder)


class TestChest2Error:
    ROW = chest2error_row("valid_1_a_1.npz", "GT-U", "No nodule.", "Nodule.", 1, 2)

    def read(self, path, *rows):
        write_table(Table.from_records(rows), path / "gold_pairs.jsonl", overwrite=True)
        return read_annotated_set("chest2error", path / "gold_pairs.jsonl")

    @pytest.mark.parametrize("ending", ["parquet", "jsonl", "csv"])
    def test_counts_totals_and_errors(self, tmp_path, ending):
        records = read_annotated_set("chest2error", write_chest2error(tmp_path / f"gold_pairs.{ending}"))
        assert len(records) == 8
        second = records[2]
        assert (second.study, second.attributes) == ("valid_1_a_1.npz", {"reference_style": "GT-U", "variant_id": "V1"})
        assert second.counts == (0.0, 2.0, 0.0, 1.0, 0.0, 0.0)
        assert second.significant == (0.0, 2.0, 0.0, 0.0, 0.0, 0.0)
        names = ("errors", "significant", "insignificant", "weighted_error")
        assert [second.judgement(name) for name in names] == [3.0, 2.0, 1.0, 2.25]
        assert second.edits[2] == {"category": 4, "criticality": "Minor", "section": "Pleura"}
        assert (second.total, second.total_significant) == (3.0, 2.0)

    def test_pairs_whose_list_has_other_errors_are_counted(self, tmp_path):
        other = [{"category": "5", "criticality": "critical", "section": "Pleura"}]
        with pytest.warns(AnnotationWarning, match="the list rad_errors of 1 of 2 pairs"):
            first, second = self.read(tmp_path, self.ROW, {**self.ROW, "rad_errors": json.dumps(other)})
        assert first.significant is not None
        assert (second.significant, second.judgement("significant"), second.counts[1]) == (None, 1.0, 1.0)

    @pytest.mark.parametrize(
        ("name", "cell", "problem"),
        [
            ("rad_errors", "none", "is no JSON"),
            ("rad_errors", "{}", "must be a list of objects"),
            ("rad_errors", '[{"category": 7, "criticality": "Minor"}]', "category .* got 7"),
            ("rad_errors", '[{"category": 1}]', "criticality .* got None"),
            ("rad_critical_count", "few", "must be a number"),
            ("candidate_report", None, "is missing"),
        ],
    )
    def test_a_bad_row_is_named(self, tmp_path, name, cell, problem):
        with pytest.raises(TableError, match=rf"gold_pairs\.jsonl: data row 2 \(line 2\), column '{name}': {problem}"):
            self.read(tmp_path, self.ROW, {**self.ROW, name: cell})

    def test_all_missing_columns_are_named(self, tmp_path):
        lacking = {name: cell for name, cell in self.ROW.items() if name not in ("anchor_id", "rad_weighted_error")}
        with pytest.raises(TableError, match=r"gold_pairs\.jsonl: lacks anchor_id, rad_weighted_error; it has"):
            self.read(tmp_path, lacking)


class TestReFiSco:
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

    def read(self, folder, header, *rows):
        return read_annotated_set("refisco", write_csv(folder / "refisco.csv", header.split(","), *rows))

    def test_v0_takes_the_corrected_text_as_reference_and_counts_lines(self, tmp_path):
        first, second = self.read(tmp_path, V0, *self.V0_ROWS)
        assert first.candidate == "No edema. Old fracture. Small effusion. Compared to before."
        assert first.reference == "No edema. Large effusion. Pneumothorax. Compared to before."
        assert (second.candidate, second.reference, second.total) == ("Clear lungs.", "Clear lungs.", 0.0)
        assert (first.study, second.study) == ("s1", "s1")
        assert first.attributes == {"annotator": "r1", "source": "X-REM", "indication": "Cough."}
        assert (first.counts, first.other, first.total) == ((None,) * 6, 4.0, 4.0)
        assert first.ratings == {
            **dict.fromkeys(("insertions", "deletions", "edits", "unchanged"), 1.0),
            "max_severity": 4.0,
            "sum_severity": 9.0,
        }
        # Errors of grade 2 or more are actionable.
        assert first.judgement("significant") == 2.0
        assert [error["kind"] for error in first.edits] == ["deletion", "edit", "insertion", "unchanged"]

    def test_v1_reads_empty_corrections_as_unchanged_lines(self, tmp_path):
        first, second = self.read(tmp_path, V1, *self.V1_ROWS)
        assert (first.candidate, first.reference, first.total) == ("No edema. Mass.", "No edema.", 1.0)
        assert first.ratings["deletions"] == 1.0
        assert (second.candidate, second.reference, second.total) == ("Mass.", "Mass.", 0.0)
        assert first.attributes == {"annotator_id": "a1", "report_type": "generated", "subject_id": "p"}

    def test_corrections_that_contradict_their_grade_are_counted(self, tmp_path):
        rows = [("s1", "", "A.", "B.", None, "r1", "X-REM"), ("s1", "", "C.", "D.", "no error", "r1", "X-REM")]
        with pytest.warns(AnnotationWarning, match="1 corrected lines have no grade .* 1 corrected lines are graded"):
            (record,) = self.read(tmp_path, V0, *rows)
        assert (record.reference, record.total, record.significant_other) == ("B. D.", 1.0, None)
        assert math.isnan(record.judgement("significant"))
        assert math.isnan(record.judgement("max_severity"))

    @pytest.mark.parametrize(
        ("row", "column"),
        [
            (("s1", "", "A.", None, "0", "r1", "X-REM"), "impression_edited"),
            ((None, "", "A.", "[no edit]", "0", "r1", "X-REM"), "id"),
            (("s1", "", "A.", "[no edit]", "5", "r1", "X-REM"), "score"),
        ],
    )
    def test_a_bad_row_is_named(self, tmp_path, row, column):
        with pytest.raises(TableError, match=rf"refisco\.csv: data row 7 \(line 8\), column '{column}'"):
            self.read(tmp_path, V0, *self.V0_ROWS, row)

    def test_studies_that_differ_and_missing_columns_are_named(self, tmp_path):
        other = ("1", "p", "s2", "generated", "", "Other.", None, None, None, "a1")
        with pytest.raises(TableError, match="column 'study_id': is 's2', but 's' in earlier rows of 1 generated a1"):
            self.read(tmp_path, V1, *self.V1_ROWS, other)
        with pytest.raises(TableError, match="lacks id, impression_original, impression_edited, score, annotator"):
            self.read(tmp_path, "study_id,line", ("s", "a"))

    def test_nan_is_a_missing_cell_and_tags_may_have_any_case(self, tmp_path):
        ends = (("[No Edit]", math.nan, "r1", "X-REM"), ("[DELETE]", 2.0, "r1", "X-REM"))
        rows = [(*row[:3], *end) for row, end in zip(self.V0_ROWS, ends, strict=False)]
        path = tmp_path / "refisco.jsonl"
        path.write_text("\n".join(json.dumps(dict(zip(V0.split(","), row, strict=True))) for row in rows))
        (record,) = read_annotated_set("refisco", path)
        assert (record.reference, record.total, record.ratings["max_severity"]) == ("No edema.", 1.0, 2.0)
        path.write_text(path.read_text().replace('"r1"', "NaN", 1))
        with pytest.raises(TableError, match="column 'annotator'"):
            read_annotated_set("refisco", path)


def judgement(errors, missing):
    significance = {"clinical_significance": "urgent"}
    return {"finding_errors": errors, "missing_findings": dict.fromkeys(missing, significance)}


def attribute(**types):
    return {"error_type": "attribute", "attributes": types}


class TestRadPref:
    FALSE: ClassVar = {"error_type": "false", "clinical_significance": "urgent"}
    NONE = judgement({}, [])
    ENTRY: ClassVar = {
        "ground_truth_report": "Effusion.",
        "C1_report": "Edema.",
        "C2_report": "Effusion.",
        "radiologists": [
            {
                "C1": judgement({"0": FALSE, "1": attribute(location="significant", severity="negligible")}, ["0"]),
                "C2": NONE,
            },
            {"C1": judgement({"0": attribute(measurement="significant", severity="negligible")}, []), "C2": NONE},
        ],
    }

    def test_mapping(self, tmp_path):
        first, second = read_annotated_set("radpref", write_json(tmp_path / "pairs.json", [self.ENTRY]))
        # A severity and a measurement of one finding are one error.
        assert first.counts == (0.5, 0.5, 0.5, 1.0, None, None)
        assert second.counts == (0.0, 0.0, 0.0, 0.0, None, None)
        assert (first.reference, first.candidate) == ("Effusion.", "Edema.")
        assert (first.study, first.attributes, first.ratings) == ("1", {"candidate": "C1"}, {"rating": None})

    def test_ratings_of_the_candidate(self, tmp_path):
        radiologists = [
            {name: {**one[name], "rating": rating} for name, rating in (("C1", 2 + place), ("C2", 5))}
            for place, one in enumerate(self.ENTRY["radiologists"])
        ]
        path = write_json(tmp_path / "pairs.json", [{**self.ENTRY, "id": "p7", "radiologists": radiologists}])
        assert [record.judgement("rating") for record in read_annotated_set("radpref", path)] == [2.5, 5.0]
        assert [record.judgement("rating") for record in read_annotated_set("radpref", path, rater=0)] == [2.0, 5.0]
        assert {record.study for record in read_annotated_set("radpref", path)} == {"p7"}

    def test_one_radiologist(self, tmp_path):
        path = write_json(tmp_path / "pairs.json", [self.ENTRY])
        assert read_annotated_set("radpref", path, rater=0)[0].counts[:4] == (1, 1, 1, 1)
        assert read_annotated_set("radpref", path, rater=1)[0].counts[:4] == (0, 0, 0, 1)
        with pytest.raises(ValueError, match=r"rater must be below 2 in .*entry 1, got 2"):
            read_annotated_set("radpref", path, rater=2)

    def test_other_attributes_are_no_error_of_the_six(self, tmp_path):
        radiologists = [{"C1": judgement({"0": attribute(temporal="significant")}, []), "C2": self.NONE}]
        path = write_json(tmp_path / "pairs.json", [{**self.ENTRY, "radiologists": radiologists}])
        assert read_annotated_set("radpref", path)[0].total == 0

    @pytest.mark.parametrize(
        ("entry", "message"),
        [
            ({"ground_truth_report": "Clear."}, "entry 2: lacks radiologists, C1_report"),
            ({**ENTRY, "radiologists": [{"C1": {}}]}, "entry 2: is no RadPref annotation: KeyError"),
            ({**ENTRY, "radiologists": []}, "entry 2: has no radiologist"),
            ({**ENTRY, "C1_report": None}, "entry 2, column 'C1_report'"),
        ],
    )
    def test_a_bad_entry_is_named(self, tmp_path, entry, message):
        with pytest.raises(TableError, match=message):
            read_annotated_set("radpref", write_json(tmp_path / "pairs.json", [self.ENTRY, entry]))

    def test_the_published_annotations(self, shared_data):
        records = read_annotated_set("radpref", shared_data / "radpref" / "pairs.json")
        entries = json.loads((shared_data / "radpref" / "pairs.json").read_text(encoding="utf-8"))
        assert len(records) == 2 * len(entries)
        missing = sum(len(r[c]["missing_findings"]) for e in entries for r in e["radiologists"] for c in ("C1", "C2"))
        assert sum(record.counts[1] for record in records) * 3 == pytest.approx(missing)


class TestRaTEEval:
    ENTRY: ClassVar = {"gt": "No edema.", "pred": "Edema.", "errors": [1, 0, 0, 0, 0, 2], "potential_errors": 4}

    @pytest.mark.parametrize("content", [[ENTRY], {"x7": ENTRY}])
    def test_raw_and_normalised_counts(self, tmp_path, content):
        path = write_json(tmp_path / "task1.json", content)
        expected = ErrorRecord("No edema.", "Edema.", (1, 0, 0, 0, 0, 2), "rate_eval")
        assert read_annotated_set("rate_eval", path) == [expected]
        assert read_annotated_set("rate_eval", path, normalise=True)[0].counts == (0.25, 0, 0, 0, 0, 0.5)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ([{"gt": "a", "output": "b"}], "entry 1: lacks pred, errors; it has gt, output"),
            (["text"], "entry 1: must be an object"),
            ([{**ENTRY, "gt": 3}], "entry 1, column 'gt'"),
            ([{**ENTRY, "errors": [1, 2]}], "entry 1, column 'errors'"),
            ([{**ENTRY, "errors": [-1, 0, 0, 0, 0, 0]}], "entry 1, column 'errors', A"),
            ([{**ENTRY, "potential_errors": 0}], "column 'potential_errors'"),
            ([{"gt": "a", "pred": "b", "errors": [0] * 6}], "lacks potential_errors"),
            (5, "must be a list or an object"),
        ],
    )
    def test_a_bad_entry_is_named(self, tmp_path, content, message):
        with pytest.raises(TableError, match=re.escape(message)):
            read_annotated_set("rate_eval", write_json(tmp_path / "a.json", content), normalise=True)

    def test_what_is_no_json_is_named(self, tmp_path):
        (tmp_path / "a.json").write_text("{")
        with pytest.raises(TableError, match=r"a\.json: not a JSON document"):
            read_annotated_set("rate_eval", tmp_path / "a.json")
