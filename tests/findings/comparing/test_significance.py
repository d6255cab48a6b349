"""Clinical significance of findings, with the patient and the attributes that it depends on."""

import pytest

from rrg_rewards.findings.comparing.significance import clinical_significance
from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.knowledge.patient import Patient
from rrg_rewards.findings.reading.finding import Attributes
from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.schemas import SIGNIFICANCE_WEIGHTS


def test_rules_name_what_exists():
    knowledge = load_knowledge("significance")
    concepts, locations = load_knowledge("concepts")["concepts"], load_knowledge("attributes")["location"]
    conditions = [rule["if"] for rule in knowledge["rules"]]
    conditions += [case["if"] for entry in concepts.values() for case in entry.get("cases", ())]
    for rule in knowledge["rules"]:
        assert {*rule.get("concepts", ()), *rule.get("kinds_of", ())} <= set(concepts), rule
        assert {"if", "then"} < rule.keys() <= {"concepts", "kinds_of", "if", "then"}, rule
    for condition in conditions:
        for key in ("context", "not_context", "contexts"):
            assert {*condition.get(key, ())} <= set(knowledge["contexts"]), condition
    for concept, positions in load_knowledge("devices")["positions"].items():
        assert concept in concepts
        assert {place for places in positions.values() for place in places} <= set(locations), concept


def test_every_concept_has_a_significance_for_every_patient():
    for concept in load_lexicon("chest").concepts:
        for age in (None, 0.1, 25, 50, 90):
            for severity in (None, "minimal", "mild", "moderate", "severe"):
                patient = Patient(age, frozenset(load_knowledge("significance")["contexts"]))
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
        ("granuloma", {}, {}, "not_actionable_not_urgent"),
        ("granuloma", {"change": "stable"}, {}, "benign_expected"),
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
        ("pneumomediastinum", {}, {"indication": "Post open heart surgery"}, "actionable_not_urgent"),
        ("enlarged_mediastinum", {}, {"indication": "Chest pain"}, "urgent"),
        ("enlarged_mediastinum", {}, {"indication": "Known dissection"}, "actionable_not_urgent"),
        ("endotracheal_tube", {"device_position": "malpositioned"}, {}, "urgent"),
        ("endotracheal_tube", {"device_position": "satisfactory"}, {}, "not_actionable_not_urgent"),
        ("central_line", {"device_position": "malpositioned"}, {}, "urgent"),
        ("fracture", {"acuity": "chronic"}, {}, "benign_expected"),
        ("fracture", {}, {"age": "4"}, "urgent"),
        ("fracture", {"acuity": "chronic"}, {"age": "14 months", "indication": "Unexplained bruising"}, "urgent"),
        ("lung_nodule", {"size_mm": 4.0}, {"age": "22"}, "benign_expected"),
        ("fracture", {}, {"age": "4", "indication": "Fall from a tree"}, "actionable_not_urgent"),
        ("fracture", {}, {"age": "80", "indication": "Old trauma"}, "not_actionable_not_urgent"),
        ("pleural_effusion", {"severity": "mild"}, {"age": "25"}, "actionable_not_urgent"),
        (
            "pleural_effusion",
            {"severity": "mild"},
            {"age": "25", "indication": "After CABG"},
            "not_actionable_not_urgent",
        ),
        ("pleural_effusion", {"severity": "severe"}, {"indication": "Car accident, injury"}, "urgent"),
        ("atelectasis", {"laterality": "left", "location": ("lower",)}, {"age": "2"}, "urgent"),
        ("atelectasis", {"laterality": "left", "location": ("lower",)}, {"age": "20"}, "not_actionable_not_urgent"),
        ("degenerative_change", {}, {"age": "75", "indication": "Back pain"}, "not_actionable_not_urgent"),
        ("postsurgical_change", {"location": ("sternum",)}, {"age": "70"}, "benign_expected"),
        ("postsurgical_change", {}, {"age": "70"}, "not_actionable_not_urgent"),
        ("enteric_tube", {"device_position": "malpositioned"}, {}, "urgent"),
        ("chest_tube", {"device_position": "malpositioned"}, {}, "urgent"),
        ("enteric_tube", {}, {"indication": "NG tube position, safe to feed?"}, "actionable_not_urgent"),
        ("free_air", {}, {"indication": "Day 1 after laparotomy"}, "benign_expected"),
        ("free_air", {}, {"indication": "Appendectomy in 2009, rigid abdomen"}, "urgent"),
        ("pneumothorax", {"severity": "mild"}, {}, "actionable_not_urgent"),
        ("pneumothorax", {"severity": "mild"}, {"indication": "Ventilated"}, "urgent"),
        ("pneumothorax", {"size_mm": 8.0}, {}, "actionable_not_urgent"),
        ("lung_nodule", {"size_mm": 4.0}, {"indication": "Melanoma"}, "actionable_not_urgent"),
        ("lung_nodule", {"size_mm": 4.0, "change": "new"}, {"indication": "Melanoma"}, "urgent"),
        (
            "lung_nodule",
            {"size_mm": 4.0, "morphology": ("calcified",)},
            {"indication": "Melanoma"},
            "not_actionable_not_urgent",
        ),
        (
            "elevated_hemidiaphragm",
            {},
            {"indication": "Known phrenic palsy, elevated hemidiaphragm"},
            "benign_expected",
        ),
        ("elevated_hemidiaphragm", {}, {"indication": "Fall from a roof"}, "urgent"),
        ("enlarged_mediastinum", {}, {"age": "4 months", "indication": "Fever"}, "benign_expected"),
        ("enlarged_mediastinum", {}, {"age": "4 months", "indication": "Road traffic accident"}, "urgent"),
        ("thymic_tissue", {}, {"age": "9"}, "benign_expected"),
        ("thymic_tissue", {}, {"age": "71"}, "actionable_not_urgent"),
        ("hyperinflation", {"laterality": "left"}, {"age": "2", "indication": "Choked on a nut"}, "urgent"),
        ("cardiomegaly", {}, {"indication": "Known heart failure"}, "not_actionable_not_urgent"),
        ("cardiomegaly", {"change": "increased"}, {"indication": "Known heart failure"}, "actionable_not_urgent"),
        ("pulmonary_embolism", {"acuity": "chronic"}, {}, "actionable_not_urgent"),
        ("lung_opacity", {"extent": "entire"}, {}, "urgent"),
        ("lung_opacity", {"extent": "entire"}, {"indication": "Pneumonectomy 2017"}, "benign_expected"),
        ("thyroid_lesion", {"size_mm": 12.0}, {"age": "60"}, "not_actionable_not_urgent"),
        ("thyroid_lesion", {"size_mm": 12.0}, {"age": "30"}, "actionable_not_urgent"),
        ("renal_cyst", {"morphology": ("complex",)}, {}, "actionable_not_urgent"),
        # a cervical rib
        ("bone_anomaly", {}, {}, "not_actionable_not_urgent"),
        ("thoracic_variant", {}, {}, "not_actionable_not_urgent"),
    ],
)
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
