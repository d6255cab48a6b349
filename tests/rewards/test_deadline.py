"""The time limit of rewards."""

import asyncio
import signal
import threading
import time
from typing import Any

import pytest

from rrg_rewards.rewards.deadline import RewardDeadline, RewardTimeoutError


def waiting(completions: list[str], seconds: float = 60.0) -> list[float]:
    time.sleep(seconds)
    return [0.0 for _ in completions]


async def waiting_async(completions: list[str], seconds: float = 60.0) -> list[float]:
    await asyncio.sleep(seconds)
    return [0.0 for _ in completions]


def reward_all(seconds: float, names: list[str], *functions: Any) -> None:
    """Call the functions with a time limit."""
    with RewardDeadline(seconds, names) as deadline:
        for function in deadline.watched(functions):
            rewards = function(["a"])
            if asyncio.iscoroutine(rewards):
                asyncio.run(rewards)


def at_once(completions: list[str]) -> list[float]:
    return waiting(completions, 0)


def test_reward_deadline_names_the_rank_and_the_reward_that_has_not_returned() -> None:
    with pytest.raises(RewardTimeoutError, match=r"rank 0 of 1 .* slow has .* 0\.2 s"):
        reward_all(0.2, ["fast", "slow"], at_once, waiting)


def test_reward_deadline_an_asynchronous_reward_is_limited() -> None:
    with pytest.raises(RewardTimeoutError, match="the reward judged has not"):
        reward_all(0.2, ["judged"], waiting_async)


def test_reward_deadline_ends_with_the_last_reward() -> None:
    """Other processes may need longer, for which this one waits."""
    with RewardDeadline(0.2, ["one"]) as limit:
        (reward,) = limit.watched([at_once])
        assert reward(["a"]) == [0.0]
        time.sleep(0.4)


def test_reward_deadline_repeats_its_error_for_a_reward_that_catches_it() -> None:
    def stubborn(completions: list[str]) -> list[float]:
        try:
            return waiting(completions)
        except RuntimeError:
            return waiting(completions)

    with pytest.raises(RewardTimeoutError):
        reward_all(0.1, ["stubborn"], stubborn)


def test_reward_deadline_restores_the_alarm_of_others() -> None:
    received: list[Any] = []
    before = signal.signal(signal.SIGALRM, lambda *_: received.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with RewardDeadline(10, ["one"]):
            pass
        time.sleep(0.5)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert received == [1]


def test_reward_deadline_another_thread_and_no_limit_have_none() -> None:
    done: list[str] = []

    def block(seconds: float | None, name: str) -> None:
        with RewardDeadline(seconds, ["one"]):
            time.sleep(0.2)
        done.append(name)

    thread = threading.Thread(target=block, args=(0.1, "thread"))
    thread.start()
    thread.join()
    block(None, "main")
    assert done == ["thread", "main"]


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_reward_deadline_a_limit_that_is_not_positive_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="reward_timeout"):
        RewardDeadline(seconds, ["one"])
