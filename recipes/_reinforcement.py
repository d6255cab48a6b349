"""Steps that the reinforcement learning scripts share: rewards, data, evaluations and results."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rrg_rewards.recipes._arguments import RewardArguments
from rrg_rewards.recipes._data import RecipeData, load_recipe_data
from rrg_rewards.recipes._evaluate import Evaluation, change, evaluate_reports, format_summary, greedy_reports
from rrg_rewards.recipes._outputs import plot_run, write_rows, write_run_file
from rrg_rewards.rewards import Reward

__all__ = [
    "check_push",
    "describe_rewards",
    "evaluate_stage",
    "evaluate_written",
    "load_data_and_fit",
    "make_heldout_metrics",
    "make_rewards",
    "reports_before",
    "reward_columns",
    "write_results",
]

logger = logging.getLogger(__name__)

# Keys of a configuration that change the reports before training.
_OF_REPORTS = ("model_name_or_path", "model_revision", "dtype", "max_new_tokens", "max_completion_length")


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


def make_rewards(recipe: RewardArguments) -> tuple[list[Reward], list[float]]:
    """Return the rewards of a recipe and their weights."""
    settings = recipe.reward_settings()
    return [setting.make() for setting in settings], [setting.weight for setting in settings]


def make_heldout_metrics(recipe: RewardArguments) -> list[Reward]:
    """Return the further metrics of the held-out evaluation."""
    return [setting.make() for setting in recipe.heldout_metric_settings()]


def reward_columns(rewards: Sequence[Reward]) -> list[str]:
    """Return the names of all columns that the rewards read, without duplicates."""
    return list(dict.fromkeys(column for reward in rewards for column in reward.columns))


def load_data_and_fit(
    recipe: RewardArguments, rewards: Sequence[Reward], further_columns: Sequence[str] = ()
) -> RecipeData:
    """Load the rows of a recipe and fit the rewards to the training rows.

    Args:
        recipe: The recipe's arguments.
        rewards: Rewards, which are fitted in place.
        further_columns: Columns to load in addition to those that the rewards read.
    """
    data = load_recipe_data(recipe, list(dict.fromkeys([*reward_columns(rewards), *further_columns])))
    for reward in rewards:
        reward.fit(**{column: list(data.train[column]) for column in reward.columns})
        logger.info("reward %s: %s", reward.__name__, reward.signature)
    return data


def describe_rewards(rewards: Sequence[Reward], weights: Sequence[float]) -> dict[str, Any]:
    """Return the entry ``rewards`` of ``run.json``."""
    return {
        "rewards": [
            {"name": reward.__name__, "weight": weight, "signature": reward.signature, "columns": reward.columns}
            for reward, weight in zip(rewards, weights, strict=True)
        ]
    }


def reports_before(output_dir: str, heldout: Any, config: Mapping[str, Any]) -> list[str] | None:
    """Return the reports before training that an interrupted run wrote, which a resumed run need not generate again.

    Call this function before ``run.json`` is replaced. Every process must see the files.

    Args:
        output_dir: Folder of the run.
        heldout: The held-out rows.
        config: The configuration of the resumed run.

    Returns:
        The reports, or ``None`` if there are none for exactly these rows, or if the configurations differ in the model
        or in the length of reports.
    """
    path, run_file = _heldout_file(output_dir, "before"), Path(output_dir) / "run.json"
    if not path.exists() or not run_file.exists():
        return None
    former = json.loads(run_file.read_text(encoding="utf-8"))["config"]
    written = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    reports = [row.pop("report") for row in written]
    # Rows are compared in the form in which they are written.
    rows = json.loads(json.dumps([dict(row) for row in heldout], default=str))
    if written != rows or any(former.get(key) != config.get(key) for key in _OF_REPORTS):
        return None
    logger.info("the reports before training are those of %s", path)
    return reports


def evaluate_stage(
    trainer: Any,
    rewards: Sequence[Reward],
    data: RecipeData,
    recipe: RewardArguments,
    stage: str,
    reports: list[str] | None = None,
) -> Evaluation | None:
    """Evaluate the policy on the held-out rows, and write the rows with their reports.

    Args:
        trainer: The trainer.
        rewards: Rewards and metrics to compute.
        data: The rows.
        recipe: The recipe's arguments.
        stage: Name of the evaluation.
        reports: The reports, if they need not be generated.

    Returns:
        The evaluation, or ``None`` if no rows are held out.
    """
    if not recipe.heldout_rows:
        return None
    if reports is None:
        reports = greedy_reports(trainer, data.heldout, recipe.heldout_batch_size)
    return evaluate_written(trainer, reports, rewards, data.heldout, stage)


def evaluate_written(trainer: Any, reports: list[str], rewards: Sequence[Reward], rows: Any, stage: str) -> Evaluation:
    """Evaluate the reports of held-out rows, and write the rows with their reports on the main process."""
    evaluation = evaluate_reports(reports, rewards, rows)
    if trainer.accelerator.is_main_process:
        written = [{**row, "report": report} for row, report in zip(rows, reports, strict=True)]
        write_rows(_heldout_file(trainer.args.output_dir, stage), written)
        for name, summary in evaluation.summary().items():
            logger.info("held out, %s, %s: %s", stage.replace("_", " "), name, format_summary(summary))
    return evaluation


def _heldout_file(output_dir: str, stage: str) -> Path:
    return Path(output_dir) / f"heldout_{stage}.jsonl"


def write_results(
    trainer: Any,
    rewards: Sequence[Reward],
    history: Sequence[dict[str, Any]],
    evaluations: Mapping[str, Evaluation | None],
) -> None:
    """Write ``evaluation.json`` (all stages and the paired change) and one curve per reward, on the main process."""
    if not trainer.accelerator.is_main_process:
        return
    done = {stage: evaluation for stage, evaluation in evaluations.items() if evaluation is not None}
    summaries = {stage: evaluation.summary() for stage, evaluation in done.items()}
    if done:
        write_run_file(trainer, "evaluation.json", {**summaries, "change": change(done["before"], done["after"])})
    for reward in rewards:
        path = Path(trainer.args.output_dir) / f"curve_{reward.__name__}.png"
        plot_run(path, reward.__name__, history, summaries)
