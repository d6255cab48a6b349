"""``rrg-rewards fit``: measure what a reward estimates from data, once for all processes of a trainer."""

import argparse
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.options import (
    UsageError,
    add_command_parser,
    add_shared_options,
    add_table_argument,
    read_assignments,
    read_input,
)
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.version import __version__

if TYPE_CHECKING:
    from rrg_rewards.data.tables.table import Table

__all__ = ["add_command"]

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
    given.add_argument("--reward", metavar="NAME", help="reward to fit, for example crg")
    given.add_argument("--config", metavar="FILE", help="YAML file of settings")
    parser.add_argument(
        "--reference-column", metavar="NAME", help="column of references, with --reward (default: reference)"
    )
    parser.add_argument("--prediction-column", metavar="NAME", help="column of reports, for normalize")
    setting = {
        "metavar": "OPTION=VALUE",
        "help": "set an option of the reward, for example average=macro; may be repeated",
    }
    output = {"required": True, "default": None, "help": "JSON file to write; - is standard output"}
    add_shared_options(parser, "format", "overwrite", set=setting, output=output)


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of ``--config``, or of ``--reward`` and ``--set``."""
    if args.reward is not None:
        options = read_assignments("--set", "OPTION=VALUE", args.set, as_yaml=True)
        column = {} if args.reference_column is None else {"reference_column": args.reference_column}
        return {"reward": {"name": args.reward, **options}, **column}
    if args.set or args.reference_column is not None:
        raise UsageError("--set and --reference-column are for --reward; write them into the file of --config")
    from rrg_rewards.integrations.common.settings import read_settings_file

    return read_settings_file(args.config)


def _fit(args: argparse.Namespace, settings: dict[str, Any], table: "Table") -> Any:
    from rrg_rewards.rewards.fitting import fit_reward, reward_columns

    name = settings.get("reference_column", "reference")
    columns = {
        column: table.texts(column) if column == name else table.values(column)
        for column in reward_columns(settings["reward"], name)
    }
    completions = None if args.prediction_column is None else table.texts(args.prediction_column)
    return fit_reward(settings["reward"], columns, completions, name)


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.data.tables.writers import check_output, write_json
    from rrg_rewards.integrations.common.settings import read_settings

    check_output(args.output, args.overwrite)
    settings = _settings(args)
    try:
        read_settings(settings)
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from error
    table = read_input(args, terminal)
    fitted = {**settings, "reward": _fit(args, settings, table)}
    reward = read_settings(fitted).make_reward()
    record = {"rows": len(table), "signature": reward.signature, "version": __version__}
    write_json({**fitted, "fitted": record}, args.output, args.overwrite)
    terminal.note(f"fitted {reward.__name__} on {len(table)} rows: {reward.signature}")
    return 0
