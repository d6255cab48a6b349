"""The policy module: every algorithm learns, and a step of GRPO equals TRL's."""

import copy
import doctest
import math
from collections import defaultdict

import pytest
import torch
import yaml
from datasets import Dataset
from lightning.pytorch import Trainer
from lightning.pytorch.cli import LightningCLI
from peft import LoraConfig, get_peft_model
from tiny_generator import PlainSteps, says_edema, tiny_generator, tiny_rows, train, weights, word_value
from tiny_policy import save_tiny_policy, tiny_model, tiny_tokenizer
from torch import nn
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer

from rrg_rewards.callbacks import RewardWatchCallback
from rrg_rewards.rewards import NoRewardError, make_reward
from rrg_rewards.training import CausalLMGenerator, Completions, PolicyDataModule, PolicyModule

ALGORITHMS = ["grpo", "dr_grpo", "rloo", "scst", "ppo"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_policy_module_learns_a_word(algorithm):
    module = PolicyModule(tiny_generator(), says_edema, algorithm=algorithm, learning_rate=5e-3)
    rewards = train(module, 40)["reward"]
    assert rewards[0] < 0.5
    assert sum(rewards[-5:]) / 5 > 0.9


@pytest.mark.parametrize(
    "algorithm", ["grpo", "ppo", *(pytest.param(name, marks=pytest.mark.slow) for name in ("dr_grpo", "rloo", "scst"))]
)
def test_policy_module_learns_in_several_steps_from_each_rollout_near_a_reference(algorithm):
    options = {"minibatches": 2, "epochs": 2, "beta": 0.02}
    module = PolicyModule(tiny_generator(), says_edema, algorithm=algorithm, learning_rate=5e-3, **options)
    start = weights(module.generator)
    history = train(module, 64)
    rewards = history["reward"]
    assert sum(rewards[-8:]) / 8 > sum(rewards[:4]) / 4 + 0.3
    # Four steps on each rollout, and what is logged of it at each of them.
    assert all(len(set(rewards[first : first + 4])) == 1 for first in range(0, 64, 4))
    assert len(set(rewards)) > 8
    assert history["ratio"][3] != 1
    assert history["kl"][-1] > 0
    assert torch.equal(weights(module.reference), start)


@pytest.fixture
def written():
    """Completions of each row by prompt, which both sides sample."""
    torch.manual_seed(0)
    generator = tiny_generator(6)
    batch = generator.collate([row for row in tiny_rows(4) for _ in range(4)])
    tokens = generator.sample(batch).token_lists()
    assert len({len(ids) for ids in tokens}) > 1
    by_prompt = defaultdict(list)
    for prompt, ids in zip(batch["prompt"], tokens, strict=True):
        by_prompt[prompt].append(ids)
    return dict(by_prompt)


class _Writes(CausalLMGenerator):
    """Samples the given completions."""

    def __init__(self, written):
        super().__init__(tiny_model(), tiny_tokenizer(), max_new_tokens=6)
        self.written = written

    def sample(self, batch, *, greedy=False):
        remaining = {prompt: iter(texts) for prompt, texts in self.written.items()}
        rows = [torch.tensor(next(remaining[prompt])) for prompt in batch["prompt"]]
        mask = nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        # TRL takes padding, which this policy may sample, for an end.
        finished = torch.tensor([int(row[-1]) in (0, *self.end_token_ids) for row in rows])
        return Completions(nn.utils.rnn.pad_sequence(rows, batch_first=True), mask, finished)


def _even_lengths(completions, **_):
    """A reward of another range than the first, which some completions lack."""
    return [None if len(text.split()) % 2 else 100.0 * text.count("e") for text in completions]


class _Thinks(_Writes):
    """Decodes completions as those of a policy that thinks."""

    def decode(self, completions):
        return [f"<think>nodule edema</think>{text}" for text in super().decode(completions)]


def _trl(written, folder, reward=word_value, thinks=False, **options):
    """Weights after TRL's steps on the completions."""
    arguments = {
        "per_device_train_batch_size": 16,
        "num_generations": 4,
        "max_completion_length": 6,
        "learning_rate": 0.1,
        "lr_scheduler_type": "constant",
        "optim": "sgd",
        "loss_type": "grpo",
        "max_grad_norm": 0.5,
        "max_steps": 1,
        **options,
    }
    # From a folder, from which the trainer reads its reference too.
    policy = AutoModelForCausalLM.from_pretrained(save_tiny_policy(folder / "policy"))
    trainer = GRPOTrainer(
        policy,
        [word_value, _even_lengths] if "reward_weights" in options else reward,
        GRPOConfig(str(folder), use_cpu=True, bf16=False, gradient_checkpointing=False, report_to="none", **arguments),
        Dataset.from_list(tiny_rows(4)),
        processing_class=tiny_tokenizer(),
    )
    tokenizer = tiny_tokenizer()
    by_ids = {tuple(tokenizer(prompt)["input_ids"]): texts for prompt, texts in written.items()}

    def generate(prompt_ids, *_, **__):
        remaining = {prompt: iter(texts) for prompt, texts in by_ids.items()}
        return [next(remaining[tuple(ids)]) for ids in prompt_ids], None

    trainer._generate_single_turn = generate
    if thinks:
        decode = trainer.processing_class.batch_decode
        trainer.processing_class.batch_decode = lambda *given, **how: [
            f"<think>nodule edema</think>{text}" for text in decode(*given, **how)
        ]
    trainer.train()
    return weights(trainer.model)


def test_policies_that_think_learn_what_others_learn(written, tmp_path):
    """In the policy module and in TRL's trainer, with a reward that counts words."""
    steps = []
    for generator in (_Writes(written), _Thinks(written)):
        module = PlainSteps(generator, make_reward("rouge"), num_generations=4, learning_rate=0.1)
        data = PolicyDataModule(tiny_rows(4), batch_size=4, collate=generator.collate)
        logged = train(module, 1, data=data, gradient_clip_val=0.5)
        steps.append((logged["reward"], weights(module.generator)))
        assert logged["rouge/extracted"] == [float(generator.__class__ is _Thinks)]
    assert steps[0][0] == steps[1][0] != [0.0]
    assert torch.equal(steps[0][1], steps[1][1])
    by_trl = [_trl(written, tmp_path / str(thinks), make_reward("rouge"), thinks) for thinks in (False, True)]
    assert torch.equal(*by_trl)
    assert not torch.equal(by_trl[0], weights(tiny_model()))


@pytest.mark.parametrize(
    ("trl", "own", "trainer"),
    [
        ({}, {}, {}),
        (
            {"beta": 0.04, "num_iterations": 3, "max_steps": 3, "use_bias_correction_kl": False},
            {"beta": 0.04, "epochs": 3, "kl_correction": False},
            {},
        ),
        ({"beta": 0.04, "num_iterations": 3, "max_steps": 3}, {"beta": 0.04, "epochs": 3}, {}),
        ({"loss_type": "dapo", "epsilon_high": 0.28}, {"loss": {"aggregation": "token_mean", "clip_high": 0.28}}, {}),
        ({"loss_type": "dr_grpo", "scale_rewards": "none"}, {"algorithm": "dr_grpo"}, {}),
        ({"scale_rewards": "batch"}, {"scale": "batch"}, {}),
        (
            {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
            {"minibatches": 4},
            {"accumulate_grad_batches": 4},
        ),
        (
            {"loss_type": "dapo", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
            {"loss": {"aggregation": "token_mean"}, "minibatches": 4},
            {"accumulate_grad_batches": 4},
        ),
        (
            {"beta": 0.04, "num_iterations": 3, "max_steps": 3},
            {"beta": 0.04, "epochs": 3, "micro_batch_tokens": 24},
            {},
        ),
        (
            {"reward_weights": [1.0, 0.5], "multi_objective_aggregation": "normalize_then_sum"},
            {"weights": lambda step: [1.0, 0.5 + step], "scale": "gdpo"},
            {},
        ),
        ({"mask_truncated_completions": True}, {"mask_truncated": True}, {}),
        (
            {"mask_truncated_completions": True, "loss_type": "dapo", "beta": 0.04},
            {"mask_truncated": True, "loss": {"aggregation": "token_mean"}, "beta": 0.04},
            {},
        ),
    ],
    ids=[
        "grpo", "epochs", "corrected", "dapo", "dr_grpo", "batch", "accumulated", "accumulated-dapo", "divided", "gdpo",
        "truncated", "truncated-dapo",
    ],
)  # fmt: skip
def test_policy_module_steps_are_those_of_trl(written, tmp_path, trl, own, trainer):
    expected = _trl(written, tmp_path, **trl)
    rewards = [word_value, _even_lengths] if "weights" in own else word_value
    module = PlainSteps(_Writes(written), rewards, num_generations=4, learning_rate=0.1, **own)
    before = weights(module.generator)
    data = PolicyDataModule(tiny_rows(4), batch_size=4, collate=module.generator.collate)
    history = train(module, trl.get("max_steps", 1), data=data, gradient_clip_val=0.5, **trainer)
    if "mask_truncated" in own:
        assert 0.1 < history["completions/clipped_ratio"][0] < 0.9
    if "weights" in own:
        assert 0.1 < history["unscorable"][0] < 0.9
        assert history["rewards/_even_lengths/weight"] == [0.5]
    found = weights(module.generator)
    assert (found - before).abs().max() > 1e-3
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_policy_module_a_completion_without_a_reward_moves_nothing_and_is_counted():
    def of_even_rows(completions, row, **_):
        return [None if own % 2 else 0.5 for own in row]

    module = PolicyModule(tiny_generator(), of_even_rows, learning_rate=5e-3)
    before = weights(module.generator)
    history = train(module, 2, batch_size=8)
    assert all(0 < share < 1 for share in history["unscorable"])
    assert history["reward"] == [0.5, 0.5]
    # All rewards that there are being equal, there is nothing to learn.
    assert torch.equal(weights(module.generator), before)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_policy_module_no_reward_at_all_moves_nothing(algorithm):
    module = PolicyModule(tiny_generator(), lambda completions, **_: [None] * len(completions), algorithm=algorithm)
    before = weights(module.generator)
    history = train(module, 2)
    assert history["unscorable"] == [1, 1]
    assert "reward" not in history.rows[0]
    assert torch.equal(weights(module.generator), before)


def test_policy_module_stops_a_run_without_rewards():
    texts = []

    def none(completions, **_):
        texts.append(completions)
        return [0.5 if len(texts) == 2 else None] * len(completions)

    module = PolicyModule(tiny_generator(), none, max_unrewarded_calls=2)
    with pytest.raises(NoRewardError, match="2 calls in a row"):
        train(module, 8)
    assert len(texts) == 4


def test_policy_module_logs_what_trl_logs():
    def second(completions, log_metric, **_):
        log_metric("words", sum(len(text.split()) for text in completions) / len(completions))
        return [float(len(text)) for text in completions]

    module = PolicyModule(tiny_generator(), [says_edema, second], weights=[1.0, 0.0], beta=0.1)
    row = train(module, 1).rows[0]
    assert row["reward"] == pytest.approx(row["rewards/says_edema/mean"])
    names = {
        "rewards/second/mean",
        "rewards/second/std",
        "reward_std",
        "frac_reward_zero_std",
        "words",
        "kl",
        "entropy",
    }
    names |= {"clip_ratio/region_mean", "completions/mean_length", "completions/clipped_ratio", "unscorable", "loss"}
    assert names < row.keys()
    assert row["completions/mean_length"] <= 4
    assert row["kl"] == pytest.approx(0, abs=1e-6)
    # Of untrained weights nearly that of an even choice among 14 tokens.
    assert row["entropy"] == pytest.approx(math.log(14), abs=0.01)


def test_policy_module_the_reference_of_an_adapted_model_is_the_model_without_adapters():
    lora = LoraConfig(r=4, lora_alpha=64, target_modules=["q_proj", "v_proj"])
    torch.manual_seed(0)
    adapted = get_peft_model(tiny_model(), lora)
    frozen = weights(adapted.get_base_model().lm_head)
    generator = CausalLMGenerator(adapted, tiny_tokenizer(), max_new_tokens=4)
    module = PolicyModule(generator, word_value, beta=0.01, learning_rate=2e-2)
    assert module.reference is None
    history = train(module, 8)
    assert history["kl"][0] == pytest.approx(0, abs=1e-6)
    assert history["kl"][-1] > 1e-4
    assert torch.equal(weights(adapted.get_base_model().lm_head), frozen)
    batch = generator.collate(tiny_rows(2))
    base = CausalLMGenerator(tiny_model(), tiny_tokenizer())
    completions = generator.sample(batch)
    with torch.no_grad():
        expected = base.log_probs(batch, completions).log_probs
        torch.testing.assert_close(module._reference_log_probs(batch, completions), expected)
        assert not torch.allclose(generator.log_probs(batch, completions).log_probs, expected)


@pytest.mark.parametrize(("aggregation", "scale"), [("sequence_mean", "group"), ("token_mean", "batch")])
def test_policy_module_groups_without_spread_are_drawn_again_and_then_left_out(aggregation, scale):
    sizes = []

    def reward(completions, row, log_extra, **_):
        sizes.append(len(row))
        log_extra("draw", [len(sizes)] * len(row))
        values = word_value(completions)
        # Never a spread in row 0, and in row 1 from the second draw.
        return [
            0.5 if own == 0 or (own == 1 and len(sizes) == 1) else value for own, value in zip(row, values, strict=True)
        ]

    options = {"learning_rate": 0.1, "loss": {"aggregation": aggregation}, "scale": scale}
    module = PlainSteps(tiny_generator(), reward, max_draws=3, **options)
    before = copy.deepcopy(module.generator)
    data = DataLoader(tiny_rows(4), batch_size=4, collate_fn=module.generator.collate)
    history = train(module, 1, data=data)
    assert sizes == [32, 16, 8]
    assert history["frac_reward_zero_std"] == [0.25]
    rollout = module.rollout
    assert rollout.extras["draw"] == [3] * 8 + [2] * 8 + [1] * 16
    assert rollout.texts == module.generator.decode(rollout.completions)
    # The step is that of the other rows alone.
    kept = rollout.rows(torch.arange(8, 32))
    totals = kept.total.view(3, 8).double()
    deviations = totals.std(1, keepdim=True) if scale == "group" else totals.std()
    advantages = ((totals - totals.mean(1, True)) / (deviations + 1e-4)).flatten()
    tokens = before.log_probs(kept.batch, kept.completions).log_probs.double() * kept.completions.mask
    shares = 1 / (24 * kept.completions.lengths) if aggregation == "sequence_mean" else 1 / kept.completions.mask.sum()
    (-(advantages * shares) @ tokens.sum(1)).backward()
    expected = torch.cat([own.detach().flatten() - 0.1 * own.grad.flatten() for own in before.parameters()])
    torch.testing.assert_close(weights(module.generator), expected, rtol=0, atol=1e-6)


def test_policy_module_accumulated_and_mixed_precision_steps_run():
    module = PolicyModule(tiny_generator(), says_edema, minibatches=2, algorithm="ppo", learning_rate=5e-3)
    options = {"accumulate_grad_batches": 2, "precision": "bf16-mixed", "gradient_clip_val": 1.0}
    history = train(module, 20, **options)
    assert len(history.rows) == 40
    assert history["reward"][-1] > history["reward"][0]


def test_policy_module_a_plain_loader_serves_where_each_step_has_its_rollout():
    module = PolicyModule(tiny_generator(), says_edema)
    loader = DataLoader(tiny_rows(8), batch_size=4, collate_fn=module.generator.collate)
    assert len(train(module, 3, data=loader).rows) == 3
    module = PolicyModule(tiny_generator(), says_edema, minibatches=2)
    loader = DataLoader(tiny_rows(8), batch_size=4, collate_fn=module.generator.collate)
    with pytest.raises(ValueError, match=r"step 1 .* new rows"):
        train(module, 3, data=loader)


def test_policy_module_validation_gives_the_callback_what_it_reads():
    module = PolicyModule(tiny_generator(), says_edema)
    outputs = module.validation_step(module.generator.collate(tiny_rows(3)), 0)
    assert outputs["reference"] == ["edema", "nodule", "normal"]
    assert len(outputs["prediction"]) == 3
    assert outputs["row"] == [0, 1, 2]
    again = module.validation_step(module.generator.collate(tiny_rows(3)), 0)
    assert again["prediction"] == outputs["prediction"]


def test_policy_module_the_generator_is_in_evaluation_mode_but_for_what_cudnn_asks():
    class Recurrent(CausalLMGenerator):
        def __init__(self):
            super().__init__(tiny_model(), tiny_tokenizer(), max_new_tokens=4)
            self.parts = nn.ModuleList([nn.Dropout(), nn.GRU(2, 2), nn.GRU(2, 2, 2, dropout=0.5)])
            self.parts.requires_grad_(False)

    for train_mode, expected in ((False, [False, True, False]), (True, [True, True, True])):
        module = PolicyModule(Recurrent(), says_edema, train_mode=train_mode)
        train(module, 1)
        assert [part.training for part in module.generator.parts] == expected
        assert module.generator.model.training == train_mode


class _Mute(nn.Module):
    def sample(self, batch, *, greedy=False): ...


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"algorithm": "grppo"}, ValueError, "'grppo'; did you mean 'grpo'"),
        ({"num_generations": 1}, ValueError, "num_generations"),
        ({"minibatches": 0}, ValueError, "minibatches"),
        ({"beta": -1.0}, ValueError, "beta"),
        ({"learning_rate": 0.0}, ValueError, "learning_rate"),
        ({"warmup_ratio": 1.0}, ValueError, r"warmup_ratio"),
        ({"schedule": "banana"}, ValueError, "schedule"),
        ({"lam": 1.5}, ValueError, "lam"),
        ({"algorithm": "scst", "max_draws": 2}, ValueError, "max_draws"),
        *(({"algorithm": name, "scale": "banana"}, ValueError, "scale") for name in ALGORITHMS),
        *(({"algorithm": name, "scale": "batch"}, ValueError, "scale") for name in ("rloo", "scst", "ppo")),
        ({"beta": 0.1, "reference": "adapter_off"}, ValueError, "adapter_off"),
        ({"beta": 0.1, "reference": "base"}, ValueError, "reference"),
        ({"loss": {"objective": "ppo"}}, ValueError, "objective"),
        ({"loss": {"beta": 0.1}}, ValueError, "beta"),
        ({"rewards": []}, ValueError, "rewards"),
        ({"rewards": [says_edema, says_edema]}, ValueError, "rewards must differ in name"),
        ({"rewards": [nn.Linear(1, 1)]}, TypeError, "rewards .* Linear"),
        ({"weights": [1.0, 2.0]}, ValueError, "weights"),
        ({"weights": [0.0]}, ValueError, "weights"),
        ({"generator": _Mute()}, TypeError, "_Mute lacks log_probs, decode"),
        ({"generator": object()}, TypeError, "object lacks sample, log_probs, decode"),
    ],
)
def test_policy_module_settings_that_cannot_be(options, error, message):
    options = {"generator": tiny_generator(), "rewards": says_edema, **options}
    with pytest.raises(error, match=message):
        PolicyModule(**options)


