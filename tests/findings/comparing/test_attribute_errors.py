"""Attribute errors of matched findings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.findings import compare_findings

SIGNIFICANT, NEGLIGIBLE = [("temporal", True)], [("temporal", False)]


def temporal_errors(reference, candidate):
    comparison = compare_findings(reference, candidate)
    errors = [error for match in comparison.matches for error in match.discrepancies]
    return [(error.type, error.significant) for error in errors if error.type == "temporal"]


@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        # Left out.
        ("New left effusion.", "Left effusion.", SIGNIFICANT),
        ("Worsening edema.", "Edema.", SIGNIFICANT),
        ("Left effusion, increased since the prior study.", "Left effusion.", SIGNIFICANT),
        ("Interval enlargement of the 6 mm nodule.", "6 mm nodule.", SIGNIFICANT),
        ("New left effusion.", "Left effusion. No significant interval change.", SIGNIFICANT),
        ("Unchanged cardiomegaly.", "Cardiomegaly.", NEGLIGIBLE),
        ("Improving edema.", "Edema.", NEGLIGIBLE),
        # Called something else.
        ("New left effusion.", "Unchanged left effusion.", SIGNIFICANT),
        ("Worsening edema.", "Stable edema.", SIGNIFICANT),
        ("Worsening edema.", "Improving edema.", SIGNIFICANT),
        ("New consolidation.", "Worsening consolidation.", SIGNIFICANT),
        ("Improving edema.", "Worsening edema.", SIGNIFICANT),
        ("Improving edema.", "Stable edema.", NEGLIGIBLE),
        # Invented.
        ("Left effusion.", "New left effusion.", SIGNIFICANT),
        ("Edema.", "Worsening edema.", SIGNIFICANT),
        ("Stable edema.", "Worsening edema.", SIGNIFICANT),
        ("Cardiomegaly.", "Unchanged cardiomegaly.", NEGLIGIBLE),
        # The same change in other words.
        ("Worsening edema.", "Edema has increased since the prior study.", []),
        ("Unchanged cardiomegaly.", "Cardiomegaly is stable.", []),
        ("New left effusion.", "Interval development of a left effusion.", []),
        ("The effusion has decreased.", "The effusion is smaller than on the prior study.", []),
        # No earlier examination.
        ("Left effusion.", "Left effusion.", []),
        ("Old rib fracture.", "Rib fracture.", []),
        # Age.
        ("Acute rib fracture.", "Chronic rib fracture.", SIGNIFICANT),
        ("New acute rib fracture.", "Unchanged chronic rib fracture.", SIGNIFICANT),
        # An amount is no change.
        ("The heart is enlarged.", "Heart size is increased.", []),
    ],
)
def test_attribute_discrepancies_in_change(reference, candidate, expected):
    assert temporal_errors(reference, candidate) == expected


def test_attribute_discrepancies_explain_a_change():
    def explanation(reference, candidate):
        (match,) = compare_findings(reference, candidate).matches
        return match.discrepancies[0].explanation

    assert explanation("New effusion.", "Stable effusion.") == "stable for new"
    assert explanation("New effusion.", "Effusion.") == "no stated change for new"
    assert explanation("Effusion.", "New effusion.") == "new for no stated change"


@pytest.mark.parametrize(
    ("reference", "candidate", "missing", "false"),
    [
        ("The effusion has resolved.", "Effusion.", 0, 1),
        ("Effusion.", "The effusion has resolved.", 1, 0),
        ("The effusion has resolved.", "No effusion.", 0, 0),
        ("The effusion has resolved.", "The effusion has resolved.", 0, 0),
        ("The effusion has resolved.", "The heart is normal.", 0, 0),
    ],
)
def test_resolved_finding_is_absent(reference, candidate, missing, false):
    comparison = compare_findings(reference, candidate)
    assert (len(comparison.missing), len(comparison.false), comparison.matches) == (missing, false, ())


def test_change_of_one_of_two_sides_is_compared():
    both = "Bilateral effusions."
    assert temporal_errors(both, "New left effusion. Unchanged right effusion.") == SIGNIFICANT
    assert temporal_errors("New left effusion. Unchanged right effusion.", both) == SIGNIFICANT
    assert temporal_errors("New bilateral effusions.", "New left effusion. New right effusion.") == []


def test_change_tells_equal_lesions_apart():
    lesions = ["New nodule in the right upper lobe.", "Unchanged nodule in the right upper lobe."]
    assert temporal_errors(" ".join(lesions), " ".join(reversed(lesions))) == []


NAMES = ("left effusion", "right pneumothorax", "cardiomegaly", "pulmonary edema", "hiatal hernia", "8 mm nodule")
FORMS = ("{}.", "New {}.", "Unchanged {}.", "Worsening {}.", "Improving {}.", "No {}.", "The {} has resolved.")
REPORTS = st.lists(
    st.builds(lambda name, form: (name, form.format(name)), st.sampled_from(NAMES), st.sampled_from(FORMS)),
    min_size=1,
    max_size=6,
    unique_by=lambda sentence: sentence[0],
).map(lambda sentences: [text for _, text in sentences])


@given(REPORTS, st.randoms())
def test_report_has_no_temporal_error_against_itself_in_any_order(sentences, random):
    shuffled = random.sample(sentences, len(sentences))
    assert temporal_errors(" ".join(sentences), " ".join(sentences)) == []
    assert temporal_errors(" ".join(sentences), " ".join(shuffled)) == []


@given(REPORTS, REPORTS, st.randoms())
def test_temporal_errors_do_not_depend_on_the_order_of_sentences(reference, candidate, random):
    shuffled = random.sample(candidate, len(candidate))
    ours, theirs = (sorted(temporal_errors(" ".join(reference), " ".join(text))) for text in (candidate, shuffled))
    assert ours == theirs
