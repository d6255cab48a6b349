"""Steps that the reinforcement learning scripts share."""

import pytest

from rrg_rewards.recipes import _reinforcement
from rrg_rewards.recipes._reinforcement import warn_of_differing_rewards
from rrg_rewards.rewards import make_reward


def test_warn_of_differing_rewards_names_the_reward_and_the_processes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rewards = [make_reward("rouge"), make_reward("bleu", n_gram=1)]

    def gather(own: list[str]) -> list[list[str]]:
        return [own, [own[0], "another"], own]

    monkeypatch.setattr(_reinforcement, "gather_objects", gather)
    warn_of_differing_rewards(rewards)
    (message,) = [record.message for record in caplog.records]
    assert message.startswith(f"reward {rewards[1].__name__} differs between processes")
    assert message.endswith(f": process 0: {rewards[1].signature}; process 1: another")


def test_warn_of_differing_rewards_says_nothing_of_equal_ones(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_differing_rewards([make_reward("rouge")])
    assert not caplog.records
