"""The loss of the policy compared with that of TRL on the same tokens, and with the equations."""

import math
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from rrg_rewards.functional import kl_estimate, log_probs, policy_loss, token_entropies, token_log_probs, value_loss

trl = pytest.importorskip("trl")

N, T = 6, 7


class _OneProcess:
    num_processes = 1
    sync_gradients = True

    def gather(self, tensor):
        return tensor

    def reduce(self, tensor, reduction):
        return tensor


class _Trainer:
    """The attributes of the trainer that TRL's loss reads, with given log-probabilities."""

    def __init__(self, log_probs, entropies, trainer=trl.GRPOTrainer, **settings):
        defaults = {"delta": None, "use_bias_correction_kl": False, "sapo_temperature_pos": 1.0}
        defaults |= {"sapo_temperature_neg": 1.05, "steps_per_generation": 1}
        defaults |= {"vespo_k_pos": 2.0, "vespo_lambda_pos": 3.0, "vespo_k_neg": 3.0, "vespo_lambda_neg": 2.0}
        self.args = SimpleNamespace(**{name: settings.pop(name, value) for name, value in defaults.items()})
        self.accelerator, self.model = _OneProcess(), SimpleNamespace(training=True)
        self.aux_loss_enabled = self.use_vllm = self._entropy_bonus_enabled = False
        self.off_policy_mask_threshold, self.top_entropy_quantile = None, 1.0
        self.beta, self.epsilon_low, self.epsilon_high = 0.0, 0.2, 0.2
        self.loss_type, self.importance_sampling_level = "grpo", "token"
        self.current_gradient_accumulation_steps, self.max_completion_length = 1, T
        self._metrics = {"train": defaultdict(list)}
        self._given = log_probs, entropies, None
        self._class = trainer
        for name, value in settings.items():
            assert hasattr(self, name), name
            setattr(self, name, value)

    def __getattr__(self, name):
        if name.startswith("get_"):
            return getattr(self._class, name)
        raise AttributeError(name)

    def _get_per_token_logps_and_entropies(self, *_, **__):
        return self._given

    def loss(self, **inputs):
        return self._class._compute_loss(self, None, inputs)


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([7, 1, 4, 3, 6, 2])
    mask = (torch.arange(T) < lengths[:, None]).long()
    old = -torch.rand(N, T, generator=generator) * 3
    return SimpleNamespace(
        mask=mask,
        old=old,
        log_probs=(old + torch.randn(N, T, generator=generator) * 0.4).requires_grad_(),
        reference=old + torch.randn(N, T, generator=generator) * 0.4,
        advantages=torch.randn(N, generator=generator),
        entropies=torch.rand(N, T, generator=generator),
    )


def _inputs(batch, **more):
    ids = torch.zeros(N, T, dtype=torch.long)
    return {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1],
        "completion_ids": ids,
        "completion_mask": batch.mask,
        "advantages": batch.advantages,
        "old_per_token_logps": batch.old,
        "ref_per_token_logps": batch.reference,
        "num_items_in_batch": batch.mask.sum(),
        **more,
    }


def _loss(batch, **options):
    return policy_loss(batch.log_probs, batch.old, batch.advantages, batch.mask, **options)


def _trainer(batch, **settings):
    return _Trainer(batch.log_probs, batch.entropies, **settings)


