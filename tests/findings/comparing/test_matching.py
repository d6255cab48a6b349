"""Two reports finding by finding."""

import string
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.findings import Coverage, abnormal_findings, compare_findings, extract_findings

EQUAL = yaml.safe_load(Path(__file__).with_name("equal_wordings.yaml").read_text(encoding="utf-8"))


def errors(reference, candidate, **context):
    """Attribute errors of the one match."""
    found = compare_findings(reference, candidate, context)
    assert (len(found.matches), found.false, found.missing) == (1, (), ())
    return [(error.type, error.significant) for error in found.matches[0].discrepancies]


@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        ("Left effusion.", "Right effusion.", [("location", True)]),
        ("Left effusion.", "Effusion.", []),
        ("Effusion.", "Left effusion.", []),
        ("Bilateral effusions.", "Left effusion.", [("location", True)]),
        # of an opacity one side of both is an extent, of an effusion another drainage
        ("Bilateral consolidations.", "Left consolidation.", [("location", False)]),
        ("Consolidation in the right upper lobe.", "Consolidation in the right middle lobe.", [("location", False)]),
        ("Right upper lobe consolidation.", "Left upper lobe consolidation.", [("location", True)]),
        # another side and another lobe are one error
        ("Bilateral upper lobe nodules.", "Nodules in the right lower lobe.", [("location", True)]),
        ("Nodule in the right lung apex.", "Nodule in the right upper lobe.", []),
        ("Right upper lobe nodule.", "Right lower lobe nodule.", [("location", True)]),
        # the two lobes of the left lung touch
        ("Left upper lobe nodule.", "Left lower lobe nodule.", [("location", False)]),
        ("Left upper lobe opacity.", "Right lower lobe opacity.", [("location", True)]),
        ("Rib fracture of the left seventh rib.", "Left eighth rib fracture.", [("location", False)]),
        # nodules: 2 mm below 6 mm, 4 mm from there on
        ("5 mm nodule.", "7 mm nodule.", [("measurement", False)]),
        ("5 mm nodule.", "8 mm nodule.", [("measurement", True)]),
        ("6 mm nodule.", "10 mm nodule.", [("measurement", False)]),
        ("6 mm nodule.", "11 mm nodule.", [("measurement", True)]),
        # masses: 20 % of the reference's size from 3 cm on
        ("5 cm mass.", "6 cm mass.", [("measurement", False)]),
        ("5 cm mass.", "4 cm mass.", [("measurement", False)]),
        ("5 cm mass.", "6.1 cm mass.", [("measurement", True)]),
        ("3.2 cm mass.", "2.9 cm mass.", [("measurement", True)]),
        ("2.9 cm nodule.", "3.1 cm mass.", [("measurement", True)]),
        ("2.9 cm nodule.", "2.5 cm nodule.", [("measurement", False)]),
        ("3.2 cm mass.", "1.5 cm nodule.", [("measurement", True)]),
        ("2 cm pneumothorax.", "5 cm pneumothorax.", [("measurement", True)]),
        ("Ascending aortic aneurysm of 64 mm.", "Ascending aortic aneurysm, 44 mm.", [("measurement", True)]),
        ("Ascending aortic aneurysm of 64 mm.", "Ascending aortic aneurysm, 6.4 cm.", []),
        # the size makes a node pathological
        ("Mediastinal lymph node of 9 mm.", "Mediastinal lymph node of 12 mm.", [("measurement", True)]),
        ("Tiny nodule.", "20 mm nodule.", [("measurement", True)]),
        ("Tiny nodule.", "4 mm nodule.", []),
        ("Coronary stenosis of 70 %.", "Coronary stenosis of 30 per cent.", [("measurement", True)]),
        ("Coronary stenosis of 70 %.", "Coronary stenosis of 75%.", [("measurement", False)]),
        ("Scoliosis, Cobb angle 62 degrees.", "Scoliosis with a Cobb angle of 12 degrees.", [("measurement", True)]),
        ("Pericardial effusion of 45 HU.", "Pericardial effusion, 5 HU.", [("measurement", True)]),
        ("Pleural effusion of 1.2 l.", "Pleural effusion of 1200 ml.", []),
        ("Pleural effusion of 1.2 l.", "Pleural effusion of 200 ml.", [("measurement", True)]),
        ("Cardiomegaly, ratio 0.55.", "Cardiomegaly, cardiothoracic ratio of 70 %.", [("measurement", True)]),
        ("Two nodules in the right lung.", "Five nodules in the right lung.", [("measurement", True)]),
        ("Two nodules in the right lung.", "Multiple nodules in the right lung.", []),
        ("Grade 1 fracture.", "Grade 3 fracture.", [("measurement", True)]),
        # each of several sizes has its own, in any order
        ("Left lung nodules: 4 mm, 6 mm and 12 mm.", "Left lung nodules measuring 12, 6 and 4 mm.", []),
        ("Left lung nodules: 4 mm, 6 mm and 12 mm.", "Left lung nodules of 4, 11 and 12 mm.", [("measurement", True)]),
        ("Stanford type A dissection.", "Type B aortic dissection.", [("measurement", True)]),
        ("Small effusion.", "Tiny effusion.", [("severity", False)]),
        ("Small effusion.", "Large effusion.", [("severity", True)]),
        ("Mildly enlarged mediastinal nodes.", "Slightly enlarged mediastinal nodes.", [("severity", False)]),
        # from not actionable to actionable
        ("Small effusion.", "Moderate effusion.", [("severity", True)]),
        ("Mild emphysema.", "Moderate emphysema.", [("severity", False)]),
        ("Right lower lobe pneumonia.", "Right lower lobe opacity.", [("unspecific", True)]),
        ("Right lower lobe opacity.", "Right lower lobe pneumonia.", [("overinterpretation", True)]),
        ("Left lower consolidation.", "Left lower pneumonia.", [("overinterpretation", False)]),
        ("Left lower infiltrate.", "Left lower pneumonia.", [("overinterpretation", False)]),
        ("Left lower pneumonia.", "Left lower infiltrate.", [("unspecific", False)]),
        ("Left lung nodule.", "Left lung carcinoma.", [("overinterpretation", True)]),
        ("Left lung carcinoma.", "Left lung nodule.", [("unspecific", True)]),
        ("Left lung mass.", "Left lung nodule.", [("descriptor", True)]),
        ("Left pleural effusion.", "Blunting of the left costophrenic angle.", [("unspecific", True)]),
        ("Left lower pneumonia.", "Left lower consolidation.", [("unspecific", False)]),
        ("Tension pneumothorax.", "Simple pneumothorax.", [("severity", True)]),
        ("Fluid collections in the pleural spaces.", "Pleural effusion.", []),
        ("Hiatal hernia.", "Possible hiatal hernia.", [("certainty", False)]),
        ("Effusion has increased.", "Effusion has decreased.", [("temporal", True)]),
        ("Acute rib fracture.", "Healed rib fracture.", [("temporal", True)]),
        ("Displaced rib fracture.", "Nondisplaced rib fracture.", [("descriptor", True)]),
        ("Patchy opacity.", "Linear opacity.", [("descriptor", False)]),
        ("Well-defined nodule.", "Nodule with irregular margins.", [("descriptor", True)]),
        ("Simple effusion.", "Complex effusion.", [("descriptor", True)]),
        # doubt is significant if the finding is urgent
        ("Pneumothorax.", "Possible pneumothorax.", [("certainty", True)]),
        ("Possible pneumothorax.", "Pneumothorax.", [("certainty", True)]),
        ("Pneumothorax.", "Probable pneumothorax.", [("certainty", False)]),
        ("Likely pneumonia.", "Possible pneumonia.", [("certainty", False)]),
        ("Increased effusion.", "Decreased effusion.", [("temporal", True)]),
        ("T12 fracture.", "T4 fracture.", [("location", True)]),
        ("Humerus fracture.", "Clavicle fracture.", [("location", True)]),
        ("Large left effusion.", "Effusion.", [("unspecific", True)]),
        ("Large left effusion.", "Left effusion.", []),
        ("Bilateral ground glass opacities.", "Bilateral consolidations.", [("descriptor", True)]),
        ("PICC.", "Malpositioned PICC.", [("location", True)]),
        # a density that one report leaves open is significant if it makes a nodule benign
        ("Calcified nodule.", "Granuloma.", []),
        ("4 mm nodule.", "4 mm granuloma.", [("overinterpretation", True)]),
        ("Granuloma.", "Nodule.", [("unspecific", True)]),
        ("Calcified nodule.", "Spiculated nodule.", [("unspecific", True)]),
        ("Calcified nodule.", "Nodule.", [("unspecific", True)]),
        ("Multiple nodules.", "Calcified nodule.", [("descriptor", False)]),
        ("Multiple lung nodules.", "Bilateral lung nodule.", []),
        ("Right upper lobe nodule. Left lower lobe nodule.", "Nodule in both lungs.", []),
        ("Right rib fracture. Left rib fracture.", "Focal rib fracture on both sides.", []),
        ("Diffuse bone lesion.", "Bone lesion.", []),
        ("Numerous lung nodules.", "A lung nodule.", [("severity", True)]),
    ],
)
def test_compare_findings_attribute_errors(reference, candidate, expected):
    assert errors(reference, candidate) == expected


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


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        ("ETT in satisfactory position.", "ETT is malpositioned."),
        ("Pneumothorax.", "Pleural effusion."),
        ("Effusion.", "No effusion. Cardiomegaly."),
        ("ET tube 4 cm above the carina.", "ET tube in the right main bronchus."),
        # a general word means a specific finding only in its place, and an infiltrate is no scar
        ("Right lower lobe opacity.", "Left lower lobe pneumonia."),
        ("Right upper lobe atelectasis.", "Right lower lobe opacity."),
        ("Right lower lobe opacity.", "Right lower lobe scarring."),
        # a shadow is no nodule, and a calcified nodule is not a new one
        ("Patchy opacity in the right lower lobe.", "Nodule in the right lower lobe."),
        ("Calcified nodule in the left lung.", "6 mm nodule in the right lung."),
        ("Calcified nodule.", "Ground glass nodule."),
        # a benign finding is none that only has a similar name
        ("Aortic aneurysm.", "Tortuous aorta."),
        ("Enlarged lymph nodes.", "Tiny lymph nodes."),
    ],
)
def test_compare_findings_what_does_not_match(reference, candidate):
    found = compare_findings(reference, candidate)
    assert (found.matches, found.false, found.missing) == ((), (0,), (0,))


