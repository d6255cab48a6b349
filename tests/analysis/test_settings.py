"""Settings of the analyses."""

import pytest

from rrg_rewards.analysis import AgreementColumns, LabelSettings, MetricChoice, PairColumns, PreferenceSettings
from rrg_rewards.utilities.settings import SettingError


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"margin": -0.1}, "margin"),
        ({"threshold": 0.5}, "threshold"),
        ({"system_prompt": "Be brief."}, "system_prompt"),
        ({"per_prompt": 0}, "per_prompt"),
        ({"trainer": "ppo"}, "trainer"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_preference_settings_name_what_is_wrong(settings, setting):
    with pytest.raises(SettingError) as caught:
        PreferenceSettings(**settings)
    assert caught.value.setting == setting


@pytest.mark.parametrize(
    ("settings", "setting"), [({"schema": "ct-rate"}, "schema"), ({"batch_size": 0}, "batch_size")]
)
def test_label_settings_name_what_is_wrong(settings, setting):
    with pytest.raises(SettingError) as caught:
        LabelSettings(text_column="report", **settings)
    assert caught.value.setting == setting


def test_pair_columns_refuse_an_unknown_treatment_of_missing_predictions():
    with pytest.raises(SettingError, match=r"^missing_prediction: must be one of skip, score, got 'drop'$"):
        PairColumns(missing_prediction="drop")


@pytest.mark.parametrize(
    ("settings", "values"),
    [(MetricChoice, {"metrics": "crg"}), (AgreementColumns, {"human": "rating"})],
)
def test_settings_refuse_one_name_instead_of_several(settings, values):
    with pytest.raises(SettingError, match="must be a sequence of texts"):
        settings(**values)
