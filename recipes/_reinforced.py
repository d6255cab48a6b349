"""What recipes of reinforcement learning share: how rewards are described, stages evaluated, results written."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rrg_rewards.data import write_json
from rrg_rewards.recipes._arguments import RewardArguments
from rrg_rewards.recipes._data import RecipeData
from rrg_rewards.recipes._evaluate import Evaluation, change, evaluate, in_words
from rrg_rewards.recipes._outputs import plot_run, write_rows
from rrg_rewards.rewards import Reward

__all__ = ["describe_reward", "evaluate_stage", "write_results"]

logger = logging.getLogger(__name__)


def describe_reward(reward: Reward, weight: float) -> dict[str, Any]:
    """What a reward is, for ``run.json``."""
    return {"name": reward.__name__, "weight": weight, "signature": reward.signature, "columns": reward.columns}


def evaluate_stage(
    trainer: Any, rewards: Sequence[Reward], data: RecipeData, recipe: RewardArguments, stage: str
) -> Evaluation | None:
    """Evaluate on held-out rows and write them with their reports; ``None`` where none are held out."""
    if not recipe.heldout_rows:
        return None
    evaluation = evaluate(trainer, rewards, data.heldout, recipe.heldout_batch_size)
    if trainer.accelerator.is_main_process:
        rows = [{**row, "report": report} for row, report in zip(data.heldout, evaluation.reports, strict=True)]
        write_rows(Path(trainer.args.output_dir) / f"heldout_{stage}.jsonl", rows)
        for name, summary in evaluation.summary().items():
            logger.info("held out, %s, %s: %s", stage.replace("_", " "), name, in_words(summary))
    return evaluation


def write_results(
    folder: Path,
    rewards: Sequence[Reward],
    history: Sequence[dict[str, Any]],
    evaluations: dict[str, Evaluation | None],
) -> None:
    """Write evaluations by stage, the paired change, and a curve of each reward; the main process alone calls it."""
    done = {stage: evaluation for stage, evaluation in evaluations.items() if evaluation is not None}
    summaries = {stage: evaluation.summary() for stage, evaluation in done.items()}
    if done:
        difference = {"change": change(done["before"], done["after"])}
        write_json({**summaries, **difference}, folder / "evaluation.json", overwrite=True)
    for reward in rewards:
        plot_run(folder / f"curve_{reward.__name__}.png", reward.__name__, history, summaries)
