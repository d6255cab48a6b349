"""Callbacks for the trainers of transformers: recorded rewards."""

from types import SimpleNamespace

import pytest

from rrg_rewards.callbacks import TrainerRewardWatchCallback
from rrg_rewards.rewards import make_reward


class RLOOConfig(SimpleNamespace):
    """TRL's arguments, which have no aggregation but the sum."""


class GRPOConfig(SimpleNamespace):
    """TRL's arguments, which have a second aggregation."""


@pytest.mark.parametrize(
    ("arguments", "number", "warned"), [(RLOOConfig, 2, 1), (RLOOConfig, 1, 0), (GRPOConfig, 2, 0)]
)
def test_callbacks_warn_if_a_missing_reward_counts_as_zero(caplog, arguments, number, warned):
    watch = TrainerRewardWatchCallback(labeler=None)
    watch.record([make_reward("rouge"), make_reward("repetition")][:number])
    watch.on_train_begin(arguments(), SimpleNamespace(global_step=0), None)
    found = [record.getMessage() for record in caplog.records]
    assert len(found) == warned
    assert all("rouge, repetition" in one and "one composed reward" in one for one in found)


def test_trainer_reward_watch_callback_a_trainer_without_recorded_rewards_is_told() -> None:
    with pytest.raises(ValueError, match=r"reward_funcs=callback.record\(rewards\)"):
        TrainerRewardWatchCallback(labeler=None).on_train_begin(None, SimpleNamespace(global_step=0), None)
