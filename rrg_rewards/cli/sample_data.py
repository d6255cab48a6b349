"""``rrg-rewards sample-data``: write two small tables of synthetic studies, to try the other commands on.

Write two small tables of synthetic chest-CT studies into a folder, to try the other commands on.

reports.csv  study, report_text
pairs.csv    study, age, sex, indication, reference, and the reports of two made-up systems: prediction and baseline.
             prediction has errors in two thirds of the reports, baseline in nearly all. errors is the number of errors
             that were put into prediction, in place of a radiologist's count.

Examples:
  rrg-rewards sample-data samples
  rrg-rewards score samples/pairs.csv --metrics crg,crimson --prediction-column prediction --reference-column reference
  rrg-rewards agreement samples/pairs.csv --metrics crimson,rouge --human errors --lower-is-better errors
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

from rrg_rewards.cli.options import add_command_parser, add_settings, add_shared_options
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.utilities.settings import Settings, setting


@dataclass(frozen=True, kw_only=True)
class _Studies(Settings):
    """The studies to write."""

    studies: int = setting(100, "number of studies", metavar="N", minimum=1)


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``sample-data`` to the command line."""
    parser = add_command_parser(commands, "sample-data", _run, summary, __doc__)
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="folder to write to, which is made if necessary")
    add_settings(parser, _Studies)
    add_shared_options(parser, "seed", "overwrite")


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.data.phantom.samples import sample_tables
    from rrg_rewards.data.tables.writers import write_table

    args.folder.mkdir(parents=True, exist_ok=True)
    for name, table in sample_tables(args.studies, args.seed).items():
        path = args.folder / f"{name}.csv"
        write_table(table, path, overwrite=args.overwrite)
        terminal.note(f"{path}: {len(table)} studies")
    return 0
