"""Report metrics of held-out studies during a training with TRL."""

from collections.abc import Sequence
from typing import Any

from transformers import TrainerCallback

from rrg_rewards.recipes._evaluate import GreedyPolicy, evaluate_reports, greedy_reports
from rrg_rewards.rewards import Reward


class TrainerReportMetricsCallback(TrainerCallback):  # type: ignore[misc]  # transformers is an optional dependency
    r"""Generates reports for held-out rows during the training, and logs their report metrics.

    A TRL trainer with ``eval_dataset`` logs mean rewards of *sampled* completions. This callback decodes greedily, as
    the held-out evaluation of the recipes does, and logs the values of the whole held-out set: for each metric ``N``
    the mean score ``eval_N/score``, corpus values such as ``eval_N/crg``, the parts of CT-FineBench, the mean number of
    words ``eval_N/words``, and the number of reports without a score, ``eval_N/unscorable``. They are a row of the
    trainer's log history, and reach its trackers. Samples, rewards and updates of the training stay the same.

    With several processes, each generates a share of the reports, and all must have the callback.

    Args:
        trainer: ``GRPOTrainer`` or ``RLOOTrainer``.
        metrics: The metrics, as :func:`~rrg_rewards.rewards.make_reward` makes them, for example
            ``make_reward("crimson", reference_column="report")``. Metrics that are not trained on show whether the
            reports themselves become better.
        rows: Held-out rows (``datasets.Dataset``) with the columns of the training set: ``prompt``, ``image`` if there
            are images, and those that the metrics read.
        every: Number of steps between two evaluations. One takes place before the first step, too.
        batch_size: Number of reports that a process generates in a batch.

    Raises:
        ValueError: If ``every`` or ``batch_size`` is not positive, two metrics have one name, there are no rows, or a
            column is missing.

    Example:
        >>> from types import SimpleNamespace
        >>> from datasets import Dataset
        >>> from rrg_rewards import make_reward
        >>> from rrg_rewards.recipes.report_metrics import TrainerReportMetricsCallback
        >>> heldout = Dataset.from_list([{"prompt": "Report:", "report": "Cardiomegaly."}])
        >>> metrics = [make_reward("crimson", reference_column="report")]
        >>> trainer = SimpleNamespace()  # GRPOTrainer(...)
        >>> callback = TrainerReportMetricsCallback(trainer, metrics, heldout, every=50)
        >>> # trainer.add_callback(callback)
    """

    def __init__(self, trainer: Any, metrics: Sequence[Reward], rows: Any, every: int, batch_size: int = 8) -> None:
        for name, number in (("every", every), ("batch_size", batch_size)):
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        names = [metric.__name__ for metric in metrics]
        if len(set(names)) < len(names):
            raise ValueError(f"metrics: the names must differ, got {', '.join(names)}; pass make_reward(..., name=...)")
        if not len(rows):
            raise ValueError("rows: there are none to evaluate on")
        if "prompt" not in rows.column_names:
            raise ValueError(f"rows: the column 'prompt' is missing; there are {', '.join(rows.column_names)}")
        self._trainer = trainer
        self._metrics = list(metrics)
        self._rows = rows
        self._every = every
        self._batch_size = batch_size

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Evaluate the policy before training. A resumed training has this row already."""
        if state.global_step == 0:
            self._evaluate()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Evaluate the policy after every ``every`` steps, and after the last one."""
        if state.global_step % self._every == 0 or state.global_step >= state.max_steps:
            # Logging marks the step as logged.
            should_log = control.should_log
            self._evaluate()
            control.should_log = should_log

    def _evaluate(self) -> None:
        trainer = self._trainer
        reports = greedy_reports(GreedyPolicy.of_trainer(trainer), self._rows, self._batch_size)
        scored = evaluate_reports(reports, self._metrics, self._rows)
        values = {
            f"eval_{name}/{key}": value for name, found in scored.estimates().items() for key, value in found.items()
        }
        # In training mode, the trainer would log what it has collected of the steps so far, too, and forget it.
        model, is_training = trainer.model, trainer.model.training
        model.eval()
        trainer.log(values)
        model.train(is_training)
