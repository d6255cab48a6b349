"""``rrg-rewards fit``: measure what a reward estimates from data, once for all processes of a trainer.

Measure what a reward estimates from data, and write its settings with the numbers as JSON. The workers of verl, AReaL
and other trainers share no statistics. All of them read this file, so that equal completions have equal rewards.

The prior of CRG, and what a report earns by chance, are measured on the references of the training set. For chance,
the file contains the text of up to 256 of them, compressed: treat it as you treat the data.

Examples:
  rrg-rewards fit train.csv --reward recommended --output reward.json
  rrg-rewards fit train.csv --reward crg --set average=macro --output reward.json
  rrg-rewards fit train.csv --config reward.yaml --output reward.json

--config is a YAML file of settings as in docs/trainers.md, with the key reward. All its other keys are copied.
"""

import argparse

from rrg_rewards.cli.options import (
    InputTable,
    RewardFile,
    UsageError,
    add_command_parser,
    add_reward_options,
    add_shared_options,
    add_table_argument,
    settings_from,
)
from rrg_rewards.cli.terminal import Terminal


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``fit`` to the command line."""
    parser = add_command_parser(commands, "fit", _run, summary, __doc__)
    add_table_argument(parser, "TABLE", "the training set")
    add_reward_options(parser, "reference_column", "set")
    output = {"required": True, "default": None, "help": "JSON file to write; - is standard output"}
    add_shared_options(parser, "format", "overwrite", output=output)


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.data.tables.writers import check_output, write_json
    from rrg_rewards.integrations.common.settings import fit_settings, read_settings, read_settings_file

    check_output(args.output, args.overwrite)
    choice = settings_from(args, RewardFile)
    column = {} if choice.reference_column is None else {"reference_column": choice.reference_column}
    by_name = {"reward": {"name": choice.reward, **choice.set}, **column}
    settings = by_name if choice.config is None else read_settings_file(choice.config)
    try:
        read_settings(settings)
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from error
    table = settings_from(args, InputTable).read(terminal)
    fitted, reward = fit_settings(settings, table)
    write_json(fitted, args.output, args.overwrite)
    terminal.note(f"fitted {reward.__name__} on {len(table)} rows: {reward.signature}")
    return 0
