"""Fine-tune a report generator on reports before reinforcement learning, configured by one YAML file.

``python -m rrg_rewards.recipes.sft --config FILE [--key value ...]``

``FILE`` is a YAML file, or the name of a recipe that ``rrg-rewards recipes ls`` lists. ``torchrun`` or ``accelerate
launch`` starts several processes. The keys are those of TRL's ``SFTConfig`` and ``ModelConfig``, and of
:class:`rrg_rewards.recipes._arguments.SupervisedArguments`. The script reads the same tables, and formats prompts in
the same way, as :mod:`rrg_rewards.recipes.grpo`.

The script writes to ``output_dir`` the model (with ``use_peft`` its adapter, which ``rrg-rewards convert lora``
merges), ``run.json`` (resolved configuration, versions, rows), ``history.json`` (the trainer's log) and ``README.md``
(the model card; a card that the user has written or changed is kept).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from transformers import PrinterCallback, ProgressCallback, TrainerCallback
from trl import SFTConfig, SFTTrainer

from rrg_rewards.recipes._arguments import SupervisedArguments
from rrg_rewards.recipes._data import RecipeData, load_recipe_data
from rrg_rewards.recipes._outputs import describe, write_card_and_page, write_run_file
from rrg_rewards.recipes._script import RecipeScript, finish
from rrg_rewards.recipes._training import (
    CheckedOptimizer,
    check_processes,
    checkpoint_to_resume,
    make_trainer,
    train_and_save,
)

__all__ = ["fine_tune", "finish", "main", "parse", "run", "validate"]


class _StepProgress(TrainerCallback):  # type: ignore[misc]
    def __init__(self, advance: Callable[[int, int], None]) -> None:
        self.advance = advance

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        self.advance(0, state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        self.advance(1, 0)


class _Trainer(CheckedOptimizer, SFTTrainer):  # type: ignore[misc]
    pass


def run(
    recipe: SupervisedArguments, training: Any, model: Any, progress: Callable[[int, int], None] | None = None
) -> Any:
    """Train. Every process must call this function.

    Args:
        recipe: The recipe's arguments.
        training: TRL's ``SFTConfig``.
        model: TRL's ``ModelConfig``.
        progress: Function of the steps completed and added, which replaces the trainer's output.

    Returns:
        The trainer, after training.

    Raises:
        ValueError: If a column is missing, no row is usable, or the processes do not form one group.
    """
    check_processes(training)
    data = load_recipe_data(recipe, [recipe.completion_column])
    train, heldout = (_with_completions(rows, recipe) for rows in (data.train, data.heldout))
    trainer = fine_tune(recipe, training, model, replace(data, train=train, heldout=heldout), progress)
    write_card_and_page(training.output_dir, "SFT")
    return trainer


def fine_tune(
    recipe: Any, training: Any, model: Any, data: RecipeData, progress: Callable[[int, int], None] | None = None
) -> Any:
    """Fine-tune a model on prompts and completions, and write ``run.json``. Every process must call this function.

    Args:
        recipe: The recipe's arguments, a dataclass.
        training: TRL's ``SFTConfig``.
        model: TRL's ``ModelConfig``.
        data: Rows with the columns ``prompt`` and ``completion``.
        progress: Function of the steps completed and added, which replaces the trainer's output.

    Returns:
        The trainer, after training.
    """
    described = describe(recipe, training, model, data)
    trainer = make_trainer(_Trainer, training, model, data.train, data.heldout)
    if progress is not None:
        trainer.remove_callback(ProgressCallback)
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(_StepProgress(progress))
    train_and_save(trainer, checkpoint_to_resume(trainer.args))
    write_run_file(training.output_dir, "run.json", described)
    return trainer


def _with_completions(rows: Any, recipe: SupervisedArguments) -> Any:
    texts = list(rows[recipe.completion_column])
    completions = [[{"role": "assistant", "content": text}] if recipe.conversational else f" {text}" for text in texts]
    return rows.remove_columns(recipe.completion_column).add_column("completion", completions)


_SCRIPT = RecipeScript(run, SupervisedArguments, lambda _: SFTConfig, __doc__)
parse, validate, main = _SCRIPT.parse, _SCRIPT.validate, _SCRIPT.main


if __name__ == "__main__":
    main()
