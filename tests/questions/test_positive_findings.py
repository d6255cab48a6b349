"""Questions only about findings that the labels of a data set call positive."""

import csv
from pathlib import Path
from typing import Any

import pytest
import torch

from rrg_rewards.questions import get_question_schema, positive_findings
from rrg_rewards.questions.engine import build_items
from rrg_rewards.schemas import LABEL_SCHEMAS

SCHEMA = get_question_schema("ct_rate")
NAMES = [finding.name for finding in SCHEMA.findings]
REPORT = "Nodule of 8 mm in the left upper lobe. Small left pleural effusion. Hiatal hernia."


def row(*positive: str) -> list[int]:
    return [int(name in positive) for name in NAMES]


@pytest.mark.parametrize("name", ["ct_rate", "merlin"])
def test_findings_are_the_labels_of_the_data_set_in_their_order(name: str) -> None:
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
def test_only_positive_findings_that_the_report_states_have_items(labels: Any) -> None:
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
            r"labels must have 18 values of 0 or 1, .*Medical material.*; got 14\. For other columns",
        ),
        ([0] * 17 + [-1], ValueError, "'Interlobular septal thickening' must be 0 or 1, got -1; map uncertain labels"),
        ([0] * 17 + ["1"], ValueError, "'Interlobular septal thickening' must be 0 or 1, got '1'"),
        ([0] * 17 + [None], ValueError, "must be 0 or 1, got None"),
        (dict.fromkeys([*NAMES[:-1], "Septal thickening"], 0), ValueError, "needs a label for each finding: unknown"),
        ("0" * 18, TypeError, "must be a mapping or a sequence of labels, got str"),
        (7, TypeError, "must be a mapping or a sequence of labels, got int"),
    ],
)
def test_labels_that_do_not_fit_are_told(labels: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build_items(REPORT, labels=labels)


def test_labels_by_hand_on_real_reports(shared_data: Path) -> None:
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
