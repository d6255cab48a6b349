"""Runs of the tiny policy: python policy_worker.py FOLDER SETTINGS. The main process writes the results."""

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from tiny_generator import PlainSteps, tiny_rows, train, weights, word_value
from tiny_policy import tiny_model, tiny_tokenizer

from rrg_rewards.rewards import make_reward
from rrg_rewards.training import CausalLMGenerator, Completions, PolicyDataModule
from rrg_rewards.training.base import whole_weights


class WritesByRow(CausalLMGenerator):
    """Completions depend on the row and on how often it was completed before, not on random numbers of a process."""

    def sample(self, batch: Any, *, greedy: bool = False) -> Completions:
        """Any tokens of any length."""
        seen: Counter[int] = Counter()
        rows = []
        for row in batch["row"]:
            generator = torch.Generator().manual_seed(1000 * row + seen[row])
            seen[row] += 1
            length = int(torch.randint(1, self.max_new_tokens + 1, (1,), generator=generator))
            rows.append(torch.randint(4, 14, (length,), generator=generator))
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        return Completions(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), mask)


class KilledBefore(Callback):
    """Kills the process before a step, as a job scheduler does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        """End it."""
        if trainer.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def strategy(settings: dict[str, Any], devices: int) -> Any:
    """Return the strategy: ZeRO of a stage, DDP, or none."""
    if "zero" not in settings:
        return "ddp" if devices > 1 else "auto"
    from cpu_deepspeed import CPUDeepSpeedStrategy

    return CPUDeepSpeedStrategy(settings["zero"])


def run(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Train with the settings and return the results."""
    torch.manual_seed(0)
    kind = WritesByRow if settings.get("by_row") else CausalLMGenerator
    decoding = settings.get("decoding", "eager")
    generator = kind(tiny_model(), tiny_tokenizer(), max_new_tokens=4, decoding=decoding)
    reward: Any = word_value
    if "labeler" in settings:
        reward = make_reward("crg", labeler=settings["labeler"], prior=0.4)
    module = PlainSteps(generator, reward, learning_rate=0.05, num_generations=4, **settings["module"])
    data = PolicyDataModule(tiny_rows(16), batch_size=settings["batch_size"], collate=generator.collate)
    checkpoints = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    killed = [KilledBefore(settings["killed_before"])] if "killed_before" in settings else []
    devices = settings.get("devices", 1)
    history = train(
        module,
        settings["steps"],
        data=data,
        callbacks=[checkpoints, *killed],
        devices=devices,
        strategy=strategy(settings, devices),
        enable_checkpointing=True,
        ckpt_path=settings.get("resume"),
        validate=settings.get("validate", 0),
    )
    world = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    told = {"world": world, "rank": module.global_rank, "history": history.rows}
    told["partitioned"] = all(parameter.numel() == 0 for parameter in module.parameters())
    with whole_weights(module):
        return {**told, "weights": weights(module).tolist()}


def main() -> None:
    """Train with each of the given settings."""
    folder = Path(sys.argv[1])
    told = [run(folder / str(index), settings) for index, settings in enumerate(json.loads(sys.argv[2]))]
    if told[0]["rank"] == 0:
        (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
