"""Statements that say the same of an organ in other words are of one concept."""

import pytest

from rrg_rewards.findings import abnormal_findings, extract_findings
from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.findings.reading.wordings import composed_concept
from rrg_rewards.metrics import CRIMSON

LARGE = [
    "The {} is dilated.",
    "Dilated {}.",
    "Dilatation of the {}.",
    "Widening of the {}.",
    "The {} appears prominent.",
    "The caliber of the {} is increased.",
    "Increased caliber of the {}.",
    "The diameter of the {} has increased.",
    "The {} is wider than normal.",
    "The {} measures 45 mm and is dilated.",
    "The {} is distended.",
    "The {} is of increased width.",
]
THICK = [
    "The {} is thickened.",
    "Thickening of the {}.",
    "The thickness of the {} is increased.",
    "Increased thickness of the {}.",
    "The {} appears thicker than normal.",
]
LOW_FOCUS = [
    "Hypodense lesion in the {}.",
    "Low density shadow in the {}.",
    "A focus of low attenuation in the {}.",
    "Hypodensity in the {}.",
    "Area of decreased attenuation in the {}.",
    "Hypodense focal lesion, {}.",
]
SMALL = ["The {} is atrophic.", "Small {}.", "Decreased size of the {}.", "The volume of the {} is reduced."]
CALCIFIED = [
    "Calcification in the {}.",
    "Calcified focus in the {}.",
    "Punctate hyperdensity in the {}.",
    "Punctate high density shadow in the {}.",
    "Small calcifications of the {}.",
]


def concepts(text: str) -> list[str]:
    return [finding.concept for finding in abnormal_findings(text, extract_findings(text, open_findings=True))]


@pytest.mark.parametrize(
    ("wordings", "organ", "concept"),
    [
        (LARGE, "pulmonary artery", "pulmonary_hypertension"),
        (LARGE, "ascending aorta", "aortic_aneurysm"),
        (LARGE, "left atrium", "cardiomegaly"),
        (LARGE, "liver", "hepatomegaly"),
        (LARGE, "spleen", "splenomegaly"),
        (LARGE, "esophagus", "esophageal_dilatation"),
        (LARGE, "common bile duct", "biliary_dilatation"),
        (LARGE, "renal pelvis", "hydronephrosis"),
        (LARGE, "pancreatic duct", "pancreatic_duct_dilatation"),
        (LARGE, "ventricles of the brain", "brain_atrophy"),
        (LARGE, "stomach", "bowel_dilatation"),
        (THICK, "pleura", "pleural_thickening"),
        (THICK, "pericardium", "pericardial_thickening"),
        (THICK, "gallbladder wall", "gallbladder_thickening"),
        (THICK, "esophageal wall", "esophageal_thickening"),
        (THICK, "fissure", "pleural_thickening"),
        (LOW_FOCUS, "liver", "hepatic_low_density"),
        (LOW_FOCUS, "right kidney", "renal_cyst"),
        (LOW_FOCUS, "spleen", "spleen_lesion"),
        (LOW_FOCUS, "left adrenal gland", "adrenal_nodule"),
        (SMALL, "pancreas", "pancreatic_atrophy"),
        (SMALL, "kidney", "renal_atrophy"),
        (CALCIFIED, "liver", "hepatic_calcification"),
        (CALCIFIED, "spleen", "spleen_calcification"),
        (CALCIFIED, "left lung", "calcified_nodule"),
        (CALCIFIED, "aortic wall", "arterial_calcification"),
    ],
)
def test_composed_concept_all_wordings_name_one_concept(wordings: list[str], organ: str, concept: str) -> None:
    found = {wording: concepts(wording.format(organ)) for wording in wordings}
    assert found == {wording: [concept] for wording in wordings}


@pytest.mark.parametrize(
    ("text", "concept"),
    [
        # the size of a lesion is none of its organ
        ("Large abscess in the pancreas.", "other_finding"),
        ("Small calcifications of the uterus.", "other_finding"),
        # the organ as a whole, and a part of it
        ("The liver has a low density.", "hepatic_steatosis"),
        ("There are areas of low density in the liver.", "hepatic_low_density"),
        # the markings of the bronchi, and not their walls
        ("Coarse bronchovascular markings of the lungs (reticulated).", "increased_markings"),
        # the part is named in the clause before
        ("The left renal collecting system is only partly covered, but is wider than normal.", "hydronephrosis"),
    ],
)
def test_composed_concept_composition_depends_on_what_is_said(text: str, concept: str) -> None:
    assert concepts(text) == [concept]


@pytest.mark.parametrize("text", ["The pulmonary artery is not dilated.", "Aorta of normal caliber, not increased."])
def test_composed_concept_denied_statement_names_no_concept(text: str) -> None:
    assert concepts(text) == []


def test_composed_concept_rules_name_known_organs_and_concepts() -> None:
    lexicon = load_lexicon("chest")
    known = set(lexicon.concepts)
    for organ, rules in load_knowledge("compositions").items():
        assert organ == "none" or organ in lexicon.organs
        assert {rule["concept"] for rule in rules} <= known


def test_composed_concept_unknown_organ_makes_no_concept() -> None:
    assert composed_concept("toe", ["dilated"], ["dilated"]) is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("infarction of the spleen", "splenic infarct"),
        ("inflamed urethra", "urethral inflammation"),
        ("torsion of the ovary", "twisted ovary"),
        ("scarring of the prostate", "prostatic fibrosis"),
        ("necrotic bladder", "bladder necrosis"),
        ("splaying of the kidney", "splayed kidney"),
    ],
)
def test_a_noun_and_an_adjective_of_one_finding_score_one_in_both_directions(first, second):
    assert CRIMSON().score([first, second], [second, first]).value.tolist() == [1.0, 1.0]
