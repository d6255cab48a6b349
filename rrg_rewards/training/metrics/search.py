"""Hyperparameter search with Optuna."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from rrg_rewards.data.tables.writers import write_json
from rrg_rewards.training.metrics.cli import build, fit, parse
from rrg_rewards.utilities.imports import require


class _Prune(Callback):  # type: ignore[misc]  # Lightning is an optional dependency
    """Stops a trial whose value is below the median of earlier trials at the same validation."""

    def __init__(self, trial: Any, monitor: str) -> None:
        self.trial = trial
        self.monitor = monitor

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        if trainer.sanity_checking:
            return
        value = float(trainer.callback_metrics[self.monitor])
        # The correlation is NaN as long as all predictions are equal.
        self.trial.report(-1.0 if value != value else value, trainer.current_epoch)
        if self.trial.should_prune():
            raise require("optuna", extra="search").TrialPruned


def search(task: str, argv: Sequence[str], trials: int, report_line: Callable[[str], None] | None = None) -> list[str]:
    """Search for learning rate, weight decay and warm-up ratio. Each trial is a complete training without test.

    The best trial has the best monitored value on the validation data. The search is seeded by the seed of the run.
    Trials are stored in ``output_dir/search/trials.db``, from which an interrupted search resumes. Their output is in
    ``output_dir/search``, and ``output_dir/search.json`` lists all trials.

    Args:
        task: Name of the learned metric, such as ``crepe``.
        argv: Command-line arguments of the run.
        trials: Number of trials, including those of an earlier search in the same folder.
        report_line: Function that is called with one line after each trial.

    Returns:
        Command-line options that set the best values.

    Raises:
        ModuleNotFoundError: If Optuna is not installed; the message contains the pip command.
        ValueError: If no trial completed, or the run uses several devices.
    """
    optuna = require("optuna", extra="search")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    settings = parse(task, argv, instantiate=False).config
    if settings.trainer.devices not in (1, "1", "auto") or settings.trainer.num_nodes != 1:
        raise ValueError("a search runs on one device: set trainer.devices to 1, and train with several afterwards")
    folder = Path(settings.output_dir)
    (folder / "search").mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        storage=f"sqlite:///{folder / 'search' / 'trials.db'}",
        study_name=task,
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=int(settings.seed_everything)),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=1),
        load_if_exists=True,
    )

    def objective(trial: Any) -> float:
        output = folder / "search" / f"trial-{trial.number:03d}"
        run = build(task, [*argv, *_drawn(trial), "--output_dir", str(output), "--resume_from_checkpoint", "null"])
        run.trainer.callbacks.append(_Prune(trial, run.task.monitor))
        score = fit(run)[run.task.monitor]
        # Delete the checkpoints, which would fill the disk.
        for path in (output / "checkpoints").glob("*.ckpt"):
            path.unlink()
        if score is None:
            raise optuna.TrialPruned
        return score

    finished = sum(trial.state.is_finished() for trial in study.trials)
    callbacks = [_reporter(report_line)] if report_line else None
    study.optimize(objective, n_trials=max(trials - finished, 0), callbacks=callbacks)
    write_json([_row(trial) for trial in study.trials], folder / "search.json", overwrite=True)
    if not any(trial.state.name == "COMPLETE" for trial in study.trials):
        raise ValueError("no trial of the search completed: each was stopped early or had a monitored value of NaN")
    return [part for name, value in study.best_params.items() for part in (f"--{name}", json.dumps(value))]


def _drawn(trial: Any) -> list[str]:
    """Draw the values of a trial and return them as command-line options."""
    values = {
        "model.learning_rate": trial.suggest_float("model.learning_rate", 1e-5, 3e-4, log=True),
        "model.weight_decay": trial.suggest_float("model.weight_decay", 1e-4, 0.3, log=True),
        "model.warmup_ratio": trial.suggest_float("model.warmup_ratio", 0.0, 0.3),
    }
    return [part for name, value in values.items() for part in (f"--{name}", json.dumps(value))]


def _reporter(report_line: Callable[[str], None]) -> Callable[[Any, Any], None]:
    def after(study: Any, trial: Any) -> None:  # noqa: ARG001 (Optuna's signature)
        outcome = f"{trial.value:.4f}" if trial.value is not None else trial.state.name.lower()
        drawn = ", ".join(f"{name.partition('.')[2]} {value:.3g}" for name, value in trial.params.items())
        report_line(f"trial {trial.number}: {outcome} with {drawn}")

    return after


def _row(trial: Any) -> dict[str, Any]:
    return {"number": trial.number, "state": trial.state.name.lower(), "score": trial.value, **trial.params}
