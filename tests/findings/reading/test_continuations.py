"""Sentences without a finding of their own: items of a list of lesions that leave out the name of the lesion."""

import pytest

from rrg_rewards.findings import Finding, abnormal_findings, extract_findings


def found(text: str) -> list[Finding]:
    return abnormal_findings(text, extract_findings(text, open_findings=True))


@pytest.mark.parametrize(
    "text",
    [
        "Nodules: right upper lobe, 4 mm; left upper lobe, 3 mm.",
        "Nodules:\n- RUL 4 mm\n- LUL, approx. 3 mm",
        "There is a nodule of 4 mm in the RUL. Another of 3 mm in the LUL.",
    ],
)
def test_each_item_is_a_lesion(text: str) -> None:
    nodules = [(nodule.concept, nodule.laterality, nodule.location, nodule.size_mm) for nodule in found(text)]
    assert nodules == [("lung_nodule", "right", ("upper",), 4.0), ("lung_nodule", "left", ("upper",), 3.0)]


def test_an_item_has_the_name_of_its_list() -> None:
    report = "Nodules: right upper lobe, 4 mm; left upper lobe, 3 mm."
    assert [report[nodule.start : nodule.end] for nodule in found(report)] == ["Nodules", "Nodules"]


@pytest.mark.parametrize(
    "text",
    [
        # a denied lesion has no items
        "No nodule. 4 mm in the left upper lobe.",
        # the size of something else
        "A nodule is seen. The aorta measures 38 mm on the right.",
        "A nodule in the left lung. Heart 12 cm.",
        # not a lesion that can be counted
        "Emphysema. 4 mm in the left upper lobe.",
    ],
)
def test_other_sentences_are_no_items(text: str) -> None:
    assert [finding.concept for finding in found(text)].count("lung_nodule") < 2
    assert all(finding.size_mm is None for finding in found(text))


def test_the_largest_is_no_further_lesion() -> None:
    (nodules,) = found("Both lungs: small nodules. The largest, subpleural in the left lower lobe, is about 6 mm.")
    assert (nodules.laterality, nodules.size_mm) == ("bilateral", 6.0)
