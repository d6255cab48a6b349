"""Structured labels that the finding engine reads."""

import pickle
from dataclasses import replace

import pytest

from rrg_rewards.labelers.levels import LevelReader
from rrg_rewards.questions.schema import get_question_schema


def test_level_reader_reads_present_findings_only() -> None:
    reader = LevelReader(["lobe", "type"], get_question_schema("ct_rate"))
    assert not reader(["No nodule in the right upper lobe. Possible consolidation in the left lower lobe.", ""]).any()
    row = reader(["Nodule in the lingula and in the superior segment of the right lower lobe."])[0].tolist()
    found = {column for column, on in zip(reader.labels, row, strict=True) if on}
    assert found == {"Lung nodule: left upper lobe", "Lung nodule: right lower lobe"}
    assert pickle.loads(pickle.dumps(reader)).labels == reader.labels
    reader = LevelReader(["severity", "count", "type*side"])
    report = "Ground glass opacity on the right, solid opacity on the left. Two nodules. Mild emphysema."
    found = {label for label, on in zip(reader.labels, reader([report])[0].tolist(), strict=True) if on}
    assert found == {
        "Lung nodule: two",
        "Emphysema: mild",
        "Lung opacity: ground-glass, right",
        "Lung opacity: solid, left",
    }
    heart = replace(reader.schema, findings=(reader.schema.finding("Cardiomegaly"),))
    with pytest.raises(ValueError, match="level 'lobe': question schema 'ct_rate' has no finding with this level"):
        LevelReader(["lobe"], heart)
