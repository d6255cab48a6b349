"""``rrg-rewards compare``: compare report generators by metrics, with paired tests."""

import argparse
from typing import TYPE_CHECKING

from rrg_rewards.cli.html_options import add_html_options, check_html, write_html
from rrg_rewards.cli.options import (
    UsageError,
    add_command_parser,
    add_delimiter_option,
    add_shared_options,
    check_file_options,
    check_outputs,
)
from rrg_rewards.cli.reference_table import add_reference_table_options
from rrg_rewards.cli.score import add_metric_options, add_reference_options, check_reference_options, resamples
from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rrg_rewards.metrics.system_comparison import SystemComparison

__all__ = ["add_command"]

_DESCRIPTION = """\
Compare systems that wrote reports for the same studies. The first system is the baseline. Each other system has, for
each metric, its difference from the baseline with an interval, two p-values, and the number of reports on which it is
better, equal and worse.

Give a table for each system, or one table with a column of predictions for each. NAME=TABLE and NAME=COLUMN name a
system; without a name it is that of the file or column. Equal names are runs of one system, for example with several
seeds: its value is the mean over runs.

All tables must have the same studies with the same references, in the same order, or a column that names the studies
(--key). References, context columns and groups are read from the first table, or from --references. A report that a
run has no score for is left out for all systems.

How to read the table:
  value             corpus value with its bootstrap 95 % interval; with runs, the mean ± standard deviation of the runs
  difference        corpus value minus that of the baseline, with the interval of a paired bootstrap: both systems see
                    the same drawn reports. For crg it is the difference of the CRG of each draw
  p                 approximate randomisation: the share of random exchanges of both systems' reports that give a
                    difference as large. Small if the difference is hardly chance
  p, Holm           corrected for all metrics and systems of the printed table
  p, bootstrap      from the paired bootstrap; with several runs, runs are drawn as well
  wins/ties/losses  reports on which the system scores better than, equal to, or worse than the baseline

The tests treat studies as independent. They concern these studies: a small p-value does not make a difference large.

--scores compares columns of scores that other programs wrote, as means, with or without --metrics.

examples:
  rrg-rewards compare baseline.csv new.csv --metrics crg,rouge
  rrg-rewards compare old=run1/predictions.csv new=run2/predictions.csv --metrics crg,crimson --key study --by sex,site
  rrg-rewards compare sft.csv grpo=seed0.csv grpo=seed1.csv grpo=seed2.csv --metrics crg --json comparison.json
  rrg-rewards compare pairs.csv --prediction-column sft --prediction-column grpo=grpo_report --metrics crg
  rrg-rewards compare a.json b.json --prediction-column report --references truth.csv --reference-column Findings_EN \\
      --key input_image_name=VolumeName --metrics crg
  rrg-rewards compare a.csv b.csv --scores radgraph,green --markdown table.md --latex table.tex
  rrg-rewards compare a.csv b.csv --metrics crg,crimson --key study --html comparison.html --with-text
  rrg-rewards compare pairs.csv --prediction-column a --prediction-column b --scores "{column}_green"
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``compare`` to the command line."""
    parser = add_command_parser(commands, "compare", _run, summary, _DESCRIPTION)
    parser.add_argument(
        "tables",
        nargs="+",
        metavar="[NAME=]TABLE",
        help="table of a system's reports, or of all systems (.csv, .tsv, .jsonl, .parquet, .json)",
    )
    add_delimiter_option(parser)
    parser.add_argument(
        "--metrics", metavar="NAME[,NAME...]", help="metrics to compute; rrg-rewards score --list shows them"
    )
    parser.add_argument(
        "--scores", metavar="COLUMN[,COLUMN...]", help="columns of scores; with one table, as in {column}_green"
    )
    parser.add_argument(
        "--lower-is-better", metavar="COLUMN[,COLUMN...]", help="columns of --scores of which a lower number is better"
    )
    parser.add_argument(
        "--prediction-column",
        action="append",
        metavar="[NAME=]COLUMN",
        help="column of predictions (default: prediction); with one table, repeat it for each system",
    )
    add_reference_options(parser)
    add_reference_table_options(
        parser, "column that names the study of each row, in any order [=its column in --references]"
    )
    parser.add_argument("--baseline", metavar="NAME", help="system to compare with (default: the first)")
    parser.add_argument("--by", metavar="COLUMN[,COLUMN...]", help="repeat the comparison for each value of a column")
    add_metric_options(parser)
    for option, what, default in (
        ("bootstrap", "bootstrap draws; 0 for no intervals", 1000),
        ("permutations", "permutations of the randomisation; 0 for no p-values", 10_000),
    ):
        parser.add_argument(
            f"--{option}", type=resamples, default=default, metavar="N", help=f"{what} (default: {default})"
        )
    parser.add_argument(
        "--missing-prediction",
        choices=("skip", "score"),
        default="skip",
        help="skip: the report is left out; score: it counts as an empty report (default: skip)",
    )
    output = {"default": None, "help": "write the score of each study by each metric and system to FILE"}
    add_shared_options(parser, "json", "format", "overwrite", "seed", output=output)
    parser.add_argument("--markdown", metavar="FILE", help="write the tables as Markdown to FILE")
    parser.add_argument("--latex", metavar="FILE", help="write a LaTeX tabular to FILE")
    add_html_options(parser)


def _check(args: argparse.Namespace) -> None:
    """Check the options that no table is needed for."""
    if not args.scores and not args.metrics:
        raise UsageError("one of --metrics and --scores is needed")
    if args.with_text and not args.metrics:
        raise UsageError("argument --with-text: needs --metrics; with --scores alone, no report is read")
    check_file_options(args, "markdown", "latex")
    check_html(args)
    check_outputs(args)


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.cli.compare_output import comparison_grids, settings_text
    from rrg_rewards.cli.compare_run import compared, group_columns, report_columns, scored_runs
    from rrg_rewards.cli.compare_tables import read_compared
    from rrg_rewards.cli.options import write_outputs
    from rrg_rewards.cli.score import make_metrics
    from rrg_rewards.version import __version__

    _check(args)
    metrics = make_metrics(args) if args.metrics else {}
    check_reference_options(args, metrics)
    tables = read_compared(args, terminal)
    systems = list(dict.fromkeys(run.system for run in tables.runs))
    if args.baseline is not None and args.baseline not in systems:
        raise UsageError(f"argument --baseline: {args.baseline!r} is not among {', '.join(systems)}")
    by = group_columns(args, tables.studies, terminal)
    scored = scored_runs(args, tables, metrics, terminal)
    result = compared(args, scored, by, terminal)
    summary = {"version": __version__, "tables": args.tables, "key": args.key, **result.to_dict()}
    terminal.show(*comparison_grids(result), settings_text(result), stderr="-" in (args.output, args.json))
    _write_files(args, result)
    if args.html is not None:
        from rrg_rewards.cli.compare_html import comparison_page

        write_html(args, comparison_page(args, result, tables, scored))
    write_outputs(args, tables.studies.with_columns(report_columns(result, tables.studies)), summary)
    return 0


def _write_files(args: argparse.Namespace, result: "SystemComparison") -> None:
    """Write Markdown and LaTeX, if they are set."""
    from rrg_rewards.cli.compare_output import comparison_latex, comparison_markdown
    from rrg_rewards.data.tables.writers import open_output

    for path, make in ((args.markdown, comparison_markdown), (args.latex, comparison_latex)):
        if path is not None:
            with open_output(path, args.overwrite) as file:
                file.write(make(result).encode())
