"""Questions made of a report and answered by another: phantom studies whose truth is known, real reports, sentences."""

import csv
import re
from pathlib import Path

import pytest

from rrg_rewards.data import PhantomStudy, phantom_studies
from rrg_rewards.questions.engine import answer_items, build_items, stated_answers
from rrg_rewards.questions.grading import compare_answers
from rrg_rewards.questions.schema import QAItem, get_question_schema
from rrg_rewards.questions.vocabulary import answer_tokens, answer_vocabulary

SCHEMA = get_question_schema("ct_rate")
# The attribute that each word of a phantom's `severity` and `kind` states; the rest are places.
ATTRIBUTES = {
    **dict.fromkeys(("minimal", "small", "mild", "moderate", "marked", "severe", "large"), "severity"),
    **dict.fromkeys(("patchy", "diffuse"), "distribution"),
    **dict.fromkeys(("dense", "faint"), "pattern"),
    **dict.fromkeys(("solid", "subsolid"), "density"),
    "spiculated": "margin",
}
PLACES = {"subpleural", "thoracic aorta", "aortic arch", "descending aorta"}
STATIONS = {"mediastinal", "hilar", "paratracheal", "subcarinal", "axillary"}
# Attributes that a phantom finding holds as truth; "fibrotic" or "air bronchogram" stand in its words only.
HELD = {"existence", "location", "size", "severity", "change"}


def truth(study: PhantomStudy) -> dict[tuple[str, str], str]:
    """What a study states of the 18 findings, by finding and attribute, in words of its own."""
    stated = {}
    for finding in study.findings:
        if finding.presence != "present" or finding.label is None:
            continue
        asked = {spec.name for spec in SCHEMA.finding(finding.label).attributes}
        told = {"existence": "yes", "change": finding.change, "size": finding.size_mm and f"{finding.size_mm} mm"}
        places = []
        if finding.side:
            part = f"{finding.lobe} lobe" if finding.lobe else "" if finding.label == "Pleural effusion" else "lung"
            places.append(f"{finding.side} {part}")
        for word in filter(None, (finding.severity, finding.kind)):
            if word in PLACES | STATIONS:
                places.append(word)
            else:
                told[ATTRIBUTES.get(word, "type")] = word
        told["location"] = " ".join(places)
        stated.update({(finding.label, name): value for name, value in told.items() if value and name in asked})
    return stated


def agree(item: QAItem, answer: str) -> bool:
    return all(
        compare_answers(*pair, item.answer_type) == 1.0 for pair in ((item.answer, answer), (answer, item.answer))
    )


@pytest.mark.parametrize("informative_only", [False, True])
def test_stated_answers_are_the_questions_and_answers_of_a_report(informative_only: bool) -> None:
    bound = "Nodule less than 300 mm. Possible consolidation of less than 20 mm in the right lower lobe. No effusion."
    for report in [bound, *(study.report for study in phantom_studies(20, seed=3))]:
        stated = stated_answers(report, SCHEMA, informative_only)
        for include_uncertain in (False, True):
            items = build_items(report, include_uncertain=include_uncertain, informative_only=informative_only)
            made = {(item.finding, item.attribute): item.answer for item in items}
            asked = {
                key: one.answer
                for key, one in stated.items()
                if (one.of_reference, one.of_candidate)[include_uncertain]
            }
            assert made == asked
        every = [
            QAItem(finding.name, spec.name, spec.question, "1", spec.answer_type)
            for finding in SCHEMA.findings
            for spec in finding.attributes
        ]
        answers = [
            stated[item.finding, item.attribute].answer if (item.finding, item.attribute) in stated else None
            for item in every
        ]
        assert answers == answer_items(report, every, SCHEMA)


