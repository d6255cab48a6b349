"""Question schemas: complete for their label sets, bad ones are told, and labels choose findings."""

import csv
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from rrg_rewards.judges.tasks.finebench import AnswersTask, ItemsTask, Questions
from rrg_rewards.metrics import CTFineBench
from rrg_rewards.questions import QAItem, compare_answers, positive_findings
from rrg_rewards.questions.engine import answer_items, build_items
from rrg_rewards.questions.schema import (
    SEVERAL_LESIONS,
    AttributeSpec,
    FindingSpec,
    QuestionSchema,
    get_question_schema,
)
from rrg_rewards.questions.vocabulary import answer_vocabulary
from rrg_rewards.schemas import CT_RATE, LABEL_SCHEMAS, MERLIN

FIVE = ("a", "b", "c", "d", "e")


@pytest.mark.parametrize("labels", [CT_RATE, MERLIN])
def test_question_schema_shipped_schemas_ask_of_every_label(labels) -> None:
    schema = get_question_schema(labels.name)
    assert tuple(finding.name for finding in schema.findings) == labels.labels
    for finding in schema.findings:
        assert finding.attributes[0].answer_type == "existence"
        assert len(finding.attributes) >= 2


def test_question_schema_every_value_can_be_read_back() -> None:
    vocabulary = answer_vocabulary()
    for value in vocabulary.values:
        assert value in {word.name for word in vocabulary.answer_words(value) if word.kind == "value"}, value


def test_question_schema_values_are_of_the_vocabulary() -> None:
    vocabulary = answer_vocabulary()
    known = {*vocabulary.groups, *vocabulary.values, *vocabulary.parts, *vocabulary.wider_details}
    for name in ("ct_rate", "merlin"):
        for finding in get_question_schema(name).findings:
            for spec in finding.attributes:
                assert set(spec.values) <= known, (finding.name, spec.name, set(spec.values) - known)


def test_question_schema_missing_examples_are_told() -> None:
    assert AttributeSpec("size", "numeric", "How large?", "Size.", ("1 mm",)).examples == ("1 mm",)
    for examples in ((), (" ",)):
        with pytest.raises(ValueError, match="'size' has no examples; it needs at least one"):
            AttributeSpec("size", "numeric", "How large?", "Size.", examples)


def test_question_schema_shipped_schemas_have_the_five_examples_that_the_paper_asks_for() -> None:
    for name in ("ct_rate", "merlin"):
        for finding in get_question_schema(name).findings:
            assert all(len(spec.examples) >= 5 for spec in finding.attributes if spec.answer_type != "existence")


def test_question_schema_names_in_other_spellings() -> None:
    schema = get_question_schema("merlin")
    assert schema.finding("submucosal_edema") == schema.finding("Submucosal edema")
    assert "Free_Air" in schema
    assert "free-air" not in schema
    spec = AttributeSpec("part of gut", "location", "Where?", "Part.", ("colon",))
    assert FindingSpec("Edema", (spec,)).attribute("Part_of_gut") == spec
    with pytest.raises(ValueError, match="different"):
        FindingSpec("Edema", (spec, AttributeSpec("part_of_gut", "location", "Where?", "Part.", ("colon",))))


def test_question_schema_of_a_finding_with_an_existence_question_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    own = "{existence: {type: existence, question: 'A nodule?', explanation: x, examples: ['yes']}}"
    path.write_text(OWN.replace("[side]", f"[side, {own}]"))
    attributes = get_question_schema(path).findings[0].attributes
    assert [(spec.name, spec.question) for spec in attributes] == [("side", "Where?"), ("existence", "A nodule?")]


def test_question_schema_names_twice_are_told() -> None:
    spec = AttributeSpec("size", "numeric", "How large?", "Size.", FIVE)
    with pytest.raises(ValueError, match="different"):
        FindingSpec("Nodule", (spec, spec))
    with pytest.raises(ValueError, match="different"):
        QuestionSchema("own", (FindingSpec("Nodule", (spec,)), FindingSpec("nodule", (spec,))))


OWN = """
name: own
attributes:
  existence: {type: existence, question: 'Is there {finding}?', explanation: x, examples: ['yes']}
  side: {type: location, question: 'Where?', explanation: x, examples: [left, right, both, lung, apex]}
findings:
  Lung nodule: {called: a nodule, ask: [side]}
"""


