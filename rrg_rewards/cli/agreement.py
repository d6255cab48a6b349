r"""``rrg-rewards agreement``: compare metrics with human judgements.

Compare scores of reports with human judgements. Each row of the table is a report with its scores, in columns
(--scores) or computed here (--metrics), and one or more judgements (--human): a rating, a number of errors, a
preference. --lower-is-better names the columns in which a lower value is better, such as error counts: their sign is
changed, so that positive values are agreement. Metrics that are computed here need not be named.

With --dataset NAME, the table is a file or folder of a public data set that radiologists annotated. Its judgement needs
no --lower-is-better, and the bootstrap draws studies:
  name           file or folder                              judgement without --human
  rexval         folder of the release                       significant (errors)
  radevalx       folder of the release                       significant
  chest2error    gold_pairs.parquet                          significant (critical errors)
  refisco        refisco-v0.csv or refisco-v1.csv            errors
  radpref        pairs.json                                  rating (higher is better)
  rate_eval      JSON file of sentence pairs                 errors
Other judgements are errors, significant, insignificant, and the further numbers of a data set, such as weighted_error
of chest2error and max_severity of refisco. --group takes its further texts, such as reference_style of chest2error,
source of refisco and candidate_type of rexval. --drop-identical leaves out candidates that are a copy of the
reference: --dataset rexval with it is ReXVal* of the paper of CREPE.

Statistics (--statistics):
  kendall     Kendall's tau-b
  spearman    Spearman's rho
  pearson     Pearson's r
  accuracy    share of pairs of rows with different judgements that the scores order alike; with --unit only pairs of
              rows of one unit. Equal scores count half
  preference  share of rows in which score and judgement have the same sign, without judgements of 0. A score of 0
              counts half
  binary      share of rows whose score and judgement are both at least 0.5, or both below: the accuracy of a yes/no
              item. Computed only if it is named

With --candidates _1,_2 each row has two reports, and a judgement above 0 says that the first is better. The score NAME
is then the difference of the columns NAME_1 and NAME_2. A human column may have two ratings in the same way. With
--dataset, the two candidates of a study are compared, by the texts of a column: --dataset radpref --candidates C1,C2.

With --rankings, the table is a file of cases such as RadJudge's cases.json: candidates of a reference, and their order.
A metric passes a case if its scores have this order; scores that differ by at most --equal are equal.

Each value has a bootstrap 95 % interval, and a p-value for no agreement, by permutation of the judgements. Each
difference between two scores has the interval of paired draws, and the p-value of the permutation test PERM-BOTH. With
--unit, for example the study of several reports, the bootstrap draws whole units. The p-values treat rows as
independent and are not corrected for the number of comparisons.

With --metrics, the number of distinct reports is printed, with a warning if the references have far more: no metric can
order reports that are the same.

A row without a judgement, or without one of the scores, is left out for all scores, so that all are compared on the
same rows; such rows are counted. The table is read in batches. Only numbers stay in memory, and with --metrics also the
reports. 1,000 rows and 3 scores take about 4 seconds on one core.

Examples:
  rrg-rewards agreement rated.csv --scores crg,crimson,rouge --human rating
  rrg-rewards agreement rated.csv --scores crg,crepe --human errors --lower-is-better crepe,errors --unit study
  rrg-rewards agreement rated.csv --metrics crg,crimson,rouge --human rating --group hospital --json agreement.json
  rrg-rewards agreement rated.csv --metrics crg,crimson --human rating --workers 8
  rrg-rewards agreement choices.csv --scores crg,crimson --human preference --candidates _1,_2
  rrg-rewards agreement rated.csv --scores crg,rouge --human rating --latex table.tex --html agreement.html
  rrg-rewards agreement gold_pairs.parquet --dataset chest2error --metrics crimson,rouge
  rrg-rewards agreement rexval_folder --dataset rexval --metrics crimson --human errors,significant
  rrg-rewards agreement pairs.json --dataset radpref --candidates C1,C2 --metrics crimson,rouge \
      --context age=PatientAge --context indication=Indication
  rrg-rewards agreement cases.json --rankings --metrics crimson,rouge --json rankings.json

exit codes: 0 success (a warning counts reports on which a judge failed); 1 error, or a metric has no score at all
because its judge failed (outputs are written); 2 wrong command line; 130 interrupted
"""

import argparse

