"""The places that findings of one sentence share."""

import pytest

from rrg_rewards.findings import extract_findings
from tests.helpers.tables import read_tables

TABLES = read_tables(__file__)


@pytest.mark.parametrize(("sentence", "places"), TABLES["shared_places"])
def test_attributes_findings_share_a_place(sentence, places):
    found = {finding.concept: finding.attributes for finding in extract_findings(sentence)}
    assert {concept: (found[concept].laterality, found[concept].location) for concept in places} == places


def test_attributes_guess_in_parentheses_has_the_side_of_the_finding_before():
    consolidation, pneumonia = extract_findings("Consolidation is seen in the left lung lower lobe (pneumonia?).")
    assert (consolidation.location, pneumonia.location) == (("lower",), ())
    assert (consolidation.laterality, pneumonia.laterality) == ("left", "left")


@pytest.mark.parametrize(
    ("report", "place"),
    [
        ("Left basal opacity, likely atelectasis.", ("left", ("lower",), None)),
        ("Bilateral nodules of 3-5 mm. The largest, in the right lower lobe, measures 9 mm.", ("bilateral", (), 9.0)),
        ("Nodule of 5 mm. The largest diameter is 4 mm.", (None, (), 5.0)),
    ],
)
def test_attributes_of_an_interpretation_and_of_the_largest_lesion(report, place):
    found = extract_findings(report)[-1].attributes
    assert (found.laterality, found.location, found.size_mm) == place


@pytest.mark.parametrize(("heading", "number"), [("Clinical", 0), ("Critical", 1)])
def test_a_heading_of_one_word_is_a_request_only_as_it_is_written(heading, number):
    assert len(extract_findings(f"{heading}: pneumonia. Findings: clear.")) == number


def test_attributes_adjectives_of_a_noun_have_its_place():
    found = extract_findings(
        "Peribronchial ground-glass-like centriacinar nodular areas are seen in the right upper lobe."
    )
    assert {finding.laterality for finding in found} == {"right"}
