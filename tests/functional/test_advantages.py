"""Advantages compared with loops over the equations and with TRL."""

import inspect
import math
import textwrap
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.functional import (
    generalized_advantages,
    greedy_baseline_advantages,
    group_advantages,
    group_deviations,
    leave_one_out_advantages,
)

NAN = float("nan")
groups_of = st.integers(2, 5).flatmap(
    lambda size: st.tuples(
        st.just(size),
        st.lists(
            st.lists(st.one_of(st.just(NAN), st.integers(-20, 20).map(lambda n: n / 4)), min_size=size, max_size=size),
            min_size=1,
            max_size=4,
        ),
    )
)


def _known(values):
    return [value for value in values if not math.isnan(value)]


def _deviation(values):
    if len(values) < 2:
        return NAN
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


@given(groups_of, st.sampled_from(["group", "batch", "none"]))
def test_group_advantages_are_those_of_the_equation(drawn, scale):
    size, groups = drawn
    everything = _known([reward for group in groups for reward in group])
    expected = []
    for group in groups:
        known = _known(group)
        for reward in group:
            if math.isnan(reward):
                expected.append(0.0)
                continue
            centred = reward - sum(known) / len(known)
            deviation = {"group": _deviation(known), "batch": _deviation(everything), "none": 1 - 1e-4}[scale]
            expected.append(0.0 if math.isnan(deviation) else centred / (deviation + 1e-4))
    found = group_advantages(torch.tensor(groups).flatten(), size, scale=scale)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-4, atol=1e-4)


@given(groups_of)
def test_leave_one_out_advantages_are_those_of_the_equation(drawn):
    size, groups = drawn
    expected = []
    for group in groups:
        for place, reward in enumerate(group):
            others = _known(group[:place] + group[place + 1 :])
            given_one = not math.isnan(reward) and others
            expected.append(reward - sum(others) / len(others) if given_one else 0.0)
    found = leave_one_out_advantages(torch.tensor(groups).flatten(), size)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-4, atol=1e-4)


def test_normalized_advantages_have_mean_0_and_deviation_1():
    advantages = leave_one_out_advantages(torch.tensor([1.0, 2.0, 4.0, 8.0, 3.0, 3.0]), 3, normalize=True)
    assert advantages.mean().item() == pytest.approx(0, abs=1e-6)
    assert advantages.std().item() == pytest.approx(1, abs=1e-3)


def test_leave_one_out_is_the_centred_reward_made_larger():
    rewards = torch.tensor([1.0, 2.0, 4.0, 8.0])
    centred = group_advantages(rewards, 4, scale="none")
    torch.testing.assert_close(leave_one_out_advantages(rewards, 4), centred * 4 / 3)


EVERY = {
    **{scale: partial(group_advantages, scale=scale) for scale in ("group", "batch", "none")},
    **{f"others-{flag}": partial(leave_one_out_advantages, normalize=flag) for flag in (False, True)},
}


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("reward", [0.3, -1000.3, 16777.3, 1e-9, -1e18])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_equal_rewards_teach_nothing(kind, reward, dtype):
    rewards = torch.full((16,), reward, dtype=dtype)
    rewards[3] = NAN
    assert EVERY[kind](rewards, 8).tolist() == [0.0] * 16
    assert group_deviations(rewards, 8).tolist() == [0.0, 0.0]


def test_rewards_that_differ_by_rounding_are_equal():
    rewards = torch.tensor([-1000.3, -1000.3, -1000.3, -1000.3])
    rewards[1] = rewards[1].nextafter(torch.tensor(0.0))
    assert group_advantages(rewards, 4).tolist() == [0.0] * 4
    assert group_deviations(rewards, 4).tolist() == [0.0]
    # In float64 the same difference is no rounding.
    assert group_deviations(rewards.double(), 4).item() > 1e-5


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("level", [0.0, -1000.3, 16777.3])
def test_group_advantages_at_any_level_equal_float64_and_trl(scale, level):
    rewards = torch.randn(24, generator=torch.Generator().manual_seed(0)) + level
    rewards[[4, 8, 9, 10]] = NAN
    rewards[12:16] = level
    exact = rewards.double().view(-1, 4)
    centred = exact - exact.nanmean(1, keepdim=True)
    by_group = [_deviation(_known(group)) for group in exact.tolist()]
    deviation = {
        "group": torch.tensor(by_group).double()[:, None],
        "batch": _deviation(_known(exact.flatten().tolist())),
    }
    expected = (centred / (deviation[scale] + 1e-4) if scale != "none" else centred).nan_to_num(nan=0.0).flatten()
    found = group_advantages(rewards, 4, scale=scale)
    torch.testing.assert_close(found, expected.float(), rtol=1e-6, atol=1e-7)
    # TRL centres in float32, which rounds by half a unit in the last place of the rewards.
    torch.testing.assert_close(found, _advantages_of_trl(rewards, 4, scale), rtol=1e-5, atol=1e-5 + 2e-7 * abs(level))


