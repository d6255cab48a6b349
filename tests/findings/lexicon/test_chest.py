"""Each finding of a chest CT is read as its concept and in its own organ, in the wordings of several hospitals.

It is not read if it is denied.
"""

from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from rrg_rewards.findings import abnormal_findings, extract_findings
from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.findings.reading.tokens import tokenise
from rrg_rewards.schemas import CT_RATE

# Sentence, and the concepts that it states.
CHEST = [
    ("Patchy shadows in both lower lobes.", "lung_opacity"),
    ("Cloudy and flocculent shadows are visible in the left lung.", "lung_opacity"),
    ("A patchy high-density shadow is seen in the right middle lobe.", "lung_opacity"),
    ("Exudative lesions in both lungs.", "lung_opacity"),
    ("A few cord-like shadows in the right upper lobe.", "fibrotic_sequela"),
    ("Streak-like high density shadows in the lingula.", "fibrotic_sequela"),
    ("Fibrous strip shadows at both apices.", "fibrotic_sequela"),
    ("Nodular high density shadow in the left lower lobe.", "lung_nodule"),
    ("A ground-glass density nodule in the right upper lobe.", "lung_nodule"),
    ("Soft tissue nodule in the right lung.", "lung_nodule"),
    ("Ground-glass opacities and nodular consolidations in the left lung.", "ground_glass_opacity consolidation"),
    ("Centriacinar nodular opacities in both lungs.", "centrilobular_nodules"),
    ("Subclavian vein thrombosis.", "venous_thrombosis"),
    ("Filling defect in the superior vena cava.", "venous_thrombosis"),
    ("Active contrast extravasation.", "active_bleeding"),
    ("Pulmonary contusion in the left lower lobe.", "pulmonary_hemorrhage"),
    ("Endobronchial lesion in the left main bronchus.", "airway_lesion"),
    ("Aberrant right subclavian artery.", "thoracic_variant"),
    ("Splenic granuloma.", "spleen_calcification"),
    ("Schmorl nodules.", "bone_anomaly"),
    ("Calcified nodule in the lingula.", "calcified_nodule"),
    ("Coarse calcification in the left lower lobe.", "calcified_nodule"),
    ("Calcified granuloma in the right lung.", "granuloma"),
    ("Centrilobular nodules in both upper lobes.", "centrilobular_nodules"),
    ("Tree-in-bud opacities in the right lower lobe.", "tree_in_bud"),
    ("Appearance of a budding tree in the lingula.", "tree_in_bud"),
    ("Diffuse miliary nodules.", "miliary_nodules"),
    ("Lung markings are increased and disordered.", "increased_markings"),
    ("Thickened bronchovascular bundles.", "peribronchial_thickening"),
    ("The bronchial walls are thickened.", "peribronchial_thickening"),
    ("Mucoid impaction in the left lower lobe.", "mucus_plug"),
    ("Secretions in the lumen of the trachea.", "mucus_plug"),
    ("The left main bronchus is narrowed.", "airway_stenosis"),
    ("Wall calcifications of the trachea.", "airway_calcification"),
    ("Right posterolateral tracheal diverticulum.", "tracheal_diverticulum"),
    ("Bullae at both apices.", "bulla"),
    ("Lucent areas in both upper lobes.", "bulla"),
    ("Paraseptal emphysaema in both lungs.", "emphysema"),
    ("Thin-walled air cyst in the right lower lobe.", "lung_cyst"),
    ("Air trapping in both lower lobes.", "mosaic_attenuation"),
    ("The translucency of both lungs is reduced.", "reduced_transparency"),
    ("Crazy paving in both lungs.", "ground_glass_opacity"),
    ("Honeycombing in the lung bases.", "interstitial_lung_disease"),
    ("Smooth thickening of the interlobular septa.", "septal_thickening"),
    ("Hypertrophy of both pleurae.", "pleural_thickening"),
    ("Bilateral pleural adhesions.", "pleural_thickening"),
    ("Pleural effusion with a thickness of 12 mm.", "pleural_effusion"),
    ("Encapsulated fluid in the right major fissure.", "pleural_effusion"),
    ("Pyothorax on the left.", "empyema"),
    ("Haemothorax on the right.", "pleural_effusion"),
    ("Subpleural lymph node at the minor fissure.", "intrapulmonary_node"),
    ("Several mediastinal lymph nodes with a short axis of 7 mm.", "lymph_node"),
    ("Enlarged lymph nodes in the mediastinum.", "lymphadenopathy"),
    ("Calcified lymph nodes in the left hilum.", "calcified_node"),
    ("Soft tissue nodule in the anterior mediastinum.", "mediastinal_mass"),
    ("Thymic remnant in the anterior mediastinum.", "thymic_tissue"),
    ("The ascending aorta measures 44 mm and is wider than normal.", "aortic_aneurysm"),
    ("Intimal flap in the descending aorta.", "aortic_dissection"),
    ("Penetrating ulcer of the aortic arch.", "aortic_dissection"),
    ("Thrombus in the right pulmonary artery.", "pulmonary_embolism"),
    ("Enlargement of the left atrium.", "cardiomegaly"),
    ("Circumferential thickening of the oesophageal wall.", "esophageal_thickening"),
]
ELSEWHERE = [
    ("Low density nodule in the right lobe of the thyroid.", "thyroid_lesion"),
    ("The thyroid gland is heterogeneous.", "thyroid_heterogeneity"),
    ("The size of the thyroid gland increased.", "thyroid_enlargement"),
    ("Nodule in the upper outer quadrant of the left breast.", "breast_lesion"),
    ("Silicone implants in both breasts.", "breast_implant"),
    ("Mass in the right chest wall.", "chest_wall_mass"),
    ("The density of the liver decreased uniformly.", "hepatic_steatosis"),
    ("Decreased attenuation of the liver.", "hepatic_steatosis"),
    ("Round low density shadow in the left lobe of the liver.", "hepatic_low_density"),
    ("Hypodense lesion in the right lobe of the liver.", "hepatic_low_density"),
    ("Patchy low density shadow in the liver.", "hepatic_lesion"),
    ("Haemangioma of the liver.", "hepatic_hemangioma"),
    ("Punctate calcification in the liver.", "hepatic_calcification"),
    ("The liver contours are nodular.", "cirrhosis"),
    ("Stones in the gall bladder.", "gallstone"),
    ("Polyp of the gallbladder.", "gallbladder_polyp"),
    ("The gallbladder wall is thickened.", "gallbladder_thickening"),
    ("State after cholecystectomy.", "cholecystectomy"),
    ("The gallbladder is operated.", "cholecystectomy"),
    ("Accessory spleen at the splenic hilum.", "accessory_spleen"),
    ("Spleen size increased.", "splenomegaly"),
    ("Calcification in the spleen.", "spleen_calcification"),
    ("Hypodense lesion in the left kidney.", "renal_cyst"),
    ("Solid mass in the left kidney.", "renal_mass"),
    ("Dense shadow in the right kidney.", "kidney_stone"),
    ("The right pelvicalyceal system is dilated.", "hydronephrosis"),
    ("The left kidney is atrophic.", "renal_atrophy"),
    ("Nodular thickening of the left adrenal gland.", "adrenal_thickening adrenal_nodule"),
    ("Adenoma of the right adrenal gland.", "adrenal_nodule"),
    ("Peripancreatic exudation.", "pancreatitis"),
    ("Fluid in the abdomen.", "ascites"),
    ("Umbilical hernia.", "abdominal_hernia"),
    ("The cortex of the left sixth rib is twisted.", "cortical_irregularity"),
    ("The cortex of the left sixth rib is discontinuous.", "fracture"),
    ("Wedge-shaped thoracic vertebrae.", "vertebral_compression"),
    ("Internal fixation of a clavicle fracture.", "orthopedic_hardware"),
    ("Bone island in the T8 vertebra.", "bone_island"),
    ("Haemangioma in the T8 vertebra.", "hemangioma"),
    ("Intervertebral disc spaces are narrowed.", "degenerative_change"),
    ("The density of the bones is reduced.", "osteopenia"),
    ("Low density shadows in the basal ganglia.", "brain_low_density"),
    ("High density shadow in the left temporal lobe.", "brain_hemorrhage"),
    ("The sulci and cisterns are widened.", "brain_atrophy"),
    ("The midline structures are shifted to the left.", "midline_shift"),
    ("Mucosal thickening of the maxillary sinus.", "sinusitis"),
]


