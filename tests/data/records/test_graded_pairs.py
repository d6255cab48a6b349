"""Pairs of graded reports: properties of every pair, and declined pairs."""

import math
import random
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.data import GradedReport, grade_by_errors, graded_pairs, inject_phantom_errors, phantom_studies
from rrg_rewards.data.records.error_records import ErrorRecord
from rrg_rewards.functional import margin_reward_enforcement_loss
from rrg_rewards.schemas import Criterion, ScoringSystem, get_scoring_system

RADCLIQ = get_scoring_system("radcliq")
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
def test_every_pair_is_of_one_reference_and_in_order(drawn):
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
def test_every_two_candidates_of_a_reference_are_told_of_once(drawn):
    made = graded_pairs(drawn, SYSTEM)
    expected = sum(first.reference == second.reference for first, second in combinations(drawn, 2))
    assert len(made.pairs) + made.ties + made.incomparable == expected
    assert made.capped == 0


@given(reports)
def test_the_loss_takes_every_pair(drawn):
    pairs = graded_pairs(drawn, SYSTEM).pairs
    if pairs:
        accepted = torch.tensor([pair.accepted_scores for pair in pairs])
        rejected = torch.tensor([pair.rejected_scores for pair in pairs])
        loss = margin_reward_enforcement_loss(accepted.nan_to_num(), rejected.nan_to_num(), accepted, rejected)
        assert float(loss) == pytest.approx(0, abs=1e-4)


@given(reports, st.integers(1, 4), st.integers(0, 3), st.randoms(use_true_random=False))
def test_a_cap_keeps_the_same_pairs_in_any_order(drawn, cap, seed, shuffle):
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
def test_a_least_margin_declines_what_is_nearer(drawn, least):
    everything, far = graded_pairs(drawn, SYSTEM), graded_pairs(drawn, SYSTEM, min_margin=least)
    assert far.pairs == [pair for pair in everything.pairs if pair.margin > least - 1e-5]
    assert far.ties == everything.ties + len(everything.pairs) - len(far.pairs)


def test_another_seed_keeps_others():
    drawn = [GradedReport("Clear.", f"Candidate {n}.", (n, 0, 0)) for n in range(10)]
    kept = {
        tuple(p.accepted for p in graded_pairs(drawn, SYSTEM, max_per_reference=3, seed=seed).pairs)
        for seed in range(5)
    }
    assert len(kept) > 1


def test_the_published_figure_three_candidates_make_three_pairs():
    drawn = [GradedReport("Clear.", text, (n, 0, 0), "judge") for n, text in ((4, "Bad."), (1, "Good."), (3, "Fair."))]
    made = graded_pairs(drawn, SYSTEM)
    assert [(p.accepted, p.rejected, p.margin) for p in made.pairs] == [
        ("Good.", "Bad.", 6.0),
        ("Fair.", "Bad.", 2.0),
        ("Good.", "Fair.", 4.0),
    ]
    assert {p.source for p in made.pairs} == {"judge"}


def test_a_margin_of_one_criterion_may_be_negative():
    (pair,) = graded_pairs([GradedReport("R", "A", (2, 0, 0)), GradedReport("R", "B", (1, 1, 0))], SYSTEM).pairs
    assert pair.accepted == "B"
    assert pair.margins == pytest.approx((2, -0.3, 0))


def test_criteria_judged_in_one_alone_do_not_count():
    drawn = [
        GradedReport("R", "A", (3, 0, None), "me"),
        GradedReport("R", "B", (None, 1, 0.5), "you"),
        GradedReport("R", "C", (1, None, None)),
    ]
    made = graded_pairs(drawn, SYSTEM)
    assert [(p.accepted, p.rejected, p.source) for p in made.pairs] == [("A", "B", "me+you"), ("C", "A", "me")]
    assert (made.ties, made.incomparable) == (0, 1)


def test_what_differs_by_rounding_is_a_tie():
    # 3 · 0.1 is not 0.3 in floating point.
    first, second = GradedReport("R", "A", (0, 0, 0.3)), GradedReport("R", "B", (0, 0, 3 * 0.1))
    assert first.contributions(SYSTEM) != second.contributions(SYSTEM)
    assert graded_pairs([first, second], SYSTEM).ties == 1


def test_a_report_is_not_better_than_itself():
    drawn = [GradedReport("R", "A", (2, 0, 0), "one"), GradedReport("R", "A", (0, 0, 0), "other")]
    assert graded_pairs(drawn, SYSTEM).ties == 1


def test_injected_reports_make_pairs():
    drawn = [
        grade_by_errors(ErrorRecord(made.reference, made.candidate, made.counts, "phantom"), RADCLIQ)
        for study in phantom_studies(10)
        for made in (inject_phantom_errors(study, seed=seed).report for seed in range(4))
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
def test_refuses_what_it_cannot_use(changed, message):
    with pytest.raises(ValueError, match=message):
        graded_pairs(**{"reports": [GradedReport("R", "A", (0, 0, 0))], "system": SYSTEM, **changed})
