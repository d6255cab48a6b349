"""Graded reports: reading, writing, derivation from error counts, and the errors of malformed rows."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.data import (
    ErrorRecord,
    GradedReport,
    TableError,
    grade_by_errors,
    read_graded_reports,
    write_graded_reports,
)
from rrg_rewards.schemas import Criterion, ScoringSystem, get_scoring_system

RADCLIQ, MRSCORE = get_scoring_system("radcliq"), get_scoring_system("mrscore")
SCORES = {"false_finding": 1, "omitted_finding": 0.5, "wrong_location": None}
LINE = {"reference": "Clear.", "candidate": "Edema.", "scores": SCORES}
ALL = (1.0, 0.0, 0.5, 2.0, 0.0, 0.0)


def write_lines(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


class TestFiles:
    def test_what_is_not_judged_is_none(self, tmp_path):
        path = write_lines(tmp_path / "graded.jsonl", {**LINE, "comment": "left alone", "source": "me", "tier": "0-2"})
        (report,) = read_graded_reports(path, "radcliq")
        assert report == GradedReport("Clear.", "Edema.", (1.0, 0.5, None, None, None, None), "me", "0-2")
        assert math.isnan(report.total(RADCLIQ))
        assert report.contributions(RADCLIQ)[:2] == (-1.0, -0.5)
        assert all(map(math.isnan, report.contributions(RADCLIQ)[2:]))

    def test_yes_and_no_may_be_told_as_such(self, tmp_path):
        scores = dict.fromkeys(MRSCORE.names, False) | {"grammar": True, "completeness": 0.5}
        path = write_lines(tmp_path / "graded.jsonl", {**LINE, "scores": scores, "total": 90})
        (report,) = read_graded_reports(path, MRSCORE)
        assert report.scores == (0, 0, 0, 0, 0.5, 1, 0)
        assert report.total(MRSCORE) == 90

    @pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
    def test_come_back_from_every_format(self, tmp_path, ending):
        if ending == "parquet":
            pytest.importorskip("pyarrow")
        reports = [
            GradedReport('One\n"two", three', "Edema.", ALL, "judge", "0-2 errors"),
            GradedReport("Clear.", "Edema.", (1.0, None, 0.0, 0.0, 0.0, 0.0), whole="Clear. Normal heart."),
        ]
        path = tmp_path / f"graded.{ending}"
        write_graded_reports(reports, path, "radcliq")
        assert read_graded_reports(path, RADCLIQ) == reports
        with pytest.raises(TableError, match="exists already"):
            write_graded_reports(reports, path, "radcliq")
        write_graded_reports(reports[:1], path, RADCLIQ, overwrite=True)
        assert len(read_graded_reports(path, RADCLIQ)) == 1

    def test_the_total_is_written_where_there_is_one(self, tmp_path):
        reports = [GradedReport("Clear.", "Edema.", ALL), GradedReport("Clear.", "Edema.", (None, *ALL[1:]))]
        write_graded_reports(reports, tmp_path / "graded.jsonl", "radcliq")
        written = [json.loads(line) for line in (tmp_path / "graded.jsonl").read_text().splitlines()]
        assert [row["total"] for row in written] == [-3.5, None]

    def test_scores_of_another_system_are_not_written(self, tmp_path):
        for scores in ((1.0,), (None,), (-1.0, 0.0, 0.0, 0.0, 0.0, 0.0), (-1.0, None, 0.0, 0.0, 0.0, 0.0)):
            with pytest.raises(ValueError, match=r"has 6 criteria, got 1|must lie in \[0, inf\]"):
                write_graded_reports([GradedReport("Clear.", "Edema.", scores)], tmp_path / "graded.jsonl", RADCLIQ)
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"scores": {"false_findings": 1}}, "unknown criterion 'false_findings'; did you mean 'false_finding'"),
            ({"scores": {"false_finding": -1}}, r"false_finding must lie in \[0, inf\], got -1"),
            ({"scores": {"false_finding": True}}, "false_finding must be a number .* got bool"),
            ({"scores": {"false_finding": "Edema."}}, "false_finding must be a number .* got str$"),
            ({"scores": {}}, "no criterion was judged; leave the row out"),
            ({"scores": {"false_finding": None}}, "no criterion was judged"),
            ({"scores": [1, 0, 0, 0, 0, 0]}, "must be an object of numbers by criterion, got list"),
            ({"scores": None}, "must be an object of numbers by criterion, got NoneType"),
            ({"scores": "{'false_finding': 1}"}, "is no JSON object"),
            ({"reference": None}, "column 'reference': is missing"),
            ({"candidate": 3}, "column 'candidate': must be a report text"),
            ({"total": "many"}, "column 'total': must be a number, got str"),
            ({"total": 0}, r"column 'total': is 0, but the sub-scores give a total in \[-inf, -1.5\] under radcliq"),
        ],
    )
    def test_a_bad_row_is_named(self, tmp_path, change, message):
        path = write_lines(tmp_path / "graded.jsonl", LINE, {**LINE, **change})
        with pytest.raises(TableError, match=rf"graded\.jsonl: data row 2 \(line 2\).*{message}"):
            read_graded_reports(path, "radcliq")

    @pytest.mark.parametrize(("total", "fits"), [(-3.5, True), (-3.495, True), (-4, False), (3.5, False)])
    def test_the_total_must_be_that_of_the_scores(self, tmp_path, total, fits):
        path = write_lines(
            tmp_path / "graded.jsonl", {**LINE, "scores": dict(zip(RADCLIQ.names, ALL, strict=True)), "total": total}
        )
        if fits:
            assert read_graded_reports(path, "radcliq")[0].total(RADCLIQ) == -3.5
        else:
            with pytest.raises(TableError, match=rf"row 1 .*is {total:g}, but the sub-scores give -3\.5 under radcliq"):
                read_graded_reports(path, "radcliq")

    def test_a_total_of_some_scores_must_be_possible(self, tmp_path):
        scores = dict.fromkeys(MRSCORE.names, 0) | {"completeness": 1, "grammar": None}
        path = write_lines(tmp_path / "graded.jsonl", *({**LINE, "scores": scores, "total": t} for t in (90, 85, None)))
        assert len(read_graded_reports(path, "mrscore")) == 3
        write_lines(path, {**LINE, "scores": scores, "total": 95})
        with pytest.raises(TableError, match=r"is 95, but the sub-scores give a total in \[85, 90\] under mrscore"):
            read_graded_reports(path, "mrscore")

    def test_a_missing_column_is_named(self, tmp_path):
        path = write_lines(tmp_path / "graded.jsonl", {"reference": "Clear.", "candidate": "Edema.", "score": {}})
        with pytest.raises(TableError, match="unknown column 'scores'; did you mean 'score'"):
            read_graded_reports(path, "radcliq")


counts = st.one_of(st.none(), st.integers(0, 9), st.floats(0, 9))


class TestErrors:
    @given(st.tuples(*[counts] * 6))
    def test_radcliq_takes_counts_as_they_are(self, given):
        graded = grade_by_errors(ErrorRecord("Clear.", "Edema.", given, "made"), RADCLIQ)
        assert graded == GradedReport("Clear.", "Edema.", given, "made")

    @given(st.tuples(*[counts] * 6))
    def test_mrscore_asks_whether_there_is_any(self, given):
        a, b, c, d, e, f = given
        scores = grade_by_errors(ErrorRecord("Clear.", "Edema.", given), MRSCORE).scores
        for score, of in zip(scores, ([a, b], [c], [d], [e], [b, f], [], []), strict=True):
            if any(count for count in of):
                assert score == 1
            else:
                assert score == (None if None in of or not of else 0)
        MRSCORE.contributions([score or 0 for score in scores])

    def test_counts_end_with_the_range_and_grades_are_not_counted(self):
        system = ScoringSystem(
            "own",
            (
                Criterion("few", "At most three.", "count", range=(0, 3), errors=("false_finding", "omitted_finding")),
                Criterion("style", "A grade.", "grade", range=(0, 3), errors=("false_finding",)),
                Criterion("other", "Of no known error.", "yes_no"),
            ),
        )
        assert grade_by_errors(ErrorRecord("", "", (1, 1, 0, 0, 0, 0)), system).scores == (2, None, None)
        assert grade_by_errors(ErrorRecord("", "", (9, 1, 0, 0, 0, 0)), system).scores == (3, None, None)
        # Eight of the one may be nine in all, or more.
        assert grade_by_errors(ErrorRecord("", "", (2, None, 0, 0, 0, 0)), system).scores == (None, None, None)

    def test_errors_are_no_marks(self):
        criterion = Criterion("findings", "How many findings are right?", "count", errors=("omitted_finding",))
        with pytest.raises(ValueError, match="marks adds sub-scores to its base; findings must not list"):
            grade_by_errors(ErrorRecord("", "", (0,) * 6), ScoringSystem("marks", (criterion,), direction="add"))
        free = ScoringSystem("marks", (Criterion("style", "Good style?", "yes_no"),), direction="add")
        assert grade_by_errors(ErrorRecord("", "", (0,) * 6), free).scores == (None,)
