"""Truncated importance sampling compared with TRL's statements and with plain loops."""

import inspect
import math
import textwrap
from types import SimpleNamespace

import pytest
import torch

from rrg_rewards.functional import importance_weights

MODES = ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]
BOUNDS = [(None, 3.0), (0.5, 2.0), (0.8, None), (None, None)]


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    mask = (torch.arange(5) < torch.tensor([5, 1, 3, 0])[:, None]).long()
    sampled = -torch.rand(4, 5, generator=generator)
    policy = sampled + torch.randn(4, 5, generator=generator)
    sampled[0, 1] = math.nan
    return SimpleNamespace(policy=policy, sampled=sampled, mask=mask)


def trl_weights(batch, mode, low, high):
    """Run the statements of TRL's trainer that compute the ratios."""
    trl = pytest.importorskip("trl")
    source = inspect.getsource(trl.GRPOTrainer._generate_and_score_completions)
    start = source.index("            # Compute the importance sampling ratio when using vLLM")
    end = source.index("            # Compute the per-token log probabilities for the reference model")
    names = {
        "self": SimpleNamespace(
            use_vllm=True,
            vllm_importance_sampling_correction=True,
            vllm_importance_sampling_mode=mode,
            vllm_importance_sampling_clip_min=low,
            vllm_importance_sampling_clip_max=high,
        ),
        "old_per_token_logps": batch.policy,
        "sampling_per_token_logps": batch.sampled,
        "completion_mask": batch.mask,
        "tool_mask": None,
        "torch": torch,
        "math": math,
    }
    exec(textwrap.dedent(source[start:end]), names)
    return names["vllm_importance_sampling_ratio"].expand(4, 5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bounds", BOUNDS)
def test_equals_trl(batch, mode, bounds):
    if mode.endswith("truncate") and bounds == (None, None):
        pytest.skip("TRL clamps without bounds, which torch refuses")
    found = importance_weights(
        batch.policy, batch.sampled, batch.mask, mode=mode, clip_min=bounds[0], clip_max=bounds[1]
    )
    torch.testing.assert_close(found, trl_weights(batch, mode, *bounds))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bounds", BOUNDS)
def test_equals_plain_loops(batch, mode, bounds):
    low, high = (default if bound is None else bound for bound, default in zip(bounds, (0, math.inf), strict=True))
    expected = []
    for policy, sampled, mask in zip(batch.policy.tolist(), batch.sampled.tolist(), batch.mask.tolist(), strict=True):
        ratios = [
            math.exp(p - s) if m and not math.isnan(s) else 1.0 for p, s, m in zip(policy, sampled, mask, strict=True)
        ]
        if mode.startswith("sequence"):
            ratios = [math.prod(ratios)] * len(ratios)
        inside = [low <= ratio <= high for ratio in ratios]
        clipped = [min(max(ratio, low), high) for ratio in ratios]
        masked = [ratio if kept else 0.0 for ratio, kept in zip(ratios, inside, strict=True)]
        expected.append(clipped if mode.endswith("truncate") else masked)
    found = importance_weights(
        batch.policy, batch.sampled, batch.mask, mode=mode, clip_min=bounds[0], clip_max=bounds[1]
    )
    torch.testing.assert_close(found, torch.tensor(expected))


def test_weights_make_samples_of_another_distribution_unbiased():
    """The weighted mean of a reward over all tokens of the sampler is the policy's expectation."""
    policy, sampler = torch.tensor([0.2, 0.3, 0.5]), torch.tensor([0.5, 0.3, 0.2])
    reward = torch.tensor([1.0, -2.0, 4.0])
    ones = torch.ones(3, 1)
    weights = importance_weights(policy.log()[:, None], sampler.log()[:, None], ones, clip_max=None)
    assert float((sampler * weights[:, 0] * reward).sum()) == pytest.approx(float((policy * reward).sum()))


def test_no_gradient(batch):
    policy = batch.policy.requires_grad_()
    assert not importance_weights(policy, batch.sampled, batch.mask).requires_grad


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"mode": "token"}, "mode"),
        ({"clip_min": 3.0}, "clip_min"),
        ({"sampler_log_probs": torch.zeros(4, 4)}, "sampler_log_probs"),
    ],
)
def test_arguments_that_cannot_be(batch, options, argument):
    with pytest.raises(ValueError, match=argument):
        importance_weights(batch.policy, **{"sampler_log_probs": batch.sampled, "mask": batch.mask, **options})
