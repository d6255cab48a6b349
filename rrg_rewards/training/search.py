"""Search for the hyperparameters that the paper searched for, by Optuna."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from rrg_rewards.data.writers import write_json
from rrg_rewards.training.cli import build, fit, parse
from rrg_rewards.utilities.imports import require

__all__ = ["search"]


class _Prune(Callback):  # type: ignore[misc]  # Lightning is an optional dependency
    """Ends a trial that is worse than half of those before it were at the same validation."""

    def __init__(self, trial: Any, monitor: str) -> None:
        self.trial = trial
        self.monitor = monitor

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        if trainer.sanity_checking:
            return
        value = float(trainer.callback_metrics[self.monitor])
        # NaN is no score: nothing is ranked yet.
        self.trial.report(-1.0 if value != value else value, trainer.current_epoch)
        if self.trial.should_prune():
            raise require("optuna", extra="search").TrialPruned


def search(task: str, argv: Sequence[str], trials: int, tell: Callable[[str], None] | None = None) -> list[str]:
    """Search learning rate, weight decay and warm-up ratio, each trial being a whole run of the command line.

    The best trial is the one with the best validation; the test's records are looked at by none. Trials draw from the
    run's seed, are kept in ``output_dir/search/trials.db`` (a search that was stopped goes on with the trials that are
    left) and write below ``output_dir/search``; ``output_dir/search.json`` tells all of them.

    Args:
        task: What is trained, such as ``crepe``.
        argv: The command line.
        trials: Number of trials, those of an earlier search with the same folder included.
        tell: Takes a line after each trial.

    Returns:
        Options that set what was found.

    Raises:
        ModuleNotFoundError: If Optuna is not installed, naming the pip command.
        ValueError: If no trial came to its end, or processes were launched together.
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
        place = folder / "search" / f"trial-{trial.number:03d}"
        run = build(task, [*argv, *_drawn(trial), "--output_dir", str(place), "--resume_from_checkpoint", "null"])
        run.trainer.callbacks.append(_Prune(trial, run.task.monitor))
        score = fit(run)[run.task.monitor]
        # The score stays; a checkpoint a trial would fill the disk.
        for path in (place / "checkpoints").glob("*.ckpt"):
            path.unlink()
        if score is None:
            raise optuna.TrialPruned
        return score

    finished = sum(trial.state.is_finished() for trial in study.trials)
    study.optimize(objective, n_trials=max(trials - finished, 0), callbacks=[_teller(tell)] if tell else None)
    write_json([_row(trial) for trial in study.trials], folder / "search.json", overwrite=True)
    if not any(trial.state.name == "COMPLETE" for trial in study.trials):
        raise ValueError("no trial of the search came to its end: all were worse than those before, or ranked nothing")
    return [part for name, value in study.best_params.items() for part in (f"--{name}", json.dumps(value))]


def _drawn(trial: Any) -> list[str]:
    """What a trial sets, as options."""
    values = {
        "model.learning_rate": trial.suggest_float("model.learning_rate", 1e-5, 3e-4, log=True),
        "model.weight_decay": trial.suggest_float("model.weight_decay", 1e-4, 0.3, log=True),
        "model.warmup_ratio": trial.suggest_float("model.warmup_ratio", 0.0, 0.3),
    }
    return [part for name, value in values.items() for part in (f"--{name}", json.dumps(value))]


def _teller(tell: Callable[[str], None]) -> Callable[[Any, Any], None]:
    def after(study: Any, trial: Any) -> None:  # noqa: ARG001 (Optuna's signature)
        outcome = f"{trial.value:.4f}" if trial.value is not None else trial.state.name.lower()
        drawn = ", ".join(f"{name.partition('.')[2]} {value:.3g}" for name, value in trial.params.items())
        tell(f"trial {trial.number}: {outcome} with {drawn}")

    return after


def _row(trial: Any) -> dict[str, Any]:
    return {"number": trial.number, "state": trial.state.name.lower(), "score": trial.value, **trial.params}
