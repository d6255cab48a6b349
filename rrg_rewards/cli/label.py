r"""``rrg-rewards label``: label reports, one 0/1 column per label.

Label the abnormalities in a table of reports. The output has the input columns and one 0/1 column per label.

If a report is missing or blank, or a language model (--labeler judge:SCHEMA) fails on it, its label cells are empty,
not 0. The file name ending determines the format: CSV, JSON lines or Parquet.

All rows are checked before the first one is labelled, and are kept in a temporary file meanwhile. Rows are written
while others are labelled, so that memory does not grow with the table. The output file appears only if the run
succeeds. If it fails or is interrupted, the rows labelled so far are kept in NAME.partial.csv.

--dry-run labels nothing and sends nothing: it says how many requests to a language model there are at most.

Examples:
  rrg-rewards label reports.csv --text-column report_text --schema ct_rate --output labels.csv
  rrg-rewards label reports.jsonl --text-column report --schema chexbert --output labels.parquet --json summary.json
  cat reports.csv | rrg-rewards label - --text-column report_text --prefix pred_ > labels.csv
  rrg-rewards label reports.csv --text-column report_text --workers 8 --output labels.csv
  rrg-rewards label reports.csv --text-column report_text --labeler my_lexicon.yaml --output labels.csv
  rrg-rewards label validation_reports.csv --text-column Findings_EN --labeler radbert:RadBertClassifier.pth \
      --output labels.csv
  rrg-rewards label reports.csv --text-column report_text --labeler judge:ct_rate --output labels.csv \
      --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1, cache: judge_cache}"
  rrg-rewards label reports.csv --text-column report_text --labeler judge:ct_rate --judge my_judge.yaml --dry-run

exit codes: 0 success (a warning counts reports on which a judge failed); 1 error, or a judge failed on all reports
(outputs are written); 2 wrong command line; 130 interrupted
"""

import argparse

from rrg_rewards.analysis.settings import LabelSettings
from rrg_rewards.cli.options import (
    DryRun,
    Outputs,
    add_command_parser,
    add_settings,
    add_shared_options,
    add_table_argument,
    settings_from,
)
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.utilities.worker_pool import LABELER_MODULES, prepare_workers


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``label`` to the command line."""
    parser = add_command_parser(commands, "label", _run, summary, __doc__)
    add_table_argument(parser, "REPORTS", "reports")
    add_settings(parser, LabelSettings, "text_column", "schema", "labeler", "judge")
    add_shared_options(parser, "output", "json", "format")
    add_settings(parser, LabelSettings, "prefix")
    add_shared_options(parser, "overwrite", "spreadsheet_safe")
    add_settings(parser, LabelSettings, "batch_size", "workers")
    add_settings(parser, DryRun)


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    settings, outputs = settings_from(args, LabelSettings), settings_from(args, Outputs)
    outputs.check()
    if settings.workers != 1:
        prepare_workers(LABELER_MODULES)
    from rrg_rewards.analysis.labelling import TableLabelling
    from rrg_rewards.data.tables.readers import BatchedTable

    keep_types = outputs.sink is not None and outputs.sink.is_parquet
    with BatchedTable(args.table, args.format, settings.batch_size) as batches:
        labelling = TableLabelling(batches, settings, args.table, terminal, keep_types)
        labelling.check()
        if args.dry_run:
            outputs.write_summary({"labels": {"most_requests": labelling.most_requests}})
            requests = f"labels: at most {labelling.most_requests:,} requests to a language model"
            terminal.show(requests, stderr=outputs.json == "-")
            terminal.note("nothing was labelled or sent")
            return 0
        try:
            labelling.run(outputs.sink)
        finally:
            # A full disk must not lose the result of a long run.
            if labelling.is_complete:
                summary = labelling.summary()
                outputs.write_summary(summary.to_dict())
                terminal.note(f"labelled {summary.labelled} of {summary.rows} reports with {summary.labeler}")
    return terminal.exit_code(summary.errors)
