"""What single sentences say: presence, scope of cues, places, and further lesions without a name of their own."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from rrg_rewards.findings import Finding, abnormal_findings, extract_findings, get_engine
from rrg_rewards.findings.reading.engine import FindingEngine
from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.findings.reading.sentences import tokenise_units
from tests.helpers.tables import read_tables

TABLES = read_tables(__file__)


@pytest.mark.parametrize(
    ("presence", "template"), [(key, one) for key, many in TABLES["templates"].items() for one in many]
)
def test_extract_findings_presence_whatever_the_finding(presence, template):
    for lexicon, names in TABLES["names"].items():
        for name, concept in names.items():
            report = template.replace("X", name)
            found = {f.presence for f in extract_findings(f"{report}.", lexicon) if f.concept == concept}
            assert found == {presence}, report


@pytest.mark.parametrize(("sentence", "concept", "presence"), TABLES["presence"])
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
    with pytest.raises(TypeError, match="report must"):
        extract_findings(None)


def test_get_engine_and_load_lexicon_make_one_object():
    assert get_engine("chest_ct") is get_engine("chest_ct")
    assert load_lexicon("chest_ct") is load_lexicon("chest_ct")


def test_engine_memory_is_bounded():
    engine = FindingEngine(load_lexicon("chest_ct"), memory=3)
    for number in range(20):
        engine.masks([f"emphysema {number}. hernia {number}"])
        assert len(engine._masks) <= 3


def test_engine_memory_of_findings_is_a_tenth():
    engine = FindingEngine(load_lexicon("chest_ct"), memory=30)
    for number in range(20):
        engine.extract(f"emphysema {number}. hernia {number}")
        assert len(engine._units) <= 3


def test_engine_does_not_remember_long_sentences():
    engine = FindingEngine(load_lexicon("chest_ct"))
    engine.masks(["emphysema " * 1_000])
    assert not engine._masks


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
    assert len(engine._masks) <= 2


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
