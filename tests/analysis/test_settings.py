"""Settings of the analyses."""

import pytest

from rrg_rewards.analysis import (
    AgreementColumns,
    CandidateSettings,
    CountingSettings,
    GradingSettings,
    LabelSettings,
    MetricChoice,
    MiningSettings,
    PairColumns,
    PreferenceSettings,
    QuestionSettings,
    SensitivitySettings,
)
from rrg_rewards.utilities.settings import SettingError


@pytest.mark.parametrize(
    ("settings", "values", "setting"),
    [
        (CountingSettings, {"max_pairs": 0}, "max_pairs"),
        (GradingSettings, {"per_tier": 0}, "per_tier"),
        (CandidateSettings, {"per_report": 0}, "per_report"),
        (QuestionSettings, {"batch_size": 0}, "batch_size"),
        (QuestionSettings, {"labels": "labels.csv"}, "labels"),
        (MiningSettings, {"min_count": 0}, "min_count"),
        (MiningSettings, {"labels": True}, "labels"),
        (SensitivitySettings, {"seed": -1}, "seed"),
        (SensitivitySettings, {"limit": 0}, "limit"),
        (SensitivitySettings, {"max_errors": 0}, "max_errors"),
        (PreferenceSettings, {"margin": -0.1}, "margin"),
        (PreferenceSettings, {"threshold": 0.5}, "threshold"),
        (PreferenceSettings, {"system_prompt": "Be brief."}, "system_prompt"),
        (PreferenceSettings, {"per_prompt": 0}, "per_prompt"),
        (PreferenceSettings, {"trainer": "ppo"}, "trainer"),
        (PreferenceSettings, {"batch_size": 0}, "batch_size"),
        (LabelSettings, {"text_column": "report", "schema": "ct-rate"}, "schema"),
        (LabelSettings, {"text_column": "report", "batch_size": 0}, "batch_size"),
        (PairColumns, {"missing_prediction": "drop"}, "missing_prediction"),
        (MetricChoice, {"metrics": "crg"}, "metrics"),
        (AgreementColumns, {"human": "rating"}, "human"),
        (AgreementColumns, {"candidates": ["_1", "_1"]}, "candidates"),
    ],
)
def test_settings_name_what_is_wrong(settings, values, setting):
    with pytest.raises(SettingError) as raised:
        settings(**values)
    assert raised.value.setting == setting
