"""One reward per process for trainers, and exceptions that must not end its threads."""

import asyncio

import pytest
from served import RAISED

from rrg_rewards.integrations.common.background import ExitError
from rrg_rewards.integrations.common.scoring import TrainerReward
from rrg_rewards.integrations.common.settings import read_settings

GUARD = 20


@pytest.mark.parametrize("bad", [text for text in RAISED if text != "a bug"])
def test_trainer_reward_survives_exceptions_that_end_threads(bad):
    reward = TrainerReward(read_settings({"reward": "served:LengthReward"}))

    async def rewarded(text):
        scoring = reward.reward_one_async(text, {"reference": "a"})
        return (await asyncio.wait_for(scoring, GUARD)).reward

    with pytest.raises(ExitError, match=f"scoring raised {RAISED[bad].__name__}"):
        asyncio.run(rewarded(bad))
    assert asyncio.run(rewarded("a b")) == 1.0
