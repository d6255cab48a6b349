"""Mentions of a report to its findings."""

import pytest

from rrg_rewards.findings import abnormal_findings, extract_findings


def concepts(report):
    return [(found.concept, found.alternatives) for found in abnormal_findings(report, extract_findings(report))]


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ("No effusion. Clear lungs.", []),
        ("Opacity, most consistent with atelectasis.", [("atelectasis", ())]),
        ("Opacity. This likely represents pneumonia.", [("pneumonia", ())]),
        ("Opacity which could reflect pneumonia.", [("lung_opacity", ("pneumonia",))]),
        ("Opacity consistent with a pleural effusion.", [("pleural_effusion", ())]),
        ("Consolidation versus atelectasis.", [("consolidation", ("atelectasis",))]),
        # neither is the other's kind
        ("Cardiomegaly, likely from hiatal hernia.", [("cardiomegaly", ()), ("hiatal_hernia", ())]),
        ("Effusion. Consolidation. The effusion is small.", [("pleural_effusion", ()), ("consolidation", ())]),
        ("Left effusion. Right effusion.", [("pleural_effusion", ()), ("pleural_effusion", ())]),
        ("5 mm nodule. 9 mm nodule.", [("lung_nodule", ()), ("lung_nodule", ())]),
        ("Fracture of the T8 vertebra.", [("vertebral_compression", ())]),
        # two names in one noun phrase
        ("Consolidating opacities in both lungs.", [("consolidation", ())]),
        ("Scar-like opacity in the lingula.", [("fibrotic_sequela", ())]),
        ("Nodular density increase in the left lung.", [("lung_nodule", ())]),
        ("Infectious infiltrates in the left lung.", [("pneumonia", ())]),
        # names of two findings
        ("Interstitial and septal thickening.", [("interstitial_opacity", ()), ("septal_thickening", ())]),
        (
            "Calcified plaques in the aorta and coronary arteries.",
            [("coronary_calcification", ()), ("arterial_calcification", ())],
        ),
        ("Consolidation-atelectasis in the left lung.", [("consolidation", ()), ("atelectasis", ())]),
        ("Interstitial lung disease.", [("interstitial_lung_disease", ())]),
        ("Right lower lobe opacity. Impression: Right lower lobe pneumonia.", [("pneumonia", ())]),
        ("Right effusion. Left effusion. Bilateral effusions.", [("pleural_effusion", ())] * 2),
        ("Blunted costophrenic angle, likely small effusion.", [("pleural_effusion", ())]),
        ("INDICATION: Pneumonia.\nFINDINGS: Small effusion.", [("pleural_effusion", ())]),
        # the cause, in a later sentence
        ("Ground glass. No effusion. Viral pneumonia is considered.", [("ground_glass_opacity", ("pneumonia",))]),
        ("Ground glass. Correlate with the clinic in terms of pneumonia.", [("ground_glass_opacity", ("pneumonia",))]),
        ("Ground glass. Pneumonia in the left lower lobe.", [("ground_glass_opacity", ()), ("pneumonia", ())]),
        ("Pneumonia is considered in the etiology.", [("pneumonia", ())]),
        # a part of what is on both sides
        ("Ground glass in both lungs with crazy paving on the right.", [("ground_glass_opacity", ())]),
        ("Ground glass in the left lung, crazy paving in the right lung.", [("ground_glass_opacity", ())] * 2),
        ("Hydropneumothorax.", [("pneumothorax", ()), ("pleural_effusion", ())]),
        # a heading that the statement names again
        ("Nodes: two enlarged hilar nodes.", [("lymphadenopathy", ())]),
        ("Pneumonia: consolidation in the right lung.", [("pneumonia", ()), ("consolidation", ())]),
        ("Pacemaker in place. The device is in satisfactory position.", [("pacemaker", ())]),
        # a label names the organ although "lobar" is a word for parts of the lung
        ("Thyroid: bilateral lobar enlargement.", [("thyroid_enlargement", ())]),
        (
            "Pleura: small right effusion together with thickening.",
            [("pleural_effusion", ()), ("pleural_thickening", ())],
        ),
        # a name without an article describes the lesion before
        ("Nodules in both lungs, the largest is in the right lung (IM5), solid nodule, 4 mm.", [("lung_nodule", ())]),
        (
            "Bronchiectasis on the left, its wall is thickened.",
            [("bronchiectasis", ()), ("peribronchial_thickening", ())],
        ),
        ("The 8th rib is interrupted.", [("fracture", ())]),
        ("The liver has a nodular, undulating outline.", [("cirrhosis", ())]),
        ("A round low density can be seen in the liver.", [("hepatic_low_density", ())]),
        ("Density increases in ground glass density in both lungs.", [("ground_glass_opacity", ())]),
        ("Lungs: prominent, irregular bronchovascular markings.", [("increased_markings", ())]),
        # the findings after the section on the history are a list
        (
            "History: lung cancer.\n- Left lung: nodule.\n- Pleura: effusion.",
            [("lung_nodule", ()), ("pleural_effusion", ())],
        ),
        ("Beneath both hemidiaphragms there are multiple high-attenuation nodules.", [("lung_nodule", ())]),
        (
            "Pleura: large free right effusion, with collapse of the lung.",
            [("pleural_effusion", ()), ("atelectasis", ())],
        ),
        ("Multiple cord foci with high density shadow in the right lung.", [("fibrotic_sequela", ())]),
        ("Infiltration areas of ground glass density in both lungs.", [("ground_glass_opacity", ())]),
        ("Transparent areas under the pleura of both upper lungs.", [("bulla", ())]),
        ("Abdomen: rounded hypodensity, left hepatic lobe.", [("hepatic_low_density", ())]),
        ("Heart, airways, esophagus and mediastinal nodes unremarkable.", []),
        ("The transmittance of the lung fields is not uniform.", [("mosaic_attenuation", ())]),
        ("Beneath the skin of the back lies a soft-tissue mass.", [("chest_wall_mass", ())]),
        ("Linear/band-like opacities bilaterally.", [("fibrotic_sequela", ())]),
        # a nodule at a station of the mediastinal nodes
        ("Small nodules up to 7 mm in the paratracheal area.", [("lymph_node", ())]),
        # two adjectives with one noun
        ("Nodular and linear opacities in both lungs.", [("lung_nodule", ()), ("fibrotic_sequela", ())]),
        ("There are dilated, thick-walled bronchi.", [("bronchiectasis", ()), ("peribronchial_thickening", ())]),
    ],
)
def test_findings_of_a_report(report, expected):
    assert concepts(report) == expected


