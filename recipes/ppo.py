"""Train a report generator with PPO, configured by one YAML file.

``python -m rrg_rewards.recipes.ppo --config FILE [--key value ...]``

``FILE`` is a YAML file, or the name of a recipe that ``rrg-rewards recipes ls`` lists. ``torchrun`` starts several
processes (on CPU, with ``use_cpu: true``). The keys are those of TRL's ``PPOConfig`` and ``ModelConfig``, and of
:class:`rrg_rewards.recipes._arguments.PPOArguments`. TRL 1.12 was the last version with PPO: install the extra ``ppo``
in a separate environment, because the rest of this package uses later versions.

PPO trains a value model together with the policy; both start from the same weights. Rewards and output files are those
of :mod:`rrg_rewards.recipes.grpo`. The rewards are called through :class:`rrg_rewards.rewards.ppo.RewardFunctionModel`.
If several rows have the same prompt, only the first is used.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, TrainerCallback
from trl import get_peft_config

from rrg_rewards.recipes._arguments import PPOArguments
from rrg_rewards.recipes._data import RecipeData
from rrg_rewards.recipes._evaluate import GreedyPolicy, greedy_reports
from rrg_rewards.recipes._outputs import kept_card, write_run_file
from rrg_rewards.recipes._reinforcement import ReinforcementRun, check_push, reward_columns
from rrg_rewards.recipes._script import RecipeScript, check_rewards, finish
from rrg_rewards.recipes._training import (
    check_chat_template,
    check_processes,
    saved_on_termination,
    write_no_card,
)
from rrg_rewards.rewards.ppo import RewardFunctionModel
from rrg_rewards.utilities.checks import check_model_source
from rrg_rewards.utilities.files import locked_folder
from rrg_rewards.utilities.imports import install_command
from rrg_rewards.utilities.processes import process_index
from rrg_rewards.utilities.yaml_files import read_user_yaml

__all__ = ["finish", "main", "parse", "run", "validate"]

logger = logging.getLogger(__name__)


def _has_ppo() -> bool:
    # TRL 1.13 removed PPO.
    return find_spec("trl.experimental.ppo") is not None


def _trainer_arguments(_: Mapping[str, Any]) -> type:
    if not _has_ppo():
        raise ModuleNotFoundError(
            "this version of TRL has no PPO; 1.12 was the last version with it. In a separate environment, run: "
            f"{install_command('ppo')}, or train with GRPO or RLOO"
        )
    config: type = import_module("trl.experimental.ppo").PPOConfig
    return config


class _SubScores(TrainerCallback):  # type: ignore[misc]
    """Add the logged values of the rewards to the trainer's log."""

    def __init__(self, model: RewardFunctionModel) -> None:
        self.model = model

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        state.log_history[-1].update(self.model.take_logged())


def run(recipe: PPOArguments, training: Any, model: Any) -> Any:
    """Train and evaluate. Every process must call this function.

    Args:
        recipe: The recipe's arguments.
        training: TRL's ``PPOConfig``.
        model: TRL's ``ModelConfig``.

    Returns:
        The trainer, after training.

    Raises:
        ValueError: If a column is missing, no row is usable, a completion is unscorable, or the processes do not form
            one group.
    """
    check_model_source(model.model_name_or_path, "model_name_or_path")
    check_push(recipe, training)
    prepared = ReinforcementRun.prepare(recipe, training.output_dir)
    tokenizer = AutoTokenizer.from_pretrained(
        model.model_name_or_path, revision=model.model_revision, padding_side="left", trust_remote_code=False
    )
    if recipe.conversational:
        check_chat_template(tokenizer, model.model_name_or_path)
    data, prompts = _different_prompts(prepared.data, tokenizer)
    prepared = replace(prepared, data=data)
    reward_model = RewardFunctionModel(
        prepared.rewards,
        tokenizer,
        prompts,
        {column: list(data.train[column]) for column in reward_columns(prepared.rewards)},
        weights=prepared.weights,
        unscorable=recipe.unscorable,
    )
    trainer = _make_trainer(training, model, tokenizer, reward_model, prompts)
    policy = trainer.accelerator.unwrap_model(trainer.model).policy
    length, ends = training.response_length, [tokenizer.eos_token_id]
    greedy = GreedyPolicy(policy, tokenizer, trainer.accelerator, length, ends)

    def train() -> None:
        _train_and_save(trainer, policy, tokenizer)

    def generate(rows: Any) -> list[str]:
        return greedy_reports(greedy, rows, recipe.heldout_batch_size)

    prepared.train_and_evaluate(prepared.describe(training, model), train, generate, "PPO")
    return trainer


