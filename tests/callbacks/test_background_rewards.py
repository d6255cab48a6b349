"""Rewards of TRL's trainers in the background: what overlaps with what, and the numbers of a run without them."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from tiny_generator import tiny_rows, weights
from tiny_policy import save_tiny_policy, tiny_tokenizer
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from rrg_rewards.callbacks import BackgroundRewardsCallback, in_background
from rrg_rewards.callbacks import background_rewards as module
from rrg_rewards.functional import CrimsonEvaluation
from rrg_rewards.judges import Judge
from rrg_rewards.metrics import CRIMSON
from rrg_rewards.rewards import AsyncMetricReward, BackgroundReward, make_reward

TRAINERS = {"grpo": (GRPOTrainer, GRPOConfig), "rloo": (RLOOTrainer, RLOOConfig)}
TIMES = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "step_time")


class Counts(Judge):
    """A judge that finds no error, and counts the pairs of each call."""

    signature = "counts"
    has_independent_rows = True

    def __init__(self):
        self.calls = []
        self.begun = threading.Event()

    async def evaluate(self, task, items):
        self.begun.set()
        self.calls.append(len(items))
        await asyncio.sleep(0)
        return [CrimsonEvaluation() for _ in items]


def _trainer(folder, rewards, algorithm="grpo", **options):
    cls, config = TRAINERS[algorithm]
    arguments = {
        "per_device_train_batch_size": 16,
        "num_generations": 4,
        "max_completion_length": 8,
        "learning_rate": 1e-2,
        "max_steps": 2,
        "logging_steps": 1,
        "beta": 0.1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        **options,
    }
    # From a folder, from which the trainer reads its reference too.
    policy = AutoModelForCausalLM.from_pretrained(save_tiny_policy(folder / "policy"))
    return cls(
        policy,
        rewards,
        config(str(folder), use_cpu=True, bf16=False, gradient_checkpointing=False, **arguments),
        Dataset.from_list(tiny_rows(8)),
        processing_class=tiny_tokenizer(),
    )


def _run(folder, judge, overlap, algorithm="grpo", automatic=False, **options):
    rewards = in_background(
        [AsyncMetricReward(CRIMSON(judge=judge), name="judged"), make_reward("crg", prior=0.2)], overlap
    )
    trainer = _trainer(folder, rewards, algorithm, **options)
    callback = BackgroundRewardsCallback(trainer, rewards, automatic=automatic)
    trainer.add_callback(callback)
    trainer.train()
    history = [
        {name: value for name, value in entry.items() if name not in TIMES} for entry in trainer.state.log_history
    ]
    return history, weights(trainer.model), callback


@pytest.mark.parametrize(
    ("algorithm", "overlap"),
    [("grpo", "thread"), ("rloo", "thread"), pytest.param("grpo", "process", marks=pytest.mark.slow)],
)
def test_background_rewards_callback_changes_no_number(tmp_path, algorithm, overlap):
    whole, parts = Counts(), Counts()
    expected, plain, _ = _run(tmp_path, whole, "none", algorithm)
    found, trained, _ = _run(tmp_path, parts, overlap, algorithm)
    assert found == expected
    assert torch.equal(trained, plain)
    assert sum(parts.calls) == sum(whole.calls)
    assert len(parts.calls) > len(whole.calls)


def test_background_rewards_callback_judges_begin_while_the_policy_generates(tmp_path, monkeypatch):
    judge, seen = Counts(), []
    early = BackgroundReward.score_early

    def waits_for_the_judge(self, *arguments):
        # The model cannot generate another token before this function returns.
        early(self, *arguments)
        judge.begun.wait(30)
        seen.append(judge.begun.is_set())

    monkeypatch.setattr(BackgroundReward, "score_early", waits_for_the_judge)
    _, _, callback = _run(tmp_path, judge, "thread", max_steps=1)
    assert seen
    assert all(seen)
    # The processes and threads end with the training, and the model has its own method again.
    assert all(reward._scorer is None for reward in callback.rewards)
    assert "generate" not in vars(callback._trainer.model)


@pytest.mark.parametrize(("share", "is_active"), [(0.0, True), (1.0, False)])
def test_background_rewards_callback_chooses_from_the_share_of_the_rewards(tmp_path, monkeypatch, share, is_active):
    monkeypatch.setattr(module, "SHARE", share)
    monkeypatch.setattr(module, "has_free_core", lambda uses_cpu: False)
    expected, plain, _ = _run(tmp_path, Counts(), "none", max_steps=8)
    judge = Counts()
    found, trained, callback = _run(tmp_path, judge, "auto", automatic=True, max_steps=8)
    assert found == expected
    assert torch.equal(trained, plain)
    assert [reward.is_active for reward in callback.rewards] == [is_active, False]
    assert (len(judge.calls) > 8) == is_active


def test_trl_awaits_asynchronous_rewards_together_after_synchronous_ones_and_the_log_probs(tmp_path):
    events = []
    met = [threading.Event(), threading.Event()]

    def synchronous(completions, **_):
        events.append("synchronous")
        return [float(row) for row in range(len(completions))]

    def asynchronous(own):
        async def reward(completions, **_):
            events.append("asynchronous")
            met[own].set()
            # Returns only if the other one runs at the same time.
            while not met[1 - own].is_set():
                await asyncio.sleep(0.001)
            return [0.0] * len(completions)

        reward.__name__ = f"reward_{own}"
        return reward

    trainer = _trainer(tmp_path, [asynchronous(0), synchronous, asynchronous(1)], max_steps=1)
    generate, log_probs = trainer._generate, trainer._get_per_token_logps_and_entropies
    trainer._generate = lambda *given: (generate(*given), events.append("generated"))[0]
    trainer._get_per_token_logps_and_entropies = lambda *given, **named: (
        log_probs(*given, **named),
        events.append("log-probabilities"),
    )[0]
    trainer.train()
    first = events.index("asynchronous")
    assert events[: first + 2] == ["generated", "log-probabilities", "synchronous", "asynchronous", "asynchronous"]


def test_in_background_names_rewards_that_stay_in_the_foreground(caplog):
    rewards = [make_reward("crg", prior="running"), make_reward("crg", prior=0.2, name="fixed")]
    for overlap, names in (("auto", []), ("process", ["crg"])):
        chosen = in_background(rewards, overlap)
        assert [isinstance(reward, BackgroundReward) for reward in chosen] == [False, True]
        assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == names


def test_background_rewards_callback_ends_threads_and_processes_after_an_error(tmp_path):
    rewards = in_background([AsyncMetricReward(CRIMSON(judge=Counts()), name="judged")], "thread")
    trainer = _trainer(tmp_path, rewards)
    trainer.add_callback(BackgroundRewardsCallback(trainer, rewards))
    calculate = trainer._calculate_rewards

    def fail(*given):
        calculate(*given)
        assert rewards[0]._scorer is not None
        raise TimeoutError

    trainer._calculate_rewards = fail
    with pytest.raises(TimeoutError):
        trainer.train()
    assert rewards[0]._scorer is None
    assert not [thread for thread in threading.enumerate() if thread.name == "rewards"]


def test_background_rewards_callback_needs_a_trainer_that_generates():
    with pytest.raises(TypeError, match="SimpleNamespace generates in another way"):
        BackgroundRewardsCallback(SimpleNamespace(), [])
