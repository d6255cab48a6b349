"""Settings of a reward server."""

import pytest
from served import LengthReward

from rrg_rewards.integrations.serve.settings import ServerOptions
from rrg_rewards.rewards import make_reward


@pytest.mark.parametrize(
    ("reward", "estimated"),
    [
        (("crg", {"prior": "running"}), "prior"),
        (("crg", {}), "prior"),
        (("composed", {"parts": [{"name": "rouge", "normalize": True}]}), "rouge.normalize"),
    ],
)
def test_server_options_refuse_a_reward_that_estimates_while_serving(reward, estimated):
    name, options = reward
    with pytest.raises(ValueError, match=f"estimates {estimated} from data, but a server has no training set"):
        ServerOptions(make_reward(name, **options))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"timeout": 0}, "timeout must be positive"),
        ({"missing": float("nan")}, "missing must be a finite number"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"token": ""}, "token must be printable"),
        ({"max_request_bytes": 2**30}, "max_total_bytes must be at least"),
        ({"max_batch": 128, "max_pending": 64}, "max_pending must be at least max_batch 128"),
    ],
)
def test_server_options_refuse_wrong_settings(option, message):
    with pytest.raises(ValueError, match=message):
        ServerOptions(LengthReward(), **option)
