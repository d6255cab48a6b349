"""Rewards in the background: results of a run without them, exceptions, and the end of the worker."""

import asyncio
import multiprocessing
import os
import threading
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import Callback
from tiny_generator import AboveAverage, says_edema, tiny_generator, train, weights, word_value

from rrg_rewards.training import PolicyModule
from rrg_rewards.training.policy import reward_workers
from rrg_rewards.training.policy.reward_workers import RewardClock, RewardWorker
from rrg_rewards.training.policy.rewards import RewardSet


class TakesTime:
    """A reward that waits as a judge does, and logs."""

    __name__ = "takes_time"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def __call__(self, completions, log_metric, log_extra, **columns):
        await asyncio.sleep(self.seconds)
        log_metric("words", float(len(" ".join(completions).split())))
        log_extra("texts", completions)
        return word_value(completions)


class Fails:
    __name__ = "fails"

    def __call__(self, completions, **columns):
        raise ValueError(f"no score for {len(completions)} reports")


class UnpicklableError(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


class FailsUnpicklably(Fails):
    def __call__(self, completions, **columns):
        raise UnpicklableError("one", "two")


class Ends(Fails):
    def __call__(self, completions, **columns):
        os._exit(7)


class Interrupts(Callback):
    def __init__(self, error):
        self.error = error

    def on_train_batch_end(self, *_):
        raise self.error


def _history(overlap, algorithm="grpo", steps=4, **options):
    torch.manual_seed(0)
    rewards = [AboveAverage(), TakesTime(0.01)]
    module = PolicyModule(
        tiny_generator(6), rewards, algorithm=algorithm, overlap_rewards=overlap, learning_rate=5e-3, **options
    )
    history = train(module, steps)
    return weights(module.generator), history.rows, module


@pytest.mark.parametrize(
    ("overlap", "algorithm", "options"),
    [
        ("thread", "grpo", {}),
        ("thread", "scst", {"beta": 0.1}),
        ("thread", "ppo", {"beta": 0.1}),
        ("thread", "rloo", {"minibatches": 2, "epochs": 2}),
        pytest.param("process", "scst", {"beta": 0.1}, marks=pytest.mark.slow),
        pytest.param("process", "grpo", {"minibatches": 2}, marks=pytest.mark.slow),
    ],
)
def test_policy_module_rewards_in_the_background_change_nothing(overlap, algorithm, options):
    expected, rows, plain = _history(None, algorithm, **options)
    found, others, module = _history(overlap, algorithm, **options)
    assert others == rows
    assert torch.equal(found, expected)
    assert module.rollout.extras == plain.rollout.extras
    assert module.rewards.state_dict() == plain.rewards.state_dict()
    assert module._reward_worker is None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("stop")])
@pytest.mark.parametrize("overlap", ["thread", pytest.param("process", marks=pytest.mark.slow)])
def test_policy_module_the_worker_of_the_rewards_ends_with_the_run(overlap, error):
    module = PolicyModule(tiny_generator(), says_edema, overlap_rewards=overlap)
    with pytest.raises((SystemExit, type(error))):
        train(module, 2, callbacks=[Interrupts(error)])
    assert module._reward_worker is None
    for thread in [thread for thread in threading.enumerate() if thread.name.startswith("rewards")]:
        # A call that has begun is completed.
        thread.join(30)
        assert not thread.is_alive()
    assert not [child for child in multiprocessing.active_children() if child.name == "rewards"]


def test_policy_module_an_error_of_a_reward_in_the_background_ends_the_run():
    module = PolicyModule(tiny_generator(), Fails(), overlap_rewards="thread")
    with pytest.raises(ValueError, match="no score for 32 reports"):
        train(module, 1)


@pytest.mark.parametrize("overlap", [None, "thread"])
def test_policy_module_rewards_in_the_background_run_during_the_first_forward_pass(overlap):
    forward, overlapped = threading.Event(), []

    def waits_for_the_forward_pass(completions, **columns):
        overlapped.append(forward.wait(0 if overlap is None else 30))
        return word_value(completions)

    module = PolicyModule(tiny_generator(), waits_for_the_forward_pass, overlap_rewards=overlap)
    scores = module.generator.log_probs

    def log_probs(*arguments):
        forward.set()
        return scores(*arguments)

    module.generator.log_probs = log_probs
    train(module, 1)
    assert overlapped == [overlap is not None]


@pytest.fixture
def arguments():
    return {"completions": ["edema", "heart"], "trainer_state": None}


@pytest.mark.parametrize(
    ("reward", "error", "message"),
    [
        (Fails(), ValueError, "no score for 2 reports"),
        (FailsUnpicklably(), RuntimeError, "UnpicklableError: one and two"),
        (Ends(), RuntimeError, "ended with exit code 7"),
    ],
)
@pytest.mark.slow
def test_reward_worker_exceptions_in_the_process_have_their_message(reward, error, message, arguments):
    worker = RewardWorker(RewardSet(reward), "process")
    try:
        with pytest.raises(error, match=message):
            worker.submit(arguments)()
    finally:
        worker.close()


def test_reward_worker_a_reward_that_cannot_be_pickled_is_named():
    def local(completions, **columns):
        return [0.0 for _ in completions]

    with pytest.raises(TypeError, match="reward 'local' cannot be pickled"):
        RewardWorker(RewardSet([says_edema, local]), "process")


def test_policy_module_settings_of_the_overlap_are_checked():
    with pytest.raises(ValueError, match="overlap_rewards must be None, 'thread' or 'process', got 'threads'"):
        PolicyModule(tiny_generator(), says_edema, overlap_rewards="threads")


@pytest.mark.parametrize(("share", "said"), [(0.0, 1), (1.0, 0)])
def test_policy_module_expensive_rewards_are_mentioned_once(monkeypatch, share, said):
    told = []
    monkeypatch.setattr(reward_workers, "rank_zero_info", told.append)
    monkeypatch.setattr(reward_workers, "_SHARE", share)
    train(PolicyModule(tiny_generator(), says_edema), 12)
    assert len(told) == said
    if said:
        assert "overlap_rewards='thread'" in told[0]


@pytest.mark.parametrize(("seconds", "said"), [(0.02, ["2%"]), (0.005, [])])
def test_reward_clock_leaves_out_the_first_rollout(monkeypatch, seconds, said):
    now, told = [0.0], []
    monkeypatch.setattr(reward_workers, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(reward_workers, "rank_zero_info", told.append)

    def passes(duration):
        now[0] += duration

    clock = RewardClock()
    for rollout in range(9):
        clock.count_rollout()
        clock.time(lambda: passes(seconds if rollout else 10.0))  # noqa: B023
        passes(1 - seconds)
    assert [text.split()[2] for text in told] == said
