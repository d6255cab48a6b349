"""Context columns as data loaders collate them."""

import pytest
import torch
from torch.utils.data import default_collate
from words import WordLabeler

from rrg_rewards.metrics import CRIMSON, ReportCRG
from rrg_rewards.metrics.base import read_column

LABELS = [[1, 0, 0], [0, 1, 1], [0, 0, 1], [1, 1, 0]]
PREDS = ["Effusion.", "Nodule.", "Normal.", "Hernia."]
TARGET = ["Hernia."] * 4


def rows(labels):
    return [{"pred": PREDS[row], "target": TARGET[row], "labels": given} for row, given in enumerate(labels)]


@pytest.mark.parametrize("as_tensor", [False, True], ids=["lists of labels", "tensors of labels"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_collated_labels_are_those_of_the_rows(as_tensor, size):
    labels = LABELS[:size]
    batch = default_collate(rows([torch.tensor(row) for row in labels] if as_tensor else labels))
    metric = ReportCRG(WordLabeler(), prior=0.3)
    found = metric.score(batch["pred"], batch["target"], target_labels=batch["labels"])
    expected = metric.score(PREDS[:size], TARGET[:size], target_labels=labels)
    assert found.value.tolist() == expected.value.tolist()
    assert found.target.tolist() == [[bool(label) for label in row] for row in labels]


@pytest.mark.parametrize("ages", [[66, 3], [66.0, 3.0], ["66", "3"]])
def test_collated_ages_are_those_of_the_rows(ages):
    batch = default_collate([{"age": age, "text": "Effusion."} for age in ages])
    metric = CRIMSON()
    context = metric._choose(batch["text"], batch["text"], {"age": batch["age"]})[-1]
    assert context == {"age": ["66", "3"]}


def test_rows_given_as_tensors_stay_rows():
    assert read_column("labels", [torch.tensor(row) for row in LABELS], 4) == LABELS
    assert read_column("labels", torch.tensor(LABELS), 4) == LABELS
    assert read_column("labels", torch.tensor(LABELS).numpy(), 4) == LABELS
    assert read_column("age", [torch.tensor(3), torch.tensor(4)], 2) == [3, 4]


def test_tensors_that_may_be_rows_or_columns_raise():
    square = [torch.tensor(row) for row in LABELS[:3]]
    with pytest.raises(ValueError, match=r"target_labels is a list of 3 tensors of 3 values, .*torch.stack"):
        ReportCRG(WordLabeler()).score(PREDS[:3], TARGET[:3], target_labels=square)
    symmetric = [torch.tensor(row) for row in ([1, 0], [0, 1])]
    assert read_column("labels", symmetric, 2) == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        (torch.tensor(3), TypeError, "age must be a column of 2 values, got int"),
        ("66", TypeError, "age must be a column of 2 values, got str"),
        (torch.tensor([1, 2, 3]), ValueError, "preds and age must have the same length, got 2 and 3"),
        ([torch.tensor([1, 2, 3])], ValueError, "preds and age must have the same length, got 2 and 1"),
    ],
)
def test_no_column_of_the_reports_raises(column, error, message):
    with pytest.raises(error, match=message):
        read_column("age", column, 2)
