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
        ("Interstitial lung disease.", [("interstitial_lung_disease", ())]),
        ("Right lower lobe opacity. Impression: Right lower lobe pneumonia.", [("pneumonia", ())]),
        ("Right effusion. Left effusion. Bilateral effusions.", [("pleural_effusion", ())] * 2),
        ("Blunted costophrenic angle, likely small effusion.", [("pleural_effusion", ())]),
        ("INDICATION: Pneumonia.\nFINDINGS: Small effusion.", [("pleural_effusion", ())]),
        ("Hydropneumothorax.", [("pneumothorax", ()), ("pleural_effusion", ())]),
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
