"""Tiny policies as report generators, rewards with a known best answer, and training runs."""

import logging
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from tiny_policy import WORDS, tiny_model, tiny_tokenizer
from torch.utils.data import DataLoader

from rrg_rewards.training import CausalLMGenerator, PolicyDataModule, PolicyModule

FINDINGS = ["edema", "nodule", "normal", "heart"]


def tiny_generator(max_new_tokens: int = 4) -> CausalLMGenerator:
    return CausalLMGenerator(tiny_model(), tiny_tokenizer(), max_new_tokens=max_new_tokens)


class TinyPolicy(CausalLMGenerator):
    """The tiny generator as a class without arguments."""

    def __init__(self) -> None:
        super().__init__(tiny_model(), tiny_tokenizer(), max_new_tokens=4)


def tiny_rows(count: int = 16) -> list[dict[str, Any]]:
    # Prompts of different lengths, so that some are padded.
    return [
        {"prompt": "lungs " * (1 + row % 3) + FINDINGS[row % 4], "reference": FINDINGS[row % 4], "row": row}
        for row in range(count)
    ]


def says_edema(completions: list[str], **columns: Any) -> list[float | None]:
    return [float("edema" in text.split()) for text in completions]


def word_value(completions: list[str], **columns: Any) -> list[float | None]:
    """A reward that differs between nearly all completions."""
    return [
        sum(WORDS.index(word) * 0.1 + place * 0.01 for place, word in enumerate(text.split())) for text in completions
    ]


class History(Callback):
    """Records the logged values of each step."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self.rows.append({name: float(value) for name, value in trainer.callback_metrics.items()})

    def __getitem__(self, name: str) -> list[float]:
        return [row[name] for row in self.rows]


class PlainSteps(PolicyModule):
    """Trains with plain gradient steps, because Adam turns gradients of rounding errors into whole steps."""

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.learning_rate)


def train(module: PolicyModule, steps: int, *, data: Any = None, batch_size: int = 4, **options: Any) -> History:
    """Train on the tiny rows unless others are given, and return the logged values.

    With ``validate``, a number of rows, the trainer evaluates them before and after the training, as the recipe does.
    """
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    history = History()
    settings = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
    }
    options["callbacks"] = [history, *options.get("callbacks", [])]
    fit = {"ckpt_path": options.pop("ckpt_path", None)}
    evaluated = tiny_rows(options.pop("validate", 0))
    if data is None:
        data = PolicyDataModule(tiny_rows(), batch_size=batch_size, collate=module.generator.collate)
    trainer = Trainer(max_steps=steps, **{**settings, **options})
    loader = DataLoader(evaluated, batch_size=batch_size, collate_fn=module.generator.collate) if evaluated else None
    if loader:
        trainer.validate(module, loader, verbose=False)
    trainer.fit(module, data, **fit)
    if loader:
        trainer.validate(module, loader, verbose=False)
    return history


def weights(module: torch.nn.Module) -> torch.Tensor:
    """All weights in one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