LIKE_SHADOWS = [
    ("There is a band-like opacity in the right lower lobe.", "fibrotic_sequela"),
    ("Cord bands are seen in the left upper lung.", "fibrotic_sequela"),
    ("Both lungs show disorganised lung markings.", "increased_markings"),
    ("The liver is uniformly hypoattenuating.", "hepatic_steatosis"),
    ("Ground-glass opacification of both lungs.", "ground_glass_opacity"),
    ("Right pleural effusion 26 mm thick.", "pleural_effusion"),
    ("The interlobular septa of both lungs are thickened.", "septal_thickening"),
    ("Multiple stones with a diameter of 4 mm are observed in the middle zone of the left kidney.", "kidney_stone"),
]


@pytest.mark.parametrize(("sentence", "concepts"), CHEST + ELSEWHERE + LIKE_SHADOWS)
def test_concepts_of_chest_ct(sentence, concepts):
    assert {found.concept for found in extract_findings(sentence) if found.presence == "present"} == set(
        concepts.split()
    )


@pytest.mark.parametrize(
    "sentence",
    [
        "The liver density is normal.",
        "Gallbladder wall thickness is natural.",
        "The lung fields have good transparency.",
        "Calibrations of the thoracic aorta are natural.",
        "The trachea is in the middle.",
        "Both pulmonary hila are not large.",
        "The midline structure is in the middle.",
        "The lung markings are clear.",
        "Both adrenals are normal in thickness.",
        "The wall of the esophagus is not significantly thickened.",
        "The lungs are well expanded and lucent.",
    ],
)
def test_normal_anatomy_is_no_concept(sentence):
    assert [found.concept for found in extract_findings(sentence) if found.presence == "present"] == []


