"""Samples of vLLM in the policy module: weights of the engine, log-probabilities and the correction of the loss."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny_ct_chat import save_tiny_ct_chat, save_volumes, tiny_ct_chat, tiny_processor
from tiny_generator import PlainSteps, says_edema, tiny_generator, tiny_rows, train, weights, word_value
from tiny_policy import WORDS
from transformers import AutoModelForCausalLM, AutoProcessor
from vllm_on_cpu import start_engines_quickly

from rrg_rewards.training import CausalLMGenerator, CTChatGenerator, PolicyDataModule, PolicyModule, VLLMGenerator
from rrg_rewards.training.policy.vllm_generator import checkpoint_weights

RATIO = 1.5


class OtherProgram(CausalLMGenerator):
    """A sampler that gives its tokens less probability than the trainer does."""

    def sample(self, batch: Any, *, greedy: bool = False) -> Any:
        completions = super().sample(batch, greedy=greedy)
        scores = super().log_probs(batch, completions)
        return replace(completions, log_probs=scores.log_probs - math.log(RATIO))


def other_program() -> OtherProgram:
    return OtherProgram(tiny_generator().model, tiny_generator().tokenizer, max_new_tokens=4)


@pytest.mark.parametrize(
    ("options", "factor"),
    [
        ({}, RATIO),
        ({"sampler_clip_max": 1.2}, 1.2),
        ({"sampler_correction": "token_mask", "sampler_clip_max": 1.2}, 0.0),
        ({"sampler_correction": None}, 1.0),
        ({"algorithm": "rloo"}, RATIO),
        ({"algorithm": "dr_grpo"}, RATIO),
    ],
    ids=["ratio", "bound", "mask", "none", "rloo", "dr_grpo"],
)
def test_sampler_correction_the_loss_is_weighted_by_the_ratios(options, factor):
    """A plain gradient step is as many times longer."""
    moved = []
    algorithm = {"algorithm": options.get("algorithm", "grpo")}
    for generator, own in ((tiny_generator(), algorithm), (other_program(), algorithm | options)):
        start = weights(generator)
        module = PlainSteps(generator, word_value, learning_rate=0.1, **own)
        history = train(module, 1)
        moved.append(weights(generator) - start)
    assert moved[0].abs().max() > 1e-4
    torch.testing.assert_close(moved[1], factor * moved[0], rtol=1e-2, atol=1e-6)
    assert history["sampling/sampling_logp_difference/mean"][0] == pytest.approx(math.log(RATIO), rel=1e-4)
    if options.get("sampler_correction", "") is not None:
        assert history["sampling/importance_sampling_ratio/mean"][0] == pytest.approx(factor, rel=1e-4)


def test_sampler_correction_minibatches_and_resuming_keep_the_log_probabilities():
    module = PolicyModule(other_program(), word_value, minibatches=2, epochs=2, learning_rate=1e-3)
    history = train(module, 4)
    # The ratio is that of the weights of sampling, also after an optimiser step.
    assert history["sampling/importance_sampling_ratio/mean"] == pytest.approx([RATIO] * 4, rel=1e-3)
    restored = type(module.rollout).from_state_dict(module.rollout.state_dict())
    torch.testing.assert_close(restored.completions.log_probs, module.rollout.completions.log_probs)


def test_sampler_correction_a_wrong_correction_is_refused_before_training():
    with pytest.raises(ValueError, match="sampler_correction: must be"):
        PolicyModule(tiny_generator(), says_edema, sampler_correction="token")


class Engine:
    """vLLM's interface with a copy of the model, which it alone samples with."""

    def __init__(self, generator: CausalLMGenerator) -> None:
        self.calls: list[str] = []
        self.tokenizer, self.loaded = generator.tokenizer, {}
        runner = SimpleNamespace(model=SimpleNamespace(load_weights=self.load))
        worker = SimpleNamespace(model_runner=runner)
        self.llm_engine = SimpleNamespace(
            model_executor=SimpleNamespace(driver_worker=worker),
            reset_encoder_cache=lambda: self.calls.append("encoder cache"),
        )

    def load(self, named: list[tuple[str, torch.Tensor]]) -> None:
        self.loaded |= {name: weights.clone() for name, weights in named}

    def reset_prefix_cache(self) -> None:
        self.calls.append("prefix cache")

    def generate(self, prompts: list[Any], settings: list[Any], use_tqdm: bool) -> list[Any]:
        self.calls.append("generate")
        outputs = []
        for prompt, params in zip(prompts, settings, strict=True):
            generator = torch.Generator().manual_seed(params.seed)
            length = 1 + int(torch.randint(params.max_tokens, (1,), generator=generator))
            tokens = torch.randint(4, 4 + len(WORDS), (length,), generator=generator).tolist()
            tokens[-1] = params.stop_token_ids[0] if length < params.max_tokens else tokens[-1]
            places = [{token: SimpleNamespace(logprob=-2.0)} for token in tokens]
            assert not prompt["prompt_token_ids"].count(self.tokenizer.pad_token_id)
            outputs.append(SimpleNamespace(outputs=[SimpleNamespace(token_ids=tuple(tokens), logprobs=places)]))
        return outputs


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> VLLMGenerator:
    if "vllm" not in sys.modules:
        monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=SimpleNamespace))
    made = VLLMGenerator(tiny_generator(), model_path="unused")
    made._engine = Engine(made.generator)
    return made


