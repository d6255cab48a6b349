"""PolicyModule on the second device and on a GPU: runs equal those on the CPU, and all that is trained lies there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.fabric.utilities import move_data_to_device
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from peft import LoraConfig, get_peft_model
from second_device import CPU, KINDS, devices_of, lightning_settings
from tiny_generator import History, PlainSteps, tiny_generator, tiny_rows, train, weights, word_value
from tiny_policy import tiny_model, tiny_tokenizer
from torch import Tensor

from rrg_rewards.training import CausalLMGenerator
from rrg_rewards.training.policy import graphs, shared_prompts
from rrg_rewards.training.policy.generators import repeat_rows
from rrg_rewards.training.policy.graphs import GraphDecoder
from rrg_rewards.training.policy.options import ALGORITHMS


@pytest.fixture(scope="module", params=KINDS)
def devices(request: pytest.FixtureRequest) -> Iterator[tuple[torch.device, torch.device]]:
    with devices_of(request.param) as pair:
        yield pair


@pytest.fixture
def device(devices: tuple[torch.device, torch.device]) -> torch.device:
    return devices[0]


@pytest.fixture
def drawn_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the tokens of the CPU on every device: rows that have ended leave the batch at once, too."""
    monkeypatch.setattr(shared_prompts, "TOKENS_PER_READ", 1)
    draw = shared_prompts.sample_tokens

    def sample_tokens(logits: Tensor, temperature: float, draws: Tensor | None) -> tuple[Tensor, Tensor]:
        tokens, scores = draw(logits.cpu(), temperature, None if draws is None else draws.cpu())
        return tokens.to(logits.device), scores.to(logits.device)

    def random_draws(count: int, width: int, device: torch.device, of: Any = shared_prompts.random_draws) -> Tensor:
        drawn: Tensor = of(count, width, CPU)
        return drawn.to(device)

    monkeypatch.setattr(shared_prompts, "random_draws", random_draws)
    monkeypatch.setattr(shared_prompts, "sample_tokens", sample_tokens)


class Places(Callback):
    """Checks in each step that weights, gradients and the rollout are on the device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.steps = 0

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        for name, weight in pl_module.named_parameters():
            assert weight.device == self.device, name
            assert weight.grad is None or weight.grad.device == self.device, name
        rollout = pl_module.rollout
        for name in ("mask", "advantages", "old_log_probs", "reference_log_probs", "values", "returns"):
            assert getattr(rollout, name) is None or getattr(rollout, name).device == self.device, name
        assert rollout.completions.tokens.device == self.device
        self.steps += 1


def run(
    settings: dict[str, Any],
    device: torch.device,
    *,
    generator: Any = None,
    precision: str | None = None,
    **options: Any,
) -> tuple[PlainSteps, History]:
    """Train a tiny policy for two steps, by default on one rollout; ``options`` are those of the trainer."""
    torch.manual_seed(0)
    own = {"num_generations": 4, "minibatches": 2, "learning_rate": 0.1, "beta": 0.05, **settings}
    module = PlainSteps(generator or tiny_generator(), word_value, **own)
    places = Places(device)
    callbacks = [places, *options.pop("callbacks", [])]
    history = train(module, 2, callbacks=callbacks, **lightning_settings(precision, device), **options)
    assert places.steps == len(history.rows)
    return module, history


@pytest.mark.usefixtures("drawn_on_the_cpu")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_run_on_a_device_equals_one_on_the_cpu(algorithm: str, device: torch.device) -> None:
    (ours, found), (theirs, expected) = (run({"algorithm": algorithm}, place) for place in (device, CPU))
    torch.testing.assert_close(weights(ours), weights(theirs), rtol=0, atol=1e-5)
    assert not torch.equal(weights(ours.generator), weights(tiny_generator()))
    for name, value in expected.rows[-1].items():
        assert found.rows[-1][name] == pytest.approx(value, rel=1e-3, abs=1e-5), name


@pytest.mark.parametrize("decoding", ["eager", "graph"])
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_completions_end_where_those_of_the_cpu_end(
    temperature: float, decoding: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that have ended are noticed late. Greedy completions are equal; sampled ones depend on the seed only."""
    monkeypatch.setattr(GraphDecoder, "_fits", lambda _: True)
    torch.manual_seed(0)
    generator = tiny_generator(20).eval()
    generator.temperature = temperature
    with torch.no_grad():
        generator.model.lm_head.weight[2] *= 4  # Ends become probable.
    batch = generator.collate(tiny_rows(4))
    expected = generator.sample(repeat_rows(batch, 2), greedy=True)
    generator.to(device)
    generator.decoding = "auto" if decoding == "graph" else "eager"
    if decoding == "graph" and device.type != "cuda":
        # The second device has no graphs: their steps run one by one.
        monkeypatch.setattr(graphs, "compiled", lambda step, _: step)
        generator._decoder, generator._decided_on = GraphDecoder(generator.model), device
    moved = repeat_rows(move_data_to_device(batch, device), 2)
    found = generator.sample(moved, greedy=True)
    assert torch.equal(found.tokens.cpu(), expected.tokens)
    assert torch.equal(found.mask.cpu(), expected.mask)
    assert (generator._decoder is None) == (decoding == "eager")

    def seeded(decoding: Any) -> Any:
        generator.decoding = decoding
        torch.manual_seed(1)
        return generator.sample(moved)

    # The batch before was larger.
    generator.sample(repeat_rows(moved.prompts, 3))
    sampled = seeded(generator.decoding)
    assert sampled.token_lists() == seeded("eager").token_lists()
    assert sampled.tokens.shape[1] == max(sampled.length_list) <= 20
    assert len(set(sampled.length_list)) > 1


@pytest.mark.parametrize("merged", [False, True])
def test_adapters_are_trained_on_a_device_in_mixed_precision(merged: bool, device: torch.device) -> None:
    lora = LoraConfig(r=4, lora_alpha=64, target_modules=["q_proj", "v_proj"])
    adapted = get_peft_model(tiny_model(), lora)
    generator = CausalLMGenerator(adapted, tiny_tokenizer(), max_new_tokens=4, merge_adapters=merged)
    module, history = run({"loss": {"clip_high": 0.28}}, device, generator=generator, precision="bf16-mixed")
    assert module.reference is None
    assert history["kl"][-1] > 0
    assert history["ratio"] == pytest.approx([1, 1], abs=0.1)
    frozen = weights(adapted.get_base_model().lm_head)
    assert torch.equal(frozen, weights(tiny_model().lm_head))


@pytest.mark.usefixtures("drawn_on_the_cpu")
def test_a_run_on_a_device_is_resumed_within_a_rollout(tmp_path: Path, device: torch.device) -> None:
    settings = {"algorithm": "ppo"}
    checkpoints = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    whole, _ = run(settings, device, callbacks=[checkpoints], enable_checkpointing=True)
    resumed, history = run(settings, device, ckpt_path=str(tmp_path / "step=1.ckpt"))
    assert len(history.rows) == 1
    torch.testing.assert_close(weights(resumed), weights(whole), rtol=0, atol=1e-6)
