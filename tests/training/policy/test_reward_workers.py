"""Rewards in the background: results of a run without them, exceptions, and the end of the worker."""

import asyncio
import multiprocessing
import os
import threading

import pytest
import torch
from lightning.pytorch import Callback
from tiny_generator import AboveAverage, says_edema, tiny_generator, train, weights, word_value

from rrg_rewards.functional import CrimsonEvaluation
from rrg_rewards.judges import Judge
from rrg_rewards.metrics import CRIMSON
from rrg_rewards.rewards import AsyncMetricReward, make_reward, overlap
from rrg_rewards.rewards.deadline import RewardTimeoutError
from rrg_rewards.rewards.overlap import PART
from rrg_rewards.training import CausalLMGenerator, Completions, PolicyModule
from rrg_rewards.training.policy import reward_workers, sampling
from rrg_rewards.training.policy.reward_workers import RewardWorker, choose_overlap
from rrg_rewards.training.policy.rewards import RewardSet
from rrg_rewards.utilities.settings import SettingError


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


class Hangs(Fails):
    def __init__(self) -> None:
        self.may_end = threading.Event()

    def __call__(self, completions, **columns):
        self.may_end.wait(600)
        return [0.0 for _ in completions]


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
    assert not multiprocessing.active_children()


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
        (Ends(), ChildProcessError, "a worker process was killed"),
    ],
)
@pytest.mark.slow
def test_reward_worker_exceptions_in_the_process_have_their_message(reward, error, message, arguments):
    worker = RewardWorker(RewardSet(reward), "process")
    try:
        with pytest.raises(error, match=message):
            worker.submit(arguments, worker.begin({}))()
    finally:
        worker.close()


def test_reward_worker_a_reward_that_cannot_be_pickled_is_named():
    def local(completions, **columns):
        return [0.0 for _ in completions]

    with pytest.raises(SettingError, match="reward 'local' cannot be pickled"):
        RewardWorker(RewardSet([says_edema, local]), "process")


def test_policy_module_settings_of_the_overlap_are_checked():
    with pytest.raises(ValueError, match="overlap_rewards must be None, 'thread', 'process' or 'auto', got 'threads'"):
        PolicyModule(tiny_generator(), says_edema, overlap_rewards="threads")


@pytest.mark.parametrize(("share", "said"), [(0.0, 1), (1.0, 0)])
def test_policy_module_expensive_rewards_are_mentioned_once(monkeypatch, share, said):
    told = []
    monkeypatch.setattr(reward_workers, "rank_zero_info", told.append)
    monkeypatch.setattr(sampling, "SHARE", share)
    train(PolicyModule(tiny_generator(), says_edema), 12)
    assert len(told) == said
    if said:
        assert "overlap_rewards='thread'" in told[0]


@pytest.mark.parametrize(
    ("rewards", "share", "uses_cpu", "cores", "chosen"),
    [
        (["crg"], 0.5, False, 2, "process"),
        (["crg"], 0.5, True, 3, "process"),
        (["crg"], 0.5, True, 2, None),
        (["crg"], 0.01, False, 2, None),
        (["judge"], 0.5, True, 2, "thread"),
        (["judge", "crg"], 0.5, False, 2, "process"),
        (["judge", "crg"], 0.5, True, 2, "thread"),
        (["judge", "running"], 0.5, False, 2, "thread"),
        (["running"], 0.5, False, 2, None),
        (["judge", "function"], 0.5, False, 2, None),
    ],
)
def test_choose_overlap_needs_rewards_whose_results_cannot_change(monkeypatch, rewards, share, uses_cpu, cores, chosen):
    monkeypatch.setattr(overlap, "worker_count", lambda _: cores)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    known = {
        "crg": make_reward("crg", prior=0.2),
        "running": make_reward("crg", prior="running"),
        "judge": AsyncMetricReward(CRIMSON(judge=Remembers())),
        "function": says_edema,
    }
    assert choose_overlap([known[name] for name in rewards], share, uses_cpu) == chosen


def test_policy_module_chooses_the_background_from_the_share_of_the_rewards(monkeypatch):
    told = []
    monkeypatch.setattr(reward_workers, "rank_zero_info", told.append)
    monkeypatch.setattr(sampling, "choose_overlap", lambda *_: "thread")
    expected, rows, _ = _run_of_rules(None, steps=8)
    found, others, module = _run_of_rules("auto", steps=8)
    assert module.overlap_rewards == "thread"
    assert "computed in the background from now on, as with 'thread'" in told[-1]
    assert others == rows
    assert torch.equal(found, expected)


