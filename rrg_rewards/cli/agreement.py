"""``rrg-rewards agreement``: compare metrics with human judgements."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast, get_args

from rrg_rewards.analysis.settings import PairColumns
from rrg_rewards.cli.html_options import check_html, write_html
from rrg_rewards.cli.options import (
    UsageError,
    add_command_parser,
    add_html_options,
    add_settings,
    add_shared_options,
    add_table_argument,
    check_file_options,
    check_outputs,
    not_negative_int,
)
from rrg_rewards.cli.score import add_metric_options
from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rrg_rewards.cli.agreement_columns import AgreementColumns
    from rrg_rewards.functional.agreement import AgreementStatistic
    from rrg_rewards.pages.page import Page

__all__ = ["add_command"]

_DESCRIPTION = """\
Compare scores of reports with human judgements. Each row of the table is a report with its scores, in columns
(--scores) or computed here (--metrics), and one or more judgements (--human): a rating, a number of errors, a
preference. Columns of which a lower number is better, such as error counts, are named by --lower-is-better too, so that
all agreement is positive. Metrics that are computed here are turned by themselves.

Statistics (--statistics):
  kendall     Kendall's tau-b
  spearman    Spearman's rho
  pearson     Pearson's r
  accuracy    share of pairs of rows with different judgements that the scores order alike; with --unit only pairs of
              rows of one unit. Equal scores count half
  preference  share of rows with a judgement other than 0 whose score has its sign. A score of 0 counts half
  binary      share of rows whose score and judgement are both at least 0.5, or both below: the accuracy of a yes/no
              item. Computed only if it is named

With --candidates _1,_2 each row has two reports, and a judgement above 0 says that the first is better. The score NAME
is then the difference of the columns NAME_1 and NAME_2. A human column may have two ratings in the same way.

Each value has a bootstrap 95 % interval, and a p-value for no agreement, by permutation of the judgements. Each
difference between two scores has the interval of paired draws, the p-value of the permutation test PERM-BOTH, and for
Pearson the p-value of Williams' test. With --unit, for example the study of several reports, the bootstrap draws whole
units. The p-values treat rows as independent and are not corrected for the number of comparisons.

A row without a judgement, or without one of the scores, is left out for all scores, so that all are compared on the
same rows; such rows are counted. The table is read in batches. Only numbers stay in memory, and with --metrics also the
reports. 1,000 rows and 3 scores take about 4 seconds on one core.

