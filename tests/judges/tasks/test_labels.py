"""The label task: the prompt, the schema of answers, and their checks."""

import json
from typing import Any

import pytest

from rrg_rewards.judges.base import AnswerError
from rrg_rewards.judges.tasks.labels import LabelsTask, StatedLabel

LABELS = ("Lung nodule", "Pleural effusion", "Emphysema")
REPORT = "Nodule of 8 mm in the left upper lobe. No pleural effusion. Emphysema cannot be excluded."
GOOD = {
    "Lung nodule": {"quote": "Nodule of 8 mm", "state": "positive"},
    "Pleural effusion": {"quote": "No pleural effusion", "state": "negative"},
    "Emphysema": {"quote": "Emphysema cannot be excluded", "state": "uncertain"},
}


def parsed(answer: Any, report: str = REPORT) -> tuple[StatedLabel, ...]:
    return LabelsTask(LABELS).parse(report, json.dumps({"labels": answer}))


def test_labels_task_returns_states_in_the_order_of_the_labels() -> None:
    expected = (
        StatedLabel("positive", "Nodule of 8 mm"),
        StatedLabel("negative", "No pleural effusion"),
        StatedLabel("uncertain", "Emphysema cannot be excluded"),
    )
    assert parsed(GOOD) == parsed(dict(reversed(GOOD.items()))) == expected
    unmentioned = {**GOOD, "Emphysema": {"quote": " ", "state": "negative"}}
    assert parsed(unmentioned)[2] == StatedLabel("negative", None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Lung nodule": {"quote": "Nodule of 9 mm", "state": "positive"}}, "Lung nodule: the quote is not in the rep"),
        ({"Lung nodule": {"quote": "spleen enlarged", "state": "negative"}}, "Lung nodule: the quote is not in the re"),
        ({"Lung nodule": {"quote": None, "state": "positive"}}, "Lung nodule: positive without a quote"),
        ({"Emphysema": {"quote": "", "state": "uncertain"}}, "Emphysema: uncertain without a quote"),
        ({"Pleural effusion": {"quote": "No pleural effusion", "state": "positive"}}, "quote that denies the finding"),
        ({"Secret text": {"quote": None, "state": "negative"}}, "0 are missing, and 1 are unknown"),
    ],
)
def test_labels_task_rejects_answers_that_contradict_the_report(change: dict[str, Any], message: str) -> None:
    with pytest.raises(AnswerError, match=message) as raised:
        parsed({**GOOD, **change})
    assert raised.value.kind == "inconsistent"
    assert "Secret" not in str(raised.value)


def test_labels_task_rejects_a_missing_label() -> None:
    with pytest.raises(AnswerError, match="1 are missing"):
        parsed({label: entry for label, entry in GOOD.items() if label != "Emphysema"})


@pytest.mark.parametrize(
    "entry", [{"quote": None}, {"quote": None, "state": "maybe"}, {"quote": 1, "state": "negative"}, "negative"]
)
def test_labels_task_rejects_other_forms(entry: Any) -> None:
    with pytest.raises(AnswerError) as raised:
        parsed({**GOOD, "Emphysema": entry})
    assert raised.value.kind == "malformed"


def test_labels_schema_has_every_label_and_nothing_else() -> None:
    labels = LabelsTask(LABELS).schema["properties"]["labels"]
    assert tuple(labels["properties"]) == tuple(labels["required"]) == LABELS
    assert labels["additionalProperties"] is False
    assert labels["properties"]["Emphysema"]["properties"]["state"]["enum"] == ["positive", "negative", "uncertain"]
    assert "$ref" not in json.dumps(labels)


def test_labels_prompt_has_the_definitions() -> None:
    system, _ = LabelsTask(LABELS, ["a <small> one", "", ""]).messages("Clear lungs.")
    assert '- "Lung nodule": a <small> one\n- "Pleural effusion"\n' in system["content"]
    assert "Call every" not in system["content"]


def test_labels_prompt_hash_depends_on_labels_and_definitions() -> None:
    tasks = [LabelsTask(LABELS), LabelsTask(LABELS[:2]), LabelsTask(LABELS, ["any", "", ""])]
    assert len({task.prompt_hash for task in tasks}) == 3
    assert LabelsTask(LABELS).prompt_hash == tasks[0].prompt_hash


def test_labels_task_needs_a_definition_for_each_label() -> None:
    with pytest.raises(ValueError, match="1 definitions for 3 labels"):
        LabelsTask(LABELS, ["any"])
    with pytest.raises(ValueError, match="0 labels"):
        LabelsTask([])
