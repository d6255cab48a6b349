"""Settings of the analyses."""

import pytest

from rrg_rewards.analysis import LabelSettings, PreferenceSettings
from rrg_rewards.utilities.settings import SettingError


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"margin": -0.1}, "margin"),
        ({"threshold": 0.5}, "threshold"),
        ({"system_prompt": "Be brief."}, "system_prompt"),
        ({"per_prompt": 0}, "per_prompt"),
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
