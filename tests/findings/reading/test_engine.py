"""What single sentences say: presence, scope of cues, places, and further lesions without a name of their own."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from rrg_rewards.findings import Finding, abnormal_findings, extract_findings, get_engine
from rrg_rewards.findings.reading.engine import FindingEngine
from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.findings.reading.sentences import tokenise_units

# Sentence, concept, what is said of it.
PRESENCE = [
    # plain statements
    ("There is a pleural effusion", "pleural_effusion", "present"),
    ("Bilateral pleural effusion was observed", "pleural_effusion", "present"),
    ("Pleural effusion, 2.5 cm deep", "pleural_effusion", "present"),
    # negation before
    ("No pleural effusion", "pleural_effusion", "absent"),
    ("Lungs without consolidation", "consolidation", "absent"),
    ("There is no evidence of consolidation", "consolidation", "absent"),
    ("Negative for consolidation", "consolidation", "absent"),
    ("The lungs do not show any consolidation", "consolidation", "absent"),
    # negation after
    ("Pleural effusion was not observed", "pleural_effusion", "absent"),
    ("Consolidation could not be clearly detected", "consolidation", "absent"),
    ("Hiatal hernia is absent", "hiatal_hernia", "absent"),
    ("Pericardial effusion-thickening was not seen", "pericardial_effusion", "absent"),
    # lists under one negation
    ("No pleural or pericardial effusion", "pericardial_effusion", "absent"),
    ("No consolidation, emphysema or atelectasis was seen", "atelectasis", "absent"),
    ("No consolidation, large pleural effusion, or atelectasis", "pleural_effusion", "absent"),
    ("Consolidation, emphysema and atelectasis were not detected", "consolidation", "absent"),
    # the negation ends
    ("No consolidation, but emphysema is seen", "emphysema", "present"),
    ("No consolidation was seen, emphysema is present", "emphysema", "present"),
    ("No consolidation; emphysema in both lungs", "emphysema", "present"),
    ("No consolidation, mild emphysema", "emphysema", "present"),
    ("Emphysema is seen and no consolidation was detected", "emphysema", "present"),
    ("Emphysema is seen, however consolidation was not detected", "emphysema", "present"),
    ("Apart from emphysema, no consolidation was detected", "emphysema", "present"),
    ("The heart is normal, consolidation in the left lung", "consolidation", "present"),
    ("Mediastinum cannot be evaluated, and minimal pleural effusion is seen", "pleural_effusion", "present"),
    # denied change is no denied finding
    ("No change in the pleural effusion", "pleural_effusion", "present"),
    ("There is no significant increase in the size of the lymph nodes", "lymphadenopathy", "present"),
    ("Lymph nodes that do not reach pathological size were observed", "lymphadenopathy", "present"),
    ("Lymph nodes with a short axis of less than 10 mm", "lymphadenopathy", "present"),
    ("No lymph node of pathological size was detected", "lymphadenopathy", "absent"),
    # over, or only before
    ("The pleural effusion has resolved", "pleural_effusion", "absent"),
    ("Pleural effusion completely regressed", "pleural_effusion", "absent"),
    ("Resolution of the pleural effusion", "pleural_effusion", "absent"),
    ("The catheter seen before was removed", "medical_material", "absent"),
    (
        "Pleural effusion, which was seen in the previous examination, was not detected",
        "pleural_effusion",
        "absent",
    ),
    ("In the previous examination there was consolidation", "consolidation", "absent"),
    ("Pleural effusion is stable compared with the previous examination", "pleural_effusion", "present"),
    ("New consolidation, which was not seen in the previous examination", "consolidation", "present"),
    ("Consolidation: none", "consolidation", "absent"),
    # doubt
    ("Possible pleural effusion", "pleural_effusion", "uncertain"),
    ("Density in the left base (atelectasis?)", "atelectasis", "uncertain"),
    ("This may represent early consolidation", "consolidation", "uncertain"),
    ("Consolidation cannot be excluded", "consolidation", "uncertain"),
    ("Atelectasis versus consolidation", "consolidation", "uncertain"),
    # a quirk of translation: "A, no B was seen" denies both
    ("Infiltration, no consolidation was noted", "infiltration", "absent"),
]


# What is said of X, whatever X is: every template is read with every name below.
TEMPLATES = {
    "absent": [
        # answers
        "X: no",
        "X: none",
        "X: not seen",
        "X: absent",
        "X - none",
        "X: no, mass: no",
        # before
        "Absent X",
        "Resolved X",
        "Denies X",
        "The patient denies X",
        "Negative for X",
        "Both sides are free of X",
        "Free from X",
        "Devoid of X",
        "Lack of X",
        "None of X",
        "There isn't any X",
        "There is not any X",
        "No longer any X",
        "There is no longer any X",
        "Fails to show X",
        "Nothing to suggest X",
        "Not suggestive of X",
        "Interval resolution of the previously seen X",
        # after
        "X has resolved",
        "X resolved",
        "The X has now resolved",
        "X has completely resolved",
        "X has cleared",
        "X is gone",
        "X is no longer seen",
        "X is no longer appreciated",
        "X can no longer be seen",
        "X on the prior study is no longer seen",
        "X has not developed",
        "X has been excluded",
        "X was ruled out",
        # the past alone
        "History of X",
        "Past history of X and asthma",
        "There is a history of mild X",
    ],
    "present": [
        "X: yes",
        "X: present",
        # what was not there before is new
        "X which was not present before",
        "There is X, which was not present before",
        "There is X, which was not seen in the previous examination",
        "X was not seen on the prior examination",
        "New X, not present on the previous study",
        "X, not seen previously",
        # what is not over
        "X has not resolved",
        "X has not completely resolved",
        "X has partially resolved",
        "X is no longer large",
        "No improvement in X",
        "No interval change in X",
        "X is unchanged",
        # what is said of something else
        "Known X",
        "Patient with known X, no mass",
        "X has decreased and edge blurring has resolved",
        "X without a mass",
        "No mass, with mild X",
        "Mild X, no mass is seen",
        "None of the old scars, but X",
        "A patient with a history of trauma has X",
        "Mass: no, X: small",
    ],
    "uncertain": [
        "Concerning for X",
        "Evaluate for X",
        "X is suspected",
        "X is possible",
        "X cannot be excluded",
        "X?",
    ],
}
NAMES = {
    "chest_ct": {
        "pleural effusion": "pleural_effusion",
        "pericardial effusion": "pericardial_effusion",
        "consolidation": "consolidation",
        "emphysema": "emphysema",
        "hiatal hernia": "hiatal_hernia",
        "cardiomegaly": "cardiomegaly",
    },
    "chest_xray": {
        "pleural effusion": "pleural_effusion",
        "pneumothorax": "pneumothorax",
        "pulmonary edema": "edema",
        "pneumonia": "pneumonia",
        "rib fracture": "fracture",
    },
}


@pytest.mark.parametrize(("presence", "template"), [(key, one) for key, many in TEMPLATES.items() for one in many])
def test_extract_findings_presence_whatever_the_finding(presence, template):
    for lexicon, names in NAMES.items():
        for name, concept in names.items():
            report = template.replace("X", name)
            found = {f.presence for f in extract_findings(f"{report}.", lexicon) if f.concept == concept}
            assert found == {presence}, report


@pytest.mark.parametrize(("sentence", "concept", "presence"), PRESENCE)
def test_extract_findings_presence(sentence, concept, presence):
    for report in (sentence, f"{sentence}.", f'Trachea is open. {sentence}." Other.', sentence.upper()):
        assert {f.presence for f in extract_findings(report, "chest_ct") if f.concept == concept} == {presence}


def test_extract_findings_places_are_exact_and_in_order():
    report = "Trachea is open. No Pleural  Effusion.\n• Ground-glass areas, sliding-type hiatal hernia."
    findings = extract_findings(report, "chest_ct")
    assert [(f.concept, f.text, f.sentence) for f in findings] == [
        ("pleural_effusion", "Pleural  Effusion", 1),
        ("lung_opacity", "Ground-glass", 2),
        ("hiatal_hernia", "hiatal hernia", 2),
    ]
    assert all(report[f.start : f.end] == f.text for f in findings)
    assert [f.start for f in findings] == sorted(f.start for f in findings)


@pytest.mark.parametrize(
    "sentence",
    [
        "calcific atheroma plaques are observed in the walls of the coronary arteries",
        "calcification was observed in the wall of the left coronary artery",
        "coronary arteries show dense wall calcifications",
        "atherosclerotic plaque in the proximal LAD",
    ],
)
def test_extract_findings_heads_apart_from_their_vessel(sentence):
    assert "coronary_calcification" in {f.concept for f in extract_findings(sentence, "chest_ct")}


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("heart size is normal and the aorta is dilated", {"absent"}),
        ("heart is enlarged and mediastinum is normal", {"present"}),
        ("the heart is larger than normal", {"present"}),
        ("cardiothoracic ratio is natural", set()),
        ("the ratio has increased in favor of the heart", {"present"}),
    ],
)
def test_extract_findings_nearer_of_large_and_normal_decides(sentence, expected):
    assert {f.presence for f in extract_findings(sentence, "chest_ct") if f.concept == "cardiomegaly"} == expected


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("nodule in the right thyroid lobe", False),
        ("hypodense nodule in the left lobe of the liver", False),
        ("nodule in the right lower lobe", True),
        ("pulmonary nodule beside the liver dome", True),
        ("nodular consolidation in the left lung", False),
    ],
)
def test_extract_findings_nearest_part_of_the_body_decides(sentence, found):
    assert ("lung_nodule" in {f.concept for f in extract_findings(sentence, "chest_ct")}) is found


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Pleural thickening, pericardial effusion", {"pericardial_effusion"}),
        ("Pericardial thickening, bilateral pleural effusion", {"pleural_effusion"}),
        ("Pleural or pericardial effusion", {"pleural_effusion", "pericardial_effusion"}),
        ("Pericardial, pleural effusion", {"pleural_effusion", "pericardial_effusion"}),
        ("Pericardial and bilateral pleural effusion", {"pleural_effusion", "pericardial_effusion"}),
        ("Thickening of the major interlobular fissure", set()),
    ],
)
def test_extract_findings_one_head_of_two_places(sentence, expected):
    assert {f.concept for f in extract_findings(sentence, "chest_ct")} == expected


def test_extract_findings_nothing_in_empty_text():
    assert extract_findings("") == extract_findings(" \n\t ") == extract_findings("...") == []


def test_extract_findings_finding_is_a_value():
    first, second = extract_findings("emphysema"), extract_findings("emphysema")
    assert first == second
    assert hash(first[0]) == hash(second[0])
    assert not hasattr(first[0], "__dict__")
    assert first[0] == Finding("emphysema", "present", 0, 9, sentence=0, text="emphysema", organ="lung")


def test_extract_findings_unknown_lexicon_names_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'chest_ct'"):
        extract_findings("emphysema", lexicon="chest_cd")


def test_extract_findings_report_must_be_text():
    with pytest.raises(TypeError, match="report must be a report text, got NoneType"):
        extract_findings(None)


def test_get_engine_and_load_lexicon_make_one_object():
    assert get_engine("chest_ct") is get_engine("chest_ct")
    assert load_lexicon("chest_ct") is load_lexicon("chest_ct")


def test_engine_memory_is_bounded():
    engine = FindingEngine(load_lexicon("chest_ct"), memory=3)
    for number in range(20):
        engine.masks([f"emphysema {number}. hernia {number}"])
        assert len(engine._masks.results) <= 3


def test_engine_memory_of_findings_is_a_tenth():
    engine = FindingEngine(load_lexicon("chest_ct"), memory=30)
    for number in range(20):
        engine.extract(f"emphysema {number}. hernia {number}")
        assert len(engine._units.results) <= 3


def test_engine_does_not_remember_long_sentences():
    engine = FindingEngine(load_lexicon("chest_ct"))
    engine.masks(["emphysema " * 1_000])
    assert not engine._masks.results


def test_engine_memory_may_be_filled_by_another_thread(monkeypatch):
    engine = FindingEngine(load_lexicon("chest_ct"), memory=2)
    (expected,) = engine.masks(["Emphysema. Hiatal hernia"])

    def interrupted(units):
        with monkeypatch.context() as patch:
            patch.setattr("rrg_rewards.findings.reading.engine.tokenise_units", tokenise_units)
            engine.masks([f"Nodule {number}. Clear {number}" for number in range(9)])
        return tokenise_units(units)

    monkeypatch.setattr("rrg_rewards.findings.reading.engine.tokenise_units", interrupted)
    assert engine.masks(["Emphysema. Hiatal hernia. Clear"]) == [expected]
    assert len(engine._masks.results) <= 2


def test_engine_memory_is_shared_by_threads():
    engine = FindingEngine(load_lexicon("chest_ct"), memory=4)
    reports = [f"Emphysema {number % 7}. No hernia {number % 5}. Nodule {number % 3}." for number in range(40)]
    expected = FindingEngine(load_lexicon("chest_ct"), memory=0).masks(reports)

    def read():
        return [mask for _ in range(8) for report in reports for mask in engine.masks([report])]

    with ThreadPoolExecutor(4) as pool:
        assert [run.result() for run in [pool.submit(read) for _ in range(4)]] == [expected * 8] * 4


def found(text: str) -> list[Finding]:
    return abnormal_findings(text, extract_findings(text, open_findings=True))


@pytest.mark.parametrize(
    "text",
    [
        "Nodules: right upper lobe, 4 mm; left upper lobe, 3 mm.",
        "Nodules:\n- RUL 4 mm\n- LUL, approx. 3 mm",
        "There is a nodule of 4 mm in the RUL. Another of 3 mm in the LUL.",
    ],
)
def test_extract_findings_each_item_is_a_lesion(text: str) -> None:
    nodules = [(nodule.concept, nodule.laterality, nodule.location, nodule.size_mm) for nodule in found(text)]
    assert nodules == [("lung_nodule", "right", ("upper",), 4.0), ("lung_nodule", "left", ("upper",), 3.0)]


def test_extract_findings_item_has_the_name_of_its_list() -> None:
    report = "Nodules: right upper lobe, 4 mm; left upper lobe, 3 mm."
    assert [report[nodule.start : nodule.end] for nodule in found(report)] == ["Nodules", "Nodules"]


@pytest.mark.parametrize(
    "text",
    [
        # a denied lesion has no items
        "No nodule. 4 mm in the left upper lobe.",
        # the size of something else
        "A nodule is seen. The aorta measures 38 mm on the right.",
        "A nodule in the left lung. Heart 12 cm.",
        # not a lesion that can be counted
        "Emphysema. 4 mm in the left upper lobe.",
    ],
)
def test_extract_findings_other_sentences_are_no_items(text: str) -> None:
    assert [finding.concept for finding in found(text)].count("lung_nodule") < 2
    assert all(finding.size_mm is None for finding in found(text))


def test_extract_findings_largest_is_no_further_lesion() -> None:
    (nodules,) = found("Both lungs: small nodules. The largest, subpleural in the left lower lobe, is about 6 mm.")
    assert (nodules.laterality, nodules.size_mm) == ("bilateral", 6.0)


@pytest.mark.parametrize(
    ("sentence", "texts"),
    [
        ("Mediastinal lymph nodes up to 12 mm.", ["lymph nodes"]),
        ("Mosaic attenuation in both lungs.", ["Mosaic attenuation"]),
        ("The heart size is near the upper limits of normal.", ["heart size is near the upper limits of normal"]),
    ],
)
def test_extract_findings_the_text_has_all_words_of_a_compound(sentence, texts):
    assert [finding.text for finding in extract_findings(sentence)] == texts
