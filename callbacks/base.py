"""Base classes of the callbacks for Lightning and of those for the trainers of transformers and TRL."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rrg_rewards.data.tables.writers import write_json
from rrg_rewards.pages.watch_page import write_watch_page
from rrg_rewards.rewards.base import Reward, check_names
from rrg_rewards.rewards.completions import Completion, ReportExtractor
from rrg_rewards.utilities.processes import process_index
from rrg_rewards.watch.reward_watch import RewardWatch

_STATE_FILE = "reward_watch_state.json"
_TOTAL = "total"


class WatchCallback:
    """Runs a watch in training, for the callbacks of Lightning and TRL.

    Args:
        metrics: Held-out metrics as rewards, such as ``make_reward("rouge")``.
        stop: Names of the checks whose alarms stop the run, or ``True`` for all checks.
        reference_column: Name of the column of references.
        report: How the watched report is extracted from a completion, as in :func:`rrg_rewards.rewards.make_reward`.
        folder: Output folder. ``reward_watch.html`` and ``reward_watch.json`` are written at each
            alarm and at the end of the run. ``None`` writes nothing.
        metric_every: Number of steps from one evaluation of the held-out metrics to the next. A higher number reduces
            the cost of a judge.
        watch: The watch, which replaces ``stop`` and ``options``.
        options: Arguments of :class:`rrg_rewards.watch.RewardWatch`.

    Raises:
        ValueError: If ``metric_every`` is not positive, two metrics have the same name, or both a watch and its options
            are given.
    """

    def __init__(
        self,
        metrics: Sequence[Reward] = (),
        *,
        stop: bool | Collection[str] = False,
        reference_column: str = "reference",
        report: str = "auto",
        folder: str | Path | None = None,
        metric_every: int = 1,
        watch: RewardWatch | None = None,
        **options: Any,
    ) -> None:
        if watch is not None and (options or stop):
            raise ValueError("watch: give either a watch, or stop and the options of a watch, not both")
        if metric_every < 1:
            raise ValueError(f"metric_every must be positive, got {metric_every}")
        check_names([metric.__name__ for metric in metrics], "metrics")
        self.watch = watch or RewardWatch(stop=stop, **options)
        """The watch, with its alarms."""
        self.metrics = list(metrics)
        self.reference_column = reference_column
        self.report = ReportExtractor(report)
        self.metric_every = metric_every
        self.folder = None if folder is None else Path(folder)

    @property
    def columns(self) -> list[str]:
        """Columns of the data set that the callback reads."""
        own = (column for metric in self.metrics for column in metric.columns)
        return list(dict.fromkeys([self.reference_column, *own]))

    def observe_step(
        self,
        completions: Sequence[Completion],
        columns: Mapping[str, Sequence[Any]],
        *,
        step: int,
        rewards: Mapping[str, Sequence[float | None]] | None = None,
        weights: Mapping[str, float] | None = None,
        judge_failures: Mapping[str, float] | None = None,
    ) -> None:
        """Compute the held-out metrics of a batch of this process, and count the batch.

        Args:
            completions: ``N`` completions, texts or lists of messages.
            columns: ``N`` values of each column; ``prompts`` may have opened the reasoning.
            step: Number of the step.
            rewards: ``N`` rewards by name.
            weights: Weights of the rewards; a reward of weight 0 is a held-out metric.
            judge_failures: As in :meth:`RewardWatch.observe`.
        """
        trained, held_out = _split(dict(rewards or {}), weights or {})
        if step % self.metric_every == 0:
            held_out |= {one.__name__: one.rewards(one.score(completions, **columns)) for one in self.metrics}
        self.watch.observe(
            self.report.reports(completions, columns.get("prompts")),
            columns.get(self.reference_column),
            rewards=trained,
            metrics=held_out,
            judge_failures=judge_failures,
        )

    def end_step(self, step: int) -> bool:
        """End a step; every process must call this method.

        Returns:
            Whether the run should stop.
        """
        if self.watch.step(step):
            self.write()
        return self.watch.should_stop

    def write(self) -> None:
        """Write the page, the plots and the history in the main process."""
        if self.folder is not None and process_index() == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_watch_page(self.watch.history(), self.folder)

    def save_state(self, folder: Path) -> None:
        """Write the state of the watch to a checkpoint folder; call it in the main process only."""
        write_json(self.watch.state_dict(), folder / _STATE_FILE, overwrite=True)

    def load_state(self, folder: Path) -> None:
        """Restore the state of the watch from a checkpoint.

        Raises:
            FileNotFoundError: If the checkpoint contains no watch state.
        """
        self.watch.load_state_dict(json.loads((folder / _STATE_FILE).read_text(encoding="utf-8")))


def _split(
    rewards: dict[str, Sequence[float | None]], weights: Mapping[str, float]
) -> tuple[dict[str, Sequence[float | None]], dict[str, Sequence[float | None]]]:
    """Return the trained rewards, with their weighted sum if there are several, and the rewards with weight 0."""
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