def test_question_schema_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(OWN)
    schema = get_question_schema(path)
    assert schema.finding("lung NODULE").attributes[0].question == "Is there a nodule?"
    items = build_items("A nodule in the right lung.", path)
    assert [(item.attribute, item.answer) for item in items] == [("existence", "yes"), ("side", "right lung")]
    with pytest.raises(FileNotFoundError, match=r"owm\.yaml: no such file; did you mean"):
        get_question_schema(tmp_path / "owm.yaml")


WRONG = {
    "name: own\nname: own": "own.yaml: line 2: the key 'name' is repeated",
    "name: own": "own.yaml: lacks findings",
    "name: own\nfindings: [a]": "own.yaml, findings: must be a mapping of names",
    "name: own\nfinding: {}": "own.yaml: unknown key 'finding'; did you mean 'findings'?",
    OWN.replace("type: location", "kind: location"): "attribute 'side': unknown key 'kind'",
    OWN.replace("question: 'Where?', ", ""): "finding 'Lung nodule', attribute 'side': lacks question",
    OWN.replace("type: location", "type: place"): "attribute 'side': unknown answer_type 'place'",
    OWN.replace("Where?", "Where is {findings}?"): "attribute 'side': only {finding} may be in braces",
    OWN.replace("[side]", "[sides]"): "finding 'Lung nodule', ask: unknown attribute 'sides'; did you mean 'side'",
    OWN.replace("ask: [side]", "ask: side"): "finding 'Lung nodule', ask: must be a list of attributes",
    OWN.replace("apex]", "apex], unit: inches"): "attribute 'side': unknown unit 'inches'",
    OWN.replace("[left, right, both, lung, apex]", "[]"): "attribute 'side': attribute 'side' has no examples",
}


