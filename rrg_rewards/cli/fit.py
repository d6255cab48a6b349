"""``rrg-rewards fit``: measure what a reward estimates from data, once for all processes of a trainer."""

import argparse
from typing import Any

from rrg_rewards.analysis.settings import RewardChoice
from rrg_rewards.cli.options import (
    UsageError,
    add_command_parser,
    add_settings,
    add_shared_options,
    add_table_argument,
    read_input,
)
from rrg_rewards.cli.terminal import Terminal

_DESCRIPTION = """\
Measure what a reward estimates from data, and write its settings with the numbers as JSON. The workers of verl, AReaL
and other trainers share no statistics. All of them read this file, so that equal completions have equal rewards.

The prior of CRG is measured on the references of the training set. "normalize: true" of a part of a composed reward
becomes the mean and the standard deviation of its rewards on the reports in --prediction-column, for example those of
the policy before training.

examples:
  rrg-rewards fit train.csv --reward crg --set average=macro --output reward.json
  rrg-rewards fit train.csv --config reward.yaml --prediction-column prediction --output reward.json

--config is a YAML file of settings as in docs/trainers.md, with the key reward. All its other keys are copied.
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``fit`` to the command line."""
    parser = add_command_parser(commands, "fit", _run, summary, _DESCRIPTION)
    add_table_argument(parser, "TABLE", "the training set")
    given = parser.add_mutually_exclusive_group(required=True)
    add_settings(given, RewardChoice, "reward", reward={"required": False, "help": "reward to fit, for example crg"})
    given.add_argument("--config", metavar="FILE", help="YAML file of settings")
    column = {"default": None, "help": "column of references, with --reward (default: reference)"}
    add_settings(parser, RewardChoice, "reference_column", reference_column=column)
    parser.add_argument("--prediction-column", metavar="NAME", help="column of reports, for normalize")
    output = {"required": True, "default": None, "help": "JSON file to write; - is standard output"}
    add_shared_options(parser, "format", "overwrite")
    option = {"help": "set an option of the reward, for example average=macro; may be repeated"}
    add_settings(parser, RewardChoice, "set", set=option)
    add_shared_options(parser, output=output)


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of ``--config``, or of ``--reward`` and ``--set``."""
    if args.reward is not None:
        column = {} if args.reference_column is None else {"reference_column": args.reference_column}
        return {"reward": {"name": args.reward, **args.set}, **column}
    if args.set or args.reference_column is not None:
        raise UsageError("--set and --reference-column are for --reward; write them into the file of --config")
    from rrg_rewards.integrations.common.settings import read_settings_file

    return read_settings_file(args.config)


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.data.tables.writers import check_output, write_json
    from rrg_rewards.integrations.common.settings import fit_settings, read_settings

    check_output(args.output, args.overwrite)
    settings = _settings(args)
    try:
        read_settings(settings)
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from error
    table = read_input(args, terminal)
    fitted, reward = fit_settings(settings, table, args.prediction_column)
    write_json(fitted, args.output, args.overwrite)
    terminal.note(f"fitted {reward.__name__} on {len(table)} rows: {reward.signature}")
    return 0
