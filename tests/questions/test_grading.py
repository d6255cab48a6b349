"""CT-FineBench: answers are compared by type."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.questions.grading import compare_answers, is_open_bound, is_vacuous_bound, largest_measure
from tests.helpers.tables import read_tables

TABLES = read_tables(__file__)

KINDS = {"numbers": "numeric", "places": "location", "values": "categorical", "existence": "existence"}


@pytest.mark.parametrize(
    ("kind", "prediction", "target", "grade"),
    [(kind, *row) for table, kind in KINDS.items() for row in TABLES[table]],
)
def test_compare_answers(kind: Any, prediction: str | None, target: str, grade: float) -> None:
    assert compare_answers(prediction, target, kind) == grade


# (prediction, target, type, grade by overlap)
OVERLAPS = [
    ("right upper lobe", "right upper lobe", "location", 1.0),
    ("both upper lobes", "right upper lobe", "location", 0.5 * 3 / 4),
    ("right upper lobe", "both upper lobes", "location", 0.5),
    ("right upper, middle and lower lobe, left upper and lower lobe", "left upper lobe", "location", 0.0),
    ("right upper and middle lobe, left upper and lower lobe", "left upper lobe", "location", 0.25 * 1 / 4),
    ("right or left lung", "right lung", "location", 0.0),
    ("both lungs", "both lower lobes", "location", 0.5),
    ("both hila", "right hilum", "location", 0.5),
    ("left upper lobe", "right upper, middle and lower lobe, left upper and lower lobe", "location", 0.2),
    ("right upper, middle and lower lobe, left upper and lower lobe", "both lungs", "location", 1.0),
    ("both lungs", "left upper lobe", "location", 0.0),
    ("right lung", "right lower lobe", "location", 0.5),
    ("right upper lobe posterior segment", "right upper lobe", "location", 1.0),
    ("central and peripheral right upper lobe", "peripheral right upper lobe", "location", 0.5),
    ("left", "right lower lobe", "location", 0.0),
    ("not in the right lung", "right lung", "location", 0.0),
    ("solid", "solid", "categorical", 1.0),
    ("solid, part-solid, ground-glass, calcified, cavitary", "solid", "categorical", 0.2 * 9 / 13),
    ("solid", "solid, calcified", "categorical", 0.5),
    ("minimal, mild, moderate, severe", "minimal", "categorical", 0.0),
    ("minimal, mild, moderate, severe", "minimal, mild, moderate, severe", "categorical", 1.0),
    ("mild or moderate", "mild", "categorical", 0.5 * 2 / 3),
    ("calcified or not calcified", "calcified", "categorical", 0.0),
    ("smooth or irregular", "smooth", "categorical", 0.5 * 4 / 5),
    ("mild", "minimal", "categorical", 0.5),
    ("solid, smooth", "solid, spiculated", "categorical", 1 / 3),
    ("solid spiculated", "solid", "categorical", 1.0),
    ("a nodule that is solid", "solid", "categorical", 1.0),
    ("platelike", "linear", "categorical", 1.0),
    ("linear", "platelike", "categorical", 0.5),
    ("stable, new", "new", "categorical", 0.5 * 2 / 3),
    ("less than 100 mm", "5 mm", "numeric", 0.01),
    ("more than 1 mm", "5 mm", "numeric", 0.0),
    ("< 10 mm", "5 mm", "numeric", 0.1),
    ("< 10 mm", "< 10 mm", "numeric", 1.0),
    ("5 mm", "< 10 mm", "numeric", 1.0),
    ("4-6 mm", "5 mm", "numeric", 0.5),
    ("4.6-5.4 mm", "5 mm", "numeric", 1.0),
    ("2-8 mm", "4-6 mm", "numeric", 3.2 / 6),
    ("6-9 mm", "5 mm", "numeric", 0.0),
    ("< 60 HU", "-20 HU", "numeric", 0.0),
    ("4 mm, 8 mm, 12 mm, 20 mm", "8 mm", "numeric", 0.25),
    ("8 mm", "8 mm", "numeric", 1.0),
    ("5 mm (series 3, image 45)", "5 mm", "numeric", 1.0),
    ("possible", "yes", "existence", 0.5),
    ("no", "possible", "existence", 0.0),
    ("yes", "possible", "existence", 0.5),
    (None, "yes", "existence", 0.0),
]


@pytest.mark.parametrize(("prediction", "target", "kind", "grade"), OVERLAPS)
def test_compare_answers_overlap(prediction: str | None, target: str, kind: Any, grade: float) -> None:
    assert compare_answers(prediction, target, kind, grading="overlap") == pytest.approx(grade)


@pytest.mark.parametrize(
    ("kind", "cases"), [(KINDS[table], TABLES[table]) for table in ("places", "values", "numbers")]
)
def test_compare_answers_overlap_is_1_only_for_right_answers_and_small_for_wrong_ones(kind: Any, cases: Any) -> None:
    for prediction, target, grade in cases:
        overlap = compare_answers(prediction, target, kind, grading="overlap")
        assert 0 <= overlap <= 1
        if grade == 0:
            assert overlap <= 1 / 3, (prediction, target)
        if overlap == 1:
            assert grade == 1, (prediction, target)


@given(st.integers(1, 90), st.integers(0, 89), st.integers(1, 200), st.integers(0, 60))
def test_compare_answers_a_wider_range_is_no_better_answer(true: int, low: int, width: int, more: int) -> None:
    grades = [
        compare_answers(f"{low}-{low + wide} mm", f"{true} mm", "numeric", grading="overlap")
        for wide in (width, width + more)
    ]
    if low <= true <= low + width:
        assert grades[0] >= grades[1]
        assert grades[1] <= 0.2 * true / (width + more) + 1e-9
    bound = compare_answers(f"< {true + width} mm", f"{true} mm", "numeric", grading="overlap")
    assert bound == pytest.approx(0.2 * true / (true + width))


def test_compare_answers_bounds_that_say_nothing() -> None:
    assert [is_vacuous_bound(text) for text in ("< 30 cm", "> 0.5 mm", "< 30 mm", "120 mm", "< 30", "2-300 mm")] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    assert [is_open_bound(text) for text in ("< 30 mm", "> 2 mm", "12 x 8 mm", "2-3 mm")] == [True, True, False, False]


def test_compare_answers_unknown_grading_is_told() -> None:
    with pytest.raises(ValueError, match="unknown grading 'level'; did you mean 'levels'"):
        compare_answers("1", "1", "numeric", grading="level")  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [1, 3, 7, 10, 29, 1000])
def test_compare_answers_borders_are_exact_at_every_scale(scale: int) -> None:
    target = f"{scale} mm"
    for tenths_of_percent, grade in ((999, 1.0), (1000, 0.5), (2999, 0.5), (3000, 0.0)):
        for sign in (1, -1):
            value = scale * (10_000 + sign * tenths_of_percent)
            said = f"{value // 10_000}.{value % 10_000:04d} mm"
            assert compare_answers(said, target, "numeric") == grade, said


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("12 parsecs", "unknown unit"),
        (f"{'9' * 5000} mm", "a number of 5000 characters"),
        ("none", "contain a number"),
        ("about", "contain a number"),
        (" ", "blank"),
    ],
)
def test_compare_answers_bad_numeric_items_are_told(target: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare_answers("1 mm", target, "numeric")
    with pytest.raises(ValueError, match=message):
        compare_answers(None, target, "numeric")


@pytest.mark.parametrize("digits", ["9" * 101, "9" * 5000, "0." + "9" * 5000, "12 x " + "9" * 5000])
def test_compare_answers_number_of_too_many_digits_is_wrong(digits: str) -> None:
    assert compare_answers(f"{digits} mm", "12 mm", "numeric") == 0.0


def test_compare_answers_unknown_type_is_told() -> None:
    with pytest.raises(ValueError, match="did you mean 'numeric'"):
        compare_answers("1", "1", "numerical")  # type: ignore[arg-type]


@pytest.mark.parametrize("said", [None, "", " ", "[NULL]", "not stated", "No answer", "n/a"])
@pytest.mark.parametrize(("target", "kind"), [("12 mm", "numeric"), ("left", "location"), ("yes", "existence")])
def test_compare_answers_no_answer_is_wrong(said: str | None, target: str, kind: str) -> None:
    assert compare_answers(said, target, kind) == 0.0  # type: ignore[arg-type]


OVER_SPECIFIED = [
    ("superior segment of the right lower lobe", "right lower lobe", "location"),
    ("left upper lobe, subpleural", "left upper lobe", "location"),
    ("platelike", "linear", "categorical"),
    ("spiculated, solid", "solid", "categorical"),
]
EXACT = [
    ("both lungs", "bilateral", "location"),
    ("bilateral", "both lungs", "location"),
    ("left lower lobe and right upper lobe", "right upper lobe; left lower lobe", "location"),
    ("subsolid", "part-solid", "categorical"),
    ("8 x 12 mm", "12 x 8 mm", "numeric"),
    ("12 x 8 mm", "12 mm", "numeric"),
    ("yes, a large one", "yes", "existence"),
]


@pytest.mark.parametrize("grading", ["levels", "overlap"])
@pytest.mark.parametrize(("said", "target", "kind"), OVER_SPECIFIED)
def test_compare_answers_that_say_more_get_1_or_a_half(said: str, target: str, kind: Any, grading: Any) -> None:
    assert compare_answers(said, target, kind, grading) == 1
    assert compare_answers(said, target, kind, grading, "partial") == 0.5


@pytest.mark.parametrize("grading", ["levels", "overlap"])
@pytest.mark.parametrize(("said", "target", "kind"), EXACT)
def test_compare_answers_that_say_the_same_get_1(said: str, target: str, kind: Any, grading: Any) -> None:
    assert compare_answers(said, target, kind, grading, "partial") == 1


@pytest.mark.parametrize(
    ("said", "target", "kind"),
    [("right lung", "right lower lobe", "location"), ("left", "right", "location"), (None, "solid", "categorical")],
)
def test_compare_answers_other_grades_do_not_depend_on_over_specified(said: str | None, target: str, kind: Any) -> None:
    assert compare_answers(said, target, kind, "levels", "partial") == compare_answers(said, target, kind)


def test_compare_answers_unknown_grade_of_over_specified_answers_is_told() -> None:
    with pytest.raises(ValueError, match="unknown over_specified 'half'"):
        compare_answers("1", "1", "numeric", over_specified="half")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "largest"),
    [
        ("12 mm", "12 mm"),
        ("5 and 12 mm", "12 mm"),
        ("1.5 and 0.8 cm", "1.5 cm"),
        ("8 mm; 1.2 x 0.9 cm; 5 mm", "1.2 x 0.9 cm"),
        ("9 x 6 mm, 7 mm", "9 x 6 mm"),
        ("20 HU; -50 HU", "20 HU"),
        # Not comparable, or one measure.
        ("12 mm; 40 HU", "12 mm; 40 HU"),
        ("1,2 cm", "1,2 cm"),
        ("5 mm (image 45)", "5 mm (image 45)"),
    ],
)
def test_largest_measure_of_several(answer: str, largest: str) -> None:
    assert largest_measure(answer) == largest
