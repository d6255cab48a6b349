"""The training form of CRIMSON: the documented formula in exact arithmetic, and its guarantees."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from rrg_rewards.functional import (
    CrimsonAttributeError,
    CrimsonEvaluation,
    CrimsonFinding,
    StatedDetails,
    StatedPlace,
    crimson_training_score,
    crimson_training_statistics,
)

WEIGHTS = {
    "urgent": Fraction(1),
    "actionable_not_urgent": Fraction(1, 2),
    "not_actionable_not_urgent": Fraction(1, 4),
    "benign_expected": Fraction(0),
}
MASS = "actionable_not_urgent"

levels = st.sampled_from([*WEIGHTS])
places = st.builds(StatedPlace, st.sampled_from(["left", "right", ""]), st.sampled_from(["upper", "lower", ""]))
details = st.builds(
    StatedDetails,
    st.sampled_from([0.25, 0.5, 0.75, 1.0]),
    st.lists(places.filter(any), max_size=3, unique=True).map(tuple),
    st.booleans(),
    st.integers(1, 3),
)


def finding(id_: str, level: str, stated: StatedDetails | None = None) -> CrimsonFinding:
    return CrimsonFinding(id_, "text", level, stated=stated)


@st.composite
def reports(draw: st.DrawFn, letter: str, stated: bool = True) -> tuple[CrimsonFinding, ...]:
    chosen = draw(st.lists(st.tuples(levels, details if stated else st.none()), max_size=5))
    return tuple(finding(f"{letter}{index}", *one) for index, one in enumerate(chosen))


def compared(
    reference: tuple[CrimsonFinding, ...],
    predicted: tuple[CrimsonFinding, ...],
    matches: list[tuple[str, str]],
    errors: tuple[CrimsonAttributeError, ...] = (),
) -> CrimsonEvaluation:
    ours, theirs = {r for r, _ in matches}, {p for _, p in matches}
    return CrimsonEvaluation(
        reference,
        predicted,
        tuple(matches),
        tuple(one.id for one in predicted if one.id not in theirs),
        tuple(one.id for one in reference if one.id not in ours),
        errors,
    )


def matched(
    ours: StatedDetails | None, theirs: StatedDetails | None, *errors: str, level: str = MASS
) -> CrimsonEvaluation:
    """A finding of the reference that is found, with significant attribute errors of these types."""
    found = tuple(CrimsonAttributeError("R0", "P0", "significant", (kind,)) for kind in errors)
    return compared((finding("R0", level, ours),), (finding("P0", level, theirs),), [("R0", "P0")], found)


def matched_score(*args: Any, **options: Any) -> float:
    return crimson_training_score(matched(*args, **options)).item()


@st.composite
def evaluations(draw: st.DrawFn, stated: bool = True, one_to_one: bool = False) -> CrimsonEvaluation:
    reference, predicted = draw(reports("R", stated)), draw(reports("P", stated))
    if one_to_one:
        number = draw(st.integers(0, min(len(reference), len(predicted))))
        matches = [(f"R{k}", f"P{k}") for k in range(number)]
        return compared(reference, predicted, matches)
    pairs = [(r.id, p.id) for r in reference for p in predicted]
    matches = draw(st.lists(st.sampled_from(pairs), max_size=6)) if pairs else []
    types = st.lists(st.sampled_from(["location", "severity", "certainty"]), max_size=2).map(tuple)
    severities = st.sampled_from(["significant", "negligible", "huge"])
    errors = tuple(CrimsonAttributeError(r, p, draw(severities), draw(types)) for r, p in matches)
    return compared(reference, predicted, matches, errors)


def swapped(evaluation: CrimsonEvaluation) -> CrimsonEvaluation:
    return CrimsonEvaluation(
        evaluation.predicted_findings,
        evaluation.reference_findings,
        tuple((p, r) for r, p in evaluation.matched_findings),
        evaluation.missing_findings,
        evaluation.false_findings,
    )


prices = st.sampled_from([1.0, 2.0, 3.0])


@given(evaluations(), prices)
def test_credit_is_at_most_the_price(evaluation: CrimsonEvaluation, false_price: float) -> None:
    statistics = crimson_training_statistics([evaluation], false_price=false_price)
    assert -statistics.price < statistics.credit <= statistics.price * (1 + 1e-12)
    assert statistics.price > 0
    is_abnormal = any(WEIGHTS[one.clinical_significance] for one in evaluation.reference_findings)
    score = statistics.credit / statistics.price
    assert (0 <= score <= 1 + 1e-12) if is_abnormal else (-1 < score <= 0)


@given(evaluations(stated=False, one_to_one=True), prices)
def test_the_score_is_the_documented_formula_in_exact_arithmetic(
    evaluation: CrimsonEvaluation, false_price: float
) -> None:
    ours = [WEIGHTS[one.clinical_significance] for one in evaluation.reference_findings]
    theirs = [WEIGHTS[one.clinical_significance] for one in evaluation.predicted_findings]
    matched = len(evaluation.matched_findings)
    credit = sum(map(min, ours[:matched], theirs[:matched]), Fraction(0))
    invented = sum(theirs, Fraction(0))
    lost = invented / (Fraction(1, 4) + invented)
    price = sum(ours) + sum(theirs[:matched]) + Fraction(false_price) * sum(theirs[matched:])
    expected = 2 * credit / price if sum(ours) else -lost
    credit, price, _ = crimson_training_statistics([evaluation], false_price=false_price)
    assert (credit / price).item() == pytest.approx(float(expected), abs=1e-12)


@given(reports("R"))
def test_a_blank_report_earns_nothing_whatever_the_reference(reference: tuple[CrimsonFinding, ...]) -> None:
    assert crimson_training_score(compared(reference, (), [])) == 0


@given(reports("R"))
def test_a_copy_earns_the_maximum(reference: tuple[CrimsonFinding, ...]) -> None:
    assume(any(WEIGHTS[one.clinical_significance] for one in reference))
    copy = tuple(replace(one, id=f"P{one.id}") for one in reference)
    evaluation = compared(reference, copy, [(one.id, f"P{one.id}") for one in reference])
    assert crimson_training_score(evaluation).item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("false_price", [1.0, 2.0])
def test_stating_a_finding_pays_from_the_documented_probability_on(false_price: float) -> None:
    reference, true = (tuple(finding(f"{letter}{index}", MASS) for index in range(200)) for letter in "RP")

    def score(stated: int, right: int) -> float:
        matches = [(f"R{index}", f"P{index}") for index in range(right)]
        evaluation = compared(reference, true[:stated], matches)
        return float(torch.div(*crimson_training_statistics([evaluation], false_price=false_price)[:2]))

    without, right, wrong = score(100, 100), score(101, 101), score(101, 100)
    least = (without - wrong) / (right - wrong)
    # The rule is that of a finding that is a small part of the report.
    assert least == pytest.approx(false_price * without / (2 + (false_price - 1) * without), abs=0.01)


@given(evaluations(), levels, details)
def test_a_false_finding_never_raises_the_score(
    evaluation: CrimsonEvaluation, level: str, stated: StatedDetails
) -> None:
    more = replace(
        evaluation,
        predicted_findings=(*evaluation.predicted_findings, finding("P9", level, stated)),
        false_findings=(*evaluation.false_findings, "P9"),
    )
    before, after = crimson_training_score([evaluation, more])
    assert after <= before
    is_abnormal = any(WEIGHTS[one.clinical_significance] for one in evaluation.reference_findings)
    if WEIGHTS[level] and (before > 0 or not is_abnormal):
        assert after < before


@given(evaluations(), levels, details)
def test_a_true_finding_never_lowers_the_score(
    evaluation: CrimsonEvaluation, level: str, stated: StatedDetails
) -> None:
    # The same pair, once with a finding that is missed and once with the same one found.
    reference = (*evaluation.reference_findings, finding("R9", level, stated))
    missed = replace(evaluation, reference_findings=reference, missing_findings=(*evaluation.missing_findings, "R9"))
    found = replace(
        evaluation,
        reference_findings=reference,
        predicted_findings=(*evaluation.predicted_findings, finding("P9", level, stated)),
        matched_findings=(*evaluation.matched_findings, ("R9", "P9")),
    )
    before, after = crimson_training_score([missed, found])
    assert after >= before - 1e-12


@given(evaluations(stated=False, one_to_one=True))
def test_a_missing_finding_costs_what_an_invented_one_costs(evaluation: CrimsonEvaluation) -> None:
    other = swapped(evaluation)
    for one in (evaluation, other):
        assume(any(WEIGHTS[each.clinical_significance] for each in one.reference_findings))
    first, second = crimson_training_score([evaluation, other])
    assert first.item() == pytest.approx(second.item(), abs=1e-12)


@pytest.mark.parametrize("truth", [0.25, 0.5, 0.75])
def test_the_expected_certainty_loss_is_least_at_the_true_certainty(truth: float) -> None:
    def expected(stated: float) -> float:
        claim = finding("P0", MASS, StatedDetails(stated))
        right, wrong = (compared((finding("R0", MASS),), (claim,), found) for found in ([("R0", "P0")], []))
        loss = crimson_training_statistics([right, wrong]).certainty_loss
        return float(truth * loss[0] + (1 - truth) * loss[1])

    losses = {stated: expected(stated) for stated in (0.05, 0.25, 0.5, 0.75, 1.0)}
    assert min(losses, key=losses.__getitem__) == truth


@given(st.sampled_from([0.25, 0.5, 0.75]), levels)
def test_the_score_is_greatest_at_the_certainty_of_the_reference(certainty: float, level: str) -> None:
    assume(WEIGHTS[level])
    scores = {
        stated: matched_score(StatedDetails(certainty), StatedDetails(stated), level=level)
        for stated in (0.25, 0.5, 0.75, 1.0)
    }
    assert scores.pop(certainty) == pytest.approx(1)
    assert max(scores.values()) < 1


@given(evaluations(stated=False, one_to_one=True), st.sampled_from([0.25, 0.5, 0.75]))
def test_a_hedge_earns_less_when_right_and_costs_less_when_wrong(evaluation: CrimsonEvaluation, doubt: float) -> None:
    reference = (*evaluation.reference_findings, finding("R9", MASS))

    def score(stated: float, is_right: bool) -> float:
        claim = finding("P9", MASS, StatedDetails(stated))
        matches = [*evaluation.matched_findings, *([("R9", "P9")] if is_right else [])]
        return crimson_training_score(compared(reference, (*evaluation.predicted_findings, claim), matches)).item()

    assert score(doubt, True) < score(1.0, True)
    assert score(doubt, False) >= score(1.0, False)
    normal = [compared((), (finding("P9", MASS, StatedDetails(stated)),), []) for stated in (doubt, 1.0)]
    hedged, asserted = crimson_training_score(normal)
    assert hedged > asserted


def test_each_wrong_place_costs_a_share() -> None:
    lobes = [StatedPlace("right", level) for level in ("upper", "middle", "lower")]
    lobes += [StatedPlace("left", level) for level in ("upper", "lower")]

    def score(right: int, stated: int) -> float:
        return matched_score(*(StatedDetails(places=tuple(lobes[:number])) for number in (right, stated)))

    # The quality is (1 + A) / 2 with precision times recall A.
    expected = [(1 + 1 / stated) / 2 for stated in range(1, 6)]
    assert [score(1, stated) for stated in range(1, 6)] == pytest.approx(expected)
    assert score(3, 5) == score(5, 3) == pytest.approx((1 + 3 / 5) / 2)


def test_one_statement_of_several_places_is_right_for_findings_in_each_of_them() -> None:
    upper, lower = StatedPlace("right", "upper"), StatedPlace("left", "lower")
    ours = tuple(finding(f"R{k}", MASS, StatedDetails(places=(place,))) for k, place in enumerate((upper, lower)))
    both = StatedDetails(places=(upper, lower), times=2)
    theirs = tuple(finding(f"P{k}", MASS, both) for k in range(2))
    shared = compared(ours, theirs[:1], [("R0", "P0"), ("R1", "P0")])
    assert crimson_training_score(shared) == 1
    # The same statement costs twice a finding where both places are wrong.
    false = compared((finding("R0", MASS),), theirs[:1], [])
    assert crimson_training_statistics([false]).price == 0.5 + 2 * 0.5


@pytest.mark.parametrize(
    ("left_out", "quality"),
    [
        (StatedDetails(places=(StatedPlace("left", "lower"),), has_size=True), 1),
        (StatedDetails(places=(StatedPlace("left"),), has_size=True), 2 / 3),
        (StatedDetails(has_size=True), 7 / 12),
        (StatedDetails(places=(StatedPlace("", "lower"),), has_size=True), 3 / 4),
        (StatedDetails(places=(StatedPlace("left", "lower"),)), 3 / 4),
        (StatedDetails(), 7 / 16),
    ],
)
def test_what_a_place_or_size_leaves_out_costs_what_a_guess_loses(left_out: StatedDetails, quality: float) -> None:
    ours = StatedDetails(places=(StatedPlace("left", "lower"),), has_size=True)
    assert matched_score(ours, left_out) == pytest.approx(quality)


def test_a_list_of_places_and_an_open_place_earn_what_a_guess_earns() -> None:
    def earned(*places: StatedPlace) -> float:
        """The mean score of stated places if each place of both sides and three levels is equally likely."""
        theirs = StatedDetails(places=places)
        return sum(matched_score(StatedDetails(places=(place,)), theirs) for place in every) / len(every)

    every = [StatedPlace(side, level) for side in ("left", "right") for level in ("upper", "middle", "lower")]
    sides = StatedPlace("left"), StatedPlace("right")
    guess = earned(every[0])
    for places in ((), sides[:1], sides, every, every[:3], [StatedPlace("", "upper")]):
        assert earned(*places) == pytest.approx(guess)


def test_errors_with_a_price_of_their_own_are_not_charged_twice() -> None:
    left, right = (StatedDetails(places=(StatedPlace(side),)) for side in ("left", "right"))
    assert matched_score(left, right, "location", "certainty") == pytest.approx(0.5)
    # An error of location beyond sides and levels, as of a rib, keeps its published price.
    assert matched_score(left, left, "location") == pytest.approx(0.5)
    assert matched_score(left, right, "severity") == pytest.approx(0.25)
    # A judge that states no details: the published price.
    assert matched_score(None, None, "location") == pytest.approx(0.5)
    assert matched_score(None, None, "location", "certainty") == pytest.approx(1 / 3)


def test_published_checks_accept_ids_that_no_finding_has() -> None:
    answer = {
        "reference_findings": [{"id": "R1", "clinical_significance": "urgent"}],
        "matched_findings": [{"ref_id": "R1", "pred_id": "P7"}],
        "errors": {"missing_findings": ["R9"]},
    }
    assert crimson_training_score(answer, checks="published") == 1
    with pytest.raises(ValueError, match=r"evaluations\[0\]: matched_findings has the id 'P7'"):
        crimson_training_score([answer])
    assert crimson_training_score([]).shape == torch.Size([0])


@pytest.mark.parametrize("false_price", [0.5, math.nan])
def test_false_price_is_at_least_1(false_price: float) -> None:
    with pytest.raises(ValueError, match="false_price must be at least 1"):
        crimson_training_statistics([], false_price=false_price)