# Wordings of the findings outside the lungs.
BODY_WORDINGS = yaml.safe_load(Path(__file__).with_name("body_wordings.yaml").read_text(encoding="utf-8"))
BODY_NORMAL = BODY_WORDINGS.pop("normal")
BODY_VERBS = frozenset(
    {"is", "are", "was", "were", "has", "have", "shows", "show", "contains", "contain", "end", "being"}
)
ARTICLES = ("A", "An", "The")
# Operations and replaced organs are not denied in these forms.
OPERATIONS = frozenset({"postsurgical_change", "cholecystectomy", "prosthetic_valve"})


def sentences(text: str) -> list[str]:
    """Return the sentences of a block."""
    return [f"{sentence}." for sentence in text.rstrip(".").split(". ")]


def concepts(sentence: str) -> list[str]:
    """Return the concepts of the abnormal findings of a sentence."""
    found = abnormal_findings(sentence, extract_findings(sentence, open_findings=True))
    return [finding.concept for finding in found]


def denials(sentence: str) -> list[str]:
    """Return denials of a sentence that is a noun phrase, and none for other sentences."""
    words = sentence.rstrip(".").split()
    if ":" in sentence or BODY_VERBS.intersection(word.lower() for word in words):
        return []
    phrase = " ".join(words[1:] if words[0] in ARTICLES else words)
    phrase = phrase if phrase[:2].isupper() else phrase[0].lower() + phrase[1:]
    return [f"No {phrase}.", f"No evidence of {phrase}.", f"{phrase[0].upper()}{phrase[1:]} was not detected."]


@pytest.mark.parametrize("concept", BODY_WORDINGS)
def test_each_wording_of_the_body_is_its_concept(concept):
    wrong = {text: found for text in sentences(BODY_WORDINGS[concept]) if (found := concepts(text)) != [concept]}
    assert wrong == {}


@pytest.mark.parametrize("concept", sorted(BODY_WORDINGS.keys() - OPERATIONS))
def test_a_denied_wording_of_the_body_is_no_finding(concept):
    denied = [denial for text in sentences(BODY_WORDINGS[concept]) for denial in denials(text)]
    assert denied
    assert {text: found for text in denied if (found := concepts(text))} == {}


def test_normal_sentences_on_the_body_state_no_finding():
    assert {text: found for text in sentences(BODY_NORMAL) if (found := concepts(text))} == {}


# Wordings of the findings of lungs, airways and pleura, by many radiologists.
LUNG_WORDINGS = yaml.safe_load(Path(__file__).with_name("lung_wordings.yaml").read_text(encoding="utf-8"))
LUNG_NORMAL = LUNG_WORDINGS.pop("normal")
LUNG_DENIALS = ("No {}.", "There is no evidence of {}.", "Without {}.")
LUNG_VERBS = frozenset(
    {"is", "are", "has", "have", "can", "lies", "appear", "appears", "sits", "harbour", "show", "shows"}
)
LUNG_VERBS |= {"surrounds", "accumulates", "tracks", "reaching", "contain", "layer"}


