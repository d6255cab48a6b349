"""Mentions of a report to its findings."""

import pytest

from rrg_rewards.findings import abnormal_findings, extract_findings
from tests.helpers.tables import read_tables

TABLES = read_tables(__file__)


def concepts(report):
    return [(found.concept, found.alternatives) for found in abnormal_findings(report, extract_findings(report))]


@pytest.mark.parametrize(("report", "expected"), TABLES["reports"])
def test_abnormal_findings_of_a_report(report, expected):
    assert concepts(report) == list(expected)


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
def test_abnormal_findings_positions_of_devices(report, position):
    found = abnormal_findings(report, extract_findings(report))
    assert {finding.device_position for finding in found} == {position}


def test_abnormal_findings_what_is_repeated_adds_up():
    report = "Pleural effusion on the left. Impression: Small effusion."
    (finding,) = abnormal_findings(report, extract_findings(report))
    assert (finding.laterality, finding.severity) == ("left", "mild")


@pytest.mark.parametrize(("report", "expected"), TABLES["lesions"])
def test_abnormal_findings_one_lesion_is_one_finding(report, expected):
    found = abnormal_findings(report, extract_findings(report))
    assert [(finding.laterality, finding.size_mm) for finding in found] == list(expected)


def _said(report):
    """What a report says of each concept: side, levels and size of the abnormal ones, and which are denied."""
    mentions = extract_findings(report)
    abnormal = {
        (found.concept, found.presence, found.laterality, frozenset(found.location), found.size_mm)
        for found in abnormal_findings(report, mentions)
    }
    return abnormal, {found.concept for found in mentions if found.presence == "absent"}


@pytest.mark.parametrize(("wording", "other"), TABLES["wordings"])
def test_abnormal_findings_wordings_say_the_same(wording, other):
    abnormal, denied = said = _said(wording)
    assert abnormal or denied
    assert _said(other) == said


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ("Opacity (pneumonia) in the right lower lobe.", ["pneumonia"]),
        ("GGO (ground-glass opacity) in the left lung.", ["ground_glass_opacity"]),
        ("Increased density (consolidation) in the right middle lobe.", ["consolidation"]),
        ("Cystic lesions (bullae) in the apices.", ["bulla"]),
        ("Linear opacity (scar) at the left base.", ["fibrotic_sequela"]),
        ("Stones in the gallbladder (cholelithiasis).", ["gallstone"]),
        ("Consolidation (with air bronchograms) and effusion (small).", ["consolidation", "pleural_effusion"]),
    ],
)
def test_abnormal_findings_parentheses_gloss_the_finding_before_them(report, expected):
    assert [found.concept for found in abnormal_findings(report, extract_findings(report))] == expected


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ("Right rib fracture. Small effusion. Addendum: there is no rib fracture.", ["pleural_effusion"]),
        ("Nodule in the right upper lobe. On second look the nodule is a nipple shadow.", []),
        ("Small left pneumothorax. Erratum: the pneumothorax is artifactual.", []),
        ("Left nodule. Addendum: no nodule in the right lung.", ["lung_nodule"]),
        ("Consolidation in the left lower lobe. No consolidation elsewhere.", ["consolidation"]),
    ],
)
def test_abnormal_findings_an_addendum_withdraws_what_it_denies(report, expected):
    assert [found.concept for found in abnormal_findings(report, extract_findings(report))] == expected


@pytest.mark.parametrize(
    ("report", "concepts"),
    [
        ("There is a collection of 25 mm, most likely loculated pleural fluid.", ["pleural_effusion"]),
        ("Loculated collection, probably an empyema, on the right.", ["empyema"]),
    ],
)
def test_abnormal_findings_open_finding_is_what_it_is_said_to_be(report, concepts):
    found = abnormal_findings(report, extract_findings(report, open_findings=True))
    assert [finding.concept for finding in found] == concepts


def test_abnormal_findings_described_lesion_is_the_one_that_a_later_sentence_introduces():
    report = "The described mass is stable. A mass of 64 mm is seen in the right upper lobe."
    (finding,) = abnormal_findings(report, extract_findings(report))
    assert (finding.size_mm, finding.change) == (64.0, "stable")


def test_merged_mentions_keep_their_alternatives():
    report = "Mosaic attenuation with expiratory air trapping, suspicious for bronchiolitis obliterans."
    (finding,) = abnormal_findings(report, extract_findings(report))
    assert (finding.concept, finding.alternatives) == ("mosaic_attenuation", ("obliterative_bronchiolitis",))