def test_compare_findings_nearest_concept_is_matched_first():
    found = compare_findings("Opacity. Atelectasis.", "Atelectasis. Opacity.")
    assert [(match.reference, match.candidate) for match in found.matches] == [((0,), (1,)), ((1,), (0,))]


@pytest.mark.parametrize(
    ("reference", "candidate", "matched"),
    [
        ("4 mm nodule in the left lung. 9 mm nodule in the right lung.", "Nodule.", 1),
        ("Nodule.", "4 mm nodule in the left lung. 9 mm nodule in the right lung.", 1),
        ("Pulmonary nodules.", "Nodule in the left lung. Nodule in the right lung.", 2),
        ("8 mm nodule in the right lung.", "8 mm nodule in the right lung. 25 mm nodule in the right lung.", 1),
        ("Nodules in the left lung.", "Nodule in the left lung. Nodule in the right lung.", 1),
        # a group covers what is neither larger nor more significant
        (
            "Multiple nodules up to 5 mm in both lungs.",
            "3 mm nodule in the right lung. 4 mm nodule in the left lung.",
            2,
        ),
        (
            "Multiple nodules up to 5 mm in both lungs.",
            "3 mm nodule in the right lung. 9 mm nodule in the left lung.",
            1,
        ),
        ("Multiple nodules in both lungs.", "Calcified nodule in the right lung. 4 mm nodule in the left lung.", 2),
        ("Calcified nodules in both lungs.", "Calcified nodule in the right lung. Nodule in the left lung.", 1),
    ],
)
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


