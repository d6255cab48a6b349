"""Rewards from names and settings."""

import math
import re

import pytest

from rrg_rewards.analysis import RewardChoice, choose_reward
from rrg_rewards.analysis.metric_choice import make_metrics, reward_inputs
from rrg_rewards.analysis.settings import MetricChoice
from rrg_rewards.data import Table
from rrg_rewards.data.tables.table import TableError
from rrg_rewards.metrics import make_metric
from rrg_rewards.rewards import make_reward
from rrg_rewards.utilities.settings import SettingError


def test_choose_reward_is_make_reward():
    choice = RewardChoice(reward="crg", set={"prior": 0.2}, labeler="rules:chexbert", reference_column="report")
    expected = make_reward("crg", prior=0.2, labeler="rules:chexbert", reference_column="report")
    assert choose_reward(choice).signature == expected.signature
    choice = RewardChoice(reward="crimson", judge="{name: rules}", context={"age": "years", "sex": "gender"})
    assert choose_reward(choice).columns == ("reference", "years", "gender")


def test_choose_reward_gives_the_judge_to_a_labeler_that_needs_one():
    judge = {"name": "openai", "model": "my-model", "seed": 3}
    choice = RewardChoice(reward="crg", set={"prior": 0.2}, labeler="judge:ct_rate", judge=judge)
    reward = choose_reward(choice)
    assert re.search(r"judge\|schema:ct_rate.*seed:3", reward.signature)
    named = {"name": "judge:ct_rate", "judge": judge}
    for options in ({"labeler": "judge:ct_rate", "judge": judge}, {"labeler": named}):
        assert make_reward("crg", prior=0.2, **options).signature == reward.signature
        assert make_metric("crg", **options).labeler.signature == reward.metric.labeler.signature
    for labeler in ("judge:ct_rate", {"name": "judge", "schema": "ct_rate"}):
        with pytest.raises(ValueError, match=r"needs a judge.* key `judge` of its mapping"):
            make_reward("crg", labeler=labeler)


@pytest.mark.parametrize(
    ("choice", "setting", "message"),
    [
        ({"reward": "crgg"}, None, "did you mean 'crg'"),
        ({"reward": "crg", "set": {"priorr": 1}}, None, "did you mean 'prior'"),
        ({"reward": "crg", "judge": "rules"}, None, "unknown option of reward 'crg' 'judge'"),
        ({"reward": "crg", "labeler": "judge:ct_rate"}, "labeler", "needs a language model"),
        ({"reward": "crimson", "judge": "ruls"}, "judge", "did you mean 'rules'"),
        ({"reward": "crimson", "judge": "{name: ["}, "judge", "as a mapping"),
    ],
)
def test_choose_reward_names_the_setting(choice, setting, message):
    with pytest.raises(SettingError, match=message) as caught:
        choose_reward(RewardChoice(**choice))
    assert caught.value.setting == setting


def test_reward_columns_are_those_that_the_reward_reads():
    table = Table({"report": ["Normal.", math.nan], "years": [60, math.nan], "more": [1, 2]})
    reward = make_reward("crimson", reference_column="report", age_column="years")
    found = reward_inputs(reward, table, "report")
    assert found["report"] == ["Normal.", None]
    assert found["years"] == table.column("years")
    assert set(found) == {"report", "years"}
    with pytest.raises(TableError, match="did you mean 'report'"):
        reward_inputs(make_reward("rouge", reference_column="reports"), table, "reports")


def test_make_metrics_shares_labelers_and_judges_of_equal_settings():
    settings = {"name": "openai", "model": "m"}
    choice = MetricChoice(metrics=["crg", "label_f1"], labeler="judge:ct_rate", judge=settings)
    crg, label_f1 = make_metrics(choice).values()
    assert crg.labeler is label_f1.labeler
    own = MetricChoice(metrics=["crg", "label_f1"], labeler="rules:ct_rate", set={"crg.labeler": "rules:chexbert"})
    crg, label_f1 = make_metrics(own).values()
    assert crg.labeler.labels != label_f1.labeler.labels


@pytest.mark.parametrize(
    ("metric", "options"), [("crimson", {"crimson.form": "training"}), ("ct_finebench", {"ct_finebench.mode": "f1"})]
)
def test_make_metrics_a_metric_that_only_a_reward_fits_is_refused(metric, options):
    choice = MetricChoice(metrics=[metric], set={**options, f"{metric}.chance": "dataset"})
    with pytest.raises(SettingError, match=rf"set: {metric}\.chance is fitted on a training set by rewards only"):
        make_metrics(choice)
