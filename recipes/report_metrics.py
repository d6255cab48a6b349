"""Report metrics of held-out studies during a training with TRL."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from transformers import TrainerCallback
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from rrg_rewards.callbacks.worst_reports import WorstReport, WorstReports, log_table, make_table
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.recipes._evaluate import GreedyPolicy, evaluate_reports, greedy_reports
from rrg_rewards.rewards import Reward
from rrg_rewards.utilities.run_log import RunLog


class TrainerReportMetricsCallback(TrainerCallback):  # type: ignore[misc]  # transformers is an optional dependency
    r"""Generates reports for held-out rows during the training, and logs their report metrics.

    A TRL trainer with ``eval_dataset`` logs mean rewards of *sampled* completions. This callback decodes greedily, as
    the held-out evaluation of the recipes does, and logs the values of the whole held-out set: for each metric ``N``
    the mean score ``eval_N/score``, corpus values such as ``eval_N/crg``, the parts of CT-FineBench, the mean number of
    words ``eval_N/words``, and the number of reports without a score, ``eval_N/unscorable``. They are a row of the
    trainer's log history, and reach its trackers. Samples, rewards and updates of the training stay the same.

    With ``log_tables``, TensorBoard, Weights & Biases, MLflow and Trackio also get the worst reports of each metric as
    a table ``eval/N_worst``: score, reference, report, and what was missed and invented. They are report text, which
    leaves the machine if the tracker sends it to another one. One warning names trackers that take no tables.

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
        log_tables: Whether to log the worst reports as tables.
        num_worst: Number of reports of each metric in a table.

    Raises:
        ValueError: If ``every``, ``batch_size`` or ``num_worst`` is not positive, two metrics have one name, there are
            no rows, or a column is missing.

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

    def __init__(
        self,
        trainer: Any,
        metrics: Sequence[Reward],
        rows: Any,
        every: int,
        batch_size: int = 8,
        log_tables: bool = False,
        num_worst: int = 10,
    ) -> None:
        for name, number in (("every", every), ("batch_size", batch_size), ("num_worst", num_worst)):
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
        self._log_tables = log_tables
        self._num_worst = num_worst
        self._warned_of_trackers = False

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
        # Undefined values, such as the precision of reports without findings, are left out.
        values = {
            f"eval_{name}/{key}": value
            for name, found in scored.estimates().items()
            for key, value in found.items()
            if value is not None
        }
        # In training mode, the trainer would log what it has collected of the steps so far, too, and forget it.
        model, is_training = trainer.model, trainer.model.training
        model.eval()
        with _without_completions(trainer):
            trainer.log(values)
        model.train(is_training)
        if self._log_tables and trainer.accelerator.is_main_process:
            for metric in self._metrics:
                self._log_worst(metric, reports, scored.scores[metric.__name__])

    def _log_worst(self, metric: Reward, reports: Sequence[str], scores: Scores) -> None:
        """Log the worst reports of a metric with all trackers that support tables."""
        state = self._trainer.state
        column = getattr(metric, "reference_column", None)
        references = self._rows[column] if column in self._rows.column_names else [None] * len(reports)
        # Scores of composed rewards are rewards.
        worst = WorstReports(self._num_worst, getattr(metric, "sign", 1) > 0)
        explanations = scores.explanations
        for row, (score, reference, report) in enumerate(zip(scores.value.tolist(), references, reports, strict=True)):
            why = {kind: texts[row] for kind, texts in explanations.items()}
            worst.add(WorstReport(score, 0, 0, row, None, reference, report, why))
        table = make_table(worst.rows(), int(state.epoch or 0), state.global_step)
        key = f"eval/{metric.__name__}_worst"
        kinds = tuple(INTEGRATION_TO_CALLBACK.values())
        trackers = [one for one in self._trainer.callback_handler.callbacks if isinstance(one, kinds)]
        took = [log_table(_as_logger(tracker), key, table, state.global_step) for tracker in trackers]
        without = [type(one).__name__ for one, is_logged in zip(trackers, took, strict=True) if not is_logged]
        if (without or not trackers) and not self._warned_of_trackers:
            self._warned_of_trackers = True
            reason = f"{', '.join(without)} takes no tables" if without else "report_to names no tracker"
            RunLog().warn(f"log_tables=True, but {reason}; use tensorboard, wandb, mlflow or trackio in report_to")


@contextmanager
def _without_completions(trainer: Any) -> Iterator[None]:
    """Suspend ``log_completions``: TRL would print and log the completions of the last step again."""
    is_logged, trainer.log_completions = trainer.log_completions, False
    try:
        yield
    finally:
        trainer.log_completions = is_logged


def _as_logger(tracker: Any) -> Any:
    """Return what :func:`log_table` knows of Lightning's loggers for a tracker's callback of transformers."""
    if (mlflow := getattr(tracker, "_ml_flow", None)) is not None:
        return SimpleNamespace(experiment=mlflow.MlflowClient(), run_id=mlflow.active_run().info.run_id)
    if (writer := getattr(tracker, "tb_writer", None)) is not None:
        return SimpleNamespace(experiment=writer)
    backend = getattr(tracker, "_wandb", None) or getattr(tracker, "_trackio", None)
    if backend is None:
        return SimpleNamespace()

    def log_table_with_backend(key: str, columns: list[str], data: list[list[Any]], step: int) -> None:
        backend.log({key: backend.Table(columns=columns, data=data), "train/global_step": step})

    return SimpleNamespace(log_table=log_table_with_backend)
