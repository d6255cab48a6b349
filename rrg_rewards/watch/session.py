"""A watch in a run: held-out metrics, the sum of several rewards, and the files it leaves."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rrg_rewards.data.writers import write_json
from rrg_rewards.rewards.base import Completion, Reward, completion_texts
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.processes import process_index
from rrg_rewards.watch.core import RewardWatch
from rrg_rewards.watch.page import write_watch_page

__all__ = ["STATE_FILE", "WatchSession"]

STATE_FILE = "reward_watch_state.json"
_TOTAL = "total"


class WatchSession:
    """What the callbacks for Lightning and for TRL's trainers share.

    Args:
        watch: The watch.
        metrics: Held-out metrics, as rewards, which have a sign and read columns: ``make_reward("rouge")``.
        reference_column: Column of references.
        metric_every: Score held-out metrics on the completions of every so many steps, for a judge that costs.
        folder: Where ``reward_watch.html`` (a page that needs no other file), its plots as PNG and
            ``reward_watch.json`` are written at each alarm and at the end; ``None`` for nowhere.

    Raises:
        ValueError: If ``metric_every`` is not positive, or two metrics have the same name.
        ModuleNotFoundError: If there is a folder and matplotlib is not installed, naming the pip command.
    """

    def __init__(
        self,
        watch: RewardWatch,
        metrics: Sequence[Reward] = (),
        *,
        reference_column: str = "reference",
        metric_every: int = 1,
        folder: str | Path | None = None,
    ) -> None:
        if metric_every < 1:
            raise ValueError(f"metric_every must be positive, got {metric_every}")
        if len({metric.__name__ for metric in metrics}) < len(metrics):
            raise ValueError(f"metrics must differ in name, got {', '.join(metric.__name__ for metric in metrics)}")
        if folder is not None:
            # At the start and not after hours of training.
            require("matplotlib.figure", extra="plot")
        self.watch = watch
        self.metrics = list(metrics)
        self.reference_column = reference_column
        self.metric_every = metric_every
        self.folder = None if folder is None else Path(folder)

    @property
    def columns(self) -> list[str]:
        """Columns of the data set that are looked at."""
        own = (column for metric in self.metrics for column in metric.columns)
        return list(dict.fromkeys([self.reference_column, *own]))

    def observe(
        self,
        completions: Sequence[Completion],
        columns: Mapping[str, Sequence[Any]],
        *,
        step: int,
        rewards: Mapping[str, Sequence[float | None]] | None = None,
        weights: Mapping[str, float] | None = None,
        metrics: Mapping[str, Sequence[float | None]] | None = None,
        judge_failures: Mapping[str, float] | None = None,
    ) -> None:
        """Count a batch of this process, scored by the held-out metrics.

        Args:
            completions: ``N`` completions, texts or lists of messages.
            columns: ``N`` values of each column.
            step: Number of the step.
            rewards: ``N`` rewards by name.
            weights: Their weights, where several are trained together; one of weight 0 is a held-out metric.
            metrics: ``N`` values of further held-out metrics by name.
            judge_failures: On how many completions a judge failed, by name.
        """
        texts = completion_texts(completions)
        trained, held_out = _split(dict(rewards or {}), weights or {})
        held_out |= metrics or {}
        if step % self.metric_every == 0:
            held_out |= {
                metric.__name__: metric.rewards(metric.score(completions, **columns)) for metric in self.metrics
            }
        self.watch.observe(
            texts,
            columns.get(self.reference_column),
            rewards=trained,
            metrics=held_out,
            judge_failures=judge_failures,
        )

    def end_step(self, step: int) -> bool:
        """End a step; every process calls it.

        Returns:
            Whether the run is to stop.
        """
        if self.watch.step(step):
            self.write()
        return self.watch.should_stop

    def write(self) -> None:
        """Write the page, the plots and the history; the main process does."""
        if self.folder is not None and process_index() == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_watch_page(self.watch.history(), self.folder)

    def save_state(self, folder: Path) -> None:
        """Write what the watch has seen into a checkpoint; the main process calls it."""
        write_json(self.watch.state_dict(), folder / STATE_FILE, overwrite=True)

    def load_state(self, folder: Path) -> None:
        """Go on from a checkpoint.

        Raises:
            FileNotFoundError: If it holds nothing of a watch.
        """
        self.watch.load_state_dict(json.loads((folder / STATE_FILE).read_text(encoding="utf-8")))


def _split(
    rewards: dict[str, Sequence[float | None]], weights: Mapping[str, float]
) -> tuple[dict[str, Sequence[float | None]], dict[str, Sequence[float | None]]]:
    """Rewards that are trained, with their weighted sum where there are several; and those that are only logged."""
    trained = {name: values for name, values in rewards.items() if weights.get(name, 1.0) != 0}
    held_out = {name: values for name, values in rewards.items() if name not in trained}
    if len(trained) > 1 and _TOTAL not in trained:
        factors = [weights.get(name, 1.0) for name in trained]
        trained[_TOTAL] = [
            None
            if any(value is None for value in row)
            else sum(factor * float(value or 0.0) for factor, value in zip(factors, row, strict=True))
            for row in zip(*trained.values(), strict=True)
        ]
    return trained, held_out
