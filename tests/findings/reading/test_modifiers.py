"""Which words of a sentence say what about which finding."""

import pytest

from rrg_rewards.findings import Attributes, extract_findings
from tests.helpers.place_wordings import PLACES

# Sentence, concept, what is said of it.
SAID = [
    ("Small left pleural effusion", "pleural_effusion", Attributes(laterality="left", severity="mild")),
    ("Pleural effusion on the left", "pleural_effusion", Attributes(laterality="left")),
    ("Left-sided effusion is large", "pleural_effusion", Attributes(laterality="left", severity="severe")),
    ("Effusions in both pleural spaces", "pleural_effusion", Attributes(laterality="bilateral")),
    ("Opacity, right greater than left", "lung_opacity", Attributes(laterality="bilateral")),
    ("RLL consolidation", "consolidation", Attributes(laterality="right", location=("lower",))),
    ("The nodule is not in the left upper lobe", "lung_nodule", Attributes()),
    ("The nodule is not in the left but in the right lung", "lung_nodule", Attributes(laterality="right")),
    ("The endotracheal tube is not in the right main bronchus", "endotracheal_tube", Attributes()),
    ("Bibasilar atelectasis", "atelectasis", Attributes(laterality="bilateral", location=("lower",))),
    ("Atelectasis in the lung bases", "atelectasis", Attributes(location=("lower",))),
    ("The heart is mildly enlarged", "cardiomegaly", Attributes(severity="mild")),
    ("Nodule of 2.5 x 3 cm", "lung_nodule", Attributes(size_mm=30.0, short_axis_mm=25.0)),
    ("A 4mm nodule", "lung_nodule", Attributes(size_mm=4.0)),
    ("Nodule, 5 to 7 mm in diameter", "lung_nodule", Attributes(size_mm=7.0)),
    ("Fracture of the left tenth rib", "fracture", Attributes(laterality="left", location=("rib_10",))),
    ("Acute nondisplaced fracture", "fracture", Attributes(morphology=("nondisplaced",), acuity="acute")),
    ("Unchanged effusion", "pleural_effusion", Attributes(change="stable")),
    ("The effusion has decreased in size", "pleural_effusion", Attributes(change="decreased")),
    ("Probable hiatal hernia", "hiatal_hernia", Attributes(certainty="likely")),
    ("Diffuse streaky opacities", "lung_opacity", Attributes(extent="diffuse", morphology=("linear",))),
    (
        "Endotracheal tube tip 5 cm above the carina",
        "endotracheal_tube",
        Attributes(size_mm=50.0, device_position="satisfactory"),
    ),
    (
        "Endotracheal tube tip 5 mm above the carina",
        "endotracheal_tube",
        Attributes(size_mm=5.0, device_position="malpositioned"),
    ),
    ("PICC tip in the SVC", "central_line", Attributes(location=("svc",))),
    ("12x9 mm nodule", "lung_nodule", Attributes(size_mm=12.0, short_axis_mm=9.0)),
    ("Nodule of 1.2 \u00d7 0.9 cm", "lung_nodule", Attributes(size_mm=12.0, short_axis_mm=9.0)),
    # a part has the place that is stated for all
    (
        "Nodules, some of which have a tree-in-bud appearance, more prominent in the lower lobes of both lungs",
        "lung_nodule",
        Attributes("bilateral", ("lower",)),
    ),
    ("Infection of both lungs in the form of a tree-in-bud pattern", "tree_in_bud", Attributes("bilateral")),
    ("Stones in the left kidney and a renal cyst in the upper pole", "renal_cyst", Attributes("left")),
    # what it was before
    ("The nodule decreased from 12 mm to 8 mm", "lung_nodule", Attributes(size_mm=8.0, change="decreased")),
    ("8 mm nodule, previously 5 mm", "lung_nodule", Attributes(size_mm=8.0, change="increased")),
    ("8 mm nodule (previously 7 mm)", "lung_nodule", Attributes(size_mm=8.0, change="stable")),
    ("The nodule shrank from 2.6 to 1.2 cm", "lung_nodule", Attributes(size_mm=12.0, change="decreased")),
    ("8 mm nodule, up from 4 mm", "lung_nodule", Attributes(size_mm=8.0, change="increased")),
    ("8 mm nodule superior segment of the RLL", "lung_nodule", Attributes("right", ("lower",), size_mm=8.0)),
    # by how much it changed is not how large it is
    ("No significant interval change in the right effusion", "pleural_effusion", Attributes("right", change="stable")),
    ("The effusion has slightly increased", "pleural_effusion", Attributes(change="increased")),
    ("Marked decrease in the small effusion", "pleural_effusion", Attributes(severity="mild", change="decreased")),
    # denied
    ("8 mm non-calcified nodule", "lung_nodule", Attributes(size_mm=8.0)),
    ("Non-specific millimetric nodule", "lung_nodule", Attributes(severity="minimal")),
    ("Fracture without significant displacement", "fracture", Attributes()),
    ("There is no right but a small left effusion", "pleural_effusion", Attributes("left", severity="mild")),
    # of what is normal
    ("Opacity on the right and the left lung is clear", "lung_opacity", Attributes(laterality="right")),
    # a chamber of the heart is no side
    ("Pacemaker leads in the right atrium", "pacemaker", Attributes(location=("right_atrium",))),
]


