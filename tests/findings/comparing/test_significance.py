"""The data on concepts, patients and significance hangs together and says what it should."""

from importlib.resources import files

import pytest
import yaml

from rrg_rewards.findings import abnormal_findings, extract_findings
from rrg_rewards.findings.comparing.significance import clinical_significance
from rrg_rewards.findings.knowledge.concepts import ConceptGraph, concept_graph
from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.knowledge.patient import Patient, parse_age
from rrg_rewards.findings.reading import modifiers, phrases
from rrg_rewards.findings.reading.finding import OTHER, Attributes
from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.findings.reading.tokens import tokenise
from rrg_rewards.schemas import CT_RATE, SIGNIFICANCE_WEIGHTS


def test_every_concept_is_known_to_lexicon_and_knowledge():
    assert {*load_lexicon("chest").concepts, OTHER} == set(load_knowledge("concepts")["concepts"])


def test_labels_of_ct_rate_are_concepts():
    lexicon = load_lexicon("chest")
    assert tuple(lexicon.labels) == CT_RATE.labels
    assert {concept for members in lexicon.labels.values() for concept in members} <= set(lexicon.concepts)


def test_every_concept_has_a_significance_for_every_patient():
    for concept in load_lexicon("chest").concepts:
        for age in (None, 0.1, 25, 50, 90):
            for severity in (None, "minimal", "mild", "moderate", "severe"):
                patient = Patient(age, frozenset(load_knowledge("concepts")["contexts"]))
                assert clinical_significance(concept, Attributes(severity=severity), patient) in SIGNIFICANCE_WEIGHTS


@pytest.mark.parametrize(
    ("concept", "attributes", "context", "level"),
    [
        ("tension_pneumothorax", {}, {}, "urgent"),
        ("pleural_effusion", {"severity": "moderate"}, {}, "actionable_not_urgent"),
        ("pleural_effusion", {"severity": "minimal"}, {}, "not_actionable_not_urgent"),
        ("lung_nodule", {}, {}, "actionable_not_urgent"),
        ("lung_nodule", {"morphology": ("calcified",)}, {}, "not_actionable_not_urgent"),
        ("lung_nodule", {"size_mm": 6.0, "short_axis_mm": 4.0}, {}, "not_actionable_not_urgent"),
        ("lung_nodule", {"size_mm": 6.0, "short_axis_mm": 5.0}, {}, "actionable_not_urgent"),
        ("lung_nodule", {"size_mm": 5.4}, {}, "not_actionable_not_urgent"),
        ("lung_nodule", {"size_mm": 4.0, "morphology": ("spiculated",)}, {}, "actionable_not_urgent"),
        ("lung_nodule", {"size_mm": 4.0, "morphology": ("ground_glass",)}, {}, "not_actionable_not_urgent"),
        (
            "lung_nodule",
            {"size_mm": 4.0, "morphology": ("ground_glass",), "extent": "multiple"},
            {},
            "actionable_not_urgent",
        ),
        ("lung_nodule", {"severity": "minimal"}, {}, "not_actionable_not_urgent"),
        ("granuloma", {}, {}, "benign_expected"),
        ("calcified_nodule", {"size_mm": 9.0}, {}, "not_actionable_not_urgent"),
        ("lymph_node", {"size_mm": 14.0, "short_axis_mm": 8.0}, {}, "benign_expected"),
        ("lymph_node", {"size_mm": 27.0, "short_axis_mm": 17.0}, {}, "actionable_not_urgent"),
        ("lymph_node", {}, {}, "not_actionable_not_urgent"),
        ("calcified_node", {"size_mm": 12.0}, {}, "not_actionable_not_urgent"),
        ("aortic_aneurysm", {"size_mm": 39.0}, {}, "not_actionable_not_urgent"),
        ("aortic_aneurysm", {"size_mm": 41.0}, {}, "actionable_not_urgent"),
        ("aortic_dissection", {}, {}, "urgent"),
        ("brain_low_density", {"severity": "severe"}, {}, "urgent"),
        ("brain_low_density", {"extent": "multiple"}, {}, "not_actionable_not_urgent"),
        ("hepatic_low_density", {"size_mm": 9.0}, {}, "not_actionable_not_urgent"),
        ("hepatic_low_density", {"size_mm": 30.0}, {}, "not_actionable_not_urgent"),
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
def test_significance_of_open_findings(words, attributes, level):
    assert clinical_significance("other_finding", Attributes(**attributes), Patient(), words) == level


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


def test_words_met_are_bounded(monkeypatch):
    monkeypatch.setattr(phrases, "_MAX_WORDS", 5)
    reader = modifiers.ModifierReader(load_knowledge("attributes"))
    found = [reader.modifiers([f"word{number}", "small"]) for number in range(20)]
    assert len({tuple(modifiers) for modifiers in found}) == 1
    assert len(reader._phrases._table) == 5


@pytest.mark.parametrize(
    ("indication", "contexts"),
    [
        ("Fever and cough", {"infection"}),
        ("No fever or cough. Chest pain.", set()),
        ("Stable chest pain. Tetralogy of Fallot.", set()),
        ("Stab wound", {"trauma"}),
        ("Status post lobectomy, febrile", {"surgery", "infection"}),
    ],
)
def test_contexts_of_indications(indication, contexts):
    assert Patient.from_context({"indication": indication}).contexts == contexts


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
