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
from typing import TYPE_CHECKING

from rrg_rewards.cli.options import add_command_parser, add_settings, add_shared_options
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.utilities.settings import Settings, setting

if TYPE_CHECKING:
    from rrg_rewards.data.tables.table import Table


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
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
    from rrg_rewards.data.tables.writers import write_table

    args.folder.mkdir(parents=True, exist_ok=True)
    for name, table in sample_tables(args.studies, args.seed).items():
        path = args.folder / f"{name}.csv"
        write_table(table, path, overwrite=args.overwrite)
        terminal.note(f"{path}: {len(table)} studies")
    return 0


def _with_errors(report: str, kind: int, seed: int) -> tuple[str, int]:
    """Return the report in other words with errors of a kind, and their number. Kind 0 has none."""
    from rrg_rewards.findings import corrupt_report, paraphrase_report

    errors = 0
    if kind == 1:
        corrupted = corrupt_report(report, seed=seed)
        report, errors = corrupted.candidate, len(corrupted.changes)
    elif kind == 2 and ". " in report:
        report, errors = report.rpartition(". ")[0] + ".", 1
    return paraphrase_report(report, seed=seed).candidate, errors


def sample_tables(num_studies: int = 100, seed: int = 1) -> "dict[str, Table]":
    """Return two tables of synthetic chest-CT studies: ``reports`` and ``pairs``.

    ``reports`` has the columns ``study`` and ``report_text``. ``pairs`` has the columns ``study``, ``age``, ``sex``,
    ``indication``, ``reference`` and the reports of two made-up systems, ``prediction`` and ``baseline``. Each system
    rewords the references. ``prediction`` gets details of every third report wrong, such as sides and sizes, and
    leaves out the last sentence of another third; ``baseline`` has such errors in every report. ``errors`` is the
    number of errors that were put into ``prediction``, in place of the count of a radiologist.

    Args:
        num_studies: Number of studies.
        seed: Seed of the studies and the errors.

    Example:
        >>> tables = sample_tables(3)
        >>> list(tables["reports"].columns), len(tables["pairs"])
        (['study', 'report_text'], 3)
    """
    from rrg_rewards.data.phantom.studies import phantom_studies
    from rrg_rewards.data.tables.table import Table

    studies = phantom_studies(num_studies, seed=seed)
    references = [study.impression_text for study in studies]
    predictions = [_with_errors(text, row % 3, seed) for row, text in enumerate(references)]
    baseline = [_with_errors(text, 1 + row % 2, seed + 1) for row, text in enumerate(references)]
    names = [study.study_id for study in studies]
    return {
        "reports": Table({"study": names, "report_text": [study.findings_text for study in studies]}),
        "pairs": Table(
            {
                "study": names,
                "age": [study.context.age for study in studies],
                "sex": [study.context.sex for study in studies],
                "indication": [study.context.indication for study in studies],
                "reference": references,
                "prediction": [text for text, _ in predictions],
                "baseline": [text for text, _ in baseline],
                "errors": [errors for _, errors in predictions],
            }
        ),
    }
