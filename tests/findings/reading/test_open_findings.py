"""Statements that name no concept: what is a finding, its organ and its words."""

import pytest

from rrg_rewards.findings import abnormal_findings, extract_findings
from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.reading.finding import OTHER
from rrg_rewards.findings.reading.lexicon import load_lexicon


def open_findings(report):
    return [found for found in extract_findings(report, open_findings=True) if found.concept == OTHER]


# Sentence, organ and some words of its only open finding.
FOUND = [
    ("The bladder wall is thickened", "bladder", "thickened wall"),
    ("The portal vein is dilated", "vessel", "vein dilated"),
    ("A cystic low-density shadow is seen in the right ovary", "uterus", "cystic low density"),
    ("Uneven density of the parotid glands", "neck", "density"),
    ("The tonsils are larger, the pharynx is narrowed", "neck", "larger narrowed"),
    ("The walls of the bladder are not smooth", "bladder", ""),
    ("The uterus was not observed", "uterus", "absent"),
    ("Prostatic angiomatosis of unknown kind", "prostate", "angiomatosis"),
    ("In the upper abdominal sections a hyperdense lesion was seen in the uterus", "uterus", "hyperdense lesion"),
    ("The density of the pancreas is decreased", "pancreas", "density decreased"),
    ("An appearance compatible with a polyp is seen in the bladder", "bladder", "polyp"),
    ("The bladder wall is thicker than normal", "bladder", "thicker"),
    ("The prostate is swollen", "prostate", "swollen"),
    ("The uterus is large", "uterus", "large"),
    ("The spleen has a normal size, its density is reduced", "spleen", "density reduced"),
    ("The left heart border is straight", "heart", "border straight"),
    ("The outline of the descending aorta is obscured", "aorta", "outline obscured"),
    ("The right lung expands poorly", "lung", "expands poorly"),
    ("Open sternum", "bone", "open"),
    ("Air tracking along the vessels", None, "air tracking"),
    ("The width of the trachea is above the upper limit", "airway", "width limit"),
]


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


@pytest.mark.parametrize(("sentence", "organ", "words"), FOUND, ids=lambda value: str(value)[:40])
def test_an_abnormal_statement_is_an_open_finding(sentence, organ, words):
    (found,) = open_findings(sentence)
    assert found.organ == organ
    assert set(words.split()) <= set(found.words)


# Sentences without an open finding.
EXPLAINED = [
    "No gallbladder wall thickening",
    "The uterus is not enlarged",
    "No space-occupying lesion was detected in the pancreas",
    "The bladder is of normal size, its wall is smooth",
    "The shape of the heart shadow is normal",
    "A bladder tumor could not be assessed because of artifacts",
    "Follow-up of the pancreatic cyst is recommended",
    "The pancreas is natural, the gallbladder is open and its density is uniform",
    "Hili are small",
    "The pulmonary hila are not large",
    "The density of the spleen is not low",
    "No clear abnormal density in the bladder",
    "No dilatation or increase in diameter was observed in the bladder",
    "Short axes of the upper and lower paratracheal nodes",
    "The abdominal cavity contains the pancreas",
    "Mosaic attenuation in both lungs (small airway disease? small vessel disease?)",
    "Atelectasis is seen, more prominent in the lower lobes",
    "It was evaluated in favor of metastasis",
    "The described appearance was considered to be a cyst",
    "A nodule with irregular contours is seen in the left lower lobe",
    "Lymph nodes smaller than 1 cm with fatty hilus",
    "Consolidation of the left lung, concerning for a neoplastic process",
    "Fibrotic bands, which cause structural distortion",
    "The boundary is not clear",
    "Masses of unusual size or form are absent",
    "The larger having a short axis of 8 mm",
    "The lung fields are obscured by overexposure",
    "A thin right paratracheal stripe",
]


@pytest.mark.parametrize("sentence", EXPLAINED)
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


@pytest.mark.parametrize(
    ("text", "concepts"),
    [
        # adjectives of one noun
        ("Multiple spot like and patchy low density shadows in the basal ganglia.", ["brain_low_density"]),
        ("Ill-defined punctate and patchy hypodensities in the brain.", ["brain_low_density"]),
        # what a mass does to its surroundings is no further finding
        ("A mass in the left lung, encasing the lower lobe bronchi.", ["lung_mass"]),
        # "it" is the organ if nothing abnormal was named before
        ("The diameter of the pulmonary artery was 34 mm and it shows dilatation.", ["pulmonary_hypertension"]),
        # an interpretation of an organ that the clause before names
        (
            "The left kidney is partly covered, its collecting system hardly, but the appearance suggests ectasia.",
            ["hydronephrosis"],
        ),
        # a heading before a denial
        ("Nodes/esophagus: No pathologic adenopathy.", []),
        ("Fuzzy shadows and transparent areas in the left lung.", ["lung_opacity", "bulla"]),
        ("Calcification of the aortic arch, the subclavian artery and the coronaries.", ["arterial_", "coronary_"]),
        ("Hypodense lesion in the middle zone of the left kidney.", ["renal_cyst"]),
        ("Ground glass opacities, peripheral/subpleural, with consolidation.", ["ground_glass", "consolidation"]),
        ("Coronary and aortic wall calcifications.", ["coronary_", "arterial_"]),
        ("Both lungs have a heterogeneous, mosaic-like density.", ["mosaic_attenuation"]),
        ("Collection of air in the right pleural cavity.", ["pneumothorax"]),
        ("Subpleural honeycomb cysts in the lower lobes.", ["interstitial_lung_disease"]),
        ("Thickened left adrenal gland with nodularity.", ["adrenal_thickening", "adrenal_nodule"]),
    ],
)
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