def _denied(wording):
    """A wording without a verb, as it follows a denial."""
    first, *rest = wording.split()
    return " ".join([first if first[1:2].isupper() or first == "A" else first.lower(), *rest])


@pytest.mark.parametrize("concept", LUNG_WORDINGS)
def test_each_wording_of_the_chest_is_its_concept(concept):
    read = {wording: concepts(f"{wording}.") for wording in LUNG_WORDINGS[concept]}
    assert {wording: found for wording, found in read.items() if found != [concept]} == {}


@pytest.mark.parametrize("concept", LUNG_WORDINGS)
def test_a_denied_wording_of_the_chest_is_no_finding(concept):
    denied = [
        denial.format(_denied(wording))
        for wording in LUNG_WORDINGS[concept]
        if LUNG_VERBS.isdisjoint(wording.split()) and ":" not in wording and "," not in wording
        for denial in LUNG_DENIALS
    ]
    read = {sentence: concepts(sentence) for sentence in denied}
    assert denied
    assert {sentence: found for sentence, found in read.items() if found} == {}


# Names and synonyms of further findings, which reports name by one word or phrase.
VOCABULARY = yaml.safe_load(Path(__file__).with_name("vocabulary_wordings.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("concept", VOCABULARY)
def test_each_name_of_a_vocabulary_is_its_concept(concept):
    read = {name: concepts(f"{name}.") for name in VOCABULARY[concept]}
    assert {name: found for name, found in read.items() if found != [concept]} == {}
    denied = [denial.format(_denied(name)) for name in VOCABULARY[concept] for denial in LUNG_DENIALS]
    assert {sentence: found for sentence in denied if (found := concepts(sentence))} == {}


# Sizes of structures beyond their limit, and within it.
SIZES = [
    ("The ascending aorta measures {}.", "46 mm", "38 mm", "aortic_aneurysm"),
    ("Diameter of the ascending aorta: {}", "4.3 cm", "4.0 cm", "aortic_aneurysm"),
    ("The infrarenal abdominal aorta has a maximum diameter of {}.", "52mm", "21mm", "aortic_aneurysm"),
    ("The main pulmonary artery is {} in diameter.", "36 mm", "28 mm", "pulmonary_hypertension"),
    ("Common bile duct {}.", "12 mm", "5 mm", "biliary_dilatation"),
    ("The pancreatic duct measures up to {}.", "7 mm", "2 mm", "pancreatic_duct_dilatation"),
    ("Spleen (approx. {}).", "16 cm", "11 cm", "splenomegaly"),
    ("Small bowel loops measure up to {}.", "4 cm", "2 cm", "bowel_dilatation"),
    ("The gallbladder wall is {}.", "6 mm", "2 mm", "gallbladder_thickening"),
]


NEAR = {
    sentence: findings
    for group in yaml.safe_load(Path(__file__).with_name("near_wordings.yaml").read_text(encoding="utf-8")).values()
    for sentence, findings in group.items()
}


@pytest.mark.parametrize("sentence", NEAR)
def test_words_near_those_of_another_finding(sentence):
    found = {(f.concept, f.presence) for f in extract_findings(sentence) if f.concept != "other_finding"}
    assert found == set(NEAR[sentence].items())


@pytest.mark.parametrize(("sentence", "large", "normal", "concept"), SIZES)
def test_size_beyond_the_limit_of_a_structure_is_a_finding(sentence, large, normal, concept):
    assert concepts(sentence.format(large)) == [concept]
    assert concepts(sentence.format(normal)) == []


@pytest.mark.parametrize(
    "sentence", ["Node beside the ascending aorta, 46 mm.", "Stone in the common bile duct of 12 mm."]
)
def test_size_of_a_lesion_is_none_of_the_structure_beside_it(sentence):
    assert not {"aortic_aneurysm", "biliary_dilatation"}.intersection(concepts(sentence))


def test_normal_sentences_on_the_chest_state_no_finding():
    read = {wording: concepts(f"{wording}.") for wording in LUNG_NORMAL}
    assert {wording: found for wording, found in read.items() if found} == {}


def test_labels_of_ct_rate_are_concepts():
    lexicon = load_lexicon("chest")
    assert tuple(lexicon.labels) == CT_RATE.labels
    assert {concept for members in lexicon.labels.values() for concept in members} <= set(lexicon.concepts)


def _yaml(name):
    return yaml.safe_load((files("rrg_rewards.findings.lexicon") / f"{name}.yaml").read_text(encoding="utf-8"))


def _words(text, groups):
    for part in text.split():
        if not part.startswith("<"):
            for word in part.split("|"):
                yield from _words(groups[word[1:-1]].replace(" ", "|"), groups) if word.startswith("{") else [word]


def test_every_word_of_the_lexicon_can_occur():
    shared, own = _yaml("cues"), _yaml("chest")
    groups = {**shared["groups"], **own["groups"]}
    compounds = {**shared["compounds"], **own["compounds"]}
    texts = [*groups.values(), *own["sites"].values(), *(text for texts in compounds.values() for text in texts)]
    for rule in (rule for rules in own["concepts"].values() for rule in rules):
        entry = {"phrase": rule} if isinstance(rule, str) else rule
        choices = [choice for key in ("with", "without", "not_next", "not_previous") for choice in entry.get(key, ())]
        assert not [choice for choice in choices if " " in choice], rule
        assert set(entry.get("at", [])) | set(entry.get("not_at", [])) <= set(own["sites"]), rule
        texts += [entry["phrase"], *choices]
    words = {word.rstrip("*") for text in texts for word in _words(text, groups)}
    assert {word for word in words if word.startswith("~")} <= set(compounds)
    assert [word for word in words if not word.startswith("~") and tokenise(word) != [word]] == []


NORMAL = """
The heart is normal in size. Heart size is within normal limits. The cardiomediastinal silhouette is unremarkable.
Mediastinal contours are stable and within normal limits. The heart is not enlarged. The lungs are clear bilaterally.
The lungs are well expanded without focal consolidation, effusion, or pneumothorax. No focal airspace disease.
There is no focal consolidation, pleural effusion, or pneumothorax, and the cardiomediastinal silhouette is normal.
There are no nodules, masses, or consolidations and there is no effusion. There is no evidence of pneumonia.
No acute osseous abnormality. No acute cardiopulmonary process. No displaced rib fractures. No free air is seen.
The osseous structures are intact. Pulmonary vascularity is normal. The pulmonary vasculature is not engorged.
The hila are normal. The trachea is midline without deviation. The costophrenic angles are sharp. Heart size top normal.
Trachea and both main bronchi are open. No occlusive pathology was detected in the trachea and both main bronchi.
The diameters of the thoracic aorta and pulmonary arteries are normal. Pericardial effusion-thickening was not observed.
Thoracic esophagus calibration was normal and no significant tumoral wall thickening was detected.
No enlarged lymph nodes in pathological dimensions were detected. Aeration of both lung parenchyma is normal.
No nodular or infiltrative lesion is detected in both lung parenchyma. No pleural effusion or thickening was detected.
Free fluid was not observed in the abdominal cavity. The gallbladder, spleen and pancreas are normal.
Both adrenal glands are normal. Bone structures in the study area are natural. Vertebral corpus heights are preserved.
Inspiratory and expiratory images were obtained. The intervertebral disc height is preserved.
Lung parenchyma shows normal density. No lytic or destructive lesion was detected in bone structures.
"""


@pytest.mark.parametrize(
    "sentence", [f"{sentence}." for sentence in NORMAL.replace("\n", " ").split(".") if sentence.strip()]
)
def test_what_is_normal_is_no_finding(sentence):
    assert abnormal_findings(sentence, extract_findings(sentence)) == []


@pytest.mark.parametrize(
    ("sentence", "concepts"),
    [
        ("The effusion is likely malignant.", {"pleural_effusion"}),
        ("The nodule appears malignant.", {"lung_nodule"}),
        ("Malignant nodule in the right upper lobe.", {"lung_nodule"}),
        ("A malignant lesion in the left upper lobe.", {"lung_mass"}),
        ("Known malignant disease.", {"lung_mass"}),
        ("Nodule suspicious for malignancy.", {"lung_nodule", "lung_mass"}),
    ],
)
def test_malignant_names_a_mass_unless_it_describes_another_finding(sentence, concepts):
    assert {finding.concept for finding in extract_findings(sentence)} == concepts
