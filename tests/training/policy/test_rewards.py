"""Rewards are called as TRL calls them."""

import asyncio
import math

import pytest
import torch

from rrg_rewards.functional import group_advantages
from rrg_rewards.rewards import make_reward
from rrg_rewards.training import Completions
from rrg_rewards.training.policy.rewards import RewardSet, RewardTable, TrainerState
from rrg_rewards.training.policy.rollouts import rollout_statistics
from rrg_rewards.training.policy.sampling import _whitened

STATE = TrainerState(global_step=3, max_steps=10, epoch=0.5)
COMPLETIONS = Completions(torch.tensor([[5, 6], [7, 0]]), torch.tensor([[1, 1], [1, 0]]))
TEXTS = ["cardiomegaly", "normal"]


def _call(functions, weights=None, **columns):
    return RewardSet(functions, weights)({"prompt": ["a", "b"], **columns}, COMPLETIONS, TEXTS, STATE)


def test_reward_set_the_call_is_that_of_trl():
    seen = {}

    def note(**arguments):
        seen.update(arguments)
        arguments["log_metric"]("share", 0.25)
        arguments["log_metric"]("nothing", math.nan)
        arguments["log_extra"]("why", ["x", "y"])
        return [1, None]

    columns = {"reference": ["r", "s"], "labels": torch.tensor([[0, 1], [1, 1]]), "age": torch.tensor([1.5, 2.5])}
    table = _call(note, **columns, image=torch.zeros(2, 3, 4), features=torch.zeros(2, 3))
    assert seen.keys() == {
        "prompts", "completions", "completion_ids", "trainer_state", "log_metric", "log_extra", "reference", "labels",
        "age",
    }  # fmt: skip
    assert seen["prompts"] == ["a", "b"]
    assert seen["completions"] == TEXTS
    assert seen["completion_ids"] == [[5, 6], [7]]
    assert seen["labels"] == [[0, 1], [1, 1]]
    assert seen["age"] == [1.5, 2.5]
    assert seen["trainer_state"].global_step == 3
    assert table.values.tolist()[0] == [1.0]
    assert table.total.isnan().tolist() == [False, True]
    assert table.logged == {"share": (0.25, 1)}
    assert table.extras == {"why": ["x", "y"]}


def test_reward_set_conversations_are_completed_by_messages():
    seen = []

    def note(completions, prompts, **_):
        seen.extend([prompts, completions])
        return [0.0, 0.0]

    prompts = [[{"role": "user", "content": "Report."}]] * 2
    RewardSet(note)({"prompt": prompts}, COMPLETIONS, TEXTS, STATE)
    assert seen == [prompts, [[{"role": "assistant", "content": text}] for text in TEXTS]]


def test_reward_set_a_reward_of_the_package_reads_its_columns():
    reward = make_reward("crg", prior=0.2, reference_column="report")
    table = _call(reward, report=["Cardiomegaly.", "Cardiomegaly."])
    assert table.values[0, 0] > 0 > table.values[1, 0]
    assert table.logged["crg/unscorable"] == (0.0, 1)
    with pytest.raises(ValueError, match="'report'"):
        _call(reward)


def test_reward_set_coroutines_wait_for_each_other_in_one_loop():
    arrived = []

    def waiting(name):
        async def reward(completions, **_):
            arrived.append(name)
            while len(arrived) < 2:
                await asyncio.sleep(0)
            return [1.0] * len(completions)

        reward.__name__ = name
        return reward

    table = _call([waiting("one"), waiting("two"), lambda completions, **_: [0.5, 0.5]], [1.0, 2.0, 4.0])
    assert table.values.tolist() == [[1.0, 1.0, 0.5]] * 2
    assert table.total.tolist() == [5.0, 5.0]


def test_reward_set_what_one_reward_cannot_score_has_no_sum_unless_it_has_no_weight():
    def half(completions, **_):
        return [1.0, None]

    def full(completions, **_):
        return [2.0, 2.0]

    assert _call([half, full]).total.isnan().tolist() == [False, True]
    table = _call([half, full], [0.0, 1.0])
    assert table.total.tolist() == [2.0, 2.0]
    assert table.values.isnan().tolist() == [[False, False], [True, False]]


def test_reward_set_weights_may_depend_on_the_step():
    rewards = RewardSet([lambda **_: [1.0, 2.0]], lambda step: [0.5 * (step + 1)])
    assert rewards({}, COMPLETIONS, TEXTS, STATE).total.tolist() == [2.0, 4.0]
    with pytest.raises(ValueError, match="weights"):
        RewardSet([lambda **_: [1.0, 2.0]], lambda step: [0.0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1.0], "'given' gave 1 .* 2"),
        ([1.0, math.inf], "'given' of row 1"),
        ([1.0, -2e18], "'given' of row 1"),
    ],
)
def test_reward_set_rewards_that_cannot_be(given, message):
    def reward(completions, **_):
        return given

    reward.__name__ = "given"
    with pytest.raises(ValueError, match=message):
        _call(reward)


def test_reward_set_columns_that_would_hide_the_trainer_s():
    with pytest.raises(ValueError, match="'completions'"):
        _call(lambda **_: [0.0, 0.0], completions=["a", "b"])


@pytest.mark.parametrize("reward", [-1000.3, 16777.3])
def test_rollout_statistics_count_the_groups_that_have_no_advantage(reward):
    total = torch.full((16,), reward)
    total[8] += 1
    ones = torch.ones(16, 1).long()
    statistics = rollout_statistics(RewardTable(total[:, None], total, [1.0]), Completions(ones, ones), ["given"], 8)
    assert statistics["frac_reward_zero_std"] == 0.5
    assert group_advantages(total, 8).view(2, 8).any(1).tolist() == [False, True]


@pytest.mark.parametrize("level", [0.0, -1000.3, 1e6])
def test_whitened_advantages_at_any_level(level):
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    assert not _whitened(torch.full((2, 3), level), mask).any()
    advantages = torch.tensor([[0.0, 1.0, 3.0], [2.0, 0.0, 0.0]]) + level
    inside = advantages.double()[mask.bool()]
    expected = (inside - inside.mean()) / (inside.std(correction=0) + 1e-8)
    torch.testing.assert_close(_whitened(advantages, mask)[mask.bool()], expected.float())
