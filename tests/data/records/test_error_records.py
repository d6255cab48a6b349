"""Report pairs with error counts in JSON lines, and the errors of malformed files."""

import json
import math

import pytest

from rrg_rewards.data import (
    ErrorRecord,
    Table,
    TableError,
    phantom_studies,
    read_error_records,
    write_table,
)
from rrg_rewards.findings import inject_errors

LINE = {"reference": "Clear.", "candidate": "Edema.", "counts": [1, 0, 0, 0, 0, 0]}


def write_lines(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


class TestReadErrorRecords:
    def test_injected_pairs_come_back(self, tmp_path):
        drawn = [inject_errors(study.report, seed=0) for study in phantom_studies(20, style="compact")]
        injected = [report for report in drawn if report is not None]
        assert len(injected) > 10
        records = [ErrorRecord(made.reference, made.candidate, made.counts, "phantom") for made in injected]
        write_table(Table.from_records(map(vars, records)), tmp_path / "pairs.jsonl")
        assert read_error_records(tmp_path / "pairs.jsonl") == records

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
            ({"attributes": "r1"}, "column 'attributes': is no JSON object"),
            ({"attributes": ["r1"]}, "column 'attributes': must be an object, got list"),
            ({"ratings": {"x": "high"}}, "column 'ratings': a rating must be a finite number or null, got 'high'"),
            ({"significant_other": -1}, "column 'significant_other': a count must be a number from 0 on"),
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


class TestReadErrorRecordsOptionalColumns:
    def test_significant_and_other_errors_come_back(self, tmp_path):
        records = [
            ErrorRecord("Clear.", "Edema.", (2, 0, 0, 0, 0, None), "a", significant=(1, 0, 0, 0, 0, None), other=1),
            ErrorRecord("Clear.", "Mass.", (1, 0, 0, 0, 0, 0), "a"),
        ]
        write_table(Table.from_records(map(vars, records)), tmp_path / "pairs.jsonl")
        assert read_error_records(tmp_path / "pairs.jsonl") == records

    def test_study_attributes_and_ratings_come_back(self, tmp_path):
        further = {
            "study": "s7",
            "attributes": {"annotator": "r1"},
            "ratings": {"errors": None, "weighted_error": 0.25},
        }
        none = (None,) * 6
        records = [
            ErrorRecord("a", "b", none, "x", other=0.0, significant_other=0.0, **further),
            ErrorRecord("c", "d", none),
        ]
        write_table(Table.from_records(map(vars, records)), tmp_path / "pairs.jsonl")
        assert read_error_records(tmp_path / "pairs.jsonl") == records
        assert hash(records[0]) == hash(read_error_records(tmp_path / "pairs.jsonl")[0])

    def test_judgements_are_ratings_or_sums_of_counts(self):
        record = ErrorRecord(
            "", "", (2, 1, 0, 0, 0, None), significant=(1, 1, 0, 0, 0, None), other=1, ratings={"x": 4}
        )
        assert [record.judgement(name) for name in ("errors", "significant", "insignificant", "x")] == [4, 2, 2, 4]
        assert (record.total_significant, ErrorRecord("", "", (1,) * 6, significant_other=2).total_significant) == (
            2,
            2,
        )
        assert math.isnan(ErrorRecord("", "", (1,) * 6, ratings={"errors": None}).judgement("errors"))
        with pytest.raises(KeyError):
            record.judgement("y")

    @pytest.mark.parametrize(
        ("field", "message"),
        [
            (
                {"significant": [2, 0, 0, 0, 0, 0]},
                "column 'significant', A: must be at most the count of the category, 1",
            ),
            ({"significant": [1, 0]}, "column 'significant': must be a list of 6 numbers"),
            ({"other": -1}, "column 'other': a count must be a number from 0 on"),
        ],
    )
    def test_a_bad_field_is_named(self, tmp_path, field, message):
        line = {"reference": "Clear.", "candidate": "Edema.", "counts": [1, 0, 0, 0, 0, 0], **field}
        (tmp_path / "pairs.jsonl").write_text(json.dumps(line) + "\n")
        with pytest.raises(TableError, match=message):
            read_error_records(tmp_path / "pairs.jsonl")