@pytest.mark.parametrize(("sentence", "concept", "attributes"), SAID)
def test_attributes_what_is_said(sentence, concept, attributes):
    found = {finding.concept: finding.attributes for finding in extract_findings(f"{sentence}.")}
    assert found[concept] == attributes


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Small left effusion and right basilar atelectasis", {"pleural_effusion": "left", "atelectasis": "right"}),
        ("Effusion on the left with consolidation", {"pleural_effusion": "left", "consolidation": None}),
        ("Left effusion, right pneumothorax", {"pleural_effusion": "left", "pneumothorax": "right"}),
        (
            "Consolidation in the right lung, small left effusion",
            {"consolidation": "right", "pleural_effusion": "left"},
        ),
        # what follows two findings is said of both
        ("Consolidation and effusion on the right", {"consolidation": "right", "pleural_effusion": "right"}),
        ("Pericardial and left pleural effusion", {"pleural_effusion": "left"}),
        ("Bilateral pleural effusion and pleural thickening", {"pleural_thickening": "bilateral"}),
        ("In the left lung, there are consolidation and atelectasis", {"consolidation": "left", "atelectasis": "left"}),
        # a list shares its place
        ("Bronchiectasis, mild atelectasis and some thick bands are seen in the left lung", {"bronchiectasis": "left"}),
        ("Effusion of 2 cm in thickness and atelectasis are seen on the left", {"pleural_effusion": "left"}),
        ("Emphysema, a nodule in the right lung", {"emphysema": None, "lung_nodule": "right"}),
        ("Left pleural effusion and cardiomegaly", {"cardiomegaly": None}),
        ("Consolidation in the left lower lobe, and atelectasis is seen around it", {"atelectasis": "left"}),
        ("Consolidation is seen in the left lung (pneumonia?)", {"consolidation": "left"}),
        # statements of other organs
        ("A nodule is seen in the right lung, and both hila are not large", {"lung_nodule": "right"}),
        ("A nodule is seen in the right lung and the left lung is clear", {"lung_nodule": "right"}),
        ("Both hila are not large, a nodule is seen in the right lung", {"lung_nodule": "right"}),
        ("Markings of both lungs are clear, a nodule in the left lung", {"lung_nodule": "left"}),
        ("Right lung: nodule, left lung: clear", {"lung_nodule": "right"}),
        ("A nodule in the right lung, without nodes in both axillae", {"lung_nodule": "right"}),
        # the group's side, and where it is largest or most prominent
        ("Nodules in both lungs, the largest in the left upper lobe", {"lung_nodule": "bilateral"}),
        ("Nodules in the lung, the largest in the left upper lobe", {"lung_nodule": "left"}),
        ("Effusion, more prominent on the left", {"pleural_effusion": "left"}),
        (
            "More prominent on the right, there are consolidation and atelectasis in both lungs",
            {"consolidation": "bilateral", "atelectasis": "bilateral"},
        ),
    ],
)
def test_attributes_whose_side(sentence, expected):
    found = {finding.concept: finding.laterality for finding in extract_findings(f"{sentence}.")}
    assert expected.items() <= found.items()


@pytest.mark.parametrize(
    ("where", "side", "levels"),
    [
        ("in the lower lobe of the right lung", "right", ("lower",)),
        ("in the upper left lung", "left", ("upper",)),
        ("in the right upper and lower lobes", "right", ("upper", "lower")),
        ("in the upper and lower lobes of the left lung", "left", ("upper", "lower")),
        ("in both lower lobes and the right middle lobe", "bilateral", ("lower", "middle")),
        ("in the right and left lower lobes", "bilateral", ("lower",)),
        # segments
        ("in the dorsal segment of the right lung", "right", ("lower",)),
        ("in the superior segment on the left", "left", ("lower",)),
        ("in the anterior segment of the right upper lobe", "right", ("upper",)),
        ("in the posterior segment of the left lower lobe", "left", ("lower",)),
        ("in the front basal segment of the right lung", "right", ("lower",)),
        ("in the apicoposterior segment on the left", "left", ("upper",)),
        ("in the lateral segment of the right middle lobe", "right", ("middle",)),
        ("in the lingula", "left", ("middle",)),
        ("in the tongue segment of the upper lobe of the left lung", "left", ("middle", "upper")),
        ("in the lingular segment of the right lung", "right", ("middle",)),
    ],
)
def test_attributes_where(where, side, levels):
    finding = extract_findings(f"There is consolidation {where}.")[0]
    assert (finding.laterality, finding.location) == (side, levels)


