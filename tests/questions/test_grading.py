"""CT-FineBench: answers are compared by type."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.questions.grading import compare_answers, is_open_bound, is_vacuous_bound, largest_measure

# (prediction, target, grade)
NUMBERS = [
    ("10.99 mm", "10 mm", 1.0),
    ("11 mm", "10 mm", 0.5),
    ("12.99 mm", "10 mm", 0.5),
    ("13 mm", "10 mm", 0.0),
    ("9.01 mm", "10 mm", 1.0),
    ("9 mm", "10 mm", 0.5),
    ("7.01 mm", "10 mm", 0.5),
    ("7 mm", "10 mm", 0.0),
    ("1 cm", "10 mm", 1.0),
    ("1,2 cm", "12 mm", 1.0),
    ("12", "12 mm", 1.0),
    ("12 mm", "12", 1.0),
    ("12 HU", "12 mm", 0.0),
    ("4 mm", "3-5 mm", 1.0),
    ("3-5 mm", "4 mm", 0.5),
    ("3-5 mm", "3 to 5 mm", 1.0),
    ("12 mm", "12x8 mm", 0.5),
    ("12x8 mm", "12 mm", 1.0),
    ("8 x 12 mm", "12x8 mm", 1.0),
    ("1.2 x 0.8 cm", "12 x 8 mm", 1.0),
    ("~12 mm", "12 mm", 1.0),
    ("about 12 millimeters", "12 mm", 1.0),
    ("up to 12 mm", "12mm", 1.0),
    ("-50 HU", "-50 HU", 1.0),
    ("50 HU", "-50 HU", 0.0),
    ("\u221248 hu", "-50 HU", 1.0),
    ("0", "0 mm", 1.0),
    ("1 mm", "0 mm", 0.0),
    ("50%", "50 %", 1.0),
    ("0 HU", "0", 1.0),
    ("two", "2", 1.0),
    ("3", "2", 0.0),
    ("several", "3", 0.5),
    ("multiple", "several", 1.0),
    ("5", "multiple", 1.0),
    ("1", "multiple", 0.0),
    ("12 parsecs", "12 mm", 0.0),
    ("nope", "12 mm", 0.0),
    (None, "12 mm", 0.0),
    ("-100 to -50 HU", "-100 to -50 HU", 1.0),
    ("-100 - -50 HU", "-75 HU", 0.0),
    ("8 mm", "< 10 mm", 1.0),
    ("<10 mm", "less than 1 cm", 1.0),
    ("<10 mm", "8 mm", 0.5),
    ("between 3 and 5 mm", "3-5 mm", 1.0),
    ("5 mm and 12 mm", "12 mm", 0.5),
    ("12 mm", "5 and 12 mm", 0.5),
    ("5 mm, 12 mm", "5 and 12 mm", 1.0),
    ("12 mm x 8 mm", "12x8mm", 1.0),
    ("12\u00d78\u00d75 mm", "12x8 mm", 1.0),
    ("3 nodules", "3", 1.0),
    ("0.5 cm", "4.9 mm", 1.0),
    (".5 cm", "5 mm", 1.0),
    ("1,000 HU", "1000 HU", 1.0),
    ("12 by 8 mm", "12 x 8 mm", 1.0),
    ("12 x 20 mm", "12 mm", 0.0),
    ("3.5 cm", "35mm in short axis", 1.0),
    ("12 mm in diameter", "12 mm", 1.0),
    ("a 12-mm nodule", "12 mm", 1.0),
    ("3 cm to 5 cm", "3-5 cm", 1.0),
    ("3 mm to 1 cm", "3-10 mm", 1.0),
    ("10 ml", "10 cc", 1.0),
    ("12mmx8mm", "12x8 mm", 1.0),
    ("3 mm - 5 mm", "3-5 mm", 1.0),
    ("55 %", "0.55", 1.0),
    ("0.7", "55 %", 0.5),
    ("5 mm (series 3, image 45)", "5 mm", 1.0),
    ("12 mm\u00b2", "12 mm", 0.0),
    ("12 sq mm", "12 mm", 0.0),
]
PLACES = [
    ("right lower lobe", "both lower lobes", 0.5),
    ("right lung", "right lower lobe", 0.5),
    ("left", "right lower lobe", 0.0),
    ("right lower lobe superior segment", "right lower lobe", 1.0),
    ("right lower lobe", "right lower lobe superior segment", 0.5),
    ("both lower lobes", "right lower lobe", 0.5),
    ("right", "right lower lobe", 0.5),
    ("RLL", "right lower lobe", 1.0),
    ("lower lobe of the right lung", "right lower lobe", 1.0),
    ("right upper lobe", "right lower lobe", 0.0),
    ("lower lobe", "right lower lobe", 0.5),
    ("both lungs", "bilateral", 1.0),
    ("bilateral", "both lungs", 1.0),
    ("right", "right lung", 1.0),
    ("left", "right kidney", 0.0),
    ("not in the right lung", "right lung", 0.0),
    ("right lung, not the left", "right lung", 1.0),
    ("segment 6 of the liver", "liver segment VII", 0.0),
    ("segment IVa of the liver", "segment 4 of the liver", 1.0),
    ("liver", "segment 7 of the liver", 0.5),
    ("tongue segment of the left upper lobe", "lingula", 1.0),
    ("bilateral lower lobes", "lower lobes of both lungs", 1.0),
    ("right and left lower lobes", "both lower lobes", 1.0),
    ("left", "both lungs", 0.5),
    ("lingula", "left upper lobe", 1.0),
    ("left upper lobe", "lingula", 0.5),
    ("right middle lobe", "middle lobe", 1.0),
    ("middle lobe", "right middle lobe", 1.0),
    ("posterobasal segment of the right lower lobe", "right lower lobe posterobasal", 1.0),
    ("anterobasal segment of the right lower lobe", "right lower lobe posterobasal", 0.0),
    ("right basal", "right lower lobe", 1.0),
    ("subpleural right upper lobe", "right upper lobe", 1.0),
    ("peripheral", "subpleural", 0.5),
    ("mediastinum", "subcarinal", 0.5),
    ("right lower paratracheal", "paratracheal", 1.0),
    ("right paratracheal", "right lower paratracheal", 0.5),
    ("left paratracheal", "right paratracheal", 0.0),
    ("aortic arch", "thoracic aorta", 1.0),
    ("aorta", "aortic arch", 0.5),
    ("LAD", "left anterior descending artery", 1.0),
    ("RCA", "LAD", 0.0),
    ("T8", "T7", 0.0),
    ("T8 vertebra", "T8", 1.0),
    ("right upper lobe and left lower lobe", "right upper lobe", 0.5),
    ("right upper lobe, left lower lobe", "left lower lobe and right upper lobe", 1.0),
    ("upper and lower lobes of both lungs", "both lower lobes", 0.5),
    ("upper lobes bilaterally", "both upper lobes", 1.0),
    ("right lung", "both lungs", 0.5),
    ("right upper lobe and left lower lobe", "both lungs", 1.0),
    ("wrist", "right lung", 0.0),
    ("left kidney", "right kidney", 0.0),
    ("kidney", "left kidney", 0.5),
    ("left kidney upper pole", "left kidney", 1.0),
    ("superior segment of the left lower lobe", "left lower lobe, superior segment", 1.0),
    ("upper lobes", "right upper lobe", 0.5),
    ("apex of the right lung", "right upper lobe apical segment", 1.0),
    ("right lung upper lobe posterior segment", "posterior segment of the right upper lobe", 1.0),
    ("right upper lobe anterior segment", "right upper lobe posterior segment", 0.0),
    ("left lung upper lobe lingular segment", "lingula", 1.0),
]
VALUES = [
    ("subsolid", "part-solid", 1.0),
    ("solid", "ground-glass", 0.0),
    ("mild", "minimal", 0.5),
    ("small", "mild", 1.0),
    ("severe", "mild", 0.0),
    ("mild to moderate", "mild", 0.5),
    ("mild", "mild to moderate", 0.5),
    ("spiculated", "irregular", 1.0),
    ("irregular", "spiculated", 0.5),
    ("solid, smooth", "solid, spiculated", 0.0),
    ("solid", "solid, spiculated", 0.5),
    ("solid spiculated", "solid", 1.0),
    ("platelike", "linear", 1.0),
    ("linear", "platelike", 0.5),
    ("unchanged", "stable", 1.0),
    ("increased", "decreased", 0.0),
    ("larger", "increased", 1.0),
    ("multiple", "two", 0.5),
    ("two", "multiple", 1.0),
    ("single", "multiple", 0.0),
    ("several", "multiple", 1.0),
    ("frobnicated", "frobnicated margin", 1.0),
    ("foo", "bar", 0.0),
    ("calcified", "non-calcified", 0.0),
    ("not calcified", "calcified", 0.0),
    ("without calcification", "noncalcified", 1.0),
    ("well-defined margins", "well circumscribed", 1.0),
    ("ill defined", "well defined", 0.0),
    ("centrilobular", "centriacinar", 1.0),
    ("centrilobular and paraseptal", "centrilobular", 1.0),
    ("paraseptal", "centrilobular and paraseptal", 0.5),
    ("sliding type", "sliding", 1.0),
    ("compressive", "passive", 1.0),
    ("tubular", "cylindrical", 1.0),
    ("catheter", "central venous catheter", 0.5),
    ("PICC", "central venous catheter", 1.0),
    ("new", "stable", 0.0),
    ("ground glass", "ground-glass", 1.0),
    ("marked", "severe", 1.0),
    ("trace", "minimal", 1.0),
    ("spiculated and lobulated", "spiculated", 1.0),
    ("lobulated", "spiculated", 0.0),
]
EXISTENCE = [
    ("yes", "yes", 1.0),
    ("no", "yes", 0.0),
    ("possible", "yes", 0.5),
    ("present", "yes", 1.0),
    ("not seen", "yes", 0.0),
    (None, "yes", 0.0),
    ("[NULL]", "yes", 0.0),
    ("Yes.", "yes", 1.0),
    ("Yes, without calcification", "yes", 1.0),
    ("cannot be excluded", "yes", 0.5),
    ("ruled out", "yes", 0.0),
    ("unlikely", "yes", 0.0),
]


@pytest.mark.parametrize(("prediction", "target", "grade"), NUMBERS)
def test_compare_answers_numbers(prediction: str | None, target: str, grade: float) -> None:
    assert compare_answers(prediction, target, "numeric") == grade


@pytest.mark.parametrize(("prediction", "target", "grade"), PLACES)
def test_compare_answers_places(prediction: str | None, target: str, grade: float) -> None:
    assert compare_answers(prediction, target, "location") == grade


@pytest.mark.parametrize(("prediction", "target", "grade"), VALUES)
def test_compare_answers_values(prediction: str | None, target: str, grade: float) -> None:
    assert compare_answers(prediction, target, "categorical") == grade


@pytest.mark.parametrize(("prediction", "target", "grade"), EXISTENCE)
def test_compare_answers_existence(prediction: str | None, target: str, grade: float) -> None:
    assert compare_answers(prediction, target, "existence") == grade


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


@pytest.mark.parametrize(("kind", "cases"), [("location", PLACES), ("categorical", VALUES), ("numeric", NUMBERS)])
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
