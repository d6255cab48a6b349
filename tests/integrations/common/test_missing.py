"""Numbers for completions that have no reward."""

import pytest

from rrg_rewards.integrations.common.missing import MissingRewards


def test_missing_rewards_are_the_mean_of_the_group_then_of_the_call_then_of_earlier_calls() -> None:
    replace = MissingRewards("mean")
    assert replace([1.0, None, 3.0, 10.0], ["a", "a", "a", "b"]) == [1.0, 2.0, 3.0, 10.0]
    assert replace([1.0, None, 3.0], ["a", "b", "a"]) == [1.0, 2.0, 3.0]
    assert replace([None, None], ["a", "b"]) == [(1 + 3 + 10 + 1 + 3) / 5] * 2


def test_missing_rewards_raise_for_the_mean_of_nothing() -> None:
    with pytest.raises(ValueError, match="has scored no completion yet"):
        MissingRewards("mean")([None], ["a"])


def test_missing_rewards_are_the_number() -> None:
    assert MissingRewards(-2)([None, 1.0], ["a", "a"]) == [-2.0, 1.0]
