"""``rrg-rewards train``: train a learned metric from one YAML file."""

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from rrg_rewards.cli.options import UsageError, add_common_options, new_parser_options, positive_int
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.utilities.imports import require

__all__ = ["add_command"]

_DESCRIPTION = """\
Train a learned metric. One YAML file is one run, on LightningCLI's conventions: every key of it is an option, too, as
in --trainer.max_epochs 3 or --model.learning_rate 1e-4, which take precedence.

Written to output_dir: the best model in Hugging Face form (model/), a report with plots (report.md, report.json), the
resolved configuration (run.json), and checkpoints. It needs the extra `train`.
"""

_EXAMPLE = """\
examples:
  rrg-rewards recipes cp crepe/train my_run.yaml
  rrg-rewards train crepe --config my_run.yaml
  rrg-rewards train crepe --config crepe/minilm_phantom --trainer.max_epochs 1
  rrg-rewards train crepe --config my_run.yaml --search 20
  rrg-rewards train er2score --config er2score/smollm2_phantom
  torchrun --nproc_per_node 2 -m rrg_rewards train crepe --config my_run.yaml --trainer.devices 2
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``train`` to the command line."""
    parser = commands.add_parser(
        "train",
        help="train a learned metric",
        description=_DESCRIPTION,
        epilog=_EXAMPLE,
        **new_parser_options(),
    )
    parser.add_argument("task", choices=("crepe", "er2score"), help="what to train")
    parser.add_argument("--config", metavar="FILE", help="YAML file, or the name of a recipe that recipes ls lists")
    parser.add_argument("--keys", action="store_true", help="show all keys of the YAML file and end")
    parser.add_argument(
        "--search",
        type=positive_int,
        metavar="TRIALS",
        help="first search learning rate, weight decay and warm-up ratio in so many trials (extra search)",
    )
    add_common_options(parser)
    parser.set_defaults(run=_train, parser=parser, takes_more=True)


def _train(args: argparse.Namespace, terminal: Terminal) -> int:
    training = _training()
    if args.keys:
        terminal.show(training.help_text(args.task))
        return 0
    if args.config is None:
        raise UsageError("--config FILE is needed; rrg-rewards recipes ls lists recipes")
    argv = ["--config", str(_config_file(args.config)), *args.more]
    # A bar is for a terminal that someone looks at; in a log each of its steps would be a line.
    if args.quiet or not sys.stderr.isatty():
        argv = [*argv, "--trainer.enable_progress_bar", "false"]
    with _only_our_own_words():
        if args.search:
            search = import_module("rrg_rewards.training.search")
            argv = [*argv, *search.search(args.task, argv, args.search, terminal.note)]
        cli = training.build(args.task, argv, terminal.note)
        report = training.run(cli)
    if report is not None:
        _show(training.summary(report), Path(cli.config.output_dir), terminal)
    return 0


def _training() -> Any:
    require("lightning", extra="train")
    # Not by its name: an import of this file alone must not bring Lightning.
    return import_module("rrg_rewards.training.cli")


def _config_file(name: str) -> Path:
    if Path(name).is_file():
        return Path(name)
    try:
        return Path(import_module("rrg_rewards.recipes").recipe_path(name))
    except ValueError as error:
        raise UsageError(f"--config {name}: no such file, and {error}") from error


@contextmanager
def _only_our_own_words() -> Iterator[None]:
    """Keep the hints and bars of the libraries below from the terminal, and the libraries from reporting their use."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    require("transformers.utils.logging", extra="train").disable_progress_bar()
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with warnings.catch_warnings():
        # Advice on data loading and logging that the modules here have settled, and libraries' quarrels of their own.
        warnings.filterwarnings("ignore", module=r"lightning\.")
        yield


def _show(summary: Any, folder: Path, terminal: Terminal) -> None:
    from rich.table import Table as Grid

    grid = Grid(title=summary.title, title_justify="left")
    for place, heading in enumerate(summary.headings):
        grid.add_column(heading, justify="right" if place else "left")
    for row in summary.rows:
        grid.add_row(*row)
    terminal.show(grid)
    for line in summary.lines:
        terminal.show(line)
    terminal.note(f"model in {folder / 'model'}, report in {folder / 'report.md'}")