def test_policy_module_lightning_cli_builds_it_from_flat_keys(tmp_path):
    settings = {"generator": {"class_path": "tiny_generator.TinyPolicy"}, "rewards": ["tiny_generator.says_edema"]}
    settings |= {"algorithm": "rloo", "minibatches": 2, "epochs": 2, "loss": {"clip_high": 0.28}, "schedule": "linear"}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"model": settings}))
    args = ["--config", str(tmp_path / "run.yaml"), "--model.beta", "0.1", "--model.learning_rate=1e-3"]
    trainer = {"accelerator": "cpu", "logger": False}
    module = LightningCLI(PolicyModule, args=args, run=False, save_config_callback=None, trainer_defaults=trainer).model
    assert (module.steps_per_rollout, module.beta, module.learning_rate) == (4, 0.1, 1e-3)
    assert (module.num_generations, module.schedule, module.loss_options["clip_high"]) == (8, "linear", 0.28)
    with pytest.raises(TypeError, match="unexpected keyword argument 'bta'"):
        PolicyModule(tiny_generator(), says_edema, bta=0.1)


def test_policy_module_batches_that_cannot_be_cut():
    module = PolicyModule(tiny_generator(), says_edema, num_generations=2, minibatches=3)
    with pytest.raises(ValueError, match="into 3 minibatches"):
        train(module, 1)