def test_build_items_informative_only_leaves_out_bounds_that_say_little() -> None:
    report = "Nodule less than 300 mm. Effusion of less than 20 mm."
    sizes = [
        [
            item.answer
            for item in build_items(report, informative_only=only, include_uncertain=uncertain)
            if item.attribute in ("size", "thickness")
        ]
        for only, uncertain in ((False, False), (True, False), (True, True))
    ]
    assert sizes == [["< 300 mm", "< 20 mm"], ["< 20 mm"], []]


@pytest.mark.parametrize("style", ["full", "compact"])
def test_build_items_of_phantom_studies_equal_their_attributes(style: str) -> None:
    right = made = true = 0
    for study in phantom_studies(300, seed=21, style=style):
        stated = truth(study)
        places = {finding.label for finding in study.findings if finding.side or finding.kind in PLACES | STATIONS}
        for item in build_items(study.report):
            key = (item.finding, item.attribute)
            # What all sentences of a topic say alike is no attribute of the phantom's finding: "in both lungs".
            if key not in stated and (
                item.attribute not in HELD or (item.attribute == "location" and item.finding not in places)
            ):
                continue
            made += 1
            right += key in stated and agree(item, stated[key])
        true += len(stated)
    assert 2 * right / (made + true) >= 0.98


@pytest.mark.parametrize("style", ["full", "compact"])
def test_build_items_phantom_report_answers_its_own_questions(style: str) -> None:
    for study in phantom_studies(100, seed=4, style=style):
        items = build_items(study.report)
        assert answer_items(study.report, items) == [item.answer for item in items]


@pytest.mark.parametrize("schema", ["ct_rate", "merlin"])
def test_build_items_real_report_answers_its_own_questions(shared_data: Path, schema: str) -> None:
    with (shared_data / "ct_rate_labels" / "reports.csv").open(encoding="utf-8", newline="") as file:
        reports = [row["report_text"] for row in csv.DictReader(file)][::4]
    total = 0
    for report in reports:
        items = build_items(report, schema)
        total += len(items)
        for item, answer in zip(items, answer_items(report, items, schema), strict=True):
            assert compare_answers(answer, item.answer, item.answer_type) == 1.0
    assert total > 500


REPORT = (
    "A spiculated nodule of 12 mm is seen in the right upper lobe, new since the prior examination. "
    "There is a moderate left pleural effusion. Mild centrilobular emphysema in both upper lobes."
)


@pytest.mark.parametrize(
    ("old", "new", "lowered"),
    [
        ("12 mm", "19 mm", {("Lung nodule", "size")}),
        ("of 12 mm ", "", {("Lung nodule", "size")}),
        ("spiculated", "smooth", {("Lung nodule", "margin")}),
        ("right upper", "left upper", {("Lung nodule", "location")}),
        ("right upper lobe", "right lung", {("Lung nodule", "location")}),
        ("new since", "stable since", {("Lung nodule", "change")}),
        ("moderate left", "moderate right", {("Pleural effusion", "location")}),
        ("moderate left", "small left", {("Pleural effusion", "severity")}),
        ("centrilobular", "paraseptal", {("Emphysema", "type")}),
        ("both upper", "both lower", {("Emphysema", "location")}),
        ("Mild ", "", {("Emphysema", "severity")}),
    ],
)
def test_build_items_altered_attribute_lowers_its_own_items_only(
    old: str, new: str, lowered: set[tuple[str, str]]
) -> None:
    items = build_items(REPORT)
    candidate = REPORT.replace(old, new)
    assert candidate != REPORT
    answers = answer_items(candidate, items)
    wrong = {
        (item.finding, item.attribute)
        for item, answer in zip(items, answers, strict=True)
        if compare_answers(answer, item.answer, item.answer_type) < 1.0
    }
    assert wrong == lowered


