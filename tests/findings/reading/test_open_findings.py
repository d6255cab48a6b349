"""Statements that name no concept: what is a finding, its organ and its words."""

import pytest

from rrg_rewards.findings import abnormal_findings, extract_findings
from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.reading.finding import OTHER
from rrg_rewards.findings.reading.lexicon import load_lexicon
from tests.helpers.tables import read_tables

TABLES = read_tables(__file__)


def open_findings(report):
    return [found for found in extract_findings(report, open_findings=True) if found.concept == OTHER]


@pytest.mark.parametrize(
    "sentence",
    [
        "The pleura on the left is thickened and calcified",
        "Hazy attenuation, mainly in the right lower lobe",
        "The lower lobes of both lungs are the focus",
        "Partly imaged liver: round hypodensity in the left lobe",
    ],
)
def test_descriptions_and_places_are_no_open_findings(sentence):
    assert open_findings(sentence) == []


@pytest.mark.parametrize(("sentence", "organ", "words"), TABLES["found"], ids=lambda value: str(value)[:40])
def test_an_abnormal_statement_is_an_open_finding(sentence, organ, words):
    (found,) = open_findings(sentence)
    assert found.organ == organ
    assert set(words.split()) <= set(found.words)


@pytest.mark.parametrize("sentence", TABLES["explained"])
def test_a_denied_normal_or_technical_statement_is_no_finding(sentence):
    assert not open_findings(sentence)


def test_open_findings_are_read_on_request_only():
    report = "Thickened bladder wall and a small hiatal hernia."
    assert [found.concept for found in extract_findings(report)] == ["hiatal_hernia"]
    assert {found.concept for found in extract_findings(report, open_findings=True)} == {"hiatal_hernia", OTHER}


def test_a_repeated_statement_is_one_finding():
    report = "The bladder wall is thickened. The uterus is enlarged. Conclusion: Thickening of the bladder wall."
    found = abnormal_findings(report, extract_findings(report, open_findings=True))
    assert [finding.organ for finding in found] == ["bladder", "uterus"]


# Sentence, concept, organ.
ORGANS = [
    ("Effusion in the pericardium and pleura", "pericardial_effusion", "pericardium"),
    ("Pleural effusion next to the liver", "pleural_effusion", "pleura"),
    ("Foreign body in the stomach", "foreign_body", "gut"),
    ("Nodule in the left lower lobe", "lung_nodule", "lung"),
    ("Fracture of the orbit", "fracture", "head"),
    ("Fracture", "fracture", "bone"),
]


@pytest.mark.parametrize(("sentence", "concept", "organ"), ORGANS, ids=lambda value: str(value)[:40])
def test_a_named_finding_has_an_organ(sentence, concept, organ):
    assert organ in {found.organ for found in extract_findings(sentence) if found.concept == concept}


def test_every_concept_has_an_organ() -> None:
    # Neither nodes nor the diaphragm are sites of other findings.
    sites = {*load_lexicon("chest").organs, "node", "diaphragm", "any"}
    for entry in load_knowledge("concepts")["concepts"].values():
        assert {entry["organ"], *entry.get("also_in", ())} <= sites


@pytest.mark.parametrize(("text", "concepts"), TABLES["sentences"])
def test_findings_of_a_sentence(text: str, concepts: list[str]) -> None:
    found = abnormal_findings(text, extract_findings(text, open_findings=True))
    assert len(found) == len(concepts), found
    for finding, concept in zip(found, concepts, strict=True):
        assert finding.concept.startswith(concept)


@pytest.mark.parametrize(
    ("report", "concepts"),
    [
        ("Cardiothoracic ratio of 0.58.", ["cardiomegaly"]),
        ("CTR 62%.", ["cardiomegaly"]),
        ("The cardiothoracic ratio measures 55 percent.", ["cardiomegaly"]),
        ("Cardiothoracic ratio of 0.48.", []),
        ("CTR 50%.", []),
    ],
)
def test_a_cardiothoracic_ratio_above_one_half_is_an_enlarged_heart(report, concepts):
    assert [found.concept for found in extract_findings(report, open_findings=True)] == concepts
