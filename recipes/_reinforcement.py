"""Steps that the reinforcement learning scripts share: rewards, data, watch, evaluations and results."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrg_rewards.callbacks.trainers import TrainerRewardWatchCallback
from rrg_rewards.recipes._arguments import RewardArguments, WatchArguments
from rrg_rewards.recipes._data import RecipeData, load_recipe_data
from rrg_rewards.recipes._evaluate import Evaluation, change, evaluate_reports, format_summary, with_images_of_others
from rrg_rewards.recipes._outputs import describe, write_card_and_page, write_rows, write_run_file
from rrg_rewards.rewards import Reward
from rrg_rewards.utilities.processes import process_index
from rrg_rewards.utilities.yaml_files import parse_yaml
from rrg_rewards.watch import RewardWatch

logger = logging.getLogger(__name__)


def parse_limits(settings: Sequence[str]) -> dict[str, Mapping[str, Any] | bool]:
    """Parse limits of checks: ``check.option=value``, or ``check=false`` to disable the check.

    Raises:
        ValueError: If a setting is malformed.

    Example:
        >>> parse_limits(["longer.factor=2.0", "undercalled=false"])
        {'longer': {'factor': 2.0}, 'undercalled': False}
    """
    limits: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        check, _, option = key.partition(".")
        if not equals or not check:
            raise ValueError(f"watch_limits: must be CHECK.OPTION=VALUE or CHECK=false, got {setting!r}")
        parsed = parse_yaml(value)
        if not option:
            limits[check] = parsed
        elif isinstance(limits.setdefault(check, {}), dict):
            limits[check][option] = parsed
    return limits


def make_watch_metrics(recipe: WatchArguments) -> list[Reward]:
    """Return the held-out metrics of a recipe, or an empty list if the watch is disabled."""
    return [setting.make() for setting in recipe.watch_metric_settings()] if recipe.watch else []


def make_watch(
    recipe: WatchArguments,
    metrics: Sequence[Reward],
    folder: str | Path | None,
    callback: Callable[..., Any] = TrainerRewardWatchCallback,
) -> Any:
    """Return the callback of a recipe, or ``None`` if the watch is disabled.

    Args:
        recipe: The recipe's arguments.
        metrics: Fitted held-out metrics.
        folder: Folder for ``reward_watch.html``.
        callback: Class of the callback.

    Raises:
        ValueError: If a check or limit is unknown, or a number is out of range.
    """
    if not recipe.watch:
        return None
    watch = RewardWatch(
        labeler=recipe.watch_labeler or None,
        stop=True if recipe.watch_stop == ["all"] else recipe.watch_stop,
        block_reports=recipe.watch_block_reports,
        baseline_reports=recipe.watch_baseline_reports,
        window_reports=recipe.watch_window_reports,
        limits=parse_limits(recipe.watch_limits),
    )
    return callback(
        metrics,
        watch=watch,
        reference_column=recipe.reference_column,
        metric_every=recipe.watch_metric_every,
        folder=folder,
    )


def check_push(recipe: RewardArguments, training: Any) -> None:
    """Refuse to push the output folder to the Hub if it contains the texts of held-out reports.

    Raises:
        ValueError: If ``push_to_hub`` is set and rows are held out.
    """
    if training.push_to_hub and recipe.heldout_rows:
        raise ValueError(
            "push_to_hub would upload heldout_*.jsonl, which contain texts of reports; set heldout_rows: 0, or push "
            f"after the run: hf upload USER/NAME {training.output_dir} --exclude 'heldout_*' 'checkpoint-*'"
        )


def reward_columns(rewards: Sequence[Reward]) -> list[str]:
    """Return the names of all columns that the rewards read, without duplicates."""
    return list(dict.fromkeys(column for reward in rewards for column in reward.columns))


@dataclass(frozen=True)
class ReinforcementRun:
    """A reinforcement learning run apart from its trainer: rewards, rows, held-out evaluation and results.

    Args:
        recipe: The recipe's arguments.
        output_dir: Folder of the results.
        rewards: Rewards, fitted to the training rows.
        weights: Weights of the rewards.
        metrics: Rewards and further metrics of the held-out evaluation.
        watch_metrics: Metrics of the watch that are held out from training.
        data: Training and held-out rows.
    """

    recipe: RewardArguments
    output_dir: str
    rewards: list[Reward]
    weights: list[float]
    metrics: list[Reward]
    watch_metrics: list[Reward]
    data: RecipeData

    @classmethod
    def prepare(cls, recipe: RewardArguments, output_dir: str) -> "ReinforcementRun":
        """Make the rewards and metrics of a recipe, load its rows, and fit rewards and metrics to the training rows."""
        settings = recipe.reward_settings()
        rewards = [setting.make() for setting in settings]
        metrics = [*rewards, *(setting.make() for setting in recipe.heldout_metric_settings())]
        watched = recipe if isinstance(recipe, WatchArguments) and recipe.watch else None
        watch_metrics = [] if watched is None else make_watch_metrics(watched)
        further = [] if watched is None else [recipe.reference_column]
        data = load_recipe_data(recipe, list(dict.fromkeys([*reward_columns([*metrics, *watch_metrics]), *further])))
        for reward in (*metrics, *watch_metrics):
            reward.fit(**{column: list(data.train[column]) for column in reward.columns})
            reward.warn_of_unread(data.columns)
            logger.info("reward %s: %s", reward.__name__, reward.signature)
        weights = [setting.weight for setting in settings]
        return cls(recipe, output_dir, rewards, weights, metrics, watch_metrics, data)

    def describe(self, training: Any, model: Any) -> dict[str, Any]:
        """Return the content of ``run.json``.

        Args:
            training: The trainer's arguments.
            model: TRL's ``ModelConfig``.
        """
        rewards = [
            {"name": reward.__name__, "weight": weight, "signature": reward.signature, "columns": reward.columns}
            for reward, weight in zip(self.rewards, self.weights, strict=True)
        ]
        return {**describe(self.recipe, training, model, self.data), "rewards": rewards}

    def train_and_evaluate(
        self,
        described: Mapping[str, Any],
        train: Callable[[], None],
        generate: Callable[[Any], list[str]],
        method: str,
    ) -> None:
        """Evaluate, train, evaluate again, and write the results. Every process must call this method.

        Args:
            described: Content of ``run.json``.
            train: Function that trains, and saves the model and ``history.json``.
            generate: Function that returns a greedy report for each of the given held-out rows.
            method: Name of the training method.
        """
        heldout = self.data.heldout
        write_run_file(self.output_dir, "run.json", described)
        evaluations = {"before": self._evaluate(generate, "before", heldout)}
        train()
        evaluations["after"] = self._evaluate(generate, "after", heldout)
        if self.recipe.image_column is not None:
            others = with_images_of_others(heldout)
            evaluations["images_of_others"] = self._evaluate(generate, "images_of_others", others)
        done = {stage: evaluation for stage, evaluation in evaluations.items() if evaluation is not None}
        if done:
            summaries = {stage: evaluation.summary() for stage, evaluation in done.items()}
            paired = change(done["before"], done["after"])
            write_run_file(self.output_dir, "evaluation.json", {**summaries, "change": paired})
        write_card_and_page(self.output_dir, method)

    def _evaluate(self, generate: Callable[[Any], list[str]], stage: str, rows: Any) -> Evaluation | None:
        """Evaluate greedy reports of held-out rows, if there are any, and write the rows with their reports."""
        if not self.recipe.heldout_rows:
            return None
        reports = generate(rows)
        evaluation = evaluate_reports(reports, self.metrics, rows)
        if process_index() == 0:
            written = [{**row, "report": report} for row, report in zip(rows, reports, strict=True)]
            write_rows(Path(self.output_dir) / f"heldout_{stage}.jsonl", written)
            for name, summary in evaluation.summary().items():
                logger.info("held out, %s, %s: %s", stage.replace("_", " "), name, format_summary(summary))
        return evaluation
