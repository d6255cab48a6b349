"""Readers of public annotations, on small files in their layouts: ReXVal, RadPref and RaTE-Eval."""

import json

import pytest

from rrg_rewards.data import ErrorRecord, TableError, read_radpref, read_rate_eval, read_rexval

COUNTS = "study_number,candidate_type,error_category,clinically_significant,rater_index,num_errors\n"


def test_rexval_has_significant_counts_and_a_second_file_name(tmp_path):
    (tmp_path / "50_samples_gt_and_candidates.csv").write_text("gt_report,bleu\nClear.,Edema.\n")
    rows = "0,bleu,1,True,0,2\n0,bleu,1,False,1,1\n0,bleu,2,False,0,1\n"
    (tmp_path / "6_valid_raters_per_rater_error_counts.csv").write_text(COUNTS + rows)
    (record,) = read_rexval(tmp_path)
    # Of the two raters of category 1, only the first found significant errors.
    assert record.counts[:3] == (1.5, 1.0, None)
    assert record.significant[:3] == (1.0, 0.0, None)
    assert record.other is None
    (tmp_path / "6_valid_raters_per_rater_error_counts.csv").write_text("study_number,num_errors\n0,1\n")
    with pytest.raises(TableError, match="lacks candidate_type, error_category, clinically_significant, rater_index"):
        read_rexval(tmp_path)


ENTRY = {"gt": "No edema.", "pred": "Edema.", "errors": [1, 0, 0, 0, 0, 2], "potential_errors": 4}


class TestRaTEEval:
    def write(self, path, content):
        path.write_text(json.dumps(content))
        return path

    def test_raw_and_normalised_counts(self, tmp_path):
        path = self.write(tmp_path / "task1.json", [ENTRY])
        assert read_rate_eval(path) == [ErrorRecord("No edema.", "Edema.", (1, 0, 0, 0, 0, 2), "rate_eval")]
        assert read_rate_eval(path, normalise=True)[0].counts == (0.25, 0, 0, 0, 0, 0.5)

    def test_entries_by_id_and_errors_by_category(self, tmp_path):
        entry = {**ENTRY, "errors": {"1": 2, "F": 1}}
        assert read_rate_eval(self.write(tmp_path / "a.json", {"x7": entry}))[0].counts == (2, 0, 0, 0, 0, 1)

    def test_keys_of_other_names(self, tmp_path):
        path = self.write(tmp_path / "a.json", [{"ref": "a", "hyp": "b", "n": [0] * 6}])
        found = read_rate_eval(path, columns={"reference": "ref", "candidate": "hyp", "errors": "n"})
        assert (found[0].reference, found[0].candidate, found[0].total) == ("a", "b", 0)

    @pytest.mark.parametrize(
        ("entry", "message"),
        [
            ({"gt": "a", "output": "b"}, "entry 1: lacks pred, errors; it has gt, output"),
            ("text", "entry 1: must be an object, got str"),
            ({**ENTRY, "gt": 3}, "entry 1, 'gt': must be a text, got int"),
            ({**ENTRY, "errors": [1, 2]}, "entry 1, 'errors': must be 6 numbers"),
            ({**ENTRY, "errors": {"A": 1, "1": 3}}, "entry 1, 'errors': a category has two counts"),
            ({**ENTRY, "errors": {"G": 1}}, "category must be A to F or 1 to 6, got 'G'"),
            ({**ENTRY, "errors": [-1, 0, 0, 0, 0, 0]}, "entry 1, 'errors', A: a count must be a number from 0 on"),
        ],
    )
    def test_a_bad_entry_is_named(self, tmp_path, entry, message):
        with pytest.raises(TableError, match=message):
            read_rate_eval(self.write(tmp_path / "a.json", [entry]))

    def test_a_document_of_something_else_is_refused(self, tmp_path):
        with pytest.raises(TableError, match="must be a list or an object of entries, got int"):
            read_rate_eval(self.write(tmp_path / "a.json", 5))

    def test_normalising_needs_possible_errors(self, tmp_path):
        path = self.write(tmp_path / "a.json", [{**ENTRY, "potential_errors": 0}])
        with pytest.raises(TableError, match="'potential_errors': must be a positive number"):
            read_rate_eval(path, normalise=True)
        path = self.write(tmp_path / "a.json", [{key: ENTRY[key] for key in ("gt", "pred", "errors")}])
        with pytest.raises(TableError, match="lacks potential_errors"):
            read_rate_eval(path, normalise=True)
        path.write_text("{")
        with pytest.raises(TableError, match="not a JSON document"):
            read_rate_eval(path)


