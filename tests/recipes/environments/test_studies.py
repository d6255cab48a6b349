"""Tasks of report environments."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rrg_rewards.integrations.common import scoring
from rrg_rewards.recipes.environments.studies import PHANTOM_SETTINGS, study_tasks

SETTINGS = {"reward": {"name": "crg", "prior": 0.2}, "reference_column": "report", "missing": -1}


@pytest.fixture(autouse=True)
def _fresh_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "_REWARDS", {})


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., str]:
    def write(*rows: dict[str, Any]) -> str:
        path = tmp_path / "reports.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return str(path)

    return write


def test_study_tasks_of_phantoms_are_those_of_their_seed() -> None:
    tasks = study_tasks(PHANTOM_SETTINGS, num_studies=3)
    assert tasks == study_tasks(PHANTOM_SETTINGS, num_studies=5)[:3]
    assert tasks != study_tasks(PHANTOM_SETTINGS, num_studies=3, seed=1)
    for task in tasks:
        assert task.columns["impression"] not in task.prompt
        assert "{" not in task.prompt


def test_study_tasks_of_a_table_leave_out_rows_without_findings_or_reference(
    table: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    rows = [
        {"findings": "Big heart.", "report": "Cardiomegaly.", "image": "a.npz"},
        {"findings": " ", "report": "Normal.", "indication": "Cough."},
        {"findings": "Clear.", "report": None},
    ]
    with caplog.at_level(logging.WARNING):
        (task,) = study_tasks(SETTINGS, table(*rows), "{indication} Findings: {findings}")
    assert task.prompt.endswith("Findings: Big heart.")
    assert task.columns == {"report": "Cardiomegaly."}
    assert "left out 2 of 3 rows" in caplog.text


def test_study_tasks_have_all_columns_that_the_reward_reads(table: Callable[..., str]) -> None:
    settings = {**SETTINGS, "reward": {"name": "crg", "prior": 0.2, "label_column": "labels"}}
    labels = [0] * 18
    (task,) = study_tasks(settings, table({"findings": "Clear.", "report": "Normal.", "labels": labels}))
    assert task.columns == {"report": "Normal.", "labels": labels}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"finding": "Clear.", "report": "Normal."}, "did you mean 'finding'"),
        ({"findings": "Clear.", "text": "Normal."}, "unknown column 'report'"),
        ({"findings": "Clear.", "report": ""}, "none of 1 rows has both findings and report"),
    ],
)
def test_study_tasks_refuse_tables_without_tasks(table: Callable[..., str], row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        study_tasks(SETTINGS, table(row))


def test_study_tasks_need_a_number_for_unscorable_completions() -> None:
    with pytest.raises(ValueError, match="set missing"):
        study_tasks({**PHANTOM_SETTINGS, "missing": None}, num_studies=1)
