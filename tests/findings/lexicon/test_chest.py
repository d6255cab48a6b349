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
from tests.helpers.tables import read_tables

TABLES = read_tables(__file__)


@pytest.mark.parametrize(("sentence", "concepts"), TABLES["chest"] + TABLES["elsewhere"] + TABLES["like_shadows"])
def test_concepts_of_chest_ct(sentence, concepts):
    assert {found.concept for found in extract_findings(sentence) if found.presence == "present"} == set(
        concepts.split()
    )


@pytest.mark.parametrize("sentence", TABLES["normal_anatomy"])
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


NEAR = {
    sentence: findings
    for group in yaml.safe_load(Path(__file__).with_name("near_wordings.yaml").read_text(encoding="utf-8")).values()
    for sentence, findings in group.items()
}


@pytest.mark.parametrize("sentence", NEAR)
def test_words_near_those_of_another_finding(sentence):
    found = {(f.concept, f.presence) for f in extract_findings(sentence) if f.concept != "other_finding"}
    assert found == set(NEAR[sentence].items())


@pytest.mark.parametrize(("sentence", "large", "normal", "concept"), TABLES["sizes"])
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
