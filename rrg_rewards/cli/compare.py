r"""``rrg-rewards compare``: compare report generators by metrics, with paired tests.

Compare systems that wrote reports for the same studies. The first system is the baseline. Each other system has, for
each metric, its difference from the baseline with an interval, two p-values, and the number of reports on which it is
better, equal and worse.

Give a table for each system, or one table with a column of predictions for each. NAME=TABLE and NAME=COLUMN name a
system; by default it has the name of the file or column. Equal names are runs of one system, for example with several
seeds: its value is the mean over runs.

All tables must have the same studies with the same references, in the same order, or a column that names the studies
(--key). References, context columns and groups are read from the first table, or from --references. If a run has no
score for a report, the report is left out for all systems.

How to read the table:
  value             corpus value with its bootstrap 95 % interval; with runs, the mean ± standard deviation of the runs
  difference        corpus value minus that of the baseline, with the interval of a paired bootstrap: both systems see
                    the same drawn reports. For crg, the difference between the CRGs of each draw
  p                 approximate randomisation: the share of random exchanges of both systems' reports that give a
                    difference as large. Small if chance hardly explains the difference
  p, Holm           corrected for all metrics and systems of the printed table
  p, bootstrap      from the paired bootstrap; with several runs, runs are drawn as well
  wins/ties/losses  reports on which the system scores better than, equal to, or worse than the baseline

With --metrics, the number of distinct texts of each system follows, with a warning if the references have far more,
and the value of each metric if every study had the same text: each system's commonest text, or a normal chest report.
--constant-text all computes it for metrics with a model or a language model, too.

The tests treat studies as independent. They concern these studies: a small p-value does not make a difference large.

--scores compares columns of scores that other programs wrote, as means, with or without --metrics.

Examples:
  rrg-rewards compare baseline.csv new.csv --metrics crg,rouge
  rrg-rewards compare old=run1/predictions.csv new=run2/predictions.csv --metrics crg,crimson --key study --by sex,site
  rrg-rewards compare sft.csv grpo=seed0.csv grpo=seed1.csv grpo=seed2.csv --metrics crg --json comparison.json
  rrg-rewards compare pairs.csv --prediction-column sft --prediction-column grpo=grpo_report --metrics crg
  rrg-rewards compare a.json b.json --prediction-column report --references truth.csv --reference-column Findings_EN \
      --key input_image_name=VolumeName --metrics crg
  rrg-rewards compare a.csv b.csv --scores radgraph,green --markdown table.md --latex table.tex
  rrg-rewards compare a.csv b.csv --metrics crg,crimson --key study --html comparison.html --with-text
  rrg-rewards compare pairs.csv --prediction-column a --prediction-column b --scores "{column}_green"

exit codes: 0 success (a warning counts reports on which a judge failed); 1 error, or a metric has no score at all
because its judge failed (outputs are written); 2 wrong command line; 130 interrupted
"""

import argparse
from typing import TYPE_CHECKING

from rrg_rewards.analysis.settings import CompareSettings, MetricChoice, PairColumns
from rrg_rewards.cli.options import (
    Drawings,
    Outputs,
    PageOptions,
    UsageError,
    add_command_parser,
    add_settings,
    add_shared_options,
    settings_from,
)
from rrg_rewards.cli.score import add_metric_options
from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rrg_rewards.analysis.comparison import SystemComparison


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``compare`` to the command line."""
    parser = add_command_parser(commands, "compare", _run, summary, __doc__)
    parser.add_argument(
        "tables",
        nargs="+",
        metavar="[NAME=]TABLE",
        help="table of a system's reports, or of all systems (.csv, .tsv, .jsonl, .parquet, .json, .xlsx)",
    )
    add_settings(
        parser, MetricChoice, "metrics", metrics={"help": "metrics to compute; rrg-rewards score --list shows them"}
    )
    add_settings(parser, CompareSettings, "scores", "lower_is_better")
    predictions = {
        "action": "append",
        "default": None,
        "metavar": "[NAME=]COLUMN",
        "help": "column of predictions, or a template as --reference-column (default: prediction); with one table, "
        "repeat it for each system",
    }
    add_settings(parser, PairColumns, "prediction_column", prediction_column=predictions)
    key = {"help": "column that names the study of each row, in any order [=its column in --references]"}
    pairs = ("reference_column", "missing_section", "references", "key")
    add_settings(parser, PairColumns, *pairs, key=key)
    add_settings(parser, CompareSettings, "baseline", "by")
    add_metric_options(parser)
    add_settings(parser, CompareSettings, "bootstrap", "permutations", "constant_text")
    skipped = "skip: the report is left out; score: it counts as an empty report (default: skip)"
    add_settings(parser, PairColumns, "missing_prediction", missing_prediction={"help": skipped})
    output = {"default": None, "help": "write the score of each study by each metric and system to FILE"}
    add_shared_options(parser, "json", "format", "overwrite", "spreadsheet_safe", "seed", output=output)
    add_settings(parser, Drawings, "markdown", "latex")
    add_settings(parser, PageOptions, "html", "with_text")


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    choice, settings = settings_from(args, MetricChoice), settings_from(args, CompareSettings)
    outputs, page = settings_from(args, Outputs), settings_from(args, PageOptions)
    if not settings.scores and not choice.metrics:
        raise UsageError("one of --metrics and --scores is needed")
    if page.with_text and not choice.metrics:
        raise UsageError("argument --with-text: needs --metrics; with --scores alone, no report is read")
    outputs.check(markdown=args.markdown, latex=args.latex, html=page.html)
    columns = settings_from(args, PairColumns, prediction_column="prediction")

    from rrg_rewards.analysis.metric_choice import make_metrics
    from rrg_rewards.analysis.system_tables import compare_tables
    from rrg_rewards.analysis.tables import comparison_grids, settings_text, text_grids
    from rrg_rewards.pages.compare_page import table_comparison_page
    from rrg_rewards.version import __version__

    compared = compare_tables(
        args.tables,
        make_metrics(choice),
        prediction_columns=args.prediction_column or (),
        columns=columns,
        settings=settings,
        format=args.format,
        log=terminal,
    )
    result = compared.result
    texts = compared.text_entries()
    shown = (*comparison_grids(result), *text_grids(texts), settings_text(result))
    terminal.show(*shown, stderr=outputs.hides_results)
    _write_texts(result, args.markdown, args.latex, outputs.overwrite)
    if page.html is not None:
        page.write(table_comparison_page(compared, columns, page.with_text), outputs.overwrite)
    usage = {"usage": compared.usage} if compared.usage else {}
    summary = {"version": __version__, "tables": args.tables, "key": args.key, **result.to_dict(), **texts, **usage}
    outputs.write(compared.studies.with_columns(compared.report_columns()), summary)
    return terminal.exit_code(compared.errors)


def _write_texts(result: "SystemComparison", markdown: str | None, latex: str | None, overwrite: bool) -> None:
    """Write Markdown and LaTeX, if they are set."""
    from rrg_rewards.analysis.tables import comparison_latex, comparison_markdown
    from rrg_rewards.data.tables.writers import open_output

    for path, make in ((markdown, comparison_markdown), (latex, comparison_latex)):
        if path is not None:
            with open_output(path, overwrite) as file:
                file.write(make(result).encode())
