"""Candidates for the reports of a table."""

import pytest
import torch

from rrg_rewards.analysis import CandidateSettings, add_candidates
from rrg_rewards.data.tables.table import Table
from rrg_rewards.utilities.run_log import RunWarning
from rrg_rewards.utilities.settings import SettingError


def test_candidates_keep_the_columns_of_the_table():
    table = Table({"id": ["1", "2", "3"], "report": ["Large left effusion.", "", "Cardiomegaly."]})
    with pytest.warns(RunWarning, match="1 of 3 reports are missing or blank"):
        made = add_candidates(table, CandidateSettings(regimes=["random"], per_report=2))
    assert list(made.table.columns["id"]) == ["1", "3"]
    assert list(made.table.columns["candidate"]) == ["Cardiomegaly.", "Large left effusion."]
    assert made.to_dict() == {"reports": 2, "blank": 1, "candidates": {"random": 2}, "declined": {"random": 2}}
    with pytest.warns(RunWarning, match="replaces input columns of the same name: candidate, regime"):
        add_candidates(made.table)


def test_candidates_of_a_model_and_of_an_encoder():
    table = Table({"report": ["a b", "c d"], "model": ["x", None]})
    made = add_candidates(table, CandidateSettings(regimes=["generated"], generated_column="model"))
    assert (list(made.table.columns["candidate"]), made.declined) == (["x"], {"generated": 1})
    made = add_candidates(table, CandidateSettings(regimes=["matched"], encoder=lambda texts: torch.eye(len(texts))))
    assert list(made.table.columns["candidate"]) == ["c d", "a b"]


@pytest.mark.parametrize("regimes", [["matched"], ["generated"], ["edits"], [""]])
def test_regimes_that_will_not_do(regimes):
    with pytest.raises(SettingError, match=r"regimes: "):
        add_candidates(Table({"report": ["a", "b"]}), CandidateSettings(regimes=regimes))