def _advantages_of_trl(rewards, size, scale):
    """Run the statements of TRL's trainer on rewards of one function."""
    trl = pytest.importorskip("trl")
    module = inspect.getmodule(trl.GRPOTrainer)
    source = inspect.getsource(trl.GRPOTrainer._generate_and_score_completions)
    start = source.index("        unscorable_mask = ")
    end = source.index("        # Slice to keep only the local part of the data")
    trainer = SimpleNamespace(
        multi_objective_aggregation="sum_then_normalize", reward_weights=torch.ones(1), scale_rewards=scale
    )
    names = {**vars(module), "self": trainer, "rewards_per_func": rewards[:, None]}
    names |= {"num_generations": size, "device": rewards.device}
    exec(textwrap.dedent(source[start:end]), names)
    return names["advantages"]


def test_greedy_baseline():
    found = greedy_baseline_advantages(torch.tensor([1.0, NAN, 3.0]), torch.tensor([0.5, 1.0, NAN]))
    assert found.tolist() == [0.5, 0.0, 0.0]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.floats(0, 1), st.floats(0, 1), st.integers(0, 10_000))
def test_generalized_advantages_are_those_of_the_equation(lengths, gamma, lam, seed):
    generator = torch.Generator().manual_seed(seed)
    rewards, values = (torch.randn(len(lengths), max(lengths), generator=generator) for _ in range(2))
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    advantages, returns = generalized_advantages(rewards, values, mask, gamma=gamma, lam=lam)
    for row, length in enumerate(lengths):
        for t in range(length):
            expected = 0.0
            for later in range(t, length):
                following = values[row, later + 1].item() if later + 1 < length else 0.0
                delta = rewards[row, later].item() + gamma * following - values[row, later].item()
                expected += (gamma * lam) ** (later - t) * delta
            assert advantages[row, t].item() == pytest.approx(expected, abs=1e-4)
            assert returns[row, t].item() == pytest.approx(expected + values[row, t].item(), abs=1e-4)
    assert (advantages[~mask] == 0).all()
    assert (returns[~mask] == 0).all()


def test_padding_is_never_read():
    mask = torch.tensor([[1, 1, 0]])
    rewards, values = torch.tensor([[0.0, 1.0, NAN]]), torch.tensor([[0.5, 0.5, NAN]])
    advantages, returns = generalized_advantages(rewards, values, mask)
    assert torch.isfinite(advantages).all()
    assert torch.isfinite(returns).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: group_advantages(torch.zeros(4), 1), "group_size must"),
        (lambda: group_advantages(torch.zeros(5), 2), r"whole groups of 2, got shape \(5,\)"),
        (lambda: group_advantages(torch.zeros(4), 2, scale="token"), "scale must"),
        (lambda: group_advantages(torch.tensor([0.0, math.inf]), 2), "rewards must lie within .* row 1 does not"),
        (
            lambda: leave_one_out_advantages(torch.tensor([0.0, -1.1e18]), 2),
            "rewards must lie within .* row 1 does not",
        ),
        (lambda: greedy_baseline_advantages(torch.zeros(1), torch.tensor([1e300])), "greedy_rewards must lie within"),
        (lambda: generalized_advantages(*torch.full((2, 1, 1), 2e18), torch.ones(1, 1)), "rewards must lie within"),
        (lambda: greedy_baseline_advantages(torch.zeros(2), torch.zeros(3)), r"\(2,\), got \(3,\)"),
        (lambda: generalized_advantages(*torch.zeros(3, 1, 2), gamma=1.1), "gamma must"),
        (
            lambda: generalized_advantages(torch.zeros(1, 2), torch.zeros(1, 3), torch.ones(1, 2)),
            "values must have shape",
        ),
        (lambda: generalized_advantages(*torch.zeros(2, 1, 2), torch.tensor([[0, 1]])), "without a gap"),
    ],
)
def test_input_that_cannot_be(call, message):
    with pytest.raises(ValueError, match=message):
        call()
