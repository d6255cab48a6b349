"""Clinical significance of findings, with the patient and the attributes that it depends on."""

import pytest

from rrg_rewards.findings.comparing.significance import clinical_significance
from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.knowledge.patient import Patient
from rrg_rewards.findings.reading.finding import Attributes
from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.schemas import SIGNIFICANCE_WEIGHTS
from tests.helpers.tables import read_tables

TABLES = read_tables(__file__)


def test_positions_of_devices_name_what_exists():
    concepts, locations = load_knowledge("concepts")["concepts"], load_knowledge("attributes")["location"]
    for concept, positions in load_knowledge("devices")["positions"].items():
        assert concept in concepts
        assert {place for places in positions.values() for place in places} <= set(locations), concept


def test_every_concept_has_a_significance_for_every_patient():
    for concept in load_lexicon("chest").concepts:
        for age in (None, 0.1, 25, 50, 90):
            for severity in (None, "minimal", "mild", "moderate", "severe"):
                patient = Patient(age, frozenset(load_knowledge("significance")["contexts"]))
                assert clinical_significance(concept, Attributes(severity=severity), patient) in SIGNIFICANCE_WEIGHTS


@pytest.mark.parametrize(("concept", "attributes", "context", "level"), TABLES["clinical_significance"])
def test_clinical_significance(concept, attributes, context, level):
    assert clinical_significance(concept, Attributes(**attributes), Patient.from_context(context)) == level


@pytest.mark.parametrize(
    ("words", "attributes", "level"),
    [
        (("splenic", "rupture"), {}, "urgent"),
        (("gastric", "perforated"), {}, "urgent"),
        (("fissure", "variation"), {}, "benign_expected"),
        (("stomach", "postoperative"), {}, "not_actionable_not_urgent"),
        (("ureter", "widened"), {"severity": "minimal"}, "not_actionable_not_urgent"),
        (("ureter", "widened"), {}, "actionable_not_urgent"),
    ],
)
def test_clinical_significance_of_open_findings(words, attributes, level):
    assert clinical_significance("other_finding", Attributes(**attributes), Patient(), words) == level
