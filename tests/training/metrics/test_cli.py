from types import SimpleNamespace
from typing import Any

import torch

from rrg_rewards.training.metrics.cli import History


def trainer(**metrics: float) -> Any:
    return SimpleNamespace(
        sanity_checking=False,
        state=SimpleNamespace(fn="fit"),
        callback_metrics={name.replace("__", "/"): torch.tensor(value) for name, value in metrics.items()},
        current_epoch=0,
        global_step=4,
        is_global_zero=True,
        max_epochs=2,
    )


def test_history_a_line_tells_what_is_nothing_and_leaves_out_what_is_not_there() -> None:
    lines: list[str] = []
    history = History(lines.append, ("train/loss", "val/accuracy", "val/kendall"))

    history.on_validation_end(trainer(train__loss=0.0, val__accuracy=1.0, val__kendall=float("nan")), None)

    assert lines == ["epoch 1 of 2, train/loss 0.0000, val/accuracy 1.0000"]
    assert history.rows == [
        {"epoch": 1, "step": 4, "train/loss": 0.0, "val/accuracy": 1.0, "val/kendall": None},
    ]
