"""The data on concepts, patients and significance hangs together and says what it should."""

import pytest

from rrg_rewards.findings.attributes import attribute_reader
from rrg_rewards.findings.concepts import ConceptGraph, concept_graph
from rrg_rewards.findings.knowledge_base import read_knowledge
from rrg_rewards.findings.patient import Patient, parse_age
from rrg_rewards.findings.significance import clinical_significance
from rrg_rewards.findings.types import Attributes
from rrg_rewards.findings.vocabulary import load_lexicon
from rrg_rewards.schemas import CT_RATE, SIGNIFICANCE_WEIGHTS


def test_every_concept_is_known_to_lexicon_and_knowledge():
    assert set(load_lexicon("chest").concepts) == set(read_knowledge("concepts")["concepts"])


def test_labels_of_ct_rate_are_concepts():
    lexicon = load_lexicon("chest")
    assert tuple(lexicon.labels) == CT_RATE.labels
    assert {concept for members in lexicon.labels.values() for concept in members} <= set(lexicon.concepts)


def test_every_concept_has_a_significance_for_every_patient():
    for concept in load_lexicon("chest").concepts:
        for age in (None, 0.1, 25, 50, 90):
            for severity in (None, "minimal", "mild", "moderate", "severe"):
                patient = Patient(age, frozenset(read_knowledge("concepts")["contexts"]))
                assert clinical_significance(concept, Attributes(severity=severity), patient) in SIGNIFICANCE_WEIGHTS


@pytest.mark.parametrize(
    ("concept", "attributes", "context", "level"),
    [
        ("tension_pneumothorax", {}, {}, "urgent"),
        ("pleural_effusion", {"severity": "moderate"}, {}, "actionable_not_urgent"),
        ("pleural_effusion", {"severity": "minimal"}, {}, "not_actionable_not_urgent"),
        ("lung_nodule", {}, {}, "actionable_not_urgent"),
        ("lung_nodule", {"morphology": ("calcified",)}, {}, "benign_expected"),
        ("degenerative_change", {}, {"age": "75"}, "benign_expected"),
        ("degenerative_change", {}, {"age": "20"}, "not_actionable_not_urgent"),
        ("tortuous_aorta", {}, {"age": "80"}, "benign_expected"),
        ("arterial_calcification", {}, {"age": "75"}, "benign_expected"),
        ("arterial_calcification", {}, {"age": "25"}, "actionable_not_urgent"),
        ("pneumomediastinum", {}, {"indication": "Road traffic accident"}, "urgent"),
        ("pneumomediastinum", {}, {"indication": "Post open heart surgery"}, "not_actionable_not_urgent"),
        ("endotracheal_tube", {"device_position": "malpositioned"}, {}, "urgent"),
        ("endotracheal_tube", {"device_position": "satisfactory"}, {}, "not_actionable_not_urgent"),
        ("fracture", {"acuity": "chronic"}, {}, "not_actionable_not_urgent"),
    ],
)
def test_significance(concept, attributes, context, level):
    assert clinical_significance(concept, Attributes(**attributes), Patient.from_context(context)) == level


@pytest.mark.parametrize(
    ("age", "years"),
    [
        ("066Y", 66),
        ("002D", 2 / 365.25),
        ("030M", 2.5),
        (82, 82),
        (82.5, 82.5),
        ("82 years", 82),
        ("6 weeks", 6 / 52.18),
    ],
)
def test_ages(age, years):
    assert parse_age(age) == pytest.approx(years)


@pytest.mark.parametrize("age", [None, "", "adult", "999", "nan", float("nan")])
def test_ages_that_cannot_be_read(age):
    assert parse_age(age) is None


def test_relations():
    graph, infected = concept_graph(), Patient(contexts=frozenset({"infection"}))
    assert graph.relation("pneumothorax", "tension_pneumothorax").kind == "overinterpretation"
    assert graph.relation("tension_pneumothorax", "pneumothorax").kind == "unspecific"
    assert graph.relation("consolidation", "pneumonia", infected).kind == "same"
    assert graph.relation("consolidation", "pneumonia").kind == "overinterpretation"
    assert graph.relation("lung_mass", "lung_nodule").kind == "descriptor"
    assert graph.relation("pneumothorax", "pleural_effusion") is None
    for first in load_lexicon("chest").concepts:
        assert graph.relation(first, first).distance == 0
        assert first not in graph.wider(first)


def test_knowledge_that_names_an_unknown_concept():
    with pytest.raises(ValueError, match="unknown concept 'opacty'; did you mean 'opacity'"):
        ConceptGraph({"opacity": {}, "pneumonia": {"is_a": ["opacty"]}})
    with pytest.raises(ValueError, match="unknown concept 'edma'"):
        ConceptGraph({"edema": {}, "failure": {"near": ["edma"]}})


def test_words_met_are_bounded():
    reader = attribute_reader()
    for number in range(100):
        reader.modifiers([f"word{number}"])
    assert len(reader._starts) <= 50_000
