"""Which sentences compare with a prior study, and what remains without the comparison."""

import pytest

from rrg_rewards.findings.editing.report_view import compares, without_comparison


@pytest.mark.parametrize(
    ("sentence", "left"),
    [
        ("Stable cardiomegaly", "Cardiomegaly"),
        ("There is an unchanged nodule", "There is a nodule"),
        ("A stable opacity is seen", "An opacity is seen"),
        ("Small effusion, unchanged from the prior exam", "Small effusion"),
        ("Granuloma unchanged from prior", "Granuloma"),
        ("Heart size is mildly enlarged but stable", "Heart size is mildly enlarged"),
        ("The effusion is stable", "The effusion is present"),
        ("The heart is again enlarged", "The heart is enlarged"),
        ("Cardiac silhouette remains enlarged", "Cardiac silhouette is enlarged"),
        ("There is no change in the scar", "There is scar"),
        ("Opacity, which has increased since the previous study", "Opacity"),
    ],
)
def test_comparison_words_are_dropped(sentence, left):
    start, end, text = next(without_comparison(sentence))
    assert sentence[:start] + text + sentence[end:] == left


@pytest.mark.parametrize(
    "sentence", ["Increased markings", "No acute disease", "Prior granulomatous disease", "New York"]
)
def test_comparison_words_are_not_those_of_other_statements(sentence):
    assert compares(sentence) == (sentence == "New York")
