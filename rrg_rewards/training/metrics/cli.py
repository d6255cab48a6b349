"""Training runs from LightningCLI YAML files, for ``rrg-rewards train`` and ``rrg-rewards recipes validate``."""

import contextlib
import io
import math
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.utilities.exceptions import SIGTERMException

from rrg_rewards.data.tables.writers import write_json
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.crepe import CREPE
from rrg_rewards.metrics.er2score import ER2Score
from rrg_rewards.training.base import is_partitioned, load_partitioned, whole_weights
from rrg_rewards.training.metrics.crepe import CrepeModule
from rrg_rewards.training.metrics.data import CrepeDataModule, ER2ScoreDataModule
from rrg_rewards.training.metrics.er2score import ER2ScoreModule
from rrg_rewards.training.metrics.report import crepe_report, er2score_report, write_metric_card
from rrg_rewards.utilities.files import locked_folder
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.processes import any_process
from rrg_rewards.utilities.signals import ending_signals

# LightningCLI can be imported without jsonargparse, but not used.
require("jsonargparse", extra="train")


class History(Callback):  # type: ignore[misc]  # Lightning is an optional dependency
    """Stores the logged values of each validation, and saves them in checkpoints.

    Args:
        report_line: Function that the main process calls with one line after each validation.
        names: Names of the values in the line.

    Example:
        >>> History().rows
        []
    """

    def __init__(self, report_line: Callable[[str], None] | None = None, names: Sequence[str] = ()) -> None:
        self.report_line = report_line
        self.names = tuple(names)
        self.rows: list[dict[str, float | None]] = []

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Store the values of this validation."""
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items() if "/" in name}
        row = {"epoch": trainer.current_epoch + 1, "step": trainer.global_step, **metrics}
        self.rows.append({name: value if math.isfinite(value) else None for name, value in row.items()})
        if self.report_line is not None and trainer.is_global_zero:
            self.report_line(_line(self.rows[-1], self.names, trainer.max_epochs))

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state that :meth:`state_dict` returned."""
        self.rows = list(state_dict["rows"])


def _line(row: dict[str, float | None], names: Sequence[str], epochs: int | None) -> str:
    shown = [f"{name} {row[name]:.4f}" for name in names if row.get(name) is not None]
    return f"epoch {row['epoch']}{f' of {epochs}' if epochs and epochs > 0 else ''}, {', '.join(shown)}"