REXVAL_REPORTS = (
    "study_id,gt_report,radgraph,bertscore\n10,Clear.,Edema.,Clear lungs.\n11,Small effusion.,Effusion.,Clear.\n"
)


REXVAL_HEADER = "study_number,candidate_type,error_category,clinically_significant,rater_index,num_errors\n"


REXVAL_ROWS = [
    *("0,radgraph,1,True,0,2", "0,radgraph,1,False,0,1", "0,radgraph,1,True,1,1", "0,radgraph,2,True,0,0"),
    *("1,bertscore,2,True,0,1", "1,bertscore,2,True,1,0", "1,bertscore,6,False,1,4"),
]


def rexval(folder, rows=REXVAL_ROWS, reports=REXVAL_REPORTS):
    (folder / "50_samples_gt_and_candidates.csv").write_text(reports, encoding="utf-8")
    table = REXVAL_HEADER + "".join(f"{row}\n" for row in rows)
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
        assert (second.study, second.attributes) == ("1", {"candidate_type": "bertscore"})
        assert (second.judgement("significant"), second.judgement("insignificant")) == (0.5, 4.0)

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
            read_rexval(rexval(tmp_path, [*REXVAL_ROWS, row]))

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


RADPREF_ENTRY = {
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
        first, second = read_radpref(self.write(tmp_path / "pairs.json", RADPREF_ENTRY))
        # A severity and a measurement of one finding are one error.
        assert first.counts == (0.5, 0.5, 0.5, 1.0, None, None)
        assert second.counts == (0.0, 0.0, 0.0, 0.0, None, None)
        assert (first.reference, first.candidate, first.source) == ("Effusion.", "Edema.", "radpref")
        assert (first.study, first.attributes, first.ratings) == ("1", {"candidate": "C1"}, {"rating": None})

    def test_ratings_of_the_candidate(self, tmp_path):
        radiologists = [
            {name: {**one[name], "rating": rating} for name, rating in (("C1", 2 + place), ("C2", 5))}
            for place, one in enumerate(RADPREF_ENTRY["radiologists"])
        ]
        path = self.write(tmp_path / "pairs.json", {**RADPREF_ENTRY, "id": "p7", "radiologists": radiologists})
        assert [record.judgement("rating") for record in read_radpref(path)] == [2.5, 5.0]
        assert [record.judgement("rating") for record in read_radpref(path, radiologist=0)] == [2.0, 5.0]
        assert {record.study for record in read_radpref(path)} == {"p7"}

    def test_one_radiologist(self, tmp_path):
        path = self.write(tmp_path / "pairs.json", RADPREF_ENTRY)
        assert read_radpref(path, radiologist=0)[0].counts[:4] == (1, 1, 1, 1)
        assert read_radpref(path, radiologist=1)[0].counts[:4] == (0, 0, 0, 1)
        with pytest.raises(ValueError, match=r"radiologist must be below 2 in .*entry 1, got 2"):
            read_radpref(path, radiologist=2)

    def test_other_attributes_are_no_error_of_the_six(self, tmp_path):
        entry = {
            **RADPREF_ENTRY,
            "radiologists": [{"C1": judgement({"0": attribute(temporal="significant")}, []), "C2": NONE}],
        }
        assert read_radpref(self.write(tmp_path / "pairs.json", entry))[0].total == 0

    def test_a_bad_entry_is_named(self, tmp_path):
        path = self.write(tmp_path / "pairs.json", RADPREF_ENTRY, {"ground_truth_report": "Clear."})
        with pytest.raises(TableError, match="entry 2: is no RadPref annotation: KeyError: 'radiologists'"):
            read_radpref(path)
        path = self.write(tmp_path / "none.json", {**RADPREF_ENTRY, "radiologists": []})
        with pytest.raises(TableError, match="entry 1: has no radiologist"):
            read_radpref(path)
        (tmp_path / "text.json").write_text("no JSON")
        with pytest.raises(TableError, match="not a JSON document"):
            read_radpref(tmp_path / "text.json")

    def test_the_published_annotations(self, shared_data):
        records = read_radpref(shared_data / "radpref" / "pairs.json")
        entries = json.loads((shared_data / "radpref" / "pairs.json").read_text(encoding="utf-8"))
        assert len(records) == 2 * len(entries)
        missing = sum(len(r[c]["missing_findings"]) for e in entries for r in e["radiologists"] for c in ("C1", "C2"))
        assert sum(record.counts[1] for record in records) * 3 == pytest.approx(missing)
