"""Supervised fine-tuning of a report generator, from one YAML file: the warm start of reinforcement learning.

``python -m rrg_rewards.recipes.sft --config FILE [--key value ...]``, with a YAML file or the name of a recipe that
``rrg-rewards recipes ls`` lists, or the same under ``torchrun`` or ``accelerate launch`` for several processes. Keys
are those of TRL's ``SFTConfig`` and ``ModelConfig``, and of
:class:`rrg_rewards.recipes._arguments.SupervisedArguments`; rows become prompts as in
:mod:`rrg_rewards.recipes.grpo`, so that both read the same tables.

Written to ``output_dir``: the model, or with ``use_peft`` its adapter, which ``rrg-rewards convert lora`` merges;
``run.json`` (resolved configuration, versions, rows) and ``history.json`` (what the trainer logged).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trl import SFTTrainer, get_peft_config

from rrg_rewards.data import write_json
from rrg_rewards.recipes._arguments import SupervisedArguments
from rrg_rewards.recipes._data import load_recipe_data
from rrg_rewards.recipes._outputs import describe
from rrg_rewards.recipes._parse import parse_supervised, validate_supervised
from rrg_rewards.recipes._progress import show_progress
from rrg_rewards.recipes._training import (
    check_processes,
    checkpoint_to_resume,
    finish,
    launch,
    load_policy,
    prepare_policy,
)

__all__ = ["finish", "main", "parse", "run", "validate"]

parse, validate = parse_supervised, validate_supervised


def run(
    recipe: SupervisedArguments, training: Any, model: Any, progress: Callable[[int, int], None] | None = None
) -> Any:
    """Train; every process calls it.

    Args:
        recipe: The recipe's arguments.
        training: TRL's ``SFTConfig``.
        model: TRL's ``ModelConfig``.
        progress: Takes steps done and steps to do, in place of the trainer's own output.

    Returns:
        The trainer, done.

    Raises:
        ValueError: If a column is missing, no row is usable, or processes do not know of each other.
    """
    check_processes(training)
    data = load_recipe_data(recipe, [recipe.completion_column])
    train, heldout = (_with_completions(rows, recipe) for rows in (data.train, data.heldout))
    described = describe(recipe, training, model, data)
    trainer = SFTTrainer(
        **load_policy(training, model),
        args=training,
        train_dataset=train,
        eval_dataset=heldout if training.eval_strategy != "no" else None,
        peft_config=get_peft_config(model),
    )
    prepare_policy(trainer)
    if progress is not None:
        show_progress(trainer, progress)
    trainer.train(resume_from_checkpoint=checkpoint_to_resume(training))
    trainer.save_model(training.output_dir)
    if trainer.accelerator.is_main_process:
        folder = Path(training.output_dir)
        write_json(trainer.state.log_history, folder / "history.json", overwrite=True)
        write_json(described, folder / "run.json", overwrite=True)
    return trainer


def _with_completions(rows: Any, recipe: SupervisedArguments) -> Any:
    texts = list(rows[recipe.completion_column])
    completions = [[{"role": "assistant", "content": text}] if recipe.conversational else f" {text}" for text in texts]
    return rows.remove_columns(recipe.completion_column).add_column("completion", completions)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the recipe that a command line describes."""
    launch(parse, run, argv)


if __name__ == "__main__":
    main()
