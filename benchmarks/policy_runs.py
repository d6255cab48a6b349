"""Runs that ``policy_throughput.py`` and ``policy_curves.py`` compare: one policy under TRL and under Lightning."""

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
from rrg_rewards.recipes._parse import command_line
from rrg_rewards.rewards import Reward
from rrg_rewards.training import CTChatGenerator, PolicyDataModule, PolicyModule

# As the recipe ct_chat/mini_grpo_crg has them, and TRL's defaults of what it does not set.
ROWS, GENERATIONS, TOKENS = 16, 8, 64
GRPO = {"algorithm": "grpo", "loss": {"aggregation": "token_mean"}, "num_generations": GENERATIONS}
COMMON = {"beta": 0.04, "learning_rate": 3e-4, "reference_column": "impression"}


class Steps(Callback):
    """Notes what Lightning logs, and when each step ended."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Note it."""
        values = {name: float(value) for name, value in trainer.callback_metrics.items()}
        self.rows.append({**values, "ended": time.perf_counter()})


class TrlSteps(TrainerCallback):  # type: ignore[misc]
    """Notes what TRL logs, and when each step ended."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self.ended: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Note when."""
        self.ended.append(time.perf_counter())

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:  # noqa: ARG002
        """Note what."""
        if "reward" in logs:
            self.rows.append({**logs, "ended": self.ended[-1]})


def options(folder: Path, output: Path, **more: Any) -> dict[str, Any]:
    """Command line of the recipe on a folder's data."""
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
    """The recipe's rows and its reward, fitted."""
    recipe, *_ = grpo.parse(command_line(options(folder, output, **more)))
    (setting,) = recipe.reward_settings()
    reward = setting.make()
    data = load_recipe_data(recipe, list(reward.columns))
    reward.fit(**{column: list(data.train[column]) for column in reward.columns})
    return data, reward


def with_trl(folder: Path, output: Path, **more: Any) -> list[dict[str, float]]:
    """Run the recipe; returns what was logged of each step."""
    steps = TrlSteps()
    command = command_line(options(folder, output, **more))
    grpo.finish(grpo.run(*grpo.parse(command), callbacks=[steps]).accelerator)
    return steps.rows


def mini_generator(folder: Path) -> CTChatGenerator:
    """The mini CT-CHAT after its warm start."""
    model = CTChatForConditionalGeneration.from_pretrained(folder / "sft", dtype=torch.float32)
    return CTChatGenerator(model, AutoProcessor.from_pretrained(folder / "sft"), max_new_tokens=TOKENS)


def with_lightning(
    module: PolicyModule, rows: Any, steps: int, seed: int, collate: Any = None
) -> list[dict[str, float]]:
    """Train for so many rollouts; returns what was logged of each step."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    noted = Steps()
    collate = module.generator.collate if collate is None else collate
    trainer = Trainer(
        max_steps=steps * module.steps_per_rollout,
        callbacks=[noted],
        accelerator="cpu",
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, PolicyDataModule(rows, batch_size=ROWS, collate=collate, seed=seed))
    return noted.rows


@torch.no_grad()
def heldout(generator: Any, reward: Reward, rows: Any, collate: Any = None) -> Evaluation:
    """Greedy reports of held-out rows and what the reward says of them."""
    generator.eval()
    collate = generator.collate if collate is None else collate
    reports: list[str] = []
    for start in range(0, len(rows), 100):
        batch = collate([rows[row] for row in range(start, min(start + 100, len(rows)))])
        reports += generator.decode(generator.sample(batch, greedy=True))
    return evaluate_reports(reports, [reward], rows)
