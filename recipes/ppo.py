"""Reinforcement learning of report generation with PPO, from one YAML file; needs TRL 1.12, the last that has it.

``python -m rrg_rewards.recipes.ppo --config FILE [--key value ...]``, with a YAML file or the name of a recipe that
``rrg-rewards recipes ls`` lists, or the same under ``torchrun`` for several processes (on CPU, with ``use_cpu: true``).
Keys are those of TRL's ``PPOConfig`` and ``ModelConfig``, and of
:class:`rrg_rewards.recipes._arguments.PPOArguments`. The extra is ``ppo``, in an environment of its own, since
everything else here goes with later versions of TRL.

PPO trains a value model beside the policy, which starts from the same weights. Rewards are those of
:mod:`rrg_rewards.recipes.grpo`, called through :class:`rrg_rewards.rewards.ppo.RewardFunctionModel`; rows with the same
prompt are kept once. Written to ``output_dir``: as there.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, TrainerCallback
from trl import get_peft_config

from rrg_rewards.callbacks.trainer_reward_state import TrainerRewardStateCallback
from rrg_rewards.data import write_json
from rrg_rewards.recipes._arguments import PPOArguments
from rrg_rewards.recipes._data import RecipeData, load_recipe_data
from rrg_rewards.recipes._outputs import describe
from rrg_rewards.recipes._parse import parse_ppo, validate_ppo
from rrg_rewards.recipes._progress import show_progress
from rrg_rewards.recipes._reinforced import describe_reward, evaluate_stage, write_results
from rrg_rewards.recipes._training import check_processes, finish, launch
from rrg_rewards.rewards.ppo import RewardFunctionModel
from rrg_rewards.utilities.checks import check_model_source

__all__ = ["finish", "main", "parse", "run", "validate"]

parse, validate = parse_ppo, validate_ppo

logger = logging.getLogger(__name__)


class _SubScores(TrainerCallback):  # type: ignore[misc]
    """Adds what the rewards log to what the trainer logs."""

    def __init__(self, model: RewardFunctionModel) -> None:
        self.model = model

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        state.log_history[-1].update(self.model.take_logged())


def run(recipe: PPOArguments, training: Any, model: Any, progress: Callable[[int, int], None] | None = None) -> Any:
    """Train and evaluate; every process calls it.

    Args:
        recipe: The recipe's arguments.
        training: TRL's ``PPOConfig``.
        model: TRL's ``ModelConfig``.
        progress: Takes steps done and steps to do, in place of the trainer's own output.

    Returns:
        The trainer, done.

    Raises:
        ValueError: If a column is missing, no row is usable, a completion is unscorable, or processes do not know of
            each other.
    """
    check_model_source(model.model_name_or_path)
    settings = recipe.reward_settings()
    rewards, weights = [setting.make() for setting in settings], [setting.weight for setting in settings]
    columns = list(dict.fromkeys(column for reward in rewards for column in reward.columns))
    data = load_recipe_data(recipe, columns)
    for reward in rewards:
        reward.fit(**{column: list(data.train[column]) for column in reward.columns})
        logger.info("reward %s: %s", reward.__name__, reward.signature)
    tokenizer = AutoTokenizer.from_pretrained(
        model.model_name_or_path, revision=model.model_revision, padding_side="left"
    )
    data, prompts = _different_prompts(data, tokenizer)
    reward_model = RewardFunctionModel(
        rewards,
        tokenizer,
        prompts,
        {column: list(data.train[column]) for column in columns},
        weights=weights,
        unscorable=recipe.unscorable,
    )
    trainer = _make_trainer(training, model, tokenizer, reward_model, prompts)
    # Not before: PPO's arguments learn the number of processes from their trainer.
    check_processes(training)
    if len(prompts) < training.batch_size:
        # The trainer drops what fills no batch, and would look for the first one for ever.
        raise ValueError(
            f"{len(prompts)} rows with different prompts fill no batch of {training.batch_size}: lower "
            "per_device_train_batch_size or gradient_accumulation_steps"
        )
    if progress is not None:
        show_progress(trainer, progress)
    folder = Path(training.output_dir)
    described = {**describe(recipe, training, model, data), "rewards": list(map(describe_reward, rewards, weights))}
    if trainer.accelerator.is_main_process:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(described, folder / "run.json", overwrite=True)
    evaluated = _for_evaluation(trainer, tokenizer)
    before = evaluate_stage(evaluated, rewards, data, recipe, "before")
    trainer.train()
    if trainer.accelerator.is_main_process:
        # Not by the trainer, which takes the value model along where several processes wrap the policy.
        evaluated.model_wrapped.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    after = evaluate_stage(evaluated, rewards, data, recipe, "after")
    if trainer.accelerator.is_main_process:
        history = trainer.state.log_history
        write_json(history, folder / "history.json", overwrite=True)
        write_results(folder, rewards, _as_others_log(history), {"before": before, "after": after})
    return trainer


def _different_prompts(data: RecipeData, tokenizer: Any) -> tuple[RecipeData, list[list[int]]]:
    """The training rows whose prompts differ, since PPO's trainer tells rows apart by their prompts, and its tokens."""
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
    # The template writes special tokens itself.
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _make_trainer(
    training: Any, model: Any, tokenizer: Any, reward_model: RewardFunctionModel, prompts: Sequence[Sequence[int]]
) -> Any:
    from datasets import Dataset
    from trl.experimental.ppo import PPOTrainer

    source = {"revision": model.model_revision, "dtype": model.dtype if model.dtype != "auto" else None}
    torch.manual_seed(training.seed)
    return PPOTrainer(
        args=training,
        processing_class=tokenizer,
        model=AutoModelForCausalLM.from_pretrained(model.model_name_or_path, **source),
        ref_model=None,
        reward_model=reward_model,
        value_model=AutoModelForSequenceClassification.from_pretrained(
            model.model_name_or_path, num_labels=1, **source
        ),
        train_dataset=Dataset.from_dict({"input_ids": list(prompts)}),
        eval_dataset=Dataset.from_dict({"input_ids": list(prompts)[:1]}),
        peft_config=get_peft_config(model),
        callbacks=[_SubScores(reward_model), TrainerRewardStateCallback(reward_model.rewards)],
    )


def _for_evaluation(trainer: Any, tokenizer: Any) -> Any:
    """PPO's trainer in the form in which held-out evaluation takes one: its policy without the value model."""
    length = trainer.args.response_length
    arguments = SimpleNamespace(
        output_dir=trainer.args.output_dir, max_completion_length=length, chat_template_kwargs=None
    )
    return SimpleNamespace(
        accelerator=trainer.accelerator,
        model_wrapped=trainer.accelerator.unwrap_model(trainer.model).policy,
        processing_class=tokenizer,
        args=arguments,
        eos_token_ids=[tokenizer.eos_token_id],
    )


def _as_others_log(history: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The history with the reward under the name that other trainers log it by."""
    return [
        {**entry, "step": number, "reward": entry["objective/scores"]}
        for number, entry in enumerate((entry for entry in history if "objective/scores" in entry), 1)
    ]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the recipe that a command line describes."""
    launch(parse, run, argv)


if __name__ == "__main__":
    main()