def _assert_near(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


VARIANTS = {
    "grpo": ({"loss_type": "grpo"}, {}),
    "clip-higher": ({"epsilon_high": 0.28}, {"clip_high": 0.28}),
    "two-sided": ({"delta": 1.5}, {"max_ratio": 1.5}),
    "gspo": ({"importance_sampling_level": "sequence"}, {"level": "sequence"}),
    "bnpo": ({"loss_type": "bnpo"}, {"aggregation": "token_mean"}),
    "dr_grpo": ({"loss_type": "dr_grpo", "max_completion_length": 20}, {"aggregation": "constant", "normalizer": 20}),
    "dapo": ({"loss_type": "dapo"}, {"aggregation": "token_mean"}),
    "luspo": (
        {"loss_type": "luspo", "importance_sampling_level": "sequence"},
        {"aggregation": "sequence_sum", "level": "sequence"},
    ),
    "cispo": (
        {"loss_type": "cispo", "epsilon_high": 1.3},
        {"objective": "cispo", "clip_high": 1.3, "aggregation": "token_mean"},
    ),
    "sapo": ({"loss_type": "sapo"}, {"objective": "sapo"}),
    "vespo": ({"loss_type": "vespo"}, {"objective": "vespo", "aggregation": "token_mean"}),
}


@pytest.mark.parametrize("beta", [0.0, 0.04])
@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_trl(batch, variant, beta):
    settings, own = VARIANTS[variant]
    expected = _trainer(batch, beta=beta, **settings).loss(**_inputs(batch))
    ours = _loss(batch, kl=kl_estimate(batch.log_probs, batch.reference) if beta else None, beta=beta, **own).loss
    _assert_near(ours, expected)
    (gradient,) = torch.autograd.grad(expected, batch.log_probs, retain_graph=True)
    (own_gradient,) = torch.autograd.grad(ours, batch.log_probs)
    _assert_near(own_gradient, gradient)


def test_dapo_over_a_generation_batch_equals_trl(batch):
    # The generation batch has four times the tokens; a step of two accumulated batches uses half of them.
    tokens = 4 * batch.mask.sum()
    accumulated = {"steps_per_generation": 4, "current_gradient_accumulation_steps": 2}
    expected = _trainer(batch, loss_type="dapo", **accumulated).loss(**_inputs(batch, num_items_in_batch=tokens))
    _assert_near(_loss(batch, aggregation="token_mean", normalizer=tokens * 2 / 4).loss, expected)


def test_rloo_equals_trl(batch):
    inputs = _inputs(batch, old_logps=(batch.old * batch.mask).sum(1))
    _assert_near(_loss(batch, level="sequence_product").loss, _trainer(batch, trainer=trl.RLOOTrainer).loss(**inputs))


def test_tokens_of_high_entropy_alone_equal_trl(batch):
    trainer = _trainer(batch, top_entropy_quantile=0.5)
    trainer.get_high_entropy_mask = _high
    weights = _high(batch.entropies, batch.mask, 0.5).float()
    _assert_near(_loss(batch, token_weights=weights).loss, trainer.loss(**_inputs(batch)))


def _high(entropies, mask, threshold):
    return (entropies >= entropies[mask.bool()].quantile(threshold)) & mask.bool()


def test_shares_that_are_clipped_equal_trl(batch):
    trainer = _trainer(batch)
    trainer.loss(**_inputs(batch))
    found = _loss(batch)
    assert found.clipped.item() == pytest.approx(trainer._metrics["train"]["clip_ratio/region_mean"][0])
    assert not found.clipped.requires_grad
    assert not found.mean_ratio.requires_grad


@pytest.mark.parametrize("options", [own for _, own in VARIANTS.values()], ids=VARIANTS)
def test_padding_is_never_read(batch, options):
    spoiled = [tensor.masked_fill(batch.mask == 0, float("nan")) for tensor in (batch.log_probs.detach(), batch.old)]
    log_probs = spoiled[0].requires_grad_()
    loss = policy_loss(log_probs, spoiled[1], batch.advantages, batch.mask, **options).loss
    torch.testing.assert_close(loss, _loss(batch, **options).loss)
    loss.backward()
    assert torch.isfinite(log_probs.grad).all()
    assert (log_probs.grad[batch.mask == 0] == 0).all()


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_infinite_padding_is_never_read(batch, estimator):
    outside = batch.mask == 0
    log_probs = batch.log_probs.detach().masked_fill(outside, -math.inf).requires_grad_()
    reference = batch.reference.masked_fill(outside, -math.inf)
    by_token = batch.advantages[:, None].expand(N, T).masked_fill(outside, math.nan)
    kl = kl_estimate(log_probs, reference, estimator, batch.mask)
    policy_loss(log_probs, batch.old, by_token, batch.mask, kl=kl, beta=0.1, level="sequence").loss.backward()
    own = batch.log_probs
    kl = kl_estimate(own, batch.reference, estimator)
    policy_loss(own, batch.old, batch.advantages, batch.mask, kl=kl, beta=0.1, level="sequence").loss.backward()
    _assert_near(log_probs.grad, own.grad)
    values = batch.old.masked_fill(outside, math.inf).requires_grad_()
    error = value_loss(values, values.detach(), batch.reference.masked_fill(outside, math.nan), batch.mask)
    error.backward()
    _assert_near(error.detach(), value_loss(batch.old, batch.old, batch.reference, batch.mask))
    assert (values.grad[outside] == 0).all()


@pytest.mark.parametrize("log_ratio", [30.0, 75.0, 100.0, 1e4, -100.0, math.inf])
@pytest.mark.parametrize("advantage", [1.0, 0.0, -1.0])
@pytest.mark.parametrize("options", [{"level": "sequence_product"}, *(own for _, own in VARIANTS.values())], ids=str)
def test_losses_and_gradients_of_any_log_ratio_are_finite(options, advantage, log_ratio):
    def gradients(dtype):
        old = torch.tensor([[-1.0 - log_ratio, -2.0], [-1.0, -1.0]], dtype=dtype)
        log_probs = torch.tensor([[-1.0, -2.0], [-1.5, -1.0]], dtype=dtype).requires_grad_()
        advantages = torch.tensor([advantage, 0.5], dtype=dtype)
        kl = kl_estimate(log_probs, log_probs.detach() + torch.tensor([[log_ratio, 0.0], [0.0, 0.1]], dtype=dtype))
        ones, weighted = torch.ones(2, 2), {} if log_ratio == math.inf else {"kl": kl, "beta": 1e-3}
        loss = policy_loss(log_probs, old, advantages, ones, **weighted, **options).loss
        return loss.detach(), torch.autograd.grad(loss, log_probs)[0]

    found = gradients(torch.float32)
    assert all(value.isfinite().all() for value in found)
    if log_ratio < 80:
        # Where float32 can represent them, they are those of the papers.
        exact = [value.float() for value in gradients(torch.float64)]
        torch.testing.assert_close(found, tuple(exact), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("level", ["token", "sequence", "sequence_product"])
@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean", "constant", "sequence_sum"])
def test_gradient(batch, level, aggregation):
    old, advantages = batch.old.double(), batch.advantages.double()

    def loss(log_probs):
        kl = kl_estimate(log_probs, batch.reference.double())
        options = {"level": level, "aggregation": aggregation, "kl": kl, "beta": 0.1, "clip_high": 0.3}
        return policy_loss(log_probs, old, advantages, batch.mask, **options).loss

    assert gradcheck(loss, (batch.log_probs.detach().double().requires_grad_(),))


def test_fresh_samples_have_the_gradient_of_reinforce(batch):
    log_probs = batch.log_probs
    loss = policy_loss(log_probs, log_probs.detach(), batch.advantages, batch.mask, aggregation="sequence_sum").loss
    reinforce = -(batch.advantages * (log_probs * batch.mask).sum(1)).mean()
    expected, found = (torch.autograd.grad(value, log_probs)[0] for value in (reinforce, loss))
    torch.testing.assert_close(found, expected)


def test_advantages_by_token_may_differ(batch):
    by_token = batch.advantages.unsqueeze(1).expand(N, T)
    same = policy_loss(batch.log_probs, batch.old, by_token, batch.mask).loss
    torch.testing.assert_close(same, _loss(batch).loss)


@given(st.integers(0, 10_000), st.floats(0.3, 2.0))
def test_log_probs_and_entropies_are_those_of_a_categorical(seed, temperature):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 3, 5, generator=generator)
    tokens = torch.randint(5, (2, 3), generator=generator)
    oracle = torch.distributions.Categorical(logits=logits / temperature)
    torch.testing.assert_close(token_log_probs(logits, tokens, temperature), oracle.log_prob(tokens))
    torch.testing.assert_close(token_entropies(logits, temperature), oracle.entropy())


@pytest.mark.parametrize("block", [1, 30, 2**22])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_and_entropies_do_not_depend_on_the_blocks(monkeypatch, block, temperature):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 3, 4, generator=generator, dtype=torch.bfloat16).requires_grad_()
    tokens = torch.randint(4, (5, 3), generator=generator)
    scaled = logits.float() / temperature
    expected = scaled.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - scaled.logsumexp(-1)
    monkeypatch.setattr(log_probs, "_BLOCK", block)
    found = token_log_probs(logits, tokens, temperature)
    assert torch.equal(found, expected)
    gradients = [torch.autograd.grad(value.square().sum(), logits)[0] for value in (found, expected)]
    assert torch.equal(*gradients)
    by_row = torch.stack([token_entropies(row.unsqueeze(0), temperature)[0] for row in logits])
    assert torch.equal(token_entropies(logits, temperature), by_row)
    assert token_log_probs(logits[:0], tokens[:0]).shape == (0, 3)