@pytest.mark.parametrize(("where", "side", "levels"), PLACES)
@pytest.mark.parametrize("sentence", ["There is consolidation {}.", "Consolidation {}.", "Consolidation is seen {}."])
def test_attributes_wordings_of_places(sentence, where, side, levels):
    (finding,) = extract_findings(sentence.format(where))
    assert (finding.laterality, set(finding.location)) == (side, set(levels))


@pytest.mark.parametrize(
    ("where", "places"),
    [
        (
            "in the right upper and left lower lobe",
            [("right", ("upper",), None), ("left", ("lower",), None)],
        ),
        (
            "in both lower lobes and the right middle lobe",
            [("bilateral", ("lower",), None), ("right", ("middle",), None)],
        ),
        ("of 4 mm in the right and 6 mm in the left lung", [("right", (), 4.0), ("left", (), 6.0)]),
        (
            "in the right middle lobe and lingula",
            [("right", ("middle",), None), ("left", ("middle",), None)],
        ),
        # on both sides if the largest is not on the stated side
        (
            "in the right upper lobe, the largest in the left lower lobe",
            [("right", ("upper",), None), ("left", ("lower",), None)],
        ),
        ("in the right lung, the largest in the right lower lobe", []),
        ("in the right upper and lower lobe", []),
        ("in the right and left lung", []),
    ],
)
def test_attributes_each_place_keeps_its_side(where, places):
    finding = extract_findings(f"There are nodules {where}.")[0]
    assert list(finding.places) == places


@pytest.mark.parametrize(
    ("sentence", "change"),
    [
        ("Nodules, the larger one is 5 mm", None),
        ("Nodules, the larger in the right lung", None),
        ("Effusion, more prominent on the right", None),
        ("The nodule is larger", "increased"),
        ("The effusion has increased", "increased"),
    ],
)
def test_attributes_growth(sentence, change):
    assert extract_findings(f"{sentence}.")[0].change == change


@pytest.mark.parametrize(
    ("sentence", "morphology", "extent"),
    [
        ("A solid nodule", ("solid",), None),
        ("A part-solid nodule", ("part_solid",), None),
        ("A subsolid nodule", ("part_solid",), None),
        ("Two ground-glass nodules", ("ground_glass",), "multiple"),
        ("A non-solid nodule", ("ground_glass",), None),
        ("A single calcified nodule", ("calcified",), "focal"),
        ("Nodules, some of them calcified", ("partly_calcified",), None),
    ],
)
def test_attributes_kinds_of_nodules(sentence, morphology, extent):
    finding = extract_findings(f"{sentence}.")[0]
    assert (finding.morphology, finding.extent) == (morphology, extent)


def test_attributes_next_sentence_goes_on():
    finding = extract_findings("Nodule in the right upper lobe. It measures 8 mm. No effusion.")[0]
    assert finding.attributes == Attributes(laterality="right", location=("upper",), size_mm=8.0)
    tube = extract_findings("Endotracheal tube in place. This should be retracted.")[0]
    assert tube.device_position == "malpositioned"


def test_attributes_are_the_findings_own():
    finding = extract_findings("Large effusion.")[0]
    assert finding.severity == "severe"
    with pytest.raises(AttributeError, match="'Finding' object has no attribute 'colour'"):
        _ = finding.colour


def test_attributes_distances_and_withdrawals_are_no_sizes():
    assert extract_findings("PICC tip 2 cm below the carina.")[0].size_mm is None


def test_attributes_labels_lexicons_say_it_too():
    finding = extract_findings("Small hiatal hernia.", "chest_ct")[0]
    assert finding.severity == "mild"


@pytest.mark.parametrize("advice", ["Advance by 3 cm", "Retract 3 cm to lie above the carina", "Withdrawal is advised"])
def test_attributes_advice_to_move_a_device_says_that_it_is_malpositioned(advice):
    (tube,) = extract_findings(f"The endotracheal tube ends at the carina. {advice}.")
    assert (tube.concept, tube.device_position) == ("endotracheal_tube", "malpositioned")
