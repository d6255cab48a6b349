"""Report pairs with error counts from three kinds of files, and the errors of malformed files."""

import json
import math

import pytest

from rrg_rewards.data import (
    ErrorRecord,
    TableError,
    inject_phantom_errors,
    phantom_studies,
    read_error_records,
    read_radpref,
    read_rexval,
    write_error_records,
)

LINE = {"reference": "Clear.", "candidate": "Edema.", "counts": [1, 0, 0, 0, 0, 0]}


def write_lines(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


class TestJsonLines:
    def test_injected_pairs_come_back(self, tmp_path):
        injected = [inject_phantom_errors(study, seed=0).report for study in phantom_studies(20)]
        write_error_records([report.to_record("phantom") for report in injected], tmp_path / "pairs.jsonl")
        read = read_error_records(tmp_path / "pairs.jsonl")
        assert [record.counts for record in read] == [report.counts for report in injected]
        assert [record.candidate for record in read] == [report.candidate for report in injected]
        assert {record.source for record in read} == {"phantom"}
        assert [list(record.edits) for record in read] == [[e.to_dict() for e in report.edits] for report in injected]
        write_error_records(read, tmp_path / "again.jsonl")
        assert read_error_records(tmp_path / "again.jsonl") == read

    def test_what_nobody_counted_is_none(self, tmp_path):
        path = write_lines(tmp_path / "pairs.jsonl", {**LINE, "counts": [0.5, 2, None, None, None, None]})
        (record,) = read_error_records(path)
        assert record.counts == (0.5, 2, None, None, None, None)
        assert record.total == 2.5
        assert math.isnan(ErrorRecord("", "", (None,) * 6).total)

    def test_line_breaks_and_quotes_are_text(self, tmp_path):
        path = write_lines(tmp_path / "pairs.jsonl", {**LINE, "reference": 'One\n"two" \u2028 three'})
        assert read_error_records(path)[0].reference == 'One\n"two" \u2028 three'

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"counts": [1, 0, 0]}, r"data row 2 \(line 2\), column 'counts': must be a list of 6 numbers, got 3"),
            ({"counts": [1, 0, 0, 0, 0, -1]}, r"line 2\), column 'counts', F: a count must be a number from 0 on"),
            ({"counts": [1, 0, True, 0, 0, 0]}, "column 'counts', C: a count must be"),
            ({"counts": None}, "must be a list of 6 numbers, got NoneType"),
            ({"counts": "many"}, "is no JSON list of 6 numbers"),
            ({"reference": None}, r"line 2\), column 'reference': is missing"),
            ({"candidate": 3}, r"line 2\), column 'candidate': must be a report text"),
            ({"edits": "moved"}, r"line 2\), column 'edits': must be a list of objects"),
        ],
    )
    def test_a_bad_row_is_named(self, tmp_path, change, message):
        path = write_lines(tmp_path / "pairs.jsonl", LINE, {**LINE, **change})
        with pytest.raises(TableError, match=message):
            read_error_records(path)

    def test_a_missing_column_is_named(self, tmp_path):
        path = write_lines(tmp_path / "pairs.jsonl", {"reference": "Clear.", "candidate": "Edema.", "count": []})
        with pytest.raises(TableError, match="unknown column 'counts'; did you mean 'count'"):
            read_error_records(path)


REPORTS = "study_id,gt_report,radgraph,bertscore\n10,Clear.,Edema.,Clear lungs.\n11,Small effusion.,Effusion.,Clear.\n"
HEADER = "study_number,candidate_type,error_category,clinically_significant,rater_index,num_errors\n"
ROWS = [
    *("0,radgraph,1,True,0,2", "0,radgraph,1,False,0,1", "0,radgraph,1,True,1,1", "0,radgraph,2,True,0,0"),
    *("1,bertscore,2,True,0,1", "1,bertscore,2,True,1,0", "1,bertscore,6,False,1,4"),
]


def rexval(folder, rows=ROWS, reports=REPORTS):
    (folder / "50_samples_gt_and_candidates.csv").write_text(reports, encoding="utf-8")
    table = HEADER + "".join(f"{row}\n" for row in rows)
    (folder / "6_valid_raters_per_rater_error_categories.csv").write_text(table, encoding="utf-8")
    return folder


