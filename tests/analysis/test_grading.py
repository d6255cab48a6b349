"""Reports of graded quality."""

import json
from dataclasses import replace

import pytest
from answering_judge import AnsweringJudge
from grading_answers import graded, honest

from rrg_rewards.analysis import GradingRun, GradingSettings, grade_reports, read_references
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.judges.tasks.grading import tier_name
from rrg_rewards.schemas.scoring import get_scoring_system
from rrg_rewards.utilities.run_log import RunWarning
from rrg_rewards.utilities.settings import SettingError

RADCLIQ = get_scoring_system("radcliq")
REFERENCES = ["Small left effusion.", "Cardiomegaly. No edema."]
TIERS = ["-2 to 0", "-4 to -3", "-6 to -5"]


def well(item):
    return honest(RADCLIQ, f"{item.reference} | {tier_name(item.tier)} | {item.draw}")


@pytest.fixture
def output(tmp_path):
    return tmp_path / "graded.jsonl"


def test_more_references_and_draws_request_only_the_new_reports(output):
    judge = AnsweringJudge(well)
    grade_reports(REFERENCES[:1], judge, output)
    assert len(judge.asked) == 3
    run = GradingRun(REFERENCES, output, judge, GradingSettings(per_tier=2))
    assert run.plan()["held"] == dict.fromkeys(TIERS, 1)
    assert run.describe() == (
        "reports: 12 (4 of -2 to 0, 4 of -4 to -3, 4 of -6 to -5); in the output: 3; to request: 9"
    )
    run.request()
    assert run.to_dict()["written"] == dict.fromkeys(TIERS, 3)
    assert run.to_dict()["in_tier"] == dict.fromkeys(TIERS, 4)
    assert len(set(judge.asked)) == len(judge.asked) == 12


def test_reports_outside_their_tier_are_kept_and_counted(output):
    def answer(item):
        return graded(RADCLIQ, "Other.", false_finding=1) if item.tier == (-4.0, -3.0) else well(item)

    run = grade_reports(REFERENCES, AnsweringJudge(answer), output)
    assert [run.in_tier[tier] for tier in TIERS] == [2, 0, 2]
    assert run.written == 6
    # Held reports count as they were written.
    assert [GradingRun(REFERENCES, output).in_tier[tier] for tier in TIERS] == [2, 0, 2]


def test_a_file_of_another_system_is_refused(output):
    grade_reports(REFERENCES, AnsweringJudge(well), output)
    with pytest.raises(TableError, match="graded under radcliq, not mrscore"):
        GradingRun(REFERENCES, output, settings=GradingSettings(system="mrscore")).plan()


def test_a_file_with_an_invalid_score_is_refused(output):
    grade_reports(REFERENCES[:1], AnsweringJudge(well), output)
    first, *others = output.read_text().splitlines()
    line = json.loads(first)
    line["scores"]["false_finding"] = -1
    output.write_text("\n".join([json.dumps(line), *others, ""]))
    judge = AnsweringJudge(well)
    with pytest.raises(TableError, match="false_finding"):
        grade_reports(REFERENCES, judge, output)
    assert judge.asked == []


def test_the_tiers_of_a_system_of_the_users(output):
    system = replace(RADCLIQ, tiers=((-1, 0), (-3, -2)))
    run = GradingRun(REFERENCES, output, settings=GradingSettings(system=system))
    assert run.wanted_by_tier == {"-1 to 0": 2, "-3 to -2": 2}
    assert run.estimate().requests == 4


@pytest.mark.parametrize(
    ("system", "message"),
    [
        ("radclik", "did you mean 'radcliq'"),
        (replace(RADCLIQ, tiers=None), "have no thirds"),
    ],
)
def test_a_system_that_will_not_do(output, system, message):
    with pytest.raises(SettingError, match=f"system: .*{message}"):
        GradingRun(REFERENCES, output, settings=GradingSettings(system=system))


def test_references_of_a_table_are_distinct_and_not_blank():
    table = Table({"text": ["Edema.", "", None, "Edema.", "Clear."]})
    with pytest.warns(RunWarning, match="2 of 5 reports are missing or blank"):
        assert read_references(table, GradingSettings(report_column="text")) == ["Edema.", "Clear."]
    table = Table({"report": ["a", "b"]})
    assert read_references(table, GradingSettings(max_reports=1)) == ["a"]