@pytest.mark.parametrize("style", ["full", "compact"])
def test_build_items_dropped_size_of_a_phantom_lowers_sizes_only(style: str) -> None:
    for study in phantom_studies(60, seed=9, style=style):
        items = build_items(study.report)
        sizes = {(item.finding, item.attribute) for item in items if item.answer_type == "numeric"}
        candidate = re.sub(r"\b\d+ mm\b", "some mm", study.report)
        answers = answer_items(candidate, items)
        wrong = {
            (item.finding, item.attribute)
            for item, answer in zip(items, answers, strict=True)
            if compare_answers(answer, item.answer, item.answer_type) < 1.0
        }
        assert wrong == sizes


CHEST = {
    "Two solid nodules are seen, the largest measuring 8 x 6 mm in the left lung lower lobe laterobasal segment.": {
        "location": "left lower lobe laterobasal",
        "size": "8 x 6 mm",
        "number": "two",
        "density": "solid",
    },
    "Nodule of 3-5 mm in the lingula. It is unchanged since the previous CT.": {
        "location": "left lingula",
        "size": "3-5 mm",
        "change": "stable",
    },
    "There is a nodule in the right upper lobe. It measures 7 mm and has smooth margins.": {
        "location": "right upper lobe",
        "size": "7 mm",
        "margin": "smooth",
    },
    "A 6 mm nodule, previously 4 mm, is 10 mm from the fissure in the right middle lobe.": {"size": "6 mm"},
    "Several nodules in both lungs. The largest nodule is located in the right middle lobe, size 7x5 mm.": {
        "location": "both lungs; right middle lobe",
        "size": "7x5 mm",
        "number": "multiple",
    },
    "Nodules of 2-6 mm in the lungs, the larger one is 6 x 5 mm, in the left upper lobe.": {
        "location": "left upper lobe",
        "size": "6 x 5 mm",
    },
    "Nodules in the left lung with a diameter of less than 4 mm.": {"size": "< 4 mm"},
    "Nodules in the left lung with a diameter not greater than about 4 mm.": {"size": "< 4 mm"},
    "Nodules in the left lung with a diameter not exceeding 4 mm.": {"size": "< 4 mm"},
    "A 6 mm nodule, larger than 4 mm in the left lung.": {"size": "6 mm"},
    "A nodule of 34mmx30mm in the left lung.": {"size": "34mmx30mm"},
    "A nodule of 6 * 4mm in the left lung.": {"size": "6 * 4mm"},
    "A nodule of 9X10mm in the left lung.": {"size": "9X10mm"},
    "Nodules of 3-6mm in the left lung.": {"size": "3-6mm"},
    "A nodule of 1,5 cm in the left lung.": {"size": "1,5 cm"},
    "A nodule with a diameter of about 4M in the left lung.": {"size": "4 mm"},
    "A nodule is seen in the left lung - 12 mm in diameter.": {"size": "12 mm"},
    "A mixed ground glass nodule is seen under the pleura of the left lung.": {
        "location": "left lung subpleural",
        "density": "part-solid",
    },
    "Several nodules are seen in the left lung, mainly with ground glass density.": {"density": "ground-glass"},
}


@pytest.mark.parametrize("sentence", CHEST)
def test_build_items_attributes_of_nodules(sentence: str) -> None:
    answers = {item.attribute: item.answer for item in build_items(sentence) if item.finding == "Lung nodule"}
    for attribute, answer in CHEST[sentence].items():
        assert answers[attribute] == answer


