"""Attributes in many forms of statements: positions of devices, changes and places."""

from pathlib import Path

import pytest
import yaml

from rrg_rewards.findings import Finding, extract_findings
from rrg_rewards.findings.reading.merge_mentions import abnormal_findings

FORMS = yaml.safe_load(Path(__file__).with_name("attribute_forms.yaml").read_text(encoding="utf-8"))
CHANGING = ["pleural effusion", "lung nodule", "mass", "consolidation", "pneumothorax"]
PLACED = ["consolidation", "atelectasis", "nodules", "fibrotic bands", "emphysema", "ground-glass opacity"]
LEVELS = {"upper", "middle", "lower"}


def findings(report: str) -> list[Finding]:
    return abnormal_findings(report, extract_findings(report, open_findings=True))


def filled(form: str, name: str) -> str:
    if name.endswith("s"):
        form = form.replace("there is", "there are").replace("There is", "There are")
    if name == "consolidation":
        form = form.replace(" a {x}", " {x}").replace("A {x}", "{X}")
    return form.format(x=name, X=name[0].upper() + name[1:])


@pytest.mark.parametrize("position", FORMS["devices"])
def test_device_position_in_many_forms(position: str) -> None:
    wrong = {}
    for device, reports in FORMS["devices"][position].items():
        for report in reports:
            stated = [one.attributes.device_position for one in findings(report) if one.concept == device]
            if not stated or (stated[0] == "malpositioned") != (position == "malpositioned"):
                wrong[report] = stated
    assert wrong == {}


@pytest.mark.parametrize("change", FORMS["changes"])
def test_change_in_many_forms(change: str) -> None:
    reports = [filled(form, name) for form in FORMS["changes"][change] for name in CHANGING]
    read = {report: [one.change for one in findings(report)] for report in reports}
    assert {report: stated for report, stated in read.items() if stated != [change]} == {}


@pytest.mark.parametrize("place", FORMS["places"], ids=lambda place: f"{place['side']}-{place['level']}")
def test_place_in_many_forms(place: dict[str, str]) -> None:
    reports = [filled(form, name) for form in place["forms"] for name in PLACED]
    expected = [(place["side"], {place["level"]} & LEVELS)]
    read = {
        report: [(one.laterality, LEVELS.intersection(one.location)) for one in findings(report)] for report in reports
    }
    assert {report: stated for report, stated in read.items() if stated != expected} == {}