examples:
  rrg-rewards agreement rated.csv --scores crg,crimson,rouge --human rating
  rrg-rewards agreement rated.csv --scores crg,crepe --human errors --lower-is-better crepe,errors --unit study
  rrg-rewards agreement rated.csv --metrics crg,crimson,rouge --human rating --group hospital --json agreement.json
  rrg-rewards agreement choices.csv --scores crg,crimson --human preference --candidates _1,_2
  rrg-rewards agreement rated.csv --scores crg,rouge --human rating --latex table.tex --html agreement.html
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``agreement`` to the command line."""
    parser = add_command_parser(commands, "agreement", _run, summary, _DESCRIPTION)
    add_table_argument(parser, "TABLE", "scores and judgements")
    parser.add_argument("--human", required=True, metavar="COLUMN[,COLUMN...]", help="columns of human judgements")
    parser.add_argument("--scores", metavar="COLUMN[,COLUMN...]", help="columns of scores")
    parser.add_argument(
        "--metrics",
        type=lambda text: [name.strip() for name in text.split(",")],
        default=(),
        metavar="NAME[,NAME...]",
        help="metrics to compute; rrg-rewards score --list shows them",
    )
    parser.add_argument(
        "--lower-is-better", metavar="COLUMN[,COLUMN...]", help="columns of --scores and --human that are turned"
    )
    parser.add_argument("--statistics", metavar="NAME[,NAME...]", help="statistics (default: all that apply)")
    parser.add_argument(
        "--candidates",
        type=_suffixes,
        metavar="SUFFIX,SUFFIX",
        help="each row compares two candidates, whose columns end with these texts",
    )
    parser.add_argument("--unit", metavar="COLUMN", help="rows with the same value here are drawn together")
    parser.add_argument("--group", metavar="COLUMN", help="also compute everything for each value of this column")
    parser.add_argument("--baseline", metavar="NAME", help="compare the other scores with this one only")
    for option, what in (("bootstrap", "bootstrap resamples; 0 for no intervals"), ("permutations", "permutations")):
        zero = "" if "0" in what else "; 0 for no p-values"
        parser.add_argument(
            f"--{option}", type=not_negative_int, default=1000, metavar="N", help=f"{what}{zero} (default: 1000)"
        )
    parser.add_argument(
        "--prediction-column", default="prediction", metavar="NAME", help="column of predictions (default: %(default)s)"
    )
    add_settings(parser, PairColumns, "reference_column", "best_reference")
    add_metric_options(parser)
    output = {"default": None, "help": "write all values as a table to FILE; - is standard output"}
    add_shared_options(parser, "json", "format", "overwrite", "batch-size", "seed", output=output)
    parser.add_argument("--latex", metavar="FILE", help="write the agreement as a LaTeX tabular to FILE")
    parser.add_argument("--png", metavar="FILE", help="write the heatmap and the intervals as a plot to FILE")
    add_html_options(parser, "the reports of the table", names=True)


def _suffixes(text: str) -> tuple[str, str]:
    first, comma, second = text.partition(",")
    if not comma or not first or not second or first == second or "," in second:
        raise argparse.ArgumentTypeError(f"must be two different texts, as in _1,_2, got {text!r}")
    return first, second


def _statistics(args: argparse.Namespace) -> "list[AgreementStatistic]":
    """Return the statistics of the command."""
    from rrg_rewards.functional.agreement import AgreementStatistic
    from rrg_rewards.utilities.names import unknown_name_message

    known = get_args(AgreementStatistic)
    if args.statistics is None:
        left_out = ("binary", "preference" if args.candidates is None else "accuracy")
        return [name for name in known if name not in left_out]
    names = [name.strip() for name in args.statistics.split(",")]
    for name in names:
        if name not in known:
            raise UsageError(f"argument --statistics: {unknown_name_message('statistic', name, known)}")
        if names.count(name) > 1:
            raise UsageError(f"argument --statistics: {name} is named more than once")
    changed = [option for option in ("lower_is_better", "candidates", "metrics") if getattr(args, option)]
    if "binary" in names and changed:
        raise UsageError(
            "argument --statistics: binary compares the columns of --scores and --human with 0.5 as they are; leave "
            f"out --{changed[0].replace('_', '-')}"
        )
    return cast("list[AgreementStatistic]", names)


def _check(args: argparse.Namespace) -> None:
    """Check the options that no table is needed for."""
    from rrg_rewards.utilities.imports import require

    if not args.scores and not args.metrics:
        raise UsageError("one of --scores and --metrics is needed")
    check_file_options(args, "latex", "png")
    check_outputs(args)
    check_html(args)
    if args.png is not None:
        require("matplotlib.figure", extra="plot")


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.analysis.scoring import CONFIDENCE
    from rrg_rewards.cli.agreement_columns import read_columns
    from rrg_rewards.cli.agreement_output import agreement_grids, agreement_rows
    from rrg_rewards.cli.agreement_run import agreement_result
    from rrg_rewards.cli.options import write_outputs
    from rrg_rewards.data.tables.table import Table
    from rrg_rewards.version import __version__

    _check(args)
    statistics = _statistics(args)
    columns = read_columns(args, terminal)
    if not columns.rows:
        raise ValueError(f"{args.table}: has no rows")
    if args.baseline is not None and args.baseline not in columns.scores:
        raise UsageError(f"argument --baseline: {args.baseline!r} is not among {', '.join(columns.scores)}")
    with terminal.progress("comparing") as report:
        groups = agreement_result(columns, statistics, args, report)
    result = {
        "version": __version__,
        "table": args.table,
        "rows": columns.rows,
        "unit": args.unit,
        "group": args.group,
        "candidates": args.candidates,
        "lower_is_better": args.lower_is_better.split(",") if args.lower_is_better else [],
        "bootstrap": {"num_resamples": args.bootstrap, "confidence": CONFIDENCE},
        "permutations": args.permutations,
        "seed": args.seed,
        "signatures": columns.signatures,
        "missing": columns.missing(),
        "groups": groups,
    }
    _warn_of_missing(result, columns, terminal)
    _warn_of_single_units(result, terminal)
    terminal.show(*agreement_grids(result), stderr="-" in (args.output, args.json))
    _write_files(args, result)
    if args.html is not None:
        write_html(args, _page(result, columns))
    write_outputs(args, Table.from_records(agreement_rows(result)), result)
    return 0


def _page(result: Mapping[str, Any], columns: "AgreementColumns") -> "Page":
    from rrg_rewards.pages.agreement_page import agreement_page
    from rrg_rewards.pages.page import Column, Pane, Rows

    values = {name: one.tolist() for name, one in {**columns.scores, **columns.human}.items()}
    cells = [Column(name, one, "human" if name in columns.human else "scores") for name, one in values.items()]
    if columns.groups is not None:
        cells.append(Column(result["group"], columns.groups, "table"))
    names = columns.names or [str(row + 1) for row in range(columns.rows)]
    panes = [Pane(name, texts) for name, texts in columns.texts.items()]
    return agreement_page(result, values, list(columns.human), Rows("row", names, cells, panes))


def _warn_of_missing(result: Mapping[str, Any], columns: "AgreementColumns", terminal: Terminal) -> None:
    """Say how many rows were left out, and which score or judgement they lack."""
    missing = {name: count for name, count in result["missing"].items() if count}
    if missing:
        counts = ", ".join(f"{name} {count}" for name, count in missing.items())
        terminal.warn(
            f"of {columns.rows} rows, those without a score or judgement are left out for all scores; missing: {counts}"
        )


def _warn_of_single_units(result: Mapping[str, Any], terminal: Terminal) -> None:
    """Say how many intervals are missing because all rows belong to one unit."""
    found = [human for entry in result["groups"].values() for human in entry["human"].values()]
    single = sum(human["units"] == 1 for human in found)
    if single and result["bootstrap"]["num_resamples"]:
        unit = "row" if result["unit"] is None else f"value of {result['unit']!r} (--unit)"
        terminal.warn(
            f"{single} of {len(found)} comparisons have no intervals, because they have only one {unit}, and the "
            "bootstrap draws these"
        )


def _write_files(args: argparse.Namespace, result: Mapping[str, Any]) -> None:
    """Write the LaTeX table and the plot, if they are set."""
    from rrg_rewards.cli.agreement_output import latex_table
    from rrg_rewards.data.tables.writers import open_output
    from rrg_rewards.pages.agreement_page import draw_agreement

    if args.latex is not None:
        with open_output(args.latex, args.overwrite) as file:
            file.write(latex_table(result).encode())
    if args.png is not None:
        with open_output(args.png, args.overwrite) as file:
            file.write(draw_agreement(result))