ABDOMEN = [
    (
        "The liver is diffusely hypoattenuating, consistent with moderate steatosis.",
        "Hepatic steatosis",
        "severity",
        "moderate",
    ),
    ("Status post cholecystectomy with surgical clips.", "Surgically absent gallbladder", "signs", "surgical clips"),
    ("Moderate left hydronephrosis due to a stone in the distal ureter.", "Hydronephrosis", "severity", "moderate"),
    ("Moderate left hydronephrosis.", "Hydronephrosis", "location", "left"),
    ("Bilateral simple renal cysts, the largest 3.2 cm, measuring 8 HU.", "Renal cyst", "size", "3.2 cm"),
    ("Bilateral simple renal cysts, the largest 3.2 cm, measuring 8 HU.", "Renal cyst", "attenuation", "8 HU"),
    ("Infrarenal abdominal aortic aneurysm of 4.5 x 4.2 cm.", "Abdominal aortic aneurysm", "size", "4.5 x 4.2 cm"),
    ("Small volume ascites in the pelvis.", "Ascites", "location", "pelvis"),
    (
        "Small bowel obstruction with transition point in the right lower quadrant.",
        "Bowel obstruction",
        "location",
        "right lower quadrant",
    ),
    ("Small bowel obstruction, likely due to adhesions.", "Bowel obstruction", "cause", "adhesions"),
    ("Enlarged retroperitoneal lymph nodes up to 2.1 cm.", "Lymphadenopathy", "location", "retroperitoneum"),
    ("Acute perforated appendicitis with an appendicolith.", "Appendicitis", "type", "acute, perforation"),
    ("Chronic compression fracture of L1.", "Fracture", "location", "l1"),
    ("Nonocclusive thrombus in the main portal vein.", "Thrombosis", "type", "nonocclusive"),
    ("Multiple hepatic metastases, the largest 3 cm in the right hepatic lobe.", "Metastatic disease", "size", "3 cm"),
    ("Splenomegaly measuring 15 cm.", "Splenomegaly", "size", "15 cm"),
    ("The prostate is enlarged, measuring 5.2 cm.", "Prostatomegaly", "size", "5.2 cm"),
    (
        "Moderate atherosclerosis of the abdominal aorta and iliac arteries.",
        "Atherosclerosis",
        "location",
        "abdominal aorta; iliac artery",
    ),
    ("Mild intrahepatic biliary ductal dilation.", "Biliary ductal dilation", "severity", "mild"),
    ("Severe pancreatic atrophy.", "Pancreatic atrophy", "severity", "severe"),
    ("Small amount of free air under the diaphragm.", "Free air", "severity", "mild"),
    ("Multiple calcified gallstones.", "Gallstones", "number", "multiple"),
    ("Submucosal edema of the sigmoid colon.", "Submucosal edema", "location", "sigmoid colon"),
    ("Diffuse anasarca.", "Anasarca", "distribution", "diffuse"),
    ("Small hypodensities of the left kidney, unchanged.", "Renal hypodensities", "change", "stable"),
    ("Mild aortic valve calcification.", "Aortic valve calcification", "severity", "mild"),
    ("Calcification of the LAD.", "Coronary calcification", "location", "left anterior descending artery"),
    ("Diffuse osteopenia.", "Osteopenia", "distribution", "diffuse"),
    ("Bibasilar dependent atelectasis.", "Atelectasis", "location", "both lower lobes basal"),
    ("Small sliding hiatal hernia.", "Hiatal hernia", "type", "sliding"),
    ("Mild cardiomegaly.", "Cardiomegaly", "severity", "mild"),
    ("Marked hepatomegaly, 22 cm.", "Hepatomegaly", "size", "22 cm"),
    ("Small right pleural effusion.", "Pleural effusion", "location", "right"),
]


@pytest.mark.parametrize(("sentence", "finding", "attribute", "answer"), ABDOMEN)
def test_build_items_abdominal_sentences(sentence: str, finding: str, attribute: str, answer: str) -> None:
    answers = {(item.finding, item.attribute): item.answer for item in build_items(sentence, "merlin")}
    assert answers[finding, attribute] == answer


@pytest.mark.parametrize(
    "sentence",
    [
        "No hydronephrosis, ascites or free air.",
        "The spleen and the liver are normal in size.",
        "The appendix is normal. The prostate is unremarkable.",
        "A cyst is seen in the liver.",
    ],
)
def test_build_items_normal_abdomen_asks_nothing(sentence: str) -> None:
    assert build_items(sentence, "merlin") == ()


