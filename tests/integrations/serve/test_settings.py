"""Settings of a reward server."""

import pytest
from served import LengthReward

from rrg_rewards.data import Table
from rrg_rewards.integrations.serve.settings import ServerOptions, columns_by_prompt
from rrg_rewards.rewards import make_reward


@pytest.mark.parametrize(
    ("reward", "estimated"),
    [
        (("crg", {}), "prior"),
        (("composed", {"parts": ["crg"]}), "crg.prior"),
    ],
)
def test_server_options_refuse_a_reward_that_estimates_while_serving(reward, estimated):
    name, options = reward
    with pytest.raises(ValueError, match=f"estimates {estimated}"):
        ServerOptions(make_reward(name, **options))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"timeout": 0}, "^timeout: "),
        ({"missing": float("nan")}, "^missing: "),
        ({"workers": 0}, "^workers: "),
        ({"token": ""}, "token must be printable"),
        ({"max_request_bytes": 2**30}, "max_total_bytes"),
        ({"max_batch": 128, "max_pending": 64}, "max_pending"),
    ],
)
def test_server_options_refuse_wrong_settings(option, message):
    with pytest.raises(ValueError, match=message):
        ServerOptions(LengthReward(), **option)


def test_columns_by_prompt_are_those_of_the_reward():
    reward = make_reward("crimson", age_column="years")
    rows = {"prompt": ["<image> Report 1. ", "Report 2."], "reference": ["One.", None], "years": [float("nan"), 60]}
    found = columns_by_prompt(Table({**rows, "more": [1, 2]}), "prompt", reward)
    assert found == {"Report 1.": {"reference": "One.", "years": None}, "Report 2.": {"reference": None, "years": 60}}
    with pytest.raises(ValueError, match="data row 2 has the prompt of an earlier row and another reference or years"):
        columns_by_prompt(Table({**rows, "prompt": ["Report."] * 2}), "prompt", reward)
