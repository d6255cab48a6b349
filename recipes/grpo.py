"""Train a report generator with GRPO or RLOO, configured by one YAML file.

``python -m rrg_rewards.recipes.grpo --config FILE [--key value ...]``

``FILE`` is a YAML file, or the name of a recipe that ``rrg-rewards recipes ls`` lists. ``torchrun`` or ``accelerate
launch`` starts several processes (on CPU, with ``use_cpu: true``). The keys are those of TRL's ``GRPOConfig`` or
``RLOOConfig``, of ``ModelConfig``, and of :class:`rrg_rewards.recipes._arguments.RecipeArguments`.

The script writes to ``output_dir`` the model, ``run.json`` (resolved configuration, reward signatures, versions, rows),
``history.json`` (the trainer's log) and ``run.html`` with its curves. If rows are held out, it also writes
``evaluation.json`` (before, after and the paired change, with bootstrap 95% intervals), ``heldout_before.jsonl`` and
``heldout_after.jsonl``. If rows have images, the stage ``images_of_others`` evaluates the trained policy on rows whose
images were exchanged; the remaining score does not depend on the image. ``README.md`` is the model card; a card that
the user has written or changed is kept.

``watch: true`` detects reward hacking (:class:`rrg_rewards.callbacks.TrainerRewardWatchCallback`) and writes
``reward_watch.html`` and ``reward_watch.json``. ``watch_stop: [divergence]`` stops the run if that check raises an
alarm. ``watch_metrics`` names metrics that are held out from training.

If one of several rewards may be unscorable, set ``multi_objective_aggregation: normalize_then_sum`` (GRPO). In the
default sum, a missing reward counts as 0.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from rrg_rewards.callbacks.trainers import ResetVLLMEncoderCache, warn_of_sums
from rrg_rewards.recipes._arguments import RecipeArguments
from rrg_rewards.recipes._evaluate import GreedyPolicy, greedy_reports
from rrg_rewards.recipes._reinforcement import ReinforcementRun, check_push, make_watch
from rrg_rewards.recipes._script import RecipeScript, finish
from rrg_rewards.recipes._training import (
    CheckedOptimizer,
    ResumableSampling,
    check_processes,
    checkpoint_to_resume,
    make_trainer,
    train_and_save,
)
from rrg_rewards.rewards.deadline import RewardDeadline
from rrg_rewards.utilities.vllm_cpu import keep_cpu_weights

__all__ = ["finish", "main", "parse", "run", "validate"]


class _TimedRewards:
    """Mixin for TRL's online trainers that limits the time of the rewards of a step, in each process by itself."""

    reward_timeout: float | None = None

    def _calculate_rewards(self: Any, *args: Any, **options: Any) -> Any:
        functions, names = self.reward_funcs, self.reward_func_names
        with RewardDeadline(self.reward_timeout, names) as deadline:
            self.reward_funcs = deadline.watched(functions)
            try:
                return super()._calculate_rewards(*args, **options)  # type: ignore[misc]
            finally:
                self.reward_funcs = functions


class _OnlineTrainer(_TimedRewards, ResumableSampling, CheckedOptimizer):
    pass


class _ResumableGRPOTrainer(_OnlineTrainer, GRPOTrainer):  # type: ignore[misc]
    pass


class _ResumableRLOOTrainer(_OnlineTrainer, RLOOTrainer):  # type: ignore[misc]
    pass


_ALGORITHMS: Mapping[str, tuple[type, type]] = {
    "grpo": (GRPOConfig, _ResumableGRPOTrainer),
    "rloo": (RLOOConfig, _ResumableRLOOTrainer),
}


def _trainer_arguments(keys: Mapping[str, Any]) -> type:
    if "reward_weights" in keys:
        raise ValueError("reward_weights: give each reward its own 'weight' instead")
    # RecipeArguments rejects an unknown algorithm.
    return _ALGORITHMS.get(keys.get("algorithm", "grpo"), _ALGORITHMS["grpo"])[0]


def run(
    recipe: RecipeArguments,
    training: Any,
    model: Any,
    callbacks: Sequence[Any] = (),
) -> Any:
    """Train and evaluate. Every process must call this function.

    Args:
        recipe: The recipe's arguments.
        training: ``GRPOConfig`` or ``RLOOConfig``, according to the recipe's algorithm.
        model: TRL's ``ModelConfig``.
        callbacks: Additional ``transformers.TrainerCallback`` objects.

    Returns:
        The trainer, after training.

    Raises:
        ValueError: If a column is missing, no row is usable, the processes do not form one group, or the output folder
            would be pushed to the Hub with texts of held-out reports.
    """
    check_processes(training)
    check_push(recipe, training)
    _check_generation(recipe, training)
    prepared = ReinforcementRun.prepare(recipe, training.output_dir)
    training.reward_weights = prepared.weights
    described = prepared.describe(training, model)
    watch = make_watch(recipe, prepared.watch_metrics, training.output_dir)
    if watch is None:
        warn_of_sums(training, [reward.__name__ for reward in prepared.rewards])
    rewards = prepared.rewards if watch is None else watch.record(prepared.rewards)
    data, trainer_class = prepared.data, _ALGORITHMS[recipe.algorithm][1]
    trainer = make_trainer(trainer_class, training, model, data.train, data.heldout, reward_funcs=list(rewards))
    trainer.reward_timeout = recipe.reward_timeout
    further = [] if watch is None else [watch]
    if training.use_vllm:
        further.append(ResetVLLMEncoderCache(trainer))
    for callback in (*further, *callbacks):
        trainer.add_callback(callback)
    checkpoint = checkpoint_to_resume(training)

    def train() -> None:
        train_and_save(trainer, checkpoint)

    def generate(rows: Any) -> list[str]:
        return greedy_reports(GreedyPolicy.of_trainer(trainer), rows, recipe.heldout_batch_size)

    prepared.train_and_evaluate(described, train, generate, recipe.algorithm.upper())
    return trainer


def _check_generation(recipe: RecipeArguments, training: Any) -> None:
    """Prepare vLLM on CPU, and check that held-out evaluation may gather all weights."""
    if training.use_vllm and training.use_cpu:
        keep_cpu_weights()
    if recipe.heldout_rows and is_deepspeed_zero3_enabled() and not training.ds3_gather_for_generation:
        raise ValueError(
            "held-out evaluation gathers all weights on every process, contrary to ds3_gather_for_generation: false; "
            "set heldout_rows: 0"
        )


_SCRIPT = RecipeScript(run, RecipeArguments, _trainer_arguments, __doc__)
parse, validate, main = _SCRIPT.parse, _SCRIPT.validate, _SCRIPT.main


if __name__ == "__main__":
    main()