def test_build_items_only_what_is_present_is_asked() -> None:
    assert build_items("No nodule. Possible pleural effusion. No change.") == ()


def test_build_items_existence_is_answered_by_presence() -> None:
    items = build_items("Pleural effusion.")
    assert [item.attribute for item in items] == ["existence"]
    candidates = ["Left effusion.", "Possible pleural effusion.", "No pleural effusion.", "Nodule."]
    assert [answer_items(candidate, items)[0] for candidate in candidates] == ["yes", "possible", "no", None]


def test_build_items_answers_are_never_in_their_questions() -> None:
    vocabulary = answer_vocabulary()
    for name in ("ct_rate", "merlin"):
        for finding in get_question_schema(name).findings:
            for spec in finding.attributes:
                named = [name for name in spec.values or () if name in vocabulary.groups]
                values = {value for group in named for value in vocabulary.groups[group]}
                tokens = answer_tokens(spec.question)
                said = {value for hit in vocabulary.hits(tokens) for kind, value in hit.meanings if kind == "value"}
                assert not values & said, (finding.name, spec.name, values & said)


def test_build_items_unknown_names_are_told() -> None:
    item = QAItem("Lung nodle", "size", "What size?", "5 mm", "numeric")
    with pytest.raises(ValueError, match="did you mean 'Lung nodule'"):
        answer_items("Nodule.", [item])
    with pytest.raises(ValueError, match="did you mean 'size'"):
        answer_items("Nodule.", [QAItem("Lung nodule", "sizes", "What size?", "5 mm", "numeric")])
    with pytest.raises(ValueError, match="did you mean 'ct_rate'"):
        build_items("Nodule.", "ctrate")
    with pytest.raises(TypeError, match="report must be a report text, got NoneType"):
        build_items(None)  # type: ignore[arg-type]


RUN_ON = {
    "Multiple nodules are seen in the right lung, the largest is in the right upper lobe, and both pulmonary hila are "
    "not large.": ("Lung nodule", "location", "right lung; right upper lobe"),
    "Multiple nodules are seen in both lungs. The larger one is located in the left lower lobe, both hila are "
    "normal.": ("Lung nodule", "location", "both lungs; left lower lobe"),
    "A nodule is seen in the left lung. The larger one is 6 x 5 mm in size, a cavity shadow can be seen in the right "
    "lower lobe.": ("Lung nodule", "size", "6 x 5 mm"),
    "The dorsal segment of the right lower lobe has a few dilated airways, and both lungs have multiple nodules.": (
        "Lung nodule",
        "location",
        "both lungs",
    ),
    "Consolidations are seen in the left lower lobe, cord foci in both lungs, and both hila are not large.": (
        "Consolidation",
        "location",
        "left lower lobe",
    ),
    "Subpleural ground-glass density areas are observed in both lungs, and viral pneumonia is considered.": (
        "Lung opacity",
        "location",
        "both lungs subpleural",
    ),
    "Consolidations in which air bronchograms are observed are seen in the left lung.": (
        "Consolidation",
        "location",
        "left lung",
    ),
    "A lymph node is seen in the right upper paratracheal area.": (
        "Lymphadenopathy",
        "location",
        "right upper paratracheal",
    ),
    "A port catheter ends in the superior distal portion of the vena cava.": (
        "Medical material",
        "location",
        "superior vena cava",
    ),
    "Central consolidations and areas of ground glass are seen in the left lung.": (
        "Consolidation",
        "location",
        "left lung; central",
    ),
    "A nodule is seen in the left upper lobe, a strip shadow can be seen in the right lung.": (
        "Lung nodule",
        "location",
        "left upper lobe",
    ),
    "The right lung is in the upper lobe apical segment, the left lung is adjacent to the fissure, nodules are seen": (
        "Lung nodule",
        "location",
        "right upper lobe apical; left lung fissural",
    ),
}