@pytest.mark.parametrize(
    ("report", "position"),
    [
        ("ET tube tip in the right mainstem bronchus.", "malpositioned"),
        ("Right mainstem intubation.", "malpositioned"),
        ("NG tube tip in the stomach.", "satisfactory"),
        ("PICC tip in the SVC.", "satisfactory"),
        # only a device has a position
        ("Nodule with retraction of the pleura.", None),
        ("ET tube and NG tube are in satisfactory position.", "satisfactory"),
    ],
)
def test_positions_of_devices(report, position):
    found = abnormal_findings(report, extract_findings(report))
    assert {finding.device_position for finding in found} == {position}


def test_what_is_repeated_adds_up():
    report = "Pleural effusion on the left. Impression: Small effusion."
    (finding,) = abnormal_findings(report, extract_findings(report))
    assert (finding.laterality, finding.severity) == ("left", "mild")


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        # one lesion
        ("Calcified nodule. The size of the nodule is 6 mm.", [(None, 6.0)]),
        ("A nodule in the right lung. The nodule size is about 6x5mm.", [("right", 6.0)]),
        ("A nodule in the right lung. Nodule size 6 mm.", [("right", 6.0)]),
        ("A nodule in the right lung. The lesion measures 6 mm.", [("right", 6.0)]),
        ("A nodule of 6 mm in the right lung. The nodule is in the upper lobe.", [("right", 6.0)]),
        # one group with the size of its largest
        ("Nodules in both lungs. The largest nodule is in the left lower lobe and 7 mm.", [("bilateral", 7.0)]),
        ("Nodules in both lungs, the larger one in the left lower lobe. The size is 7 x 5 mm.", [("bilateral", 7.0)]),
        ("Two nodules in the left lung. The larger is 7 mm.", [("left", 7.0)]),
        ("Nodules of 4 mm in both lungs. The largest nodule is 7 mm.", [("bilateral", 7.0)]),
        ("Nodules in both lungs. The largest of these is 7 mm.", [("bilateral", 7.0)]),
        ("Several nodules in the lung. The larger nodule is in the left lung.", [("left", None)]),
        ("Nodules in both lungs. The ground glass nodule is 7 mm.", [("bilateral", 7.0)]),
        # several
        ("A ground glass nodule in the right lung. A calcified nodule in the right lung.", [("right", None)] * 2),
        (
            "A solid nodule in the left lung. The nodule is 5 mm. A subsolid nodule. The nodule is 4 mm.",
            [("left", 5.0), (None, 4.0)],
        ),
        ("A nodule. A second nodule in the left lung.", [(None, None), ("left", None)]),
        ("A nodule in the left lung. The right nodule is 4 mm.", [("left", None), ("right", 4.0)]),
        # of something else
        ("A nodule in the left lung. The diameter of the aorta is 35 mm.", [("left", None)]),
        ("A nodule in the left lung. The size of the heart is normal.", [("left", None)]),
    ],
)
def test_one_lesion_is_one_finding(report, expected):
    found = abnormal_findings(report, extract_findings(report))
    assert [(finding.laterality, finding.size_mm) for finding in found] == expected