def test_vllm_generator_the_engine_gets_the_weights_before_each_rollout(generator):
    train(PolicyModule(generator, word_value, minibatches=2, learning_rate=1e-2, beta=0.1), 4)
    push = ["prefix cache", "encoder cache"]
    assert generator.engine.calls == [*push, "generate", *push, "generate"]
    # The weights of the last rollout are not those after it.
    for name, parameter in generator.generator.model.named_parameters():
        assert not torch.equal(generator.engine.loaded[name], parameter), name


def test_vllm_generator_completions_of_the_engine(generator):
    batch = generator.collate(tiny_rows(6))
    torch.manual_seed(3)
    completions = generator.sample(batch)
    torch.manual_seed(3)
    assert torch.equal(generator.sample(batch).tokens, completions.tokens)
    assert len(set(completions.lengths.tolist())) > 1
    assert completions.log_probs.shape == completions.tokens.shape
    assert torch.equal(completions.log_probs != 0, completions.mask.bool())
    assert completions.finished.tolist() == [length < 4 for length in completions.lengths.tolist()]


def test_vllm_generator_a_model_that_was_not_saved():
    with pytest.raises(ValueError, match="model_path"):
        VLLMGenerator(tiny_generator())


def test_checkpoint_weights_weights_with_an_adapter_are_those_of_the_merged_model():
    processor = tiny_processor()
    model = tiny_ct_chat(processor)
    torch.manual_seed(1)
    config = LoraConfig(
        r=2, target_modules=["q_proj", "down_proj"], modules_to_save=["mm_projector"], init_lora_weights=False
    )
    adapted = get_peft_model(model, config)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "modules_to_save" in name:
                parameter.add_(0.1)
    before = {name: parameter.clone() for name, parameter in adapted.named_parameters()}
    found = dict(checkpoint_weights(adapted))
    assert all(torch.equal(before[name], parameter) for name, parameter in adapted.named_parameters())
    merged = dict(adapted.merge_and_unload().named_parameters())
    assert found.keys() == merged.keys()
    for name, parameter in merged.items():
        torch.testing.assert_close(found[name], parameter.data)


@pytest.fixture(scope="module")
def ct_chat(tmp_path_factory: pytest.TempPathFactory) -> Any:
    patch = pytest.MonkeyPatch()
    start_engines_quickly(patch)
    folder = save_tiny_ct_chat(tmp_path_factory.mktemp("ct_chat"), hidden_size=64)
    volumes = save_volumes(tmp_path_factory.mktemp("volumes"), 3)
    processor = AutoProcessor.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    inner = CTChatGenerator(model, processor, max_new_tokens=8, temperature=2.0)
    options = {"enforce_eager": True, "enable_prefix_caching": True}
    made = VLLMGenerator(inner, max_model_len=64, engine_options=options)
    rows = [
        {"prompt": [{"role": "user", "content": "report " * (1 + row % 3)}], "image": volumes[row % 3], "row": row}
        for row in range(8)
    ]
    yield made, rows
    made.engine.llm_engine.engine_core.shutdown()
    patch.undo()


@pytest.mark.vllm
def test_vllm_generator_log_probabilities_of_vllm_are_those_of_the_trainer(ct_chat: Any, tmp_path: Path) -> None:
    generator, rows = ct_chat
    batch = generator.collate(rows)
    completions = generator.sample(batch)
    with torch.no_grad():
        expected = generator.log_probs(batch, completions).log_probs
    inside = completions.mask.bool()
    torch.testing.assert_close(completions.log_probs[inside], expected[inside], rtol=0, atol=2e-3)
    greedy = generator.sample(batch, greedy=True)
    assert greedy.token_lists() == generator.generator.sample(batch, greedy=True).token_lists()

    # Also when all weights, those of the projector too, have changed.
    def letters(completions: list[Any], **columns: Any) -> list[float]:
        return [float(sum(map(ord, one[0]["content"])) % 97) for one in completions]

    module = PolicyModule(generator, letters, num_generations=4, learning_rate=5e-3)
    start = weights(generator)
    data = PolicyDataModule(rows, batch_size=2, collate=generator.collate)
    history = train(module, 5, data=data)
    assert (weights(generator) - start).abs().max() > 1e-3
    assert max(history["sampling/sampling_logp_difference/mean"]) < 2e-3
    assert history["sampling/importance_sampling_ratio/mean"] == pytest.approx([1.0] * 5, abs=2e-2)
    # vLLM samples with the weights of the last rollout, and therefore differs from the trained model by now.
    with torch.no_grad():
        assert (generator.log_probs(batch, completions).log_probs - expected)[inside].abs().max() > 0.05


@pytest.mark.vllm
@pytest.mark.distributed
def test_vllm_generator_two_processes(tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM has an environment of its own")
    save_tiny_ct_chat(tmp_path / "model", hidden_size=64)
    save_volumes(tmp_path / "volumes", 3)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launcher, str(Path(__file__).with_name("vllm_worker.py")), str(tmp_path)],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in range(2):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert max(found["differences"]) < 2e-3
        assert found["projector"] > 1e-3
