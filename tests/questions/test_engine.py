"""Questions made of a report and answered by another: phantom studies whose truth is known, real reports, sentences."""

import csv
import re
from pathlib import Path

import pytest

from rrg_rewards.data import PhantomStudy, phantom_studies
from rrg_rewards.findings.reading.measurements import read_measures
from rrg_rewards.questions.engine import answer_items, build_items, stated_answers
from rrg_rewards.questions.grading import compare_answers
from rrg_rewards.questions.locations import read_places
from rrg_rewards.questions.schema import FindingSpec, QAItem, QuestionSchema, get_question_schema
from rrg_rewards.questions.vocabulary import answer_vocabulary
from tests.helpers.tables import read_tables

TABLES = read_tables(__file__)

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

READERS = {"location": read_places, "numeric": read_measures}


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


def test_build_items_answers_are_read_as_the_values_they_were_made_from(shared_data: Path) -> None:
    with (shared_data / "ct_rate_labels" / "reports.csv").open(encoding="utf-8", newline="") as file:
        reports = [row["report_text"] for row in csv.DictReader(file)][::4]
    for item in {item for report in reports for item in build_items(report)}:
        # A question that was saved has only the text.
        for pair in ((item.answer, str(item.answer)), (str(item.answer), item.answer)):
            assert compare_answers(*pair, item.answer_type) == 1.0
        if item.answer_type in READERS:
            assert {*READERS[item.answer_type](item.answer)} == {*item.answer.values}, item


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


CHEST = TABLES["chest"]


@pytest.mark.parametrize("sentence", CHEST)
def test_build_items_attributes_of_nodules(sentence: str) -> None:
    answers = {item.attribute: item.answer for item in build_items(sentence) if item.finding == "Lung nodule"}
    for attribute, answer in CHEST[sentence].items():
        assert answers[attribute] == answer


ABDOMEN = TABLES["abdomen"]


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


def test_build_items_existence_is_asked_wherever_the_schema_has_it() -> None:
    nodule = next(finding for finding in SCHEMA.findings if finding.name == "Lung nodule")
    schema = QuestionSchema("reversed", (FindingSpec(nodule.name, nodule.attributes[::-1]),), SCHEMA.lexicon)
    (item,) = build_items("There is a nodule.", schema)
    assert (item.attribute, item.answer) == ("existence", "yes")
    assert answer_items("No nodule.", [item], schema) == ["no"]


def test_build_items_answers_are_never_in_their_questions() -> None:
    vocabulary = answer_vocabulary()
    for name in ("ct_rate", "merlin"):
        for finding in get_question_schema(name).findings:
            for spec in finding.attributes:
                named = [name for name in spec.values or () if name in vocabulary.groups]
                values = {value for group in named for value in vocabulary.groups[group]}
                said = {word.name for word in vocabulary.answer_words(spec.question) if word.kind == "value"}
                assert not values & said, (finding.name, spec.name, values & said)


def test_build_items_unknown_names_are_told() -> None:
    item = QAItem("Lung nodle", "size", "What size?", "5 mm", "numeric")
    with pytest.raises(ValueError, match="did you mean 'Lung nodule'"):
        answer_items("Nodule.", [item])
    with pytest.raises(ValueError, match="did you mean 'size'"):
        answer_items("Nodule.", [QAItem("Lung nodule", "sizes", "What size?", "5 mm", "numeric")])
    with pytest.raises(ValueError, match="did you mean 'ct_rate'"):
        build_items("Nodule.", "ctrate")
    with pytest.raises(TypeError, match="report must"):
        build_items(None)  # type: ignore[arg-type]


RUN_ON = TABLES["run_on"]


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


SEGMENTS = TABLES["segments"]


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


SHARED_PLACES = TABLES["shared_places"]


@pytest.mark.parametrize("report", SHARED_PLACES)
def test_build_items_places_at_the_start_of_a_sentence_and_around_another_finding(report: str) -> None:
    answers = {item.finding: item.answer for item in build_items(report) if item.attribute == "location"}
    assert answers == SHARED_PLACES[report]


WHOLE_PLACES = TABLES["whole_places"]


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
    "A faint opacity is seen in the right lung.": ("severity", None),
    "Millimetric plaques are seen in the aortic arch.": ("severity", None),
    "A minimal opacity is seen in the right lung.": ("severity", "minimal"),
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
