"""Two reports finding by finding."""

import string
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.findings import Coverage, abnormal_findings, compare_findings, extract_findings
from tests.helpers.tables import read_tables

TABLES = read_tables(__file__)

EQUAL = yaml.safe_load(Path(__file__).with_name("equal_wordings.yaml").read_text(encoding="utf-8"))


def errors(reference, candidate, **context):
    """Attribute errors of the one match."""
    found = compare_findings(reference, candidate, context)
    assert (len(found.matches), found.false, found.missing) == (1, (), ())
    return [(error.type, error.significant) for error in found.matches[0].discrepancies]


@pytest.mark.parametrize(("reference", "candidate", "expected"), TABLES["attribute_errors"])
def test_compare_findings_attribute_errors(reference, candidate, expected):
    assert errors(reference, candidate) == list(expected)


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        ("Opacities in the left lower and right upper lobe.", []),
        ("Opacity in the right upper lobe. Opacity in the left lower lobe.", []),
        ("Opacities in both lungs.", []),
        # one of two places is an extent; both sides and levels, but in no place of the reference
        ("Opacities in the right upper and left upper lobe.", [("location", False)]),
        ("Opacities in the left upper and right lower lobe.", [("location", True)]),
        ("Opacities in the right middle and left upper lobe.", [("location", False)]),
    ],
)
def test_compare_findings_finding_in_several_places(candidate, expected):
    assert errors("Opacities in the right upper and left lower lobe.", candidate) == expected


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        ("Nodules of 4 mm in the right lung and 12 mm in the left lung.", []),
        ("Nodules of 12 mm in the right lung and 4 mm in the left lung.", [("measurement", True)]),
    ],
)
def test_compare_findings_sizes_belong_to_their_places(candidate, expected):
    assert errors("Nodules of 4 mm in the right lung and 12 mm in the left lung.", candidate) == expected


@pytest.mark.parametrize(
    ("reference", "candidate", "matches"),
    [
        ("Bilateral effusions.", "Left effusion. Right effusion.", [((0,), (0, 1))]),
        ("Left effusion. Right effusion.", "Bilateral effusions.", [((0, 1), (0,))]),
        ("Left effusion. Right effusion.", "Right effusion. Left effusion.", [((0,), (1,)), ((1,), (0,))]),
    ],
)
def test_compare_findings_one_for_several(reference, candidate, matches):
    found = compare_findings(reference, candidate)
    assert [(match.reference, match.candidate) for match in found.matches] == matches
    assert (found.false, found.missing) == ((), ())
    assert not any(match.discrepancies for match in found.matches)


@pytest.mark.parametrize(("reference", "candidate"), TABLES["no_match"])
def test_compare_findings_what_does_not_match(reference, candidate):
    found = compare_findings(reference, candidate)
    assert (found.matches, found.false, found.missing) == ((), (0,), (0,))


def test_compare_findings_nearest_concept_is_matched_first():
    found = compare_findings("Opacity. Atelectasis.", "Atelectasis. Opacity.")
    assert [(match.reference, match.candidate) for match in found.matches] == [((0,), (1,)), ((1,), (0,))]


@pytest.mark.parametrize(("reference", "candidate", "matched"), TABLES["covered"])
def test_compare_findings_what_one_mention_covers(reference, candidate, matched):
    found = compare_findings(reference, candidate)
    assert sum(max(len(match.reference), len(match.candidate)) for match in found.matches) == matched


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        ("ETT in the right main bronchus.", "ETT."),
        ("Scoliosis.", "Mild scoliosis."),
        ("Pneumothorax.", "Small pneumothorax."),
        ("Small pneumothorax.", "Pneumothorax."),
    ],
)
def test_compare_findings_matches_findings_of_other_significance(reference, candidate):
    found = compare_findings(reference, candidate)
    assert found.reference_significance != found.candidate_significance
    assert len(found.matches) == 1


@pytest.mark.parametrize(("reference", "candidate", "false", "missing"), TABLES["signs"])
def test_compare_findings_signs_beside_their_diagnosis(reference, candidate, false, missing):
    found = compare_findings(reference, candidate)
    assert (len(found.false), len(found.missing)) == (false, missing)


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        ("Tracheal stenosis.", "Irregularity of the tracheal wall."),
        ("Left lower lobe pneumonia.", "Changes in the left base."),
        ("Cardiomegaly.", "Abnormal contour of the heart."),
    ],
)
def test_compare_findings_vague_statement_is_an_unspecific_match(reference, candidate):
    found = compare_findings(reference, candidate, open_findings=True)
    errors = [(error.type, error.significant) for match in found.matches for error in match.discrepancies]
    assert (errors, found.false, found.missing) == ([("unspecific", True)], (), ())
    elsewhere = compare_findings("Splenic cyst.", candidate, open_findings=True)
    assert (elsewhere.matches, elsewhere.false) == ((), (0,))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_compare_findings_matches_the_sizes_of_several_lesions_in_any_order(order):
    lesions = [
        "8 mm nodule in the right upper lobe.",
        "5 mm nodule in the left upper lobe.",
        "3 mm left lingular nodule.",
    ]
    found = compare_findings(" ".join(lesions), " ".join(lesions[i] for i in order))
    assert [match.discrepancies for match in found.matches] == [(), (), ()]
    assert [(match.reference[0], order[match.candidate[0]]) for match in found.matches] == [(0, 0), (1, 1), (2, 2)]


def test_compare_findings_alternative_diagnoses_match_separate_ones():
    found = compare_findings(
        "Nodule in the middle lobe (infectious process?, carcinoma?).",
        "Middle lobe nodule; infection versus carcinoma.",
    )
    assert (found.false, found.missing) == ((), ())


