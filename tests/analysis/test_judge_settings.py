"""Settings of the analyses that query a judge."""

import pytest

from rrg_rewards.analysis import (
    CandidateSettings,
    CountingSettings,
    GradingSettings,
    JudgeLimits,
    MiningSettings,
    QuestionSettings,
    SensitivitySettings,
)
from rrg_rewards.utilities.settings import SettingError


def test_limits_are_the_arguments_of_a_judge_that_are_set():
    assert JudgeLimits().arguments() == {}
    assert JudgeLimits(price_in=0, price_out=2.0).arguments() == {"price": (0, 2.0)}
    prices = JudgeLimits(price_in=1, price_out=2, price_cached=0.5).arguments()
    assert prices == {"price": (1, 2), "price_cached": 0.5}
    assert JudgeLimits(tokens_per_minute=5).arguments() == {"tokens_per_minute": 5}


@pytest.mark.parametrize(
    ("settings", "values", "message"),
    [
        (JudgeLimits, {"price_in": 1}, "--price-in and --price-out go together"),
        (JudgeLimits, {"price_in": -1, "price_out": 1}, "price_in: must be a positive number, got -1"),
        (JudgeLimits, {"price_cached": 1}, "price_cached: requires --price-in and --price-out"),
        (JudgeLimits, {"requests_per_minute": 0}, "requests_per_minute: must be a positive number, got 0"),
        (JudgeLimits, {"tokens_per_minute": float("nan")}, "tokens_per_minute: must be a positive number"),
        (CountingSettings, {"max_pairs": 0}, "max_pairs: must be a number from 1, got 0"),
        (GradingSettings, {"per_tier": 0}, "per_tier: must be a number from 1, got 0"),
        (CandidateSettings, {"per_report": 0}, "per_report: must be a number from 1, got 0"),
        (QuestionSettings, {"batch_size": 0}, "batch_size: must be a number from 1, got 0"),
        (MiningSettings, {"min_count": 0}, "min_count: must be a number from 1, got 0"),
        (MiningSettings, {"labels": True}, "labels: needs --judge"),
        (MiningSettings, {"label_prefix": ""}, "labels: needs --judge"),
        (SensitivitySettings, {"seed": -1}, "seed: must not be negative, got -1"),
        (SensitivitySettings, {"limit": 0}, "limit: must be a number from 1, got 0"),
    ],
)
def test_settings_that_will_not_do(settings, values, message):
    with pytest.raises(SettingError) as raised:
        settings(**values)
    assert message in str(raised.value)