def _train_and_save(trainer: Any, policy: Any, tokenizer: Any) -> None:
    """Train, and save the policy and ``history.json``."""
    folder = trainer.args.output_dir
    with locked_folder(folder, process_index() == 0):
        with saved_on_termination(trainer):
            trainer.train()
        if process_index() == 0:
            # trainer.save_model would also save the value model if several processes wrap the policy.
            with kept_card(folder):
                policy.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        write_run_file(folder, "history.json", trainer.state.log_history)


def _different_prompts(data: RecipeData, tokenizer: Any) -> tuple[RecipeData, list[list[int]]]:
    """Return the data with one training row per prompt, by which PPO identifies rows, and the prompts' tokens."""
    prompts = [_tokens(prompt, tokenizer) for prompt in data.train["prompt"]]
    first = {tuple(prompt): row for row, prompt in reversed(list(enumerate(prompts)))}
    kept = sorted(first.values())
    dropped = {**data.dropped, "same prompt": len(prompts) - len(kept)}
    logger.info("%d rows with prompts that differ; left out: %s", len(kept), dropped)
    return RecipeData(data.train.select(kept), data.heldout, dropped), [prompts[row] for row in kept]


def _tokens(prompt: Any, tokenizer: Any) -> list[int]:
    if isinstance(prompt, str):
        return list(tokenizer(prompt)["input_ids"])
    text = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
    # The chat template already adds special tokens.
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _make_trainer(
    training: Any, model: Any, tokenizer: Any, reward_model: RewardFunctionModel, prompts: Sequence[Sequence[int]]
) -> Any:
    from datasets import Dataset
    from trl.experimental.ppo import PPOTrainer

    source = {"revision": model.model_revision, "dtype": model.dtype if model.dtype != "auto" else None}
    torch.manual_seed(training.seed)
    trainer = PPOTrainer(
        args=training,
        processing_class=tokenizer,
        model=AutoModelForCausalLM.from_pretrained(model.model_name_or_path, **source, trust_remote_code=False),
        ref_model=None,
        reward_model=reward_model,
        value_model=AutoModelForSequenceClassification.from_pretrained(
            model.model_name_or_path, num_labels=1, **source, trust_remote_code=False
        ),
        train_dataset=Dataset.from_dict({"input_ids": list(prompts)}),
        eval_dataset=Dataset.from_dict({"input_ids": list(prompts)[:1]}),
        peft_config=get_peft_config(model),
        callbacks=[_SubScores(reward_model)],
    )
    # The trainer sets the number of processes in PPO's arguments when it is constructed.
    check_processes(training)
    if len(prompts) < training.batch_size:
        # The trainer drops incomplete batches, and would search for a complete one forever.
        raise ValueError(
            f"{len(prompts)} rows with different prompts fill no batch of {training.batch_size}: lower "
            "per_device_train_batch_size or gradient_accumulation_steps"
        )
    write_no_card(trainer)
    return trainer


_SCRIPT = RecipeScript(run, PPOArguments, _trainer_arguments, __doc__)
parse, main = _SCRIPT.parse, _SCRIPT.main


def validate(path: Path) -> None:
    """Validate a recipe. If TRL has no PPO, check only the arguments of :class:`PPOArguments` and the rewards.

    Raises:
        ValueError: If a key is unknown or a value is invalid.
    """
    if _has_ppo():
        _SCRIPT.validate(path)
        return
    names = {field.name for field in fields(PPOArguments)}
    check_rewards(PPOArguments(**{key: value for key, value in read_user_yaml(path).items() if key in names}))


if __name__ == "__main__":
    main()
