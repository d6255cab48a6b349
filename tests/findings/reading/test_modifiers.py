"""Which words of a sentence say what about which finding."""

import pytest

from rrg_rewards.findings import Attributes, extract_findings
from tests.helpers.place_wordings import PLACES
from tests.helpers.tables import read_tables

TABLES = read_tables(__file__)


@pytest.mark.parametrize(("sentence", "concept", "attributes"), TABLES["said"])
def test_attributes_what_is_said(sentence, concept, attributes):
    found = {finding.concept: finding.attributes for finding in extract_findings(f"{sentence}.")}
    assert found[concept] == Attributes(**attributes)


@pytest.mark.parametrize(("sentence", "expected"), TABLES["sides"])
def test_attributes_whose_side(sentence, expected):
    found = {finding.concept: finding.laterality for finding in extract_findings(f"{sentence}.")}
    assert expected.items() <= found.items()


@pytest.mark.parametrize(("where", "side", "levels"), TABLES["places"])
def test_attributes_where(where, side, levels):
    finding = extract_findings(f"There is consolidation {where}.")[0]
    assert (finding.laterality, finding.location) == (side, levels)


@pytest.mark.parametrize(("where", "side", "levels"), PLACES)
@pytest.mark.parametrize("sentence", ["There is consolidation {}.", "Consolidation {}.", "Consolidation is seen {}."])
def test_attributes_wordings_of_places(sentence, where, side, levels):
    (finding,) = extract_findings(sentence.format(where))
    assert (finding.laterality, set(finding.location)) == (side, set(levels))


@pytest.mark.parametrize(("where", "places"), TABLES["sides_of_places"])
def test_attributes_each_place_keeps_its_side(where, places):
    finding = extract_findings(f"There are nodules {where}.")[0]
    assert tuple(finding.places) == places


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
