"""Train a report generator with Lightning's ``PolicyModule``, configured by one YAML file.

``python -m rrg_rewards.recipes.policy --config FILE [--key value ...]``

``FILE`` is a YAML file, or the name of a recipe that ``rrg-rewards recipes ls`` lists. The keys are those of
:class:`rrg_rewards.recipes._policy_training.PolicyTraining`, of TRL's ``ModelConfig``, and of
:class:`rrg_rewards.recipes._arguments.WatchArguments`. The script reads the same tables, formats prompts in the same
way and writes the same files as :mod:`rrg_rewards.recipes.grpo`. It computes the prompt of several completions once,
which makes it faster for long prompts (``benchmarks/policy_throughput.py``).
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from lightning.pytorch import Trainer, seed_everything
from peft import get_peft_model
from torch.utils.data import DataLoader
from trl import get_peft_config

from rrg_rewards.callbacks import RewardWatchCallback
from rrg_rewards.data.samplers import UnpaddedDistributedSampler
from rrg_rewards.recipes._arguments import WatchArguments
from rrg_rewards.recipes._card import kept_card, write_run_card
from rrg_rewards.recipes._evaluate import Evaluation, with_images_of_others
from rrg_rewards.recipes._outputs import describe, write_run_file, write_run_page
from rrg_rewards.recipes._parse import RecipeParser
from rrg_rewards.recipes._policy_training import (
    HeldoutReports,
    History,
    PolicyTraining,
    StepProgress,
    checkpoints_of,
    last_checkpoint,
)
from rrg_rewards.recipes._reinforcement import (
    describe_rewards,
    evaluate_written,
    load_data_and_fit,
    make_heldout_metrics,
    make_rewards,
    reports_before,
    write_results,
)
from rrg_rewards.recipes._training import load_pretrained, start, train_in_float32
from rrg_rewards.recipes._watch import make_watch, make_watch_metrics
from rrg_rewards.training import CausalLMGenerator, CTChatGenerator, PolicyDataModule, PolicyModule
from rrg_rewards.utilities.processes import process_index

__all__ = ["main", "parse", "run", "validate"]

_OF_THE_MODULE = (
    "algorithm",
    "num_generations",
    "minibatches",
    "epochs",
    "beta",
    "learning_rate",
    "schedule",
    "warmup_ratio",
    "seed",
)

_PARSER = RecipeParser(WatchArguments, lambda _: PolicyTraining, __doc__)
parse, validate = _PARSER.parse, _PARSER.validate


class _MainProcess:
    @property
    def is_main_process(self) -> bool:
        # Lightning numbers the processes when the first stage starts.
        return process_index() == 0


def make_generator(recipe: WatchArguments, training: PolicyTraining, model: Any) -> CausalLMGenerator:
    """Load the policy, with a new adapter if the arguments require one."""
    # Lightning moves the model to the device of its process.
    policy, processor = load_pretrained(model, device_map=None)
    adapter = get_peft_config(model)
    if adapter is not None:
        policy = get_peft_model(policy, adapter)
        train_in_float32(policy)
    generator = CausalLMGenerator if recipe.image_column is None else CTChatGenerator
    return generator(
        policy,
        processor,
        max_new_tokens=training.max_new_tokens,
        temperature=training.temperature,
        merge_adapters=training.merge_adapters,
    )


def run(
    recipe: WatchArguments,
    training: PolicyTraining,
    model: Any,
    progress: Callable[[int, int], None] | None = None,
) -> PolicyModule:
    """Train and evaluate. Every process must call this function.

    Args:
        recipe: The recipe's arguments.
        training: Arguments of the training.
        model: TRL's ``ModelConfig``.
        progress: Function of the steps completed and added, which replaces Lightning's progress bars.

    Returns:
        The trained module.

    Raises:
        ValueError: If a column is missing, no row is usable, or a setting is invalid.
    """
    seed_everything(training.seed, verbose=False)
    rewards, weights = make_rewards(recipe)
    evaluated = [*rewards, *make_heldout_metrics(recipe)]
    watched = make_watch_metrics(recipe)
    data = load_data_and_fit(recipe, [*evaluated, *watched], [recipe.reference_column] if recipe.watch else [])
    module = PolicyModule(
        make_generator(recipe, training, model),
        rewards,
        weights=weights,
        reference_column=recipe.reference_column,
        loss=None if training.loss_aggregation is None else {"aggregation": training.loss_aggregation},
        **{name: getattr(training, name) for name in _OF_THE_MODULE},
    )
    history, reports = History(), HeldoutReports()
    watch = make_watch(recipe, watched, training.output_dir, RewardWatchCallback)
    callbacks = [history, reports, *([] if watch is None else [watch])]
    trainer = make_trainer(training, callbacks, progress)
    # The functions of the other recipes read these attributes of a trainer.
    results = SimpleNamespace(args=training, accelerator=_MainProcess())
    described = describe(recipe, training, model, data) | describe_rewards(rewards, weights)
    checkpoint = last_checkpoint(training)
    known = None if checkpoint is None else reports_before(training.output_dir, data.heldout, described["config"])
    write_run_file(results, "run.json", described)

    def evaluate(stage: str, heldout: Any, written: list[str] | None = None) -> Evaluation | None:
        if not recipe.heldout_rows:
            return None
        if written is None:
            trainer.validate(module, heldout_loader(heldout, recipe.heldout_batch_size, module), verbose=False)
            written = reports.reports
        return evaluate_written(results, written, evaluated, heldout, stage)

    evaluations = {"before": evaluate("before", data.heldout, known)}
    rows = PolicyDataModule(
        list(data.train), batch_size=training.batch_size, collate=module.generator.collate, seed=training.seed
    )
    trainer.fit(module, rows, ckpt_path=checkpoint)
    save(module.generator, results)
    write_run_file(results, "history.json", history.rows)
    evaluations["after"] = evaluate("after", data.heldout)
    if recipe.image_column is not None:
        evaluations["images_of_others"] = evaluate("images_of_others", with_images_of_others(data.heldout))
    write_results(results, rewards, history.rows, evaluations)
    write_run_card(results, training.algorithm.upper())
    write_run_page(results)
    return module


def make_trainer(
    training: PolicyTraining, callbacks: Sequence[Any], progress: Callable[[int, int], None] | None
) -> Trainer:
    """Return Lightning's trainer."""
    others = [] if progress is None else [StepProgress(progress)]
    if training.save_steps:
        others.append(checkpoints_of(training))
    return Trainer(
        accelerator="cpu" if training.use_cpu else "auto",
        devices=training.devices,
        strategy=training.strategy,
        precision=training.precision,
        max_steps=training.max_steps,
        max_epochs=-1,
        gradient_clip_val=training.max_grad_norm,
        callbacks=[*callbacks, *others],
        enable_checkpointing=bool(training.save_steps),
        enable_progress_bar=progress is None,
        enable_model_summary=False,
        logger=False,
    )


def heldout_loader(heldout: Any, batch_size: int, module: PolicyModule) -> DataLoader[Any]:
    """Return batches of the held-out rows with their numbers, each row in one process."""
    rows = [{**row, "row": number} for number, row in enumerate(heldout)]
    return DataLoader(
        rows,  # type: ignore[arg-type]  # a sequence is a data set
        sampler=UnpaddedDistributedSampler(rows),
        batch_size=batch_size,
        collate_fn=module.generator.collate,
    )


def save(generator: CausalLMGenerator, results: Any) -> None:
    """Save the policy and its processor in ``output_dir``, on the main process."""
    if results.accelerator.is_main_process:
        with kept_card(results):
            generator.model.save_pretrained(results.args.output_dir)
            generator.processor.save_pretrained(results.args.output_dir)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the recipe that a command line describes."""
    start(parse, run, argv)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