def test_policy_module_what_an_algorithm_needs_of_the_generator():
    class Anonymous(_Mute):
        def log_probs(self, batch, completions): ...

        def decode(self, completions): ...

    with pytest.raises(ValueError, match=r"ppo .* hidden_size"):
        PolicyModule(Anonymous(), says_edema, algorithm="ppo")
    with pytest.raises(ValueError, match="max_new_tokens"):
        PolicyModule(Anonymous(), says_edema, algorithm="dr_grpo")


def test_policy_module_the_example_of_the_documentation_trains(tmp_path):
    names = {}
    for example in doctest.DocTestParser().get_examples(PolicyModule.__doc__)[:-1]:
        exec(example.source, names)
    module = PolicyModule(names["OneWord"](), names["reward"], algorithm="rloo", learning_rate=0.1)
    data = DataLoader([{"report": "Cardiomegaly."}] * 2, batch_size=2)
    trainer = Trainer(
        max_steps=1, accelerator="cpu", logger=False, enable_progress_bar=False, default_root_dir=tmp_path
    )
    trainer.fit(module, data)
    assert module.generator.logits.tolist() != [0, 0]


def test_completions_refuse_a_mask_of_floats():
    with pytest.raises(TypeError, match=r"mask .* float32"):
        Completions(torch.zeros(2, 1, dtype=torch.long), torch.ones(2, 1))


def test_policy_module_validation_alone_needs_no_rollout(tmp_path):
    module = PolicyModule(tiny_generator(), says_edema)
    data = PolicyDataModule(tiny_rows(8), tiny_rows(4), batch_size=4, collate=module.generator.collate)
    trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, default_root_dir=tmp_path)
    trainer.validate(module, data, verbose=False)


def test_policy_module_the_watch_sees_each_rollout_once() -> None:
    callback = RewardWatchCallback(block_reports=8, baseline_reports=24, window_reports=24)
    module = PolicyModule(tiny_generator(), says_edema, num_generations=4, minibatches=2, epochs=2, seed=0)
    train(module, 12, batch_size=4, callbacks=[callback])
    # Twelve steps are three rollouts of four steps, each of 16 completions.
    assert callback.watch.seen == 48
