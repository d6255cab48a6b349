"""Run the same policy with TRL and with Lightning, for ``policy_throughput.py`` and ``policy_curves.py``."""

import logging
import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from transformers import AutoProcessor, TrainerCallback

from rrg_rewards.models import CTChatForConditionalGeneration
from rrg_rewards.recipes import grpo
from rrg_rewards.recipes._data import RecipeData, load_recipe_data
from rrg_rewards.recipes._evaluate import Evaluation, evaluate_reports
from rrg_rewards.rewards import Reward
from rrg_rewards.training import CTChatGenerator, PolicyDataModule, PolicyModule

# The values of the recipe ct_chat/mini_grpo_crg, and TRL's defaults for the others.
ROWS, GENERATIONS, TOKENS = 16, 8, 64
GRPO = {"algorithm": "grpo", "loss": {"aggregation": "token_mean"}, "num_generations": GENERATIONS}
COMMON = {"beta": 0.04, "learning_rate": 3e-4, "reference_column": "impression"}


def _times() -> dict[str, float]:
    """Return the time, and the processor time of this process."""
    return {"ended": time.perf_counter(), "processor": time.process_time()}


class Steps(Callback):
    """Record Lightning's logged values and the end time of each step."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Record the logged values and the time."""
        values = {name: float(value) for name, value in trainer.callback_metrics.items()}
        self.rows.append({**values, **_times()})


class TrlSteps(TrainerCallback):  # type: ignore[misc]
    """Record TRL's logged values and the end time of each step."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self.ended: dict[str, float] = {}

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Record the time."""
        self.ended = _times()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:  # noqa: ARG002
        """Record the logged values."""
        if "reward" in logs:
            self.rows.append({**logs, **self.ended})


def options(folder: Path, output: Path, **more: Any) -> dict[str, Any]:
    """Return the options of the recipe with the data of a folder."""
    return {
        "config": "ct_chat/mini_grpo_crg",
        "model_name_or_path": folder / "sft",
        "dataset": folder / "train.jsonl",
        "heldout_file": folder / "heldout.jsonl",
        "output_dir": output,
        "disable_tqdm": True,
        **more,
    }


def read(folder: Path, output: Path, **more: Any) -> tuple[RecipeData, Reward]:
    """Return the recipe's rows and its fitted reward."""
    recipe, *_ = grpo.parse(options(folder, output, **more))
    (setting,) = recipe.reward_settings()
    reward = setting.make()
    data = load_recipe_data(recipe, list(reward.columns))
    reward.fit(**{column: list(data.train[column]) for column in reward.columns})
    return data, reward


def with_trl(chosen: dict[str, Any]) -> list[dict[str, float]]:
    """Run the recipe with some options and return the log of each step."""
    steps = TrlSteps()
    grpo.finish(grpo.run(*grpo.parse(chosen), callbacks=[steps]).accelerator)
    return steps.rows


def mini_generator(folder: Path) -> CTChatGenerator:
    """Load the mini CT-CHAT after its warm start."""
    model = CTChatForConditionalGeneration.from_pretrained(folder / "sft", dtype=torch.float32)
    return CTChatGenerator(
        model, AutoProcessor.from_pretrained(folder / "sft", trust_remote_code=False), max_new_tokens=TOKENS
    )


def with_lightning(
    module: PolicyModule,
    rows: Any,
    steps: int,
    seed: int,
    batch_size: int = ROWS,
    collate: Any = None,
    precision: str = "32-true",
) -> list[dict[str, float]]:
    """Train for a number of rollouts and return the log of each step."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    noted = Steps()
    collate = module.generator.collate if collate is None else collate
    trainer = Trainer(
        max_steps=steps * module.steps_per_rollout,
        callbacks=[noted],
        accelerator="auto",
        gradient_clip_val=1.0,
        precision=precision,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, PolicyDataModule(rows, batch_size=batch_size, collate=collate, seed=seed))
    return noted.rows


@torch.no_grad()
def heldout(generator: Any, reward: Reward, rows: Any, collate: Any = None) -> Evaluation:
    """Generate greedy reports of the held-out rows and score them with the reward."""
    generator.eval()
    collate = generator.collate if collate is None else collate
    reports: list[str] = []
    for start in range(0, len(rows), 100):
        batch = collate([rows[row] for row in range(start, min(start + 100, len(rows)))])
        reports += generator.decode(generator.sample(batch, greedy=True))
    return evaluate_reports(reports, [reward], rows)