class SaveOnTermination(Callback):  # type: ignore[misc]  # Lightning is an optional dependency
    """Save a checkpoint and end the training when a process of the run receives SIGTERM or SIGHUP.

    The step is finished first. The processes agree after each step and each validation, because the signal reaches them
    at different times, or only one of them. Lightning's own handler communicates within the handler; with several
    processes, its message may meet one of the training, and then the run hangs.

    Args:
        path: File of the checkpoint.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.received: int | None = None

    def receive(self, number: int, *_: Any) -> None:
        """Handle a signal. Further signals change nothing: a launcher and the system may both send one."""
        self.received = self.received or number

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Replace the handlers, which Lightning restores itself at the end."""
        if threading.current_thread() is threading.main_thread():
            for number in ending_signals():
                signal.signal(number, self.receive)

    # Without a sanity check.
    on_train_start = on_sanity_check_start

    def on_train_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        """End the training if a process has received the signal.

        Raises:
            SIGTERMException: In all processes, with the exit code 128 + number of the signal.
        """
        if any_process(self.received is not None, trainer.strategy.root_device):
            raise SIGTERMException(128 + (self.received or signal.SIGTERM))

    on_validation_end = on_train_batch_end

    def on_validation_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        """Do the same within a validation, if there is one process. Others may have other numbers of batches."""
        if trainer.world_size == 1:
            self.on_train_batch_end(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:  # noqa: ARG002
        """Save a checkpoint from which the run can be resumed within the epoch."""
        if isinstance(exception, SIGTERMException):
            # Lightning kills the main process if another process ends with an exit code.
            getattr(trainer.strategy.launcher, "procs", []).clear()
            if trainer.state.fn == "fit" and not trainer.sanity_checking:
                trainer.save_checkpoint(self.path)


@dataclass(frozen=True)
class Task:
    """The training of a learned metric.

    Args:
        module: The LightningModule.
        data: The LightningDataModule.
        metric: The torchmetrics metric that the exported model is for.
        logged: Names of the values in the line after each validation, in addition to the losses.
        pretrained: Argument of the module that is the pretrained model. The data use its tokenizer.
        shared: Further arguments that must be equal for the module and the data.
        report: Function that writes the report; see :func:`~rrg_rewards.training.metrics.report.crepe_report`.
    """

    module: type
    data: type
    metric: Callable[..., ReportMetric]
    logged: tuple[str, ...]
    pretrained: str
    shared: tuple[str, ...]
    report: Callable[..., dict[str, Any]]

    @property
    def monitor(self) -> str:
        """Name of the logged value that selects the checkpoint. Higher is better."""
        return f"val/{self.module.monitor}"  # type: ignore[attr-defined]

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """Pairs (source, target) of configuration keys whose values must be equal."""
        shared = ((f"model.{name}", f"data.{name}") for name in self.shared)
        return ((f"model.{self.pretrained}", "data.tokenizer"), *shared)


TASKS = {
    "crepe": Task(
        CrepeModule,
        CrepeDataModule,
        CREPE,
        logged=("val/tau", "val/mae"),
        pretrained="encoder",
        shared=("revision", "heads"),
        report=crepe_report,
    ),
    "er2score": Task(
        ER2ScoreModule,
        ER2ScoreDataModule,
        ER2Score,
        logged=("val/accuracy", "val/kendall"),
        pretrained="backbone",
        shared=("revision", "scoring_system", "prompt", "max_length"),
        report=er2score_report,
    ),
}
"""The tasks by name."""


class TrainCLI(LightningCLI):  # type: ignore[misc]  # Lightning is an optional dependency
    """LightningCLI with an output folder, checkpoints of the best and the last epoch, early stopping and one seed.

    Args:
        task: Name of the learned metric to train, ``crepe`` or ``er2score``.
        argv: Command-line arguments.
        instantiate: Whether to instantiate the trainer, the module and the data. ``False`` only parses the arguments.
    """

    def __init__(self, task: str, argv: Sequence[str], instantiate: bool = True) -> None:
        self.task_name = task
        self.task = TASKS[task]
        self.instantiate = instantiate
        super().__init__(
            self.task.module,
            self.task.data,
            args=list(argv),
            run=False,
            seed_everything_default=0,
            auto_configure_optimizers=False,
            # Otherwise, checkpoints would contain class paths, and loading one would import the classes that it names.
            load_from_checkpoint_support=False,
            save_config_callback=None,
            trainer_defaults={"logger": False, "enable_model_summary": False},
            parser_kwargs={"parser_mode": "yaml", "default_env": False},
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add arguments, and link arguments that must be equal."""
        parser.add_argument("--output_dir", type=str, required=True, help="Folder of all output files.")
        parser.add_argument(
            "--resume_from_checkpoint",
            type=str | None,
            default=None,
            help="Checkpoint to resume from, or auto: the last one in output_dir, if any.",
        )
        parser.add_lightning_class_args(ModelCheckpoint, "checkpoint")
        parser.add_lightning_class_args(EarlyStopping, "early_stopping")
        parser.set_defaults(
            {
                "checkpoint.monitor": self.task.monitor,
                "checkpoint.mode": "max",
                "checkpoint.filename": "best",
                "checkpoint.auto_insert_metric_name": False,
                "checkpoint.save_last": True,
                "checkpoint.enable_version_counter": False,
                # Save at the end of epochs, because a run resumed from there repeats an uninterrupted run.
                "checkpoint.save_on_train_epoch_end": True,
                "early_stopping.monitor": self.task.monitor,
                "early_stopping.mode": "max",
                # The correlation is NaN if all predictions are equal, which is common at the start of training.
                "early_stopping.check_finite": False,
                "early_stopping.patience": 3,
            }
        )
        parser.link_arguments("output_dir", "checkpoint.dirpath", compute_fn=_checkpoint_folder)
        parser.link_arguments("output_dir", "trainer.default_root_dir")
        parser.link_arguments("seed_everything", "model.seed", compute_fn=int)
        parser.link_arguments("seed_everything", "data.seed", compute_fn=int)
        for source, target in self.task.links:
            parser.link_arguments(source, target)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse the given arguments instead of ``sys.argv``."""
        self.config = parser.parse_args(args)

    def _set_seed(self) -> None:
        if self.instantiate:
            super()._set_seed()

    def instantiate_classes(self) -> None:
        """Instantiate the trainer, the module and the data if ``instantiate`` is set.

        Raises:
            FileNotFoundError: If a file of a source does not exist; said before the model is asked for.
        """
        if self.instantiate:
            for place, source in enumerate(self.config.data.sources):
                path = getattr(getattr(source, "init_args", None), "path", None)
                if path is not None and not Path(path).is_file():
                    raise FileNotFoundError(f"data.sources[{place}]: {path}: no such file")
            super().instantiate_classes()


def _checkpoint_folder(output_dir: str) -> str:
    return str(Path(output_dir) / "checkpoints")


def _last_checkpoint(output_dir: str) -> Path:
    return Path(_checkpoint_folder(output_dir)) / "last.ckpt"


def parse(task: str, argv: Sequence[str], instantiate: bool = True) -> TrainCLI:
    """Parse command-line arguments. They take precedence over the file of ``--config``.

    Args:
        task: ``crepe`` or ``er2score``.
        argv: Command-line arguments.
        instantiate: Whether to instantiate the trainer, the module and the data.

    Raises:
        ValueError: If the task or a key is unknown, or a value is invalid.
    """
    if task not in TASKS:
        raise ValueError(unknown_name_message("task", task, TASKS))
    message = io.StringIO()
    try:
        with contextlib.redirect_stderr(message):
            return TrainCLI(task, argv, instantiate)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise ValueError(_error_line(message.getvalue())) from stop


def _error_line(message: str) -> str:
    """Return the parser's error message on one line, without usage and hints."""
    lines = [line.strip() for line in message.partition("error:")[2].splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(("tip:", "For more"))) or message.strip()


def help_text(task: str) -> str:
    """Return the help for all keys of a task's YAML file."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        parse(task, ["--help"], instantiate=False)
    return text.getvalue()


def validate(task: str, path: str | Path) -> None:
    """Check the YAML file of a run without loading a model or data.

    Raises:
        ValueError: If a key or a value is invalid; the message names the key.
    """
    parse(task, ["--config", str(path)], instantiate=False)


def build(task: str, argv: Sequence[str], report_line: Callable[[str], None] | None = None) -> TrainCLI:
    """Build the trainer with a history of logged values, the module and the data from command-line arguments.

    Args:
        task: ``crepe`` or ``er2score``.
        argv: Command-line arguments.
        report_line: Function that the main process calls with one line after each validation.
    """
    cli = parse(task, argv)
    names = ("train/loss", "val/loss", *cli.task.logged)
    cli.trainer.callbacks += [History(report_line, names), SaveOnTermination(_last_checkpoint(cli.config.output_dir))]
    return cli


def fit(cli: TrainCLI) -> dict[str, float | None]:
    """Train the module.

    Returns:
        The logged values of the best checkpoint; see :func:`best_row`.
    """
    cli.trainer.fit(cli.model, cli.datamodule, ckpt_path=_resumed(cli), weights_only=True)
    return best_row(cli)


def _resumed(cli: TrainCLI) -> str | None:
    wanted: str | None = cli.config.resume_from_checkpoint
    if wanted != "auto":
        # A checkpoint of DeepSpeed is a folder.
        if wanted is not None and not Path(wanted).exists():
            raise FileNotFoundError(f"resume_from_checkpoint: {wanted}: no such file or folder")
        return wanted
    last = _last_checkpoint(cli.config.output_dir)
    return str(last) if last.exists() else None


def _test_best(cli: TrainCLI) -> None:
    """Test the best checkpoint."""
    path: str | None = "best"
    if is_partitioned(cli.model):
        # Without an optimiser, DeepSpeed cannot load a checkpoint of ZeRO-3.
        load_partitioned(cli.model, cli.trainer.checkpoint_callback.best_model_path)
        path = None
    cli.trainer.test(cli.model, cli.datamodule, ckpt_path=path, weights_only=True, verbose=False)


def best_row(cli: TrainCLI) -> dict[str, float | None]:
    """Return the history's row of the best checkpoint, or the last row if the monitored value was always NaN."""
    rows = history_of(cli).rows
    best = cli.trainer.checkpoint_callback.best_model_score
    # The highest value of all rows may have no checkpoint, because validations may be more frequent than checkpoints.
    return next((row for row in rows if best is not None and row[cli.task.monitor] == float(best)), rows[-1])


def history_of(cli: TrainCLI) -> History:
    """Return the trainer's history callback."""
    return next(callback for callback in cli.trainer.callbacks if isinstance(callback, History))


def run(cli: TrainCLI) -> dict[str, Any] | None:
    """Train, test the best checkpoint, export its model with a model card, and write the training report.

    Every process must call it.

    Returns:
        The content of ``report.json`` in the main process, ``None`` in the other processes.

    Raises:
        SettingError: If another process trains in ``output_dir``.
    """
    with locked_folder(cli.config.output_dir, cli.trainer.is_global_zero):
        return _run(cli)


def _run(cli: TrainCLI) -> dict[str, Any] | None:
    best = fit(cli)
    # Loading the best checkpoint restores the history of its epoch.
    rows = list(history_of(cli).rows)
    _test_best(cli)
    folder = Path(cli.config.output_dir)
    with whole_weights(cli.model):
        model = cli.model.export(folder / "model") if cli.trainer.is_global_zero else None
    if model is None:
        return None
    cli.datamodule.save_tokenizer(model)
    config = yaml.safe_load(cli.parser.dump(cli.config))
    write_json(config, folder / "run.json", overwrite=True)
    about = {
        "task": cli.task_name,
        "best": best,
        "data": cli.datamodule.describe(),
        "config": config,
        "signature": cli.task.metric(str(model)).signature,
    }
    report = cli.task.report(folder, cli.model, cli.datamodule, rows, about)
    write_metric_card(model, report, config["model"][cli.task.pretrained])
    return report
