"""A whole training with TRL 0.24, the last version that Unsloth accepts."""

import math
from pathlib import Path
from typing import Any

import pytest

from rrg_rewards.integrations.unsloth import make_reward_funcs
from rrg_rewards.rewards import make_reward

pytestmark = pytest.mark.trainers

WORDS = ["<pad>", "<eos>", "Report", ".", "Cardiomegaly", "Edema", "No", "effusion", "Normal"]


@pytest.fixture
def trl() -> Any:
    trl = pytest.importorskip("trl", reason="trl is not installed")
    if tuple(map(int, trl.__version__.split(".")[:2])) > (0, 24):
        pytest.skip(f"trl {trl.__version__} is installed, which takes rewards as they are")
    return trl


def tiny_policy() -> tuple[Any, Any]:
    """Return a policy with random weights that writes the words, and its tokenizer."""
    import tokenizers
    import transformers

    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<pad>")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<pad>",
        model_input_names=["input_ids", "attention_mask"],
    )
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=len(WORDS), num_key_value_heads=2, **sizes)
    return transformers.LlamaForCausalLM(config), tokenizer


def test_unsloth_training_has_the_rewards_of_the_reward_itself(trl: Any, tmp_path: Path) -> None:
    import datasets

    functions = make_reward_funcs(
        {"reward": [{"name": "crg", "prior": 0.2}, "repetition"], "reference_column": "report"}
    )
    calls: list[tuple[list[str], list[str | None], list[float | None]]] = []

    def crg(completions: list[str], report: list[str | None], **columns: Any) -> list[float | None]:
        rewards = functions[0](completions, report=report, **columns)
        calls.append((completions, report, rewards))
        return rewards

    model, tokenizer = tiny_policy()
    reports = ["Cardiomegaly .", "Edema .", None, "Normal ."]
    arguments = trl.GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=4,
        num_generations=2,
        max_completion_length=6,
        max_steps=2,
        logging_steps=1,
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
    )
    trainer = trl.GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=[crg, functions[1]],
        train_dataset=datasets.Dataset.from_dict({"prompt": ["Report ."] * 4, "report": reports}),
        args=arguments,
    )
    trainer.train()
    direct = make_reward("crg", prior=0.2, reference_column="report")
    logged = [entry["rewards/crg/mean"] for entry in trainer.state.log_history if "rewards/crg/mean" in entry]
    assert len(calls) == len(logged) == 2
    assert {report for _, column, _ in calls for report in column} == set(reports)
    for (completions, column, rewards), mean in zip(calls, logged, strict=True):
        assert rewards == direct(completions, report=column)
        assert [reward is None for reward in rewards] == [report is None for report in column]
        known = [reward for reward in rewards if reward is not None]
        assert mean == pytest.approx(math.fsum(known) / len(known))
    assert any("rewards/repetition/mean" in entry for entry in trainer.state.log_history)