class Remembers(Judge):
    """A judge that finds no error, and remembers how many pairs each call had."""

    signature = "remembers"
    has_independent_rows = True

    def __init__(self):
        self.calls = []

    async def evaluate(self, task, items):
        self.calls.append(len(items))
        await asyncio.sleep(0)
        return [CrimsonEvaluation() for _ in items]


def _run_of_rules(overlap, steps=3, algorithm="grpo", judge=None, **options):
    torch.manual_seed(0)
    rewards = [
        make_reward("crg", prior=0.2, log_explanations=True),
        make_reward("crimson", log_details=True),
        make_reward("ct_finebench"),
        AsyncMetricReward(CRIMSON(judge=judge or Remembers()), name="judged"),
        make_reward("composed", parts=[{"name": "rouge"}, {"name": "repetition", "weight": 0.1}]),
        AboveAverage(),
    ]
    module = PolicyModule(
        tiny_generator(16), rewards, algorithm=algorithm, overlap_rewards=overlap, learning_rate=5e-3, **options
    )
    history = train(module, steps)
    return weights(module.generator), history.rows, module


@pytest.mark.parametrize(
    ("overlap", "options"),
    [
        ("thread", {}),
        ("thread", {"algorithm": "scst", "beta": 0.1}),
        ("thread", {"minibatches": 2, "epochs": 2}),
        pytest.param("process", {"reward_processes": 2}, marks=pytest.mark.slow),
    ],
)
def test_policy_module_rewards_of_completions_that_end_early_change_nothing(overlap, options):
    whole, parts = Remembers(), Remembers()
    expected, rows, plain = _run_of_rules(None, judge=whole, **options)
    found, others, module = _run_of_rules(overlap, judge=parts, **options)
    assert others == rows
    assert torch.equal(found, expected)
    assert module.rollout.extras == plain.rollout.extras
    assert torch.equal(module.rollout.rewards, plain.rollout.rewards)
    assert module.rewards.state_dict() == plain.rewards.state_dict()
    assert sum(parts.calls) == sum(whole.calls)
    assert len(parts.calls) > len(whole.calls)


class WaitsForScores(CausalLMGenerator):
    """A generator that samples its last tokens only when a judge has begun to evaluate the first completions."""

    def sample(self, batch, *, greedy=False, on_finished=None):
        def finished(rows, completions):
            on_finished(rows, completions)
            ended.extend(rows.tolist())
            if len(ended) >= PART * len(batch["row"]):
                self.judge_has_begun.wait(30)
                self.seen.append(self.judge_has_begun.is_set())

        ended = []

        return super().sample(batch, greedy=greedy, on_finished=None if on_finished is None else finished)


class TellsItsBeginning(Remembers):
    def __init__(self):
        super().__init__()
        self.begun = threading.Event()

    async def evaluate(self, task, items):
        self.begun.set()
        return await super().evaluate(task, items)


def test_policy_module_judges_begin_while_the_policy_samples():
    judge = TellsItsBeginning()
    tiny = tiny_generator(16)
    generator = WaitsForScores(tiny.model, tiny.processor, max_new_tokens=16)
    generator.judge_has_begun, generator.seen = judge.begun, []
    reward = AsyncMetricReward(CRIMSON(judge=judge))
    train(PolicyModule(generator, reward, overlap_rewards="thread"), 1)
    assert generator.seen
    assert all(generator.seen)


def test_policy_module_completions_given_early_must_be_those_returned():
    class Changes(CausalLMGenerator):
        def sample(self, batch, *, greedy=False, on_finished=None):
            completions = super().sample(batch, greedy=greedy)
            row = torch.tensor([3])
            on_finished(row, Completions.until_end((completions.tokens[row] + 1) % 5, self.end_token_ids))
            return completions

    tiny = tiny_generator()
    module = PolicyModule(
        Changes(tiny.model, tiny.processor, max_new_tokens=4), make_reward("crg", prior=0.2), overlap_rewards="thread"
    )
    with pytest.raises(ValueError, match="another completion of row 3 than it returned"):
        train(module, 1)


@pytest.mark.parametrize("overlap_rewards", [None, "thread"])
def test_policy_module_a_reward_that_does_not_return_ends_the_run(overlap_rewards):
    reward = Hangs()
    module = PolicyModule(
        tiny_generator(), reward, num_generations=2, overlap_rewards=overlap_rewards, reward_timeout=0.3
    )
    with pytest.raises(RewardTimeoutError, match=r"rank 0 of 1 .* the reward fails has not returned after"):
        train(module, 1)
    # The interpreter would wait for other threads at its exit.
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("rewards")]
    assert all(thread.daemon for thread in threads)
    reward.may_end.set()
    for thread in threads:
        thread.join(60)
