"""Training steps in parts: weights and logged values of undivided steps, with the activations of one part."""

import weakref

import pytest
import torch
from lightning.pytorch import Trainer
from tiny_generator import PlainSteps, tiny_generator, tiny_rows, train, weights, word_value

from rrg_rewards.training import PolicyDataModule, PolicyModule
from rrg_rewards.training.policy import module as policy_module
from rrg_rewards.training.policy.module import divide_rows, micro_batch_tokens, sum_of_losses


def _run(tokens, monkeypatch, trainer, **options):
    parts = []
    own = divide_rows

    def recorded(*given):
        parts.append(own(*given))
        return parts[-1]

    monkeypatch.setattr(policy_module, "divide_rows", recorded)
    options = {"learning_rate": 0.05, "num_generations": 4, "micro_batch_tokens": tokens, **options}
    module = PlainSteps(tiny_generator(5), word_value, **options)
    data = PolicyDataModule(tiny_rows(8), batch_size=4, collate=module.generator.collate)
    history = train(module, 2 * module.steps_per_rollout, data=data, **trainer)
    return weights(module), history.rows, [len(step) for step in parts]


@pytest.mark.parametrize(
    ("options", "trainer"),
    [
        ({"beta": 0.04}, {}),
        ({"loss": {"aggregation": "token_mean"}, "minibatches": 2, "epochs": 2}, {"accumulate_grad_batches": 2}),
        ({"algorithm": "dr_grpo"}, {"gradient_clip_val": 0.1}),
        ({"algorithm": "rloo", "beta": 0.04}, {}),
        ({"algorithm": "ppo", "epochs": 2}, {}),
    ],
    ids=["grpo", "dapo", "dr_grpo", "rloo", "ppo"],
)
def test_policy_module_divided_steps_are_those_of_the_whole_minibatch(options, trainer, monkeypatch):
    start = weights(PlainSteps(tiny_generator(), word_value, **options))
    expected, steps, undivided = _run(None, monkeypatch, trainer, **options)
    found, divided_steps, divided = _run(20, monkeypatch, trainer, **options)
    assert set(undivided) == {1}
    assert min(divided) > 1
    assert (expected[: len(start)] - start).abs().max() > 1e-4
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    for own, other in zip(divided_steps, steps, strict=True):
        assert own == pytest.approx(other, rel=1e-4, abs=1e-6)


def test_policy_module_gradients_of_1_2_4_and_8_parts_are_equal_after_the_first_step(monkeypatch):
    def gradients(parts):
        def divide(lengths, group_size, _):
            return [part.flatten() for part in torch.arange(len(lengths)).view(-1, group_size).chunk(parts)]

        monkeypatch.setattr(policy_module, "divide_rows", divide)
        module = PlainSteps(tiny_generator(5), word_value, learning_rate=0.05, num_generations=2, beta=0.1)
        found = []
        trained = [own for own in module.parameters() if own.requires_grad]
        module.on_after_backward = lambda: found.append(torch.cat([own.grad.flatten() for own in trained]))
        assert train(module, 2, batch_size=8)["kl"][1] > 1e-5
        return found[1]

    expected = gradients(1)
    assert expected.abs().max() > 1e-3
    for parts in (2, 4, 8):
        torch.testing.assert_close(gradients(parts), expected, rtol=0, atol=1e-6)


def test_policy_module_divided_steps_in_mixed_precision(monkeypatch):
    expected, *_ = _run(None, monkeypatch, {"precision": "bf16-mixed"}, beta=0.04)
    found, _, divided = _run(20, monkeypatch, {"precision": "bf16-mixed"}, beta=0.04)
    assert min(divided) > 1
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)


def test_sum_of_losses_gradients_are_scaled_and_each_graph_is_freed_before_the_next():
    layer = torch.nn.Linear(3, 2)
    inputs = torch.randn(3, 4, 3)
    seen = []

    def loss(index):
        assert all(activation() is None for activation in seen)
        activation = layer(inputs[index])
        seen.append(weakref.ref(activation))
        return activation.square().sum()

    total = sum_of_losses([lambda index=index: loss(index) for index in range(3)], layer)
    assert len(seen) == 3
    (total / 7).backward()
    found = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    expected = layer(inputs).square().sum()
    torch.testing.assert_close(total.detach(), expected.detach())
    (expected / 7).backward()
    torch.testing.assert_close(found, [parameter.grad for parameter in layer.parameters()])


def test_sum_of_losses_unused_and_frozen_parameters_get_no_gradient():
    layers = torch.nn.ModuleList([torch.nn.Linear(2, 2, bias=False) for _ in range(3)])
    layers[2].requires_grad_(False)
    sum_of_losses([lambda: layers[2](layers[0](torch.ones(1, 2))).sum()] * 2, layers).backward()
    assert layers[0].weight.grad is not None
    assert layers[1].weight.grad is None
    assert layers[2].weight.grad is None


@pytest.mark.parametrize("tokens", [1, 30, 64, 10_000])
def test_divide_rows_parts_have_whole_groups_and_few_tokens(tokens):
    lengths = torch.randint(1, 9, (24,), generator=torch.Generator().manual_seed(0))
    parts = divide_rows(lengths, 4, tokens)
    assert sorted(torch.cat(parts).tolist()) == list(range(24))
    for part in parts:
        groups = part.view(-1, 4)
        assert torch.equal(groups, groups[:, :1] + torch.arange(4))
        assert not (groups[:, 0] % 4).any()
        assert len(groups) == 1 or len(part) * int(lengths[part].max()) <= tokens
    # Groups come in the order of their lengths.
    longest = [int(lengths[group].max()) for part in parts for group in part.view(-1, 4)]
    assert longest == sorted(longest)


def test_divide_rows_without_a_limit_or_groups_there_is_one_part():
    lengths = torch.tensor([3, 4, 5])
    assert [part.tolist() for part in divide_rows(lengths, 1, None)] == [[0, 1, 2]]
    assert [part.tolist() for part in divide_rows(lengths, 2, 4)] == [[0, 1, 2]]


def _attached(**options):
    module = PolicyModule(tiny_generator(), word_value, **options)
    module.trainer = Trainer(accelerator="cpu", devices=1, logger=False, enable_checkpointing=False)
    return module


def test_micro_batch_tokens_divide_on_the_cpu_unless_a_setting_excludes_it():
    assert micro_batch_tokens("auto", _attached()) == 4096
    assert micro_batch_tokens(100, _attached()) == 100
    assert micro_batch_tokens(None, _attached()) is None
    assert micro_batch_tokens("auto", _attached(train_mode=True)) is None
    with pytest.raises(ValueError, match="train_mode=True"):
        micro_batch_tokens(100, _attached(train_mode=True))
    module = _attached()
    module.trainer.strategy.precision_plugin.scaler = object()
    with pytest.raises(ValueError, match="gradient scaler"):
        micro_batch_tokens(8, module)


@pytest.mark.parametrize("setting", [0, -1, "all", 2.5])
def test_checked_setting_numbers_that_cannot_be(setting):
    with pytest.raises(ValueError, match="micro_batch_tokens"):
        PolicyModule(tiny_generator(), word_value, micro_batch_tokens=setting)