@pytest.mark.parametrize(
    ("reference", "candidate", "false", "missing"),
    [
        ("Crazy paving in both lungs.", "Ground glass with septal thickening in both lungs.", 0, 0),
        ("Left pacemaker.", "Pacemaker with its generator on the left.", 0, 0),
        ("Pneumonia in the right lower lobe.", "Right lower lobe opacity and pneumonia.", 0, 0),
        ("Right lower lobe opacity, and pneumonia there.", "Pneumonia in the right lower lobe.", 0, 0),
        # a sign elsewhere is another finding
        ("Left lower lobe pneumonia.", "Left lower lobe pneumonia. Opacity in the right upper lobe.", 1, 0),
        # a name again, without a size of its own
        ("28 mm mass in the left lung.", "Lung carcinoma. The heart is normal. 28 mm mass in the left lung.", 0, 0),
        ("28 mm mass in the left lung.", "9 cm carcinoma of the left lung. 28 mm mass in the left lung.", 1, 0),
        ("28 mm mass in the left lung.", "Mass in the right lung. 28 mm mass in the left lung.", 1, 0),
        ("Calcified granuloma in the left lung.", "Granulomatous disease: calcified nodule in the left lung.", 0, 0),
        # a complication is another finding
        ("Sigmoid diverticulitis.", "Sigmoid diverticulitis with a pericolic abscess of 4 cm.", 1, 0),
        ("Right pulmonary embolism.", "Right pulmonary embolism. Infarct in the right lower lobe.", 1, 0),
        # a diagnosis states its signs if the reference states both in one sentence
        ("Emphysema with bullae in both lungs.", "Emphysema in both lungs.", 0, 0),
        ("Emphysema in both lungs. Bullae in both lungs.", "Emphysema in both lungs.", 0, 1),
        ("Septal thickening and ground-glass opacities, consistent with edema.", "Pulmonary edema.", 0, 0),
        # unless the diagnosis is in doubt
        ("Possible heart failure with cardiomegaly.", "Possible heart failure.", 0, 1),
        # and misses its complications
        ("Heart failure with edema and effusions.", "Heart failure.", 0, 2),
        ("Cirrhosis with ascites, splenomegaly and varices.", "Cirrhosis.", 0, 3),
        ("Goiter with tracheal stenosis.", "Goiter.", 0, 1),
        ("Acute pancreatitis with ascites.", "Acute pancreatitis.", 0, 1),
    ],
)
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