@pytest.mark.parametrize("content", WRONG)
def test_question_schema_wrong_entry_is_named(content: str, tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(content)
    with pytest.raises(ValueError, match=WRONG[content]):
        get_question_schema(path)


def test_question_schema_what_the_engine_cannot_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(OWN.replace("Lung nodule", "Lung nodules"))
    with pytest.raises(
        ValueError, match="unknown label of lexicon chest_ct 'Lung nodules'; did you mean 'Lung nodule'"
    ):
        CTFineBench(path)
    with pytest.raises(ValueError, match="unknown label"):
        build_items("Nodule.", path)
    path.write_text(OWN.replace("apex]", "apex], values: [lungs]"))
    with pytest.raises(ValueError, match="finding 'Lung nodule', attribute 'side': unknown value 'lungs'"):
        CTFineBench(path)
    path.write_text(OWN.replace("type: location", "type: categorical"))
    with pytest.raises(ValueError, match="contains none of its examples"):
        CTFineBench(path)


def test_question_schema_and_a_lexicon_of_ones_own_fit_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.yaml").write_text(OWN.replace("Lung nodule", "Azygos lobe") + "lexicon: words.yaml\n")
    (tmp_path / "words.yaml").write_text(
        "extends: chest_ct\nconcepts: {azygos: [azygos lobe]}\nlabels: {Azygos lobe: [azygos]}\n"
    )
    metric = CTFineBench(tmp_path / "own.yaml")
    assert metric.score(["An azygos lobe."], ["Azygos lobe on the right."]).value.tolist() == [0.5]
    assert str(tmp_path) not in metric.signature
    monkeypatch.chdir(tmp_path)
    assert CTFineBench("own.yaml").signature == metric.signature


def test_question_schema_metric_keeps_the_lexicon_that_it_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.yaml").write_text(OWN.replace("Lung nodule", "Azygos lobe") + "lexicon: words.yaml\n")
    words = tmp_path / "words.yaml"
    words.write_text("extends: chest_ct\nconcepts: {azygos: [azygos lobe]}\nlabels: {Azygos lobe: [azygos]}\n")
    monkeypatch.chdir(tmp_path)
    metric = CTFineBench("own.yaml")
    before, copied = metric.signature, pickle.dumps(metric)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    # A worker process may have another working folder.
    monkeypatch.chdir(folder)
    assert pickle.loads(copied).signature == before
    pair = (["An azygos lobe."], ["Azygos lobe on the right."])
    assert metric.score(*pair).value.tolist() == [0.5]
    words.write_text("edited")
    assert metric.score(*pair).value.tolist() == [0.5]
    assert metric.signature == before


def test_question_schema_digest_tells_schemas_apart() -> None:
    assert get_question_schema("ct_rate").digest != get_question_schema("merlin").digest


SCHEMA = get_question_schema("ct_rate")
DOCS = Path(__file__).resolve().parents[2] / "docs" / "ct_finebench.md"

# The answers by the rule, and what an honest judge lists of each attribute in the report's words.
NODULES = "Spiculated nodule of 12 mm in the right upper lobe. Smooth nodule of 5 mm in the left lower lobe."
BY_RULE = {"location": "right upper lobe; left lower lobe", "size": "12 mm", "margin": "spiculated, smooth"}
LISTED = {"location": "right upper lobe; left lower lobe", "size": "5 mm; 12 mm", "margin": "spiculated; smooth"}
# Sizes and lobes of both nodules are exchanged.
SWAPPED = "Spiculated nodule of 5 mm in the right upper lobe. Smooth nodule of 12 mm in the left lower lobe."
ONE = "Spiculated nodule of 12 mm in the right upper lobe."
SMALLER = "Smooth nodule of 5 mm in the left lower lobe."


def by_engine(report: str) -> tuple[QAItem, ...]:
    return build_items(report)


def by_judge(report: str) -> tuple[QAItem, ...]:
    listed = [{"attribute": name, "answer": answer} for name, answer in LISTED.items()]
    answer = {"findings": [{"finding": "Lung nodule", "quote": "nodule", "attributes": listed}]}
    return ItemsTask(SCHEMA).parse(report, json.dumps(answer))


def engine_answers(report: str, items: tuple[QAItem, ...]) -> list[str | None]:
    return answer_items(report, items)


def judge_answers(report: str, items: tuple[QAItem, ...]) -> list[str | None]:
    """Answers of a judge that lists, in the report's words, all that the rule asks for, and each size."""
    listed = {item.attribute: item.answer for item in build_items(report)} | {"existence": "nodule"}
    if "size" in listed:
        sizes = [word for word in ("12 mm", "5 mm") if word in report]
        listed["size"] = " and ".join(sizes)
    answers = [{"question": f"Q{i}", "answer": listed.get(item.attribute)} for i, item in enumerate(items, start=1)]
    return list(AnswersTask().parse(Questions(report, items), json.dumps({"answers": answers})))


@pytest.mark.parametrize("build", [by_engine, by_judge])
def test_several_lesions_are_asked_of_by_one_question(build: Any) -> None:
    items = build(NODULES)
    assert [item.attribute for item in items] == ["existence", "location", "size", "margin"]
    for item in items[1:]:
        for pair in ((item.answer, BY_RULE[item.attribute]), (BY_RULE[item.attribute], item.answer)):
            assert compare_answers(*pair, item.answer_type, "overlap", "partial") == 1
    assert items[2].answer == "12 mm"


@pytest.mark.parametrize("answer", [engine_answers, judge_answers])
@pytest.mark.parametrize(
    ("candidate", "grades"),
    [
        (NODULES, [1, 1, 1, 1]),
        # The rule's limit: what belongs to which lesion is not asked.
        (SWAPPED, [1, 1, 1, 1]),
        (ONE, [1, 0.5, 1, 0.5]),
        (SMALLER, [1, 0.5, 0, 0.5]),
    ],
)
def test_several_lesions_are_graded_alike(answer: Any, candidate: str, grades: list[float]) -> None:
    items = build_items(NODULES)
    given = answer(candidate, items)
    assert [
        compare_answers(one, item.answer, item.answer_type) for one, item in zip(given, items, strict=True)
    ] == grades


def test_several_lesions_without_suspected_ones_beside_a_present_one() -> None:
    report = "Nodule of 6 mm in the right middle lobe. Possible nodule of 30 mm in the left lower lobe."
    found = {item.attribute: item.answer for item in build_items(report)}
    assert found == {"existence": "yes", "location": "right middle lobe", "size": "6 mm"}


def test_several_lesions_rule_is_one_text() -> None:
    prompts = [ItemsTask(SCHEMA).messages(""), AnswersTask().messages(Questions("", ()))]
    assert all(SEVERAL_LESIONS in system["content"] for system, _ in prompts)
    assert " ".join(DOCS.read_text(encoding="utf-8").replace("> ", "").split()).count(SEVERAL_LESIONS) == 1


def test_several_lesions_answer_with_an_unknown_unit_is_kept() -> None:
    items = tuple(item for item in build_items(NODULES) if item.attribute == "size")
    given = json.dumps({"answers": [{"question": "Q1", "answer": "3 parsecs and 12 mm"}]})
    report = "Nodules of 3 parsecs and 12 mm."
    assert AnswersTask().parse(Questions(report, items), given) == ("3 parsecs and 12 mm",)


NAMES = [finding.name for finding in SCHEMA.findings]
REPORT = "Nodule of 8 mm in the left upper lobe. Small left pleural effusion. Hiatal hernia."


def row(*positive: str) -> list[int]:
    return [int(name in positive) for name in NAMES]


@pytest.mark.parametrize("name", ["ct_rate", "merlin"])
def test_positive_findings_are_the_labels_of_the_data_set_in_their_order(name: str) -> None:
    schema = get_question_schema(name)
    labels = LABEL_SCHEMAS[name].labels
    assert tuple(finding.name for finding in schema.findings) == labels
    for place, label in enumerate(labels):
        assert positive_findings([int(i == place) for i in range(len(labels))], schema) == {label}


@pytest.mark.parametrize(
    "labels",
    [
        row("Lung nodule", "Emphysema"),
        tuple(map(bool, row("Lung nodule", "Emphysema"))),
        torch.tensor(row("Lung nodule", "Emphysema")).numpy(),
        {name.upper(): float(value) for name, value in zip(NAMES, row("Lung nodule", "Emphysema"), strict=True)},
        {**dict(zip(NAMES, row("Lung nodule", "Emphysema"), strict=True)), "Fracture": -1},
    ],
)
def test_positive_findings_that_the_report_states_have_items(labels: Any) -> None:
    items = build_items(REPORT, labels=labels)
    assert items == tuple(item for item in build_items(REPORT) if item.finding == "Lung nodule")
    assert [item.attribute for item in items] == ["existence", "location", "size"]
    assert build_items(REPORT, labels=row()) == ()


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (
            [0] * 14,
            ValueError,
            "labels must",
        ),
        ([0] * 17 + [2], ValueError, r"'Interlobular septal thickening' must be 0 or 1 \(or -1.*got 2; map uncertain"),
        ([0] * 17 + ["1"], ValueError, "'Interlobular septal thickening' must be 0 or 1 .*, got '1'"),
        ([0] * 17 + [None], ValueError, "must be 0 or 1 .*, got None"),
        (dict.fromkeys([*NAMES[:-1], "Septal thickening"], 0), ValueError, "needs a label for each finding: unknown"),
        ("0" * 18, TypeError, "must be a mapping or a sequence of labels, got str"),
        (7, TypeError, "must be a mapping or a sequence of labels, got int"),
    ],
)
def test_positive_findings_refuse_labels_that_do_not_fit(labels: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build_items(REPORT, labels=labels)


def test_positive_findings_of_merlins_table() -> None:
    """Names in lower case with underscores; -1 for what the report does not mention."""
    schema = get_question_schema("merlin")
    row = {finding.name.lower().replace(" ", "_"): -1 for finding in schema.findings}
    row |= {"renal_cyst": 1, "free_air": 0, "study id": 7}
    assert positive_findings(row, schema) == {"Renal cyst"}
    assert positive_findings([-1] * 29 + [1], schema) == {"Fracture"}


def test_positive_findings_by_hand_on_real_reports(shared_data: Path) -> None:
    with (shared_data / "ct_rate_labels" / "reports.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[:60]
    kept = left_out = 0
    for cells in rows:
        labels = {name: int(float(cells[name])) for name in NAMES}
        every, chosen = build_items(cells["report_text"]), build_items(cells["report_text"], labels=labels)
        assert chosen == tuple(item for item in every if labels[item.finding])
        kept, left_out = kept + len(chosen), left_out + len(every) - len(chosen)
    assert kept > 300
    assert 0 < left_out < kept / 10


def test_names_ignore_spelling_and_say_what_is_unknown():
    schema = get_question_schema("ct_rate")
    for finding in schema.findings:
        for spec in finding.attributes:
            names = finding.name, spec.name
            assert schema.names(*names) == names
            assert schema.names(finding.name.upper().replace(" ", "_"), f" {spec.name.upper()}") == names
    with pytest.raises(ValueError, match="finding"):
        schema.names("Lung nodul", "size")
    with pytest.raises(ValueError, match="attribute of Lung nodule"):
        schema.names("Lung nodule", "sise")
