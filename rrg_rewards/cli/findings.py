"""``rrg-rewards findings``: write the findings of reports as JSON lines.

Read the findings of a table of reports, and write one JSON object per report (JSON lines): its findings with presence,
attributes, organ, offsets in the report and codes (OIFM, HPO, SNOMED CT where the concept has one), the words that were
not read, and their number. The findings of a missing or blank report are null.

Examples:
  rrg-rewards findings reports.csv --text-column report_text --output findings.jsonl
  rrg-rewards findings reports.csv --text-column report_text --id-column id --output findings.jsonl --json counts.json
  cat reports.jsonl | rrg-rewards findings - --format jsonl --text-column report --output - | head

exit codes: 0 success, 1 error in the table, 2 wrong command line, 130 interrupted
"""

import argparse

from rrg_rewards.analysis.finding_export import FindingExportSettings
from rrg_rewards.cli.options import (
    Outputs,
    UsageError,
    add_command_parser,
    add_settings,
    add_shared_options,
    add_table_argument,
    settings_from,
)
from rrg_rewards.cli.terminal import Terminal


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``findings`` to the command line."""
    parser = add_command_parser(commands, "findings", _run, summary, __doc__)
    add_table_argument(parser, "REPORTS", "reports")
    add_settings(parser, FindingExportSettings, "text_column", "id_column", "lexicon")
    add_shared_options(parser, "output", "json", "format", "overwrite")
    add_settings(parser, FindingExportSettings, "batch_size")


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    settings, outputs = settings_from(args, FindingExportSettings), settings_from(args, Outputs)
    from rrg_rewards.analysis.finding_export import FindingExport
    from rrg_rewards.data.tables.readers import BatchedTable
    from rrg_rewards.data.tables.table import table_format
    from rrg_rewards.data.tables.writers import json_line, open_output

    output = outputs.output or "-"
    if output != "-" and table_format(output, "jsonl") != "jsonl":
        raise UsageError(f"argument --output: must be a file of JSON lines (.jsonl), got {output!r}")
    outputs.check()
    with BatchedTable(args.table, args.format, settings.batch_size) as batches:
        export = FindingExport(batches, settings)
        with open_output(output, outputs.overwrite) as file:
            for item in export:
                file.write(json_line(item, default=str))
    outputs.write_summary(export.summary())
    terminal.note(
        f"{sum(export.findings.values())} findings in {export.rows - export.missing} of {export.rows} reports; "
        f"{export.num_unread} of {export.num_words} words were not read"
    )
    return terminal.exit_code(())
