"""Training runs from YAML files on LightningCLI's conventions, for ``rrg-rewards train`` and the recipes' check."""

import contextlib
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from rrg_rewards.data.writers import write_json
from rrg_rewards.training.history import History
from rrg_rewards.training.report import Summary
from rrg_rewards.training.tasks import TASKS, Task
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import unknown_name_message

# Before Lightning's, which imports without it and fails later.
require("jsonargparse", extra="train")

from lightning.pytorch.cli import LightningArgumentParser, LightningCLI  # noqa: E402

__all__ = ["TrainCLI", "build", "fit", "help_text", "parse", "run", "summary", "validate"]


class TrainCLI(LightningCLI):  # type: ignore[misc]  # Lightning is an optional dependency
    """LightningCLI with one folder for all that a run writes, best checkpoint, early stopping, and one seed.

    Args:
        task: What is trained.
        argv: The command line.
        instantiate: Whether to make trainer, module and data; else it is parsed and no more.
    """

    def __init__(self, task: Task, argv: Sequence[str], instantiate: bool = True) -> None:
        self.task = task
        self.instantiate = instantiate
        super().__init__(
            task.module,
            task.data,
            args=list(argv),
            run=False,
            seed_everything_default=0,
            auto_configure_optimizers=False,
            # Its checkpoints would hold the classes' paths, by which loading imports what a file names.
            load_from_checkpoint_support=False,
            save_config_callback=None,
            trainer_defaults={"logger": False, "enable_model_summary": False},
            parser_kwargs={"parser_mode": "yaml", "default_env": False},
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the run's own arguments, and link what must be equal."""
        parser.add_argument("--output_dir", type=str, required=True, help="Folder for all that the run writes.")
        parser.add_argument(
            "--resume_from_checkpoint",
            type=str | None,
            default=None,
            help="Checkpoint to go on from, or auto: the last one in output_dir, if any.",
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
                # Not in the validation: a run goes on from there as if it had never stopped.
                "checkpoint.save_on_train_epoch_end": True,
                "early_stopping.monitor": self.task.monitor,
                "early_stopping.mode": "max",
                # Of equal predictions nothing is ranked and a correlation is NaN: a start that may still go somewhere.
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
        """Parse the arguments given, whatever the process' own command line says."""
        self.config = parser.parse_args(args)

    def _set_seed(self) -> None:
        if self.instantiate:
            super()._set_seed()

    def instantiate_classes(self) -> None:
        """Make trainer, module and data, unless arguments are only checked."""
        if self.instantiate:
            super().instantiate_classes()


def _checkpoint_folder(output_dir: str) -> str:
    return str(Path(output_dir) / "checkpoints")


def parse(task: str, argv: Sequence[str], instantiate: bool = True) -> TrainCLI:
    """Parse a command line; what it sets takes precedence over its ``--config``.

    Args:
        task: ``crepe`` or ``er2score``.
        argv: The command line.
        instantiate: Whether to make trainer, module and data.

    Raises:
        ValueError: For an unknown task or key, or a value that its owner rejects.
    """
    if task not in TASKS:
        raise ValueError(unknown_name_message("task", task, TASKS))
    message = io.StringIO()
    try:
        with contextlib.redirect_stderr(message):
            return TrainCLI(TASKS[task], argv, instantiate)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise ValueError(_last_words(message.getvalue())) from stop


def _last_words(message: str) -> str:
    """What the parser says of the error, without its usage and hints, on one line."""
    lines = [line.strip() for line in message.partition("error:")[2].splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(("tip:", "For more"))) or message.strip()


def help_text(task: str) -> str:
    """All keys of a task's YAML file."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        parse(task, ["--help"], instantiate=False)
    return text.getvalue()


def validate(task: str, path: str | Path) -> None:
    """Check a YAML file as a run would, without loading a model or data.

    Raises:
        ValueError: Naming the key that is wrong.
    """
    parse(task, ["--config", str(path)], instantiate=False)


def build(task: str, argv: Sequence[str], tell: Callable[[str], None] | None = None) -> TrainCLI:
    """Make trainer, module and data of a command line, with the history of what is logged."""
    cli = parse(task, argv)
    cli.trainer.callbacks.append(History(tell, cli.task.told))
    return cli


def fit(cli: TrainCLI) -> dict[str, float | None]:
    """Train, and load what the best checkpoint holds.

    Returns:
        What was logged at the best validation.
    """
    cli.trainer.fit(cli.model, cli.datamodule, ckpt_path=_resumed(cli), weights_only=True)
    return best_row(cli)


def _resumed(cli: TrainCLI) -> str | None:
    wanted: str | None = cli.config.resume_from_checkpoint
    if wanted != "auto":
        if wanted is not None and not Path(wanted).is_file():
            raise FileNotFoundError(f"resume_from_checkpoint: {wanted}: no such file")
        return wanted
    last = Path(_checkpoint_folder(cli.config.output_dir)) / "last.ckpt"
    return str(last) if last.is_file() else None


def best_row(cli: TrainCLI) -> dict[str, float | None]:
    """The history's row of the best checkpoint; the last one where no validation ranked anything."""
    rows = history_of(cli).rows
    best = cli.trainer.checkpoint_callback.best_model_score
    # Not the highest of all: checkpoints are written at the ends of epochs, and validations may be more often.
    return next((row for row in rows if best is not None and row[cli.task.monitor] == float(best)), rows[-1])


def history_of(cli: TrainCLI) -> History:
    """The history among the trainer's callbacks."""
    return next(callback for callback in cli.trainer.callbacks if isinstance(callback, History))


def run(cli: TrainCLI) -> dict[str, Any] | None:
    """Train, test the best checkpoint on what nothing was chosen by, export the model and write the report.

    Every process calls it.

    Returns:
        On the main process what ``report.json`` holds, else ``None``.
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
    about = {"task": cli.task.name, "best": best, "data": cli.datamodule.describe(), "config": config}
    return cli.task.report(folder, cli.model, cli.datamodule, history_of(cli).rows, about)


def summary(report: dict[str, Any]) -> Summary:
    """What a terminal shows of the report that :func:`run` gave."""
    return TASKS[report["task"]].summary(report)