class TestReXVal:
    def test_means_of_raters(self, tmp_path):
        first, second = read_rexval(rexval(tmp_path))
        assert (first.reference, first.candidate) == ("Clear.", "Edema.")
        # Rater 0 counts three false findings, rater 1 one.
        assert first.counts == (2.0, 0.0, None, None, None, None)
        assert (second.reference, second.candidate) == ("Small effusion.", "Clear.")
        assert second.counts == (None, 0.5, None, None, None, 4.0)

    def test_one_significance_and_one_rater(self, tmp_path):
        folder = rexval(tmp_path)
        assert read_rexval(folder, significant=True)[0].counts[0] == 1.5
        assert read_rexval(folder, significant=False)[0].counts[:2] == (1.0, None)
        assert read_rexval(folder, rater=1)[0].counts[:2] == (1.0, None)
        with pytest.raises(ValueError, match="rater must be one of 0, 1, got 6"):
            read_rexval(folder, rater=6)

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ("2,radgraph,1,True,0,1", "'study_number': must be a whole number from 0 to 1, got '2'"),
            ("0,radgraph,7,True,0,1", "'error_category': must be a whole number from 1 to 6"),
            ("0,radgraph,1,perhaps,0,1", "'clinically_significant': must be True or False"),
            ("0,radgraph,1,True,0,few", "'num_errors': must be a number from 0 on"),
            ("0,radgraph,1,True,0.5,1", "'rater_index': must be a whole number"),
            ("0,,1,True,0,1", "'candidate_type': is missing"),
            ("0,radgraph,1,True,0,2", "repeats a count of the same rater"),
        ],
    )
    def test_a_bad_row_is_named(self, tmp_path, row, message):
        with pytest.raises(TableError, match=rf"data row 8 \(line 9\).*{message}"):
            read_rexval(rexval(tmp_path, [*ROWS, row]))

    def test_an_unknown_candidate_type_is_named(self, tmp_path):
        with pytest.raises(TableError, match="unknown column 'bleu'"):
            read_rexval(rexval(tmp_path, ["0,bleu,1,True,0,1"]))

    def test_a_missing_file_is_named(self, tmp_path):
        with pytest.raises(TableError, match=r"50_samples_gt_and_candidates\.csv: no such file"):
            read_rexval(tmp_path)


def judgement(errors, missing):
    significance = {"clinical_significance": "urgent"}
    return {"finding_errors": errors, "missing_findings": dict.fromkeys(missing, significance)}


def attribute(**types):
    return {"error_type": "attribute", "attributes": types}


FALSE = {"error_type": "false", "clinical_significance": "urgent"}
NONE = judgement({}, [])
ENTRY = {
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


class TestRadPref:
    def write(self, path, *entries):
        path.write_text(json.dumps(entries), encoding="utf-8")
        return path

    def test_mapping(self, tmp_path):
        first, second = read_radpref(self.write(tmp_path / "pairs.json", ENTRY))
        # A severity and a measurement of one finding are one error.
        assert first.counts == (0.5, 0.5, 0.5, 1.0, None, None)
        assert second.counts == (0.0, 0.0, 0.0, 0.0, None, None)
        assert (first.reference, first.candidate, first.source) == ("Effusion.", "Edema.", "radpref")

    def test_one_radiologist(self, tmp_path):
        path = self.write(tmp_path / "pairs.json", ENTRY)
        assert read_radpref(path, radiologist=0)[0].counts[:4] == (1, 1, 1, 1)
        assert read_radpref(path, radiologist=1)[0].counts[:4] == (0, 0, 0, 1)
        with pytest.raises(ValueError, match=r"radiologist must be below 2 in .*entry 1, got 2"):
            read_radpref(path, radiologist=2)

    def test_other_attributes_are_no_error_of_the_six(self, tmp_path):
        entry = {**ENTRY, "radiologists": [{"C1": judgement({"0": attribute(temporal="significant")}, []), "C2": NONE}]}
        assert read_radpref(self.write(tmp_path / "pairs.json", entry))[0].total == 0

    def test_a_bad_entry_is_named(self, tmp_path):
        path = self.write(tmp_path / "pairs.json", ENTRY, {"ground_truth_report": "Clear."})
        with pytest.raises(TableError, match="entry 2: is no RadPref annotation: KeyError: 'radiologists'"):
            read_radpref(path)
        path = self.write(tmp_path / "none.json", {**ENTRY, "radiologists": []})
        with pytest.raises(TableError, match="entry 1: has no radiologist"):
            read_radpref(path)
        (tmp_path / "text.json").write_text("no JSON")
        with pytest.raises(TableError, match="not a readable JSON file"):
            read_radpref(tmp_path / "text.json")

    def test_the_published_annotations(self, shared_data):
        records = read_radpref(shared_data / "radpref" / "pairs.json")
        entries = json.loads((shared_data / "radpref" / "pairs.json").read_text(encoding="utf-8"))
        assert len(records) == 2 * len(entries)
        missing = sum(len(r[c]["missing_findings"]) for e in entries for r in e["radiologists"] for c in ("C1", "C2"))
        assert sum(record.counts[1] for record in records) * 3 == pytest.approx(missing)