def test_estimates_of_the_divergence():
    generator = torch.Generator().manual_seed(0)
    logits, reference = torch.randn(8, generator=generator), torch.randn(8, generator=generator)
    policy, other = torch.distributions.Categorical(logits=logits), torch.distributions.Categorical(logits=reference)
    tokens = torch.arange(8)
    own, theirs = (one.log_prob(tokens).unsqueeze(0) for one in (policy, other))
    true = torch.distributions.kl_divergence(policy, other)
    # The expectation of the unbiased estimators over samples of the policy is the divergence.
    for estimator in ("k1", "k3"):
        torch.testing.assert_close((policy.probs * kl_estimate(own, theirs, estimator)).sum(), true)
    assert (kl_estimate(own, theirs, "k2") >= 0).all()
    torch.testing.assert_close(kl_estimate(own, theirs, "k2"), 0.5 * (own - theirs) ** 2)


def test_value_loss_is_that_of_the_equation():
    generator = torch.Generator().manual_seed(0)
    values, old, returns = (torch.randn(3, 4, generator=generator) for _ in range(3))
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])
    terms = []
    for i, t in mask.nonzero().tolist():
        v, o, r = (tensor[i, t].item() for tensor in (values, old, returns))
        near = min(max(v, o - 0.2), o + 0.2)
        terms.append(max((v - r) ** 2, (near - r) ** 2))
    assert value_loss(values, old, returns, mask).item() == pytest.approx(0.5 * sum(terms) / len(terms))
    plain = 0.5 * ((values - returns) ** 2)[mask.bool()].mean()
    torch.testing.assert_close(value_loss(values, old, returns, mask, clip=None), plain)


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"objective": "ppo"}, "objective"),
        ({"level": "word"}, "level"),
        ({"aggregation": "mean"}, "aggregation"),
        ({"clip_low": 1.5}, "clip_low"),
        ({"clip_high": -0.1}, "clip_high"),
        ({"objective": "cispo"}, "cispo needs clip_high"),
        ({"max_ratio": 1.1}, "max_ratio"),
        ({"beta": 0.1}, "kl and beta"),
        ({"token_weights": torch.ones(1)}, "token_weights"),
        ({"old_log_probs": torch.zeros(N, T - 1)}, "old_log_probs"),
        ({"advantages": torch.zeros(N - 1)}, "advantages"),
    ],
)
def test_arguments_that_cannot_be(batch, options, argument):
    given = {"old_log_probs": batch.old, "advantages": batch.advantages, "mask": batch.mask, **options}
    with pytest.raises(ValueError, match=argument):
        policy_loss(batch.log_probs, **given)
