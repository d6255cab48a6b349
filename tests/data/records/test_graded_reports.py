"""Graded reports: reading, writing, derivation from error counts, and the errors of malformed rows."""

import json
import math
import random
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.data import (
    ErrorRecord,
    GradedReport,
    Table,
    TableError,
    grade_by_errors,
    graded_pairs,
    phantom_studies,
    read_graded_reports,
    write_table,
)
from rrg_rewards.findings import inject_errors
from rrg_rewards.functional import margin_reward_enforcement_loss
from rrg_rewards.schemas import Criterion, ScoringSystem, get_scoring_system

RADCLIQ, MRSCORE = get_scoring_system("radcliq"), get_scoring_system("mrscore")
SCORES = {"false_finding": 1, "omitted_finding": 0.5, "wrong_location": None}
LINE = {"reference": "Clear.", "candidate": "Edema.", "scores": SCORES}
ALL = (1.0, 0.0, 0.5, 2.0, 0.0, 0.0)


def write_lines(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


class TestReadGradedReports:
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
        write_table(Table.from_records(report.to_record(RADCLIQ) for report in reports), path)
        assert read_graded_reports(path, RADCLIQ) == reports

    def test_a_record_has_the_total_where_there_is_one(self):
        reports = [GradedReport("Clear.", "Edema.", ALL), GradedReport("Clear.", "Edema.", (None, *ALL[1:]))]
        assert [report.to_record(RADCLIQ)["total"] for report in reports] == [-3.5, None]

    @pytest.mark.parametrize("scores", [(1.0,), (None,), (-1.0, *ALL[1:]), (-1.0, None, *ALL[2:])])
    def test_scores_of_another_system_have_no_record(self, scores):
        with pytest.raises(ValueError, match=r"has 6 criteria, got 1|must lie in \[0, inf\]"):
            GradedReport("Clear.", "Edema.", scores).to_record(RADCLIQ)

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


class TestGradeByErrors:
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


SYSTEM = ScoringSystem(
    "own",
    (
        Criterion("lesions", "How many lesions are wrong?", "count", weight=2),
        Criterion("devices", "Is a device wrong?", "yes_no", weight=0.3),
        Criterion("style", "How bad is the style?", "grade", weight=0.1, range=(0, 1)),
    ),
    base=10,
)
CANDIDATES = [f"Candidate {letter}." for letter in "ABCDEFGH"]


def scores():
    known = st.tuples(st.integers(0, 3), st.integers(0, 1), st.sampled_from([0, 0.1, 0.2, 0.3, 1 / 3, 0.6]))
    return st.tuples(known, st.tuples(*[st.booleans()] * 3)).map(
        lambda drawn: tuple(None if missing else float(score) for score, missing in zip(*drawn, strict=True))
    )


reports = st.lists(
    st.builds(
        GradedReport,
        st.sampled_from(["Reference 1.", "Reference 2.", "Reference 3."]),
        st.sampled_from(CANDIDATES),
        scores(),
        st.sampled_from(["", "phantom", "judge"]),
    ),
    max_size=12,
)


def key(report):
    return report.reference, report.candidate


@given(reports)
def test_graded_pairs_every_pair_is_of_one_reference_and_in_order(drawn):
    made = graded_pairs(drawn, SYSTEM)
    known = {}
    for report in drawn:
        known.setdefault(key(report), []).append(report.contributions(SYSTEM))
    for pair in made.pairs:
        assert pair.accepted != pair.rejected
        accepted, rejected = pair.accepted_scores, pair.rejected_scores
        assert repr(accepted) in map(repr, known[pair.reference, pair.accepted])
        assert repr(rejected) in map(repr, known[pair.reference, pair.rejected])
        both = [j for j in range(3) if not math.isnan(accepted[j]) and not math.isnan(rejected[j])]
        assert sum(accepted[j] for j in both) > sum(rejected[j] for j in both)
        for j, margin in enumerate(pair.margins):
            assert margin == accepted[j] - rejected[j] if j in both else math.isnan(margin)
        assert pair.margin == pytest.approx(sum(pair.margins[j] for j in both), abs=1e-12)
        assert pair.margin > 0
    references = [pair.reference for pair in made.pairs]
    assert references == sorted(references, key=list(dict.fromkeys(references)).index)


@given(reports)
def test_graded_pairs_every_two_candidates_of_a_reference_are_told_of_once(drawn):
    made = graded_pairs(drawn, SYSTEM)
    expected = sum(first.reference == second.reference for first, second in combinations(drawn, 2))
    assert len(made.pairs) + made.ties + made.incomparable == expected
    assert made.capped == 0


@given(reports)
def test_graded_pairs_are_taken_by_the_loss(drawn):
    pairs = graded_pairs(drawn, SYSTEM).pairs
    if pairs:
        accepted = torch.tensor([pair.accepted_scores for pair in pairs])
        rejected = torch.tensor([pair.rejected_scores for pair in pairs])
        loss = margin_reward_enforcement_loss(accepted.nan_to_num(), rejected.nan_to_num(), accepted, rejected)
        assert float(loss) == pytest.approx(0, abs=1e-4)


@given(reports, st.integers(1, 4), st.integers(0, 3), st.randoms(use_true_random=False))
def test_graded_pairs_under_a_cap_are_the_same_in_any_order(drawn, cap, seed, shuffle):
    def texts(pairs):
        return {(pair.reference, pair.accepted, pair.rejected) for pair in pairs}

    unique = list({key(report): report for report in drawn}.values())
    everything = graded_pairs(unique, SYSTEM)
    kept = graded_pairs(unique, SYSTEM, max_per_reference=cap, seed=seed)
    assert kept == graded_pairs(unique, SYSTEM, max_per_reference=cap, seed=seed)
    for reference in {report.reference for report in unique}:
        of_all = [pair for pair in everything.pairs if pair.reference == reference]
        of_kept = [pair for pair in kept.pairs if pair.reference == reference]
        assert len(of_kept) == min(cap, len(of_all))
        assert texts(of_kept) <= texts(of_all)
    assert kept.capped == len(everything.pairs) - len(kept.pairs)
    assert (kept.ties, kept.incomparable) == (everything.ties, everything.incomparable)
    shuffle.shuffle(unique)
    again = graded_pairs(unique, SYSTEM, max_per_reference=cap, seed=seed)
    assert texts(again.pairs) == texts(kept.pairs)


@given(reports, st.sampled_from([0.1, 0.3, 1.0, 2.0]))
def test_graded_pairs_with_a_least_margin_decline_what_is_nearer(drawn, least):
    everything, far = graded_pairs(drawn, SYSTEM), graded_pairs(drawn, SYSTEM, min_margin=least)
    assert far.pairs == [pair for pair in everything.pairs if pair.margin > least - 1e-5]
    assert far.ties == everything.ties + len(everything.pairs) - len(far.pairs)


def test_graded_pairs_another_seed_keeps_others():
    drawn = [GradedReport("Clear.", f"Candidate {n}.", (n, 0, 0)) for n in range(10)]
    kept = {
        tuple(p.accepted for p in graded_pairs(drawn, SYSTEM, max_per_reference=3, seed=seed).pairs)
        for seed in range(5)
    }
    assert len(kept) > 1


def test_graded_pairs_of_three_candidates_are_three_as_published():
    drawn = [GradedReport("Clear.", text, (n, 0, 0), "judge") for n, text in ((4, "Bad."), (1, "Good."), (3, "Fair."))]
    made = graded_pairs(drawn, SYSTEM)
    assert [(p.accepted, p.rejected, p.margin) for p in made.pairs] == [
        ("Good.", "Bad.", 6.0),
        ("Fair.", "Bad.", 2.0),
        ("Good.", "Fair.", 4.0),
    ]
    assert {p.source for p in made.pairs} == {"judge"}


def test_graded_pairs_may_have_a_negative_margin_in_one_criterion():
    (pair,) = graded_pairs([GradedReport("R", "A", (2, 0, 0)), GradedReport("R", "B", (1, 1, 0))], SYSTEM).pairs
    assert pair.accepted == "B"
    assert pair.margins == pytest.approx((2, -0.3, 0))


def test_graded_pairs_criteria_judged_in_one_alone_do_not_count():
    drawn = [
        GradedReport("R", "A", (3, 0, None), "me"),
        GradedReport("R", "B", (None, 1, 0.5), "you"),
        GradedReport("R", "C", (1, None, None)),
    ]
    made = graded_pairs(drawn, SYSTEM)
    assert [(p.accepted, p.rejected, p.source) for p in made.pairs] == [("A", "B", "me+you"), ("C", "A", "me")]
    assert (made.ties, made.incomparable) == (0, 1)


def test_graded_pairs_what_differs_by_rounding_is_a_tie():
    # 3 · 0.1 is not 0.3 in floating point.
    first, second = GradedReport("R", "A", (0, 0, 0.3)), GradedReport("R", "B", (0, 0, 3 * 0.1))
    assert first.contributions(SYSTEM) != second.contributions(SYSTEM)
    assert graded_pairs([first, second], SYSTEM).ties == 1


def test_graded_pairs_have_no_report_twice():
    drawn = [GradedReport("R", "A", (2, 0, 0), "one"), GradedReport("R", "A", (0, 0, 0), "other")]
    assert graded_pairs(drawn, SYSTEM).ties == 1


def test_graded_pairs_injected_reports_make_pairs():
    drawn = [
        grade_by_errors(ErrorRecord(made.reference, made.candidate, made.counts, "phantom"), RADCLIQ)
        for study in phantom_studies(10, style="compact")
        for made in (inject_errors(study.report, seed=seed) for seed in range(4))
        if made is not None
    ]
    random.Random(0).shuffle(drawn)
    made = graded_pairs(drawn, RADCLIQ)
    assert len(made.pairs) > 20
    counts = {key(report): sum(report.scores) for report in drawn}
    for pair in made.pairs:
        assert counts[pair.reference, pair.accepted] < counts[pair.reference, pair.rejected]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"min_margin": -1}, "min_margin must be a finite number of at least 0, got -1"),
        ({"min_margin": math.nan}, "min_margin must be a finite number of at least 0, got nan"),
        ({"max_per_reference": 0}, "max_per_reference must be at least 1, or None for all pairs, got 0"),
        ({"system": RADCLIQ}, "radcliq has 6 criteria, got 3 sub-scores"),
    ],
)
def test_graded_pairs_refuse_what_they_cannot_use(changed, message):
    with pytest.raises(ValueError, match=message):
        graded_pairs(**{"reports": [GradedReport("R", "A", (0, 0, 0))], "system": SYSTEM, **changed})
