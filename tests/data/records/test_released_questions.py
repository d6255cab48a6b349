"""Released files of questions, in each layout, with content of our own."""

import json
from pathlib import Path
from typing import Any

import pytest

from rrg_rewards.data import TableError, read_released_questions, write_question_items
from rrg_rewards.metrics import CTFineBench
from rrg_rewards.questions import QAItem
from tests.helpers.question_items import read_items

SIZE = {"finding": "lung_nodule", "attribute": "Size", "question": "How large is the nodule?", "answer": "12 mm"}
PRESENT = {"finding": "lung_nodule", "attribute": "presence", "question": "Is there a nodule?", "answer": "Yes"}
PLACE = {"finding": "Atelectasis", "attribute": "location", "question": "Where is it?", "answer": "left lung"}
STUDIES = {"valid_1_a_1": [SIZE, PRESENT], "valid_2_a_1": [PLACE], "valid_3_a_1": []}


def write(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "qa.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


LAYOUTS = {
    "an object of lists": {f"{study}.nii.gz": asked for study, asked in STUDIES.items()},
    "an object of objects": {study: {"questions": asked, "report": "x"} for study, asked in STUDIES.items()},
    "one entry a study": [{"VolumeName": study, "QA": asked} for study, asked in STUDIES.items()],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_read_released_questions_of_each_layout(layout: str, tmp_path: Path) -> None:
    found = read_released_questions(write(tmp_path, LAYOUTS[layout]), "ct_rate")
    assert (found.num_items, found.num_not_numeric) == (3, 0)
    read = [
        (row.report_id, *((item.finding, item.attribute, item.answer, item.answer_type) for item in row.items))
        for row in found.reports
    ]
    size, present = ("Lung nodule", "size", "12 mm", "numeric"), ("Lung nodule", "existence", "Yes", "existence")
    assert read[0] == ("valid_1_a_1", size, present)
    assert read[1:] == [("valid_2_a_1", ("Atelectasis", "location", "left lung", "location")), ("valid_3_a_1",)]
    item = found.reports[0].items[0]
    assert item.question == SIZE["question"]
    assert "4 mm" in item.examples
    assert item.explanation.startswith("Dimensions")


def test_read_released_questions_of_one_entry_a_question(tmp_path: Path) -> None:
    entries = [{"study_id": study, "split": "test", **asked} for study, row in STUDIES.items() for asked in row]
    found = read_released_questions(write(tmp_path, entries), "ct_rate")
    expected = read_released_questions(write(tmp_path, LAYOUTS["an object of lists"]), "ct_rate")
    # A study without questions has no entry.
    assert found.reports == expected.reports[:2]


def test_read_released_questions_with_keys_of_ones_own(tmp_path: Path) -> None:
    entry = {"name": "a", "Disease": "lung nodule", "Feature": "size", "q": "How large?", "gt": 12}
    columns = {"report_id": "name", "question": "q", "answer": "gt"}
    (row,) = read_released_questions(write(tmp_path, [entry]), "ct_rate", columns).reports
    assert (row.report_id, row.items[0].answer) == ("a", "12")
    with pytest.raises(ValueError, match="unknown part of a question in columns 'answers'; did you mean 'answer'"):
        read_released_questions(write(tmp_path, [entry]), "ct_rate", {"answers": "gt"})


def test_read_released_questions_is_written_and_scored(tmp_path: Path) -> None:
    found = read_released_questions(write(tmp_path, LAYOUTS["an object of lists"]), "ct_rate")
    path = tmp_path / "items.jsonl"
    write_question_items(found.reports, path)
    assert read_items(path) == found.reports
    reports = ["Nodule of 12 mm.", "Atelectasis in the right lung.", "Normal."]
    scores = CTFineBench().score(reports, [None] * 3, items=[row.items for row in found.reports])
    assert scores.value.nan_to_num(9).tolist() == [1, 0, 9]


def test_read_released_questions_number_in_words_is_categorical(tmp_path: Path) -> None:
    vague = {**SIZE, "answer": "very large"}
    found = read_released_questions(write(tmp_path, {"a": [SIZE, vague]}), "ct_rate")
    assert found.num_not_numeric == 1
    assert [item.answer_type for item in found.reports[0].items] == ["numeric", "categorical"]
    assert isinstance(found.reports[0].items[1], QAItem)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text", "qa.json: must be a list or an object of questions, got str"),
        ([], "qa.json: has no questions"),
        ([7], "qa.json: entry 1: must be an object, got int"),
        ([SIZE], r"entry 1: has no report_id; keys found: 'finding', .*columns=\{'report_id': '\.\.\.'\}"),
        ({"a": SIZE}, "study 'a': must have a list of questions, got dict"),
        ({"a": [SIZE, 7]}, "study 'a', question 2: must be an object, got int"),
        (
            {"a": [{"Q": "x", "A": "y"}]},
            "question 1: has no finding, attribute, question, answer; keys found: 'Q'",
        ),
        ({"a": [{**SIZE, "answer": None}]}, "question 1: answer must be a text, got NoneType"),
        ({"a": [{**SIZE, "answer": False}]}, "question 1: answer must be a text, got bool"),
        ({"a": [{**SIZE, "answer": " "}]}, "question 1: answer must be a text, got ''"),
        ({"a": [{**SIZE, "finding": "lung nodul"}]}, "unknown finding 'lung nodul'; did you mean 'Lung nodule'"),
        ({"a": [{**SIZE, "attribute": "sizes"}]}, "unknown attribute of Lung nodule 'sizes'; did you mean 'size'"),
        ({"a": [{**SIZE, "disease": "x"}]}, "'finding' and 'disease' could both be the finding; name one in columns"),
    ],
)
def test_read_released_questions_names_what_is_wrong(content: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(TableError, match=message):
        read_released_questions(write(tmp_path, content), "ct_rate")


def test_read_released_questions_no_json_and_repeated_studies(tmp_path: Path) -> None:
    path = tmp_path / "qa.json"
    path.write_text('{"a": [], "a": []}')
    with pytest.raises(TableError, match=r"qa\.json: not a JSON document: the key 'a' stands more than once"):
        read_released_questions(path, "ct_rate")
    path.write_text('{"finding": 1}\n{"finding": 2}')
    with pytest.raises(TableError, match=r"qa\.json: not a JSON document"):
        read_released_questions(path, "ct_rate")
