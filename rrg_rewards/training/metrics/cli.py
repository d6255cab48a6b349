"""Training runs from LightningCLI YAML files, for ``rrg-rewards train`` and ``rrg-rewards recipes validate``."""

import contextlib
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from rrg_rewards.data.tables.writers import write_json
from rrg_rewards.training.metrics.card import write_metric_card
from rrg_rewards.training.metrics.history import History
from rrg_rewards.training.metrics.report import Summary
from rrg_rewards.training.metrics.tasks import TASKS
from rrg_rewards.training.metrics.termination import SaveOnTermination
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import unknown_name_message

# Check first, because LightningCLI can be imported without jsonargparse but not used.
require("jsonargparse", extra="train")

from lightning.pytorch.cli import LightningArgumentParser, LightningCLI  # noqa: E402

__all__ = ["TrainCLI", "build", "fit", "help_text", "parse", "run", "summary", "validate"]


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
        """Instantiate the trainer, the module and the data if ``instantiate`` is set."""
        if self.instantiate:
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
        if wanted is not None and not Path(wanted).is_file():
            raise FileNotFoundError(f"resume_from_checkpoint: {wanted}: no such file")
        return wanted
    last = _last_checkpoint(cli.config.output_dir)
    return str(last) if last.is_file() else None


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
    """
    best = fit(cli)
    cli.trainer.test(cli.model, cli.datamodule, ckpt_path="best", weights_only=True, verbose=False)
    if not cli.trainer.is_global_zero:
        return None
    folder = Path(cli.config.output_dir)
    model = cli.model.export(folder / "model")
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
    report = cli.task.report(folder, cli.model, cli.datamodule, history_of(cli).rows, about)
    write_metric_card(model, report, config["model"][cli.task.pretrained])
    return report


def summary(report: dict[str, Any]) -> Summary:
    """Return the terminal summary of the report that :func:`run` returned."""
    return TASKS[report["task"]].summary(report)