@pytest.mark.parametrize("report", RUN_ON)
def test_build_items_statement_of_something_else_lends_no_attributes(report: str) -> None:
    finding, attribute, answer = RUN_ON[report]
    answers = {(item.finding, item.attribute): item.answer for item in build_items(report)}
    assert answers[finding, attribute] == answer


def test_build_items_low_density_of_other_organs_is_no_opacity_of_the_lungs() -> None:
    assert (
        build_items("Both hemispheres are symmetrical, patchy low density shadows are seen in the basal ganglia.") == ()
    )
    assert build_items("Patchy high density shadows are seen in the right lung.")


def test_build_items_smaller_than_a_measure_is_no_change() -> None:
    said = [item.attribute for item in build_items("Nodules smaller than 5 mm are seen in the right lung.")]
    assert "change" not in said
    changes = [
        item.answer for item in build_items("A nodule is smaller than on the prior CT.") if item.attribute == "change"
    ]
    assert changes == ["decreased"]


SEGMENTS = {
    "dorsal segment of the left lower lobe": "left lower lobe superior",
    "outer basal segment of the right lower lobe": "right lower lobe laterobasal",
    "inner basal segment of the right lower lobe": "right lower lobe mediobasal",
    "front basal segment of the left lower lobe": "left lower lobe anterobasal",
    "back basal segment of the left lower lobe": "left lower lobe posterobasal",
    "front segment of the left upper lobe": "left upper lobe anterior",
    "back segment of the right upper lobe": "right upper lobe posterior",
    "tip segment of the right upper lobe": "right upper lobe apical",
    "tip posterior segment of the left upper lobe": "left upper lobe apicoposterior",
    "outer segment of the right middle lobe": "right middle lobe lateral",
    "tongue segment of the left upper lobe": "left lingula",
    "upper tongue segment of the left lung": "left superior lingula",
}


@pytest.mark.parametrize("place", SEGMENTS)
def test_build_items_segments_have_several_names(place: str) -> None:
    answers = {item.attribute: item.answer for item in build_items(f"A nodule is seen in the {place}.")}
    assert answers["location"] == SEGMENTS[place]


def test_build_items_nodules_of_ground_glass_density_are_no_opacity() -> None:
    report = "Several nodules are seen in the left lung, mainly with ground glass density."
    assert {item.finding for item in build_items(report)} == {"Lung nodule"}
    report = "Several nodules are seen in the left lung with areas of ground glass density."
    assert {item.finding for item in build_items(report)} == {"Lung nodule", "Lung opacity"}


@pytest.mark.parametrize(
    ("report", "number"),
    [
        ("A single nodule is seen in the left lung.", "single"),
        ("A single nodule in the left lung. A single nodule in the right lung.", None),
        ("Multiple nodules in the left lung. A single nodule is calcified.", "multiple"),
    ],
)
def test_build_items_two_single_nodules_are_not_single(report: str, number: str | None) -> None:
    answers = {item.attribute: item.answer for item in build_items(report)}
    assert answers.get("number") == number


def test_build_items_where_a_finding_is_more_prominent_is_no_degree() -> None:
    attributes = [item.attribute for item in build_items("Emphysema is seen, more prominent in the upper lobes.")]
    assert attributes == ["existence", "location"]


def test_build_items_ground_glass_before_a_nodule_is_the_nodules_density() -> None:
    answers = {(item.finding, item.attribute): item.answer for item in build_items("A ground-glass nodule is seen.")}
    assert answers["Lung nodule", "density"] == "ground-glass"


