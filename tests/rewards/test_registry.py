"""Rewards by name."""

import pytest
from words import WordLabeler

from rrg_rewards.metrics import registry
from rrg_rewards.metrics.registry import available_metrics
from rrg_rewards.rewards import CRGReward, MetricReward, available_rewards, make_reward

LABELER = WordLabeler("edema effusion nodule")


def test_known_names_make_rewards() -> None:
    assert "crg" in available_rewards()
    reward = make_reward("crg", reference_column="report", labeler=LABELER, prior=0.2, name="crg_fixed")
    assert isinstance(reward, CRGReward)
    assert reward.__name__ == "crg_fixed"
    assert reward.columns == ("report",)


def test_make_reward_a_metric_is_wrapped() -> None:
    path = "rrg_rewards.metrics.crg:ReportCRG"
    reward = make_reward(path, labeler=LABELER, prior=0.2, name="other", log_explanations=True)
    assert type(reward) is MetricReward
    assert reward.__name__ == "other"
    assert reward.metric.prior == 0.2


def test_make_reward_every_metric_is_a_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(available_metrics()) <= set(available_rewards())
    monkeypatch.setitem(registry._METRICS, "other", "rrg_rewards.metrics.crg:ReportCRG")
    reward = make_reward("other", labeler=LABELER, prior=0.2)
    assert type(reward) is MetricReward
    assert "other" in available_rewards()


def test_make_reward_a_reward_class_by_path() -> None:
    assert isinstance(make_reward("rrg_rewards.rewards.crg:CRGReward", labeler=LABELER), CRGReward)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("crgg", "unknown reward 'crgg'; did you mean 'crg'"),
        ("rrg_rewards.metrics.crg:ReportCRGG", r"reward in rrg_rewards.metrics.crg 'ReportCRGG'; did you mean 'Rep"),
    ],
)
def test_make_reward_unknown_name_suggests_the_nearest(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_reward(name)


def test_make_reward_unknown_option_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"option of reward 'crg' 'label_colum'; did you mean 'label_column'"):
        make_reward("crg", label_colum="labels")
    with pytest.raises(ValueError, match="unknown option"):
        make_reward("crg", labels=3)


@pytest.mark.parametrize(
    ("name", "option"), [("crepe", "model"), ("bertscore", "model"), ("remote", "urls"), ("composed", "parts")]
)
def test_make_reward_a_missing_option_is_named(name: str, option: str) -> None:
    with pytest.raises(ValueError, match=rf"^reward '{name}' needs the option {option} \(on the command line"):
        make_reward(name)


@pytest.mark.parametrize("path", ["math:pi", "rrg_rewards.metrics:CRGScore"])
def test_make_reward_a_path_to_something_else_raises(path: str) -> None:
    with pytest.raises(ValueError, match="must name a Reward or ReportMetric class, or a function of predictions"):
        make_reward(path)


def test_make_reward_a_function_by_path_with_its_options_and_columns() -> None:
    reward = make_reward("functions:length_gap", reference_column="report", higher_is_better=False, scale=0.5)
    assert reward(completions=["a b c"], report=["a"]) == [-1.0]
    aged = make_reward("functions:older_than", age_column="PatientAge", limit=70)
    assert aged.columns == ("reference", "PatientAge")
    assert aged(completions=["a", "b"], reference=["a", "b"], PatientAge=[70, 71]) == [0.0, 1.0]
    with pytest.raises(ValueError, match="option of reward 'functions:length_gap' 'scal'; did you mean 'scale'"):
        make_reward("functions:length_gap", scal=2)
