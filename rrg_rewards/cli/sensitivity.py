r"""``rrg-rewards sensitivity``: test whether metrics react to errors, and tolerate other words.

Test whether metrics react to errors and tolerate other words. Each report is its own reference. Rules write versions of
it, and each metric scores the versions:

  paraphrased     the same content in other words and another order
  adversarial     sides, places, sizes, severities and other details are wrong, and the findings are the same
  false_finding, omitted_finding, wrong_location, wrong_severity, false_comparison, omitted_comparison
                  1 to N (--max-errors) errors of one category, and nothing else is changed

With --rewriter, a language model writes the first two with your prompts, such as those in CT-FineBench's paper.

How to read the tables: rrg-rewards compare explains them. The baseline is the clean report, scored against itself. A
version is compared with it on the reports that allow N errors of the category, so that all numbers of errors have the
same reports. The last table has the share of these reports that score worse than clean, and the order of scores:
Kendall's tau of numbers of errors and scores, within reports. It is 1 if each further error lowers each score, and 0
if no score changes.

A metric of clinical content hardly differs for paraphrased, and differs for errors that matter to patients. Errors are
injected and checked by the finding engine, which the metrics by rules use, too. If such a metric does not react, it is
blind to this kind of error. If it reacts, it may still miss the same error in other words.

Examples:
  rrg-rewards sensitivity reports.csv --reference-column report_text --metrics crg,crimson,ct_finebench
  rrg-rewards sensitivity pairs.csv --metrics crg,label_f1 --changes omitted_finding,wrong_severity --max-errors 3 \
      --output versions.csv --json sensitivity.json --html sensitivity.html
  rrg-rewards sensitivity reports.csv --reference-column report_text --changes paraphrased,adversarial \
      --metrics bleu,rouge,ct_finebench --rewriter my_judge.yaml --paraphrase-prompt paraphrase.txt \
      --adversarial-prompt adversarial.txt

exit codes: 0 success (a warning counts reports on which a judge failed); 1 error, or a metric has no score at all
because its judge failed (outputs are written); 2 wrong command line; 130 interrupted
"""

import argparse

from rrg_rewards.analysis.settings import MetricChoice, PairColumns, SensitivitySettings
from rrg_rewards.cli.options import (
    InputTable,
    Outputs,
    PageOptions,
    add_command_parser,
    add_settings,
    add_shared_options,
    add_table_argument,
    settings_from,
)
from rrg_rewards.cli.terminal import Terminal


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``sensitivity`` to the command line."""
    parser = add_command_parser(commands, "sensitivity", _run, summary, __doc__)
    add_table_argument(parser, "REPORTS", "reports")
    add_settings(parser, MetricChoice, "metrics", metrics={"required": True})
    column = {"help": "column of the reports, or a template (default: reference)"}
    add_settings(parser, PairColumns, "reference_column", "missing_section", "context", reference_column=column)
    add_settings(parser, MetricChoice, "labeler", "judge", "set")
    add_settings(parser, SensitivitySettings)
    output = {"default": None, "help": "write the reports, their versions and all scores to FILE"}
    add_shared_options(parser, "json", "format", "overwrite", "spreadsheet_safe", output=output)
    add_settings(parser, PageOptions, "html", html={"help": "write a page with plots to FILE"})


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    choice, settings = settings_from(args, MetricChoice), settings_from(args, SensitivitySettings)
    columns, outputs = settings_from(args, PairColumns), settings_from(args, Outputs)
    page = settings_from(args, PageOptions)
    outputs.check(html=page.html)

    from rrg_rewards.analysis.metric_choice import make_metrics
    from rrg_rewards.analysis.sensitivity import measure_sensitivity
    from rrg_rewards.analysis.tables import comparison_grids, sensitivity_grid, settings_text
    from rrg_rewards.pages.compare_page import sensitivity_page

    table = settings_from(args, InputTable).read(terminal)
    found = measure_sensitivity(table, make_metrics(choice), columns=columns, settings=settings, log=terminal)
    shown = (*comparison_grids(found.comparison), sensitivity_grid(found), settings_text(found.comparison))
    terminal.show(*shown, stderr=outputs.hides_results)
    if page.html is not None:
        page.write(sensitivity_page(found), outputs.overwrite)
    outputs.write(found.table, found.to_dict())
    return terminal.exit_code(found.errors)