SHARED_PLACES = {
    "In both lungs, central consolidation areas and accompanying ground glass densities are seen in the upper lobes.": {
        "Consolidation": "both upper lobes; both lungs central",
        "Lung opacity": "both upper lobes",
    },
    "In the right lung, there is a ground-glass-like density increase in the subpleural area of the upper lobe.": {
        "Lung opacity": "right lung; right upper lobe subpleural",
    },
    "In the left lung, nodules are seen in the lower lobe.": {"Lung nodule": "left lung; left lower lobe"},
    "Atelectasis is seen in the lower lobes of both lungs, with minimal ground glass densities around it.": {
        "Atelectasis": "both lower lobes",
        "Lung opacity": "both lower lobes",
    },
    "Consolidation in both lungs, with nodules in the left upper lobe.": {
        "Consolidation": "both lungs",
        "Lung nodule": "left upper lobe",
    },
    "Nodules are seen in the left lung, emphysema in the upper lobes.": {
        "Lung nodule": "left lung",
        "Emphysema": "upper lobe",
    },
}


@pytest.mark.parametrize("report", SHARED_PLACES)
def test_build_items_places_at_the_start_of_a_sentence_and_around_another_finding(report: str) -> None:
    answers = {item.finding: item.answer for item in build_items(report) if item.attribute == "location"}
    assert answers == SHARED_PLACES[report]


WHOLE_PLACES = {
    "Pleural effusion in both hemithoraces and in the right oblique fissure.": "bilateral; right fissural",
    "When both lungs are evaluated in the parenchyma window: a nodule in the left lower lobe.": "left lower lobe",
    "Bronchiectasis is seen in the center of both lungs.": "both lungs central",
    "A calcification in the center of the nodule in the left lung.": "left lung",
    "Right upper, bilateral lower paratracheal lymph nodes.": "right upper paratracheal; both lower paratracheal",
    "Right upper-bilateral lower paratracheal lymph nodes.": "right upper paratracheal; both lower paratracheal",
    "Right upper-lower paratracheal lymph nodes.": "right paratracheal",
    "Lymph nodes in the mediastinal, paratracheal, right hilar area.": "mediastinum; paratracheal; right hilum",
    "Ground glass densities are seen in the bilateral peribronchial areas.": "both lungs bronchovascular",
}


@pytest.mark.parametrize("report", WHOLE_PLACES)
def test_build_items_places_are_complete_and_only_those_of_the_finding(report: str) -> None:
    assert [item.answer for item in build_items(report) if item.attribute == "location"] == [WHOLE_PLACES[report]]


VALUES = {
    "A round low density area and a solid nodule are seen in the right lung.": ("density", "solid"),
    "A round solid nodule and a low density area are seen in the right lung.": ("shape", "round"),
    "Twisted small air duct shadows can be seen in patchy high-density shadows in both lungs.": ("severity", None),
    "A few intrapulmonary localized nodules are seen.": ("distribution", None),
    "Subpleural localized nodules are seen.": ("distribution", None),
    "Localized emphysema is seen in the right upper lobe.": ("distribution", "focal"),
    "Lymph nodes with radiolucent hiluses are seen in both axillae.": ("type", "fatty hilum"),
}


@pytest.mark.parametrize("report", VALUES)
def test_build_items_values_of_something_else_are_no_values_of_the_finding(report: str) -> None:
    attribute, answer = VALUES[report]
    assert {item.attribute: item.answer for item in build_items(report)}.get(attribute) == answer


# The finding engine also reads "and the coronaries" as a finding if the sentence names calcification elsewhere.
CALCIFIED = {
    "Along the wall of the thoracic aorta and coronary artery, there are calcified changes.": "thoracic aorta",
    "In the descending aorta and LAD, there are calcific plaques.": "descending aorta",
    "Calcific plaques are seen in the aortic arch, coronary arteries and descending aorta.": (
        "aortic arch; descending aorta"
    ),
}


@pytest.mark.parametrize("sentence", CALCIFIED)
def test_build_items_places_belong_to_the_finding_although_an_organ_is_joined(sentence: str) -> None:
    found = {(item.finding, item.attribute): item.answer for item in build_items(sentence)}
    assert found["Arterial wall calcification", "location"] == CALCIFIED[sentence]
    assert ("Coronary artery wall calcification", "existence") in found
