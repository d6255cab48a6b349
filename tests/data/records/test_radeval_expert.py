"""RadEvalExpert, on small files in its layout."""

import json
import math

import pytest

from rrg_rewards.data import AnnotationWarning, TableError, read_radeval_expert
from rrg_rewards.data.records.radeval_expert import parse_expert_annotation
from tests.helpers.annotated_files import expert_annotation, write_csv, write_radeval_expert

HEADER = ["annotator", "type", "ground_truth", "images_path"]
HEADER += [f"{kind}{slot}" for kind in ("prediction", "annotation") for slot in (1, 2, 3)]
NONE = expert_annotation([0] * 7, [0] * 7)


def row(*annotations, predictions=("Edema.", "Clear.", "Mass."), reference="Clear lungs."):
    return ("r1", "impression", reference, "p1/v.jpg", *predictions, *annotations)


def test_read_radeval_expert_reads_three_candidates_of_each_reference(tmp_path):
    records = read_radeval_expert(write_radeval_expert(tmp_path / "study.csv"))
    assert len(records) == 12
    third = records[2]
    assert (third.candidate, third.study, third.source) == ("Clear.", "p0/view.jpg", "radevalexpert")
    assert third.attributes == {"annotator": "r1", "type": "findings", "candidate": "3"}
    assert third.counts == (0.0, 4.0, 0.0, 0.0, 0.0, 0.0)
    # The seventh category is an inarticulate report.
    assert (third.other, third.significant_other) == (1.0, 0.0)
    assert [third.judgement(name) for name in ("errors", "significant", "insignificant")] == [5.0, 4.0, 1.0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (expert_annotation([1, 2, 3, 4, 5, 6, 7], [0] * 7), [1, 2, 3, 4, 5, 6, 7]),
        (expert_annotation([1, "two", 3, 4, 5, 6, 7], [0] * 7), [1, None, 3, 4, 5, 6, 7]),
        (
            expert_annotation([1, 2, 3, 4, 5, 6, 7], [0] * 7).replace("2. Omission", "3) Omission"),
            [1, None, *range(3, 8)],
        ),
        (
            expert_annotation([1, 2, 3, 4, 5, 6, 7], [0] * 7).replace(
                "3. Incorrect", "1. False prediction: 1\n3. Incorrect"
            ),
            [None, *range(2, 8)],
        ),
        ("Clinically significant errors:\n1. False prediction of finding: 2.\nnothing else", [2, *[None] * 6]),
        ("1. False prediction of finding: 2", [None] * 7),
        ("", [None] * 7),
    ],
)
def test_parse_expert_annotation_reads_only_counts_that_are_stated_once(text, expected):
    assert parse_expert_annotation(text)[True] == expected


def test_read_radeval_expert_keeps_unreadable_counts_missing(tmp_path):
    broken = expert_annotation([0, "?", 0, 0, 0, 0, 0], [2, *[0] * 6])
    path = write_csv(tmp_path / "study.csv", HEADER, row(broken, NONE, None, predictions=("Edema.", None, None)))
    with pytest.warns(AnnotationWarning, match="1 of 28 counts cannot be read; they and the totals that contain them"):
        first, second = read_radeval_expert(path)
    assert (first.counts[:2], first.significant[:2]) == ((2.0, None), (0.0, None))
    assert math.isnan(first.judgement("significant"))
    assert math.isnan(first.judgement("errors"))
    assert first.judgement("insignificant") == 2.0
    # An empty prediction with an annotation is an empty report; one without is left out.
    assert (second.candidate, second.judgement("errors")) == ("", 0.0)


def test_read_radeval_expert_names_what_is_wrong(tmp_path):
    path = write_csv(tmp_path / "study.csv", HEADER, row(NONE, NONE, NONE, reference=None))
    with pytest.raises(TableError, match=r"study\.csv: data row 1 \(line 2\), column 'ground_truth': is missing"):
        read_radeval_expert(path)
    path = write_csv(tmp_path / "study.csv", HEADER[:-1], row(NONE, NONE))
    with pytest.raises(TableError, match="lacks annotation3; it has annotator, type"):
        read_radeval_expert(path)
    path = tmp_path / "study.jsonl"
    path.write_text(json.dumps({**dict.fromkeys(HEADER, "text"), "prediction2": 1}))
    with pytest.raises(TableError, match="column 'prediction2': must be a report text, got int 1"):
        read_radeval_expert(path)
