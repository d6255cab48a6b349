"""The data on concepts hangs together, and says how they are related."""

import pytest

from rrg_rewards.findings.knowledge.concepts import ConceptGraph, concept_graph
from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.reading.finding import OTHER
from rrg_rewards.findings.reading.lexicon import load_lexicon


def test_every_concept_is_known_to_lexicon_and_knowledge():
    assert {*load_lexicon("chest").concepts, OTHER} == set(load_knowledge("concepts")["concepts"])


def test_concept_graph_relations():
    graph = concept_graph()
    assert graph.relation("lucency", "pneumothorax").kind == "overinterpretation"
    assert graph.relation("tension_pneumothorax", "lucency").kind == "unspecific"
    assert graph.relation("consolidation", "pneumonia").kind == "overinterpretation"
    assert graph.relation("lung_mass", "lung_nodule").kind == "descriptor"
    assert graph.relation("pneumothorax", "pleural_effusion") is None
    for first in load_lexicon("chest").concepts:
        assert graph.relation(first, first).distance == 0
        assert first not in graph.wider(first)


def test_concept_graph_refuses_an_unknown_concept():
    with pytest.raises(ValueError, match="unknown concept 'opacty'; did you mean 'opacity'"):
        ConceptGraph({"opacity": {}, "pneumonia": {"is_a": ["opacty"]}})
    with pytest.raises(ValueError, match="unknown concept 'edma'"):
        ConceptGraph({"edema": {}, "failure": {"near": ["edma"]}})
