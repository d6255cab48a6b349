"""Reinforcement learning of report generation with GRPO or RLOO, from one YAML file.

``python -m rrg_rewards.recipes.grpo --config FILE [--key value ...]``, with a YAML file or the name of a recipe that
``rrg-rewards recipes ls`` lists, or the same under ``torchrun`` or ``accelerate launch`` for several processes (on CPU,
with ``use_cpu: true``). Keys are those of TRL's ``GRPOConfig`` or ``RLOOConfig`` and ``ModelConfig``, and of
:class:`rrg_rewards.recipes._arguments.RecipeArguments`.

Written to ``output_dir``: the model; ``run.json`` (resolved configuration, reward signatures, versions, rows);
``history.json`` (what the trainer logged); and with held-out rows ``evaluation.json`` (before, after and the paired
change, with bootstrap 95% intervals), ``heldout_before.jsonl`` and ``heldout_after.jsonl``; one ``curve_*.png`` for
each reward. Where rows have images, ``images_of_others`` evaluates the trained policy with each row's image replaced by
another row's: what is left of the score owes nothing to the image.

``watch: true`` watches for reward hacking (:class:`rrg_rewards.callbacks.TrainerRewardWatchCallback`) and writes
``reward_watch.html`` and ``reward_watch.json``; ``watch_stop: [divergence]`` stops the run at such an alarm, and
``watch_metrics`` names metrics that are held out from training.

With several rewards of which one may be unscorable, set ``multi_objective_aggregation: normalize_then_sum`` (GRPO):
in the default sum a missing reward counts as 0.
"""

import dataclasses
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from trl import GRPOTrainer, RLOOTrainer, get_peft_config

from rrg_rewards.callbacks.trainer_reward_state import TrainerRewardStateCallback
from rrg_rewards.data import write_json
from rrg_rewards.recipes._arguments import RecipeArguments
from rrg_rewards.recipes._data import RecipeData, load_recipe_data
from rrg_rewards.recipes._evaluate import with_images_of_others
from rrg_rewards.recipes._outputs import describe
from rrg_rewards.recipes._parse import parse, validate
from rrg_rewards.recipes._progress import show_progress
from rrg_rewards.recipes._reinforced import describe_reward, evaluate_stage, write_results
from rrg_rewards.recipes._training import (
    ResumableSampling,
    check_processes,
    checkpoint_to_resume,
    finish,
    launch,
    load_policy,
    prepare_policy,
)
from rrg_rewards.recipes._watch import make_watch, make_watch_metrics
from rrg_rewards.rewards import Reward

__all__ = ["finish", "main", "parse", "run", "validate"]

logger = logging.getLogger(__name__)


class _ResumableGRPOTrainer(ResumableSampling, GRPOTrainer):  # type: ignore[misc]
    pass


class _ResumableRLOOTrainer(ResumableSampling, RLOOTrainer):  # type: ignore[misc]
    pass


_TRAINERS = {"grpo": _ResumableGRPOTrainer, "rloo": _ResumableRLOOTrainer}


def run(
    recipe: RecipeArguments,
    training: Any,
    model: Any,
    progress: Callable[[int, int], None] | None = None,
    callbacks: Sequence[Any] = (),
) -> Any:
    """Train and evaluate; every process calls it.

    Args:
        recipe: The recipe's arguments.
        training: ``GRPOConfig`` or ``RLOOConfig``, as the recipe's algorithm has it.
        model: TRL's ``ModelConfig``.
        progress: Takes steps done and steps to do, in place of the trainer's own output.
        callbacks: Further ``transformers.TrainerCallback`` objects.

    Returns:
        The trainer, done.

    Raises:
        ValueError: If a column is missing, no row is usable, or processes do not know of each other.
    """
    check_processes(training)
    if recipe.heldout_rows and is_deepspeed_zero3_enabled() and not training.ds3_gather_for_generation:
        raise ValueError(
            "held-out evaluation gathers whole weights on every process, which ds3_gather_for_generation: false is to "
            "avoid; set heldout_rows: 0"
        )
    settings = recipe.reward_settings()
    rewards = [setting.make() for setting in settings]
    training.reward_weights = [setting.weight for setting in settings]
    held_out = make_watch_metrics(recipe)
    columns = [column for reward in (*rewards, *held_out) for column in reward.columns]
    columns += [recipe.reference_column] if recipe.watch else []
    data = load_recipe_data(recipe, list(dict.fromkeys(columns)))
    for reward in (*rewards, *held_out):
        reward.fit(**{column: list(data.train[column]) for column in reward.columns})
        logger.info("reward %s: %s", reward.__name__, reward.signature)
    described = {
        **describe(recipe, training, model, data),
        "rewards": list(map(describe_reward, rewards, training.reward_weights)),
    }
    watch = make_watch(recipe, held_out, training.output_dir)
    trainer = _make_trainer(recipe, training, model, rewards if watch is None else watch.record(rewards), data)
    prepare_policy(trainer)
    for callback in (TrainerRewardStateCallback(rewards), *([] if watch is None else [watch]), *callbacks):
        trainer.add_callback(callback)
    if progress is not None:
        show_progress(trainer, progress)
    folder = Path(training.output_dir)
    if trainer.accelerator.is_main_process:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(described, folder / "run.json", overwrite=True)
    before = evaluate_stage(trainer, rewards, data, recipe, "before")
    trainer.train(resume_from_checkpoint=checkpoint_to_resume(training))
    trainer.save_model(training.output_dir)
    if trainer.accelerator.is_main_process:
        write_json(trainer.state.log_history, folder / "history.json", overwrite=True)
    evaluations = {"before": before, "after": evaluate_stage(trainer, rewards, data, recipe, "after")}
    if recipe.image_column is not None:
        others = dataclasses.replace(data, heldout=with_images_of_others(data.heldout))
        evaluations["images_of_others"] = evaluate_stage(trainer, rewards, others, recipe, "images_of_others")
    if trainer.accelerator.is_main_process:
        write_results(folder, rewards, trainer.state.log_history, evaluations)
    return trainer


def _make_trainer(
    recipe: RecipeArguments, training: Any, model: Any, rewards: Sequence[Reward], data: RecipeData
) -> Any:
    return _TRAINERS[recipe.algorithm](
        **load_policy(training, model),
        reward_funcs=list(rewards),
        args=training,
        train_dataset=data.train,
        eval_dataset=data.heldout if training.eval_strategy != "no" else None,
        peft_config=get_peft_config(model),
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Run the recipe that a command line describes."""
    launch(parse, run, argv)


if __name__ == "__main__":
    main()