from rrg_rewards.analysis.settings import AgreementColumns, AgreementSettings, MetricChoice, PairColumns
from rrg_rewards.cli.options import (
    Drawings,
    Outputs,
    PageOptions,
    add_command_parser,
    add_settings,
    add_shared_options,
    add_table_argument,
    settings_from,
)
from rrg_rewards.cli.score import add_metric_options
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.utilities.settings import SettingError
from rrg_rewards.utilities.worker_pool import prepare_workers


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``agreement`` to the command line."""
    parser = add_command_parser(commands, "agreement", _run, summary, __doc__)
    add_table_argument(parser, "TABLE", "scores and judgements")
    add_settings(parser, AgreementColumns, "dataset", "drop_identical", "rankings", "equal", "human", "scores")
    listed = {"help": "metrics to compute; rrg-rewards score --list shows them"}
    add_settings(parser, MetricChoice, "metrics", metrics=listed)
    add_settings(parser, AgreementSettings, "lower_is_better", "statistics")
    add_settings(parser, AgreementColumns, "candidates", "unit", "group")
    add_settings(parser, AgreementSettings, "baseline", "bootstrap", "permutations", "workers")
    add_settings(parser, PairColumns, "prediction_column", "reference_column", "missing_section")
    add_metric_options(parser)
    output = {"default": None, "help": "write all values as a table to FILE; - is standard output"}
    add_shared_options(parser, "json", "format", "overwrite", "batch_size", "seed", output=output)
    add_settings(parser, Drawings, "latex")
    text = {"help": "let the page of --html contain the reports of the table"}
    add_settings(parser, PageOptions, with_text=text)


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    choice, columns = settings_from(args, MetricChoice), settings_from(args, AgreementColumns)
    settings, pairs = settings_from(args, AgreementSettings), settings_from(args, PairColumns)
    outputs, page = settings_from(args, Outputs), settings_from(args, PageOptions)
    outputs.check(latex=args.latex, html=page.html)
    if columns.rankings:
        return _rank(args, terminal)
    if args.workers != 1:
        prepare_workers()
    from rrg_rewards.analysis.agreement_tables import agreement_of_table
    from rrg_rewards.analysis.metric_choice import make_metrics
    from rrg_rewards.analysis.tables import agreement_grids, agreement_latex, agreement_rows, text_grids
    from rrg_rewards.data.tables.table import Table
    from rrg_rewards.data.tables.writers import open_output
    from rrg_rewards.pages.agreement_page import agreement_page
    from rrg_rewards.version import __version__

    found = agreement_of_table(
        args.table,
        columns,
        make_metrics(choice),
        pairs=pairs,
        settings=settings,
        format=args.format,
        batch_size=args.batch_size,
        with_text=page.with_text,
        log=terminal,
    )
    dataset = {} if columns.dataset is None else {"dataset": columns.dataset}
    usage = {"usage": found.usage} if found.usage else {}
    texts = {"texts": {name: one.to_dict() for name, one in found.texts.items()}} if found.texts else {}
    result = {"version": __version__, "table": args.table, **dataset, **found.result.to_dict(), **texts, **usage}
    terminal.show(*agreement_grids(result), *text_grids(texts), stderr=outputs.hides_results)
    if args.latex is not None:
        with open_output(args.latex, outputs.overwrite) as file:
            file.write(agreement_latex(result).encode())
    if page.html is not None:
        page.write(agreement_page(result, found.rows), outputs.overwrite)
    outputs.write(Table.from_records(agreement_rows(result)), result)
    return terminal.exit_code(found.errors)


def _rank(args: argparse.Namespace, terminal: Terminal) -> int:
    """Count the rankings that hold, by category."""
    from rrg_rewards.analysis.metric_choice import make_metrics
    from rrg_rewards.analysis.rankings import passed_rankings, read_ranked_cases
    from rrg_rewards.data.tables.table import Table
    from rrg_rewards.utilities.grids import printed_table
    from rrg_rewards.version import __version__

    metrics, outputs = make_metrics(settings_from(args, MetricChoice)), settings_from(args, Outputs)
    if not metrics:
        raise SettingError("rankings", "needs `metrics`")
    unused = ("html", "latex", "group", "unit", "candidates", "baseline", "statistics", "lower_is_better")
    if given := [name for name in unused if getattr(args, name, None)] + ["workers"] * (args.workers > 1):
        raise SettingError("rankings", f"counts cases only, and takes no `{given[0]}`")
    cases = read_ranked_cases(args.table)
    found = passed_rankings(cases, metrics, args.equal)
    counts = {name: {**one["categories"], "all": [one["passed"], one["cases"]]} for name, one in found.items()}
    categories = list(counts[next(iter(counts))])
    rows = [
        (category, *(f"{one[category][0]} of {one[category][1]}" for one in counts.values())) for category in categories
    ]
    terminal.show(printed_table("cases passed", ("category", *counts), [rows]), stderr=outputs.hides_results)
    for name, one in found.items():
        if one["unscored"]:
            terminal.warn(f"{name}: {one['unscored']} candidates have no score; no ranking with one of them holds")
    records = [
        {"category": category, "metric": name, "passed": one[category][0], "cases": one[category][1]}
        for name, one in counts.items()
        for category in categories
    ]
    summary = {"version": __version__, "table": args.table, "equal": args.equal, "metrics": found}
    outputs.write(Table.from_records(records), summary)
    candidates = sum(len(case.candidates) for case in cases)
    unscored = (name for name, one in found.items() if one["unscored"] == candidates)
    return terminal.exit_code(f"{name}: no candidate has a score" for name in unscored)
