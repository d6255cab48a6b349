"""``rrg-rewards train``: train a learned metric.

Train a learned metric. One YAML file describes one run. Each of its keys is also an option that takes precedence, such
as --trainer.max_epochs 3 or --model.learning_rate 1e-4.

The run writes to output_dir: the best model in Hugging Face format (model/), a report with plots (report.md,
report.json), the resolved configuration (run.json) and checkpoints. The command needs the extra `train`. The recipe
crepe/minilm_phantom takes 10 minutes on two free cores.

Examples:
  rrg-rewards recipes cp crepe/train my_run.yaml
  rrg-rewards train crepe --config my_run.yaml
  rrg-rewards train crepe --config crepe/minilm_phantom --trainer.max_epochs 1
  rrg-rewards train er2score --config er2score/smollm2_phantom
  torchrun --nproc_per_node 2 -m rrg_rewards train crepe --config my_run.yaml --trainer.devices 2
"""

import argparse
import logging
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from rrg_rewards.cli.options import UsageError, add_command_parser, add_settings
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.settings import Settings, setting
from rrg_rewards.utilities.yaml_files import read_user_yaml


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Training(Settings):
    """How to train."""

    config: str | None = setting(None, "YAML file, or name of a recipe (see rrg-rewards recipes ls)", metavar="FILE")
    keys: bool = setting(False, "show all keys of the YAML file and exit")


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``train`` to the command line."""
    parser = add_command_parser(commands, "train", _run, summary, __doc__)
    parser.add_argument("task", choices=("crepe", "er2score"), help="learned metric to train")
    add_settings(parser, _Training)
    parser.set_defaults(takes_more=True)


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    require("lightning", extra="train")
    # Imported here, because --help must not import Lightning.
    training: Any = import_module("rrg_rewards.training.metrics.cli")
    if args.keys:
        terminal.show(training.help_text(args.task))
        return 0
    if args.config is None:
        raise UsageError("--config FILE is required; rrg-rewards recipes ls lists recipes")
    terminated: Any = import_module("lightning.pytorch.utilities.exceptions").SIGTERMException
    argv = ["--config", str(_config_file(args.config)), *args.more]
    # In a log file, each step of a progress bar would be a line.
    if args.quiet or not sys.stderr.isatty():
        argv = [*argv, "--trainer.enable_progress_bar", "false"]
    try:
        return _train(training, args.task, argv, terminal)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}; see the header of this recipe for how to make it") from error
    except terminated as stop:
        code = int(stop.code)
        name = signal.Signals(code - 128).name
        terminal.error(f"ended by {name}; --resume_from_checkpoint auto continues from the last checkpoint")
        return code


def _train(training: Any, task: str, argv: Sequence[str], terminal: Terminal) -> int:
    with _quiet_libraries():
        cli = training.build(task, argv, terminal.note)
        report = training.run(cli)
    if report is not None:
        sections = import_module("rrg_rewards.training.metrics.report").sections(report)
        _show(sections, Path(cli.config.output_dir), terminal)
    return 0


def _config_file(name: str) -> Path:
    if Path(name).is_file() or Path(name).is_dir():
        read_user_yaml(name)  # jsonargparse has no limits.
        return Path(name)
    try:
        return Path(import_module("rrg_rewards.recipes").recipe_path(name))
    except ValueError as error:
        raise UsageError(f"--config {name}: no such file, and {error}") from error


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Suppress messages, progress bars and telemetry of libraries."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    require("transformers.utils.logging", extra="train").disable_progress_bar()
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with warnings.catch_warnings():
        # Lightning advises on data loading and logging; the advice does not apply to this package.
        warnings.filterwarnings("ignore", module=r"lightning\.")
        yield


def _show(sections: Sequence[Any], folder: Path, terminal: Terminal) -> None:
    from rrg_rewards.utilities.grids import printed_table

    for section in sections:
        if section.text:
            terminal.show(section.text.replace("**", ""))
        terminal.show(printed_table(None, section.headings, [section.rows]))
    terminal.note(f"model in {folder / 'model'}, report in {folder / 'report.md'}")