def test_compare_findings_list_of_everything_matches_nothing_by_it():
    everything = "Opacity which may represent pneumonia, edema, atelectasis, effusion, mass or nodule."
    assert errors("Mass.", everything)[0] == ("unspecific", True)


@pytest.mark.parametrize(("name", "report"), [("reference", None), ("candidate", 3)])
def test_compare_findings_reports_must_be_texts_or_findings(name, report):
    reports = {"reference": "Effusion.", "candidate": "Effusion.", name: report}
    with pytest.raises(TypeError, match=f"{name} must be a report text or a list of findings"):
        compare_findings(**reports)


def test_compare_findings_alternatives_match():
    assert errors("Consolidation versus atelectasis.", "Atelectasis.") == [("certainty", False)]


def test_compare_findings_says_how_much_of_both_reports_was_read():
    comparison = compare_findings("Quorblid of the aorta. Effusion.", "Effusion, no quorblid.", open_findings=True)
    assert [span.text for span in comparison.reference_coverage.unread] == ["Quorblid"]
    assert comparison.candidate_coverage == Coverage((), 3, 0)
    given = compare_findings(extract_findings("Effusion."), "Effusion.")
    assert given.reference_coverage is None
    assert given.candidate_coverage.num_words == 1


def test_compare_findings_accepts_findings():
    reference = "Left effusion. Emphysema."
    findings = abnormal_findings(reference, extract_findings(reference))
    assert compare_findings(findings, "Left effusion.") == compare_findings(reference, "Left effusion.")


def test_compare_findings_explanations_name_the_places():
    reference, candidate = "Left effusion.", "Emphysema. Right effusion."
    lines = compare_findings(reference, candidate).explain()
    assert lines == [
        "false: 'Emphysema' (candidate 0-9), not_actionable_not_urgent",
        "location (significant): right for left: 'effusion' (candidate 17-25) for 'effusion' (reference 5-13)",
    ]


SENTENCES = st.lists(
    st.sampled_from(
        [
            "Small left pleural effusion.",
            "Right pleural effusion.",
            "Bilateral opacities.",
            "Right lower lobe pneumonia.",
            "5 mm nodule in the left upper lobe.",
            "No pneumothorax.",
            "Endotracheal tube 5 cm above the carina.",
            "Cardiomegaly.",
            "Degenerative changes of the spine.",
            "Opacity, likely atelectasis.",
            "Consolidation versus atelectasis in the left base.",
        ]
    ),
    max_size=7,
)


@given(SENTENCES, SENTENCES)
def test_compare_findings_every_finding_is_accounted_for_once(reference, candidate):
    found = compare_findings(" ".join(reference), " ".join(candidate))
    ours = [i for match in found.matches for i in match.reference] + list(found.missing)
    theirs = [i for match in found.matches for i in match.candidate] + list(found.false)
    assert sorted(ours) == list(range(len(found.reference)))
    assert sorted(theirs) == list(range(len(found.candidate)))


@given(SENTENCES)
def test_compare_findings_report_agrees_with_itself(sentences):
    report = " ".join(sentences)
    found = compare_findings(report, report)
    assert (found.false, found.missing) == ((), ())
    assert not any(match.discrepancies for match in found.matches)


@given(st.text(alphabet=string.printable + "\u2019\u00e9\u4e00"), st.text())
def test_compare_findings_any_text_is_compared(reference, candidate):
    found = compare_findings(reference, candidate)
    for finding in found.reference:
        assert reference[finding.start : finding.end] == finding.text


def test_compare_findings_remembered_reference_is_read_as_asked():
    texts = ("The portal vein is widened.", "No finding.")
    missing = [compare_findings(*texts, open_findings=is_open).missing for is_open in (True, False, True, False)]
    assert missing == [(0,), (), (0,), ()]


def test_compare_findings_alternative_that_the_reference_names_elsewhere_is_no_hedge() -> None:
    reference = "Ground glass opacities on the right, possibly pneumonia. Consolidation on the left."
    candidate = "Ground glass opacities on the right. Consolidation on the left, possibly pneumonia."
    assert not [
        error
        for match in compare_findings(reference, candidate).matches
        for error in match.discrepancies
        if error.significant
    ]
    unknown = compare_findings("Consolidation on the left.", "Consolidation on the left, possibly pneumonia.")
    assert [error.type for error in unknown.matches[0].discrepancies if error.significant] == ["certainty"]


@pytest.mark.parametrize(("first", "second"), EQUAL)
def test_compare_findings_in_other_words(first: str, second: str) -> None:
    for reference, candidate in ((first, second), (second, first)):
        found = compare_findings(reference, candidate, open_findings=True)
        assert found.matches
        assert (found.false, found.missing) == ((), ())
        assert not [error for match in found.matches for error in match.discrepancies if error.significant]


def test_compare_findings_a_normal_node_is_no_far_larger_one() -> None:
    found = compare_findings("Mediastinal node of 7 mm, smaller.", "Mediastinal node of 19 mm, larger.")
    assert (found.matches, found.false) == ((), (0,))
    assert compare_findings("Mediastinal node of 9 mm.", "Mediastinal node of 12 mm.").matches


def test_compare_findings_the_mass_is_the_one_that_was_named() -> None:
    reference = "Anterior mediastinal mass of 65 mm. The mass abuts the aorta."
    assert len(compare_findings(reference, reference).reference) == 1


def test_compare_findings_an_abnormality_is_wider_than_a_disease() -> None:
    found = compare_findings("Hypersensitivity pneumonitis.", "Abnormality of both lungs.", open_findings=True)
    assert [(error.type, error.significant) for error in found.matches[0].discrepancies] == [("unspecific", True)]
