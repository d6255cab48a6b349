r"""``rrg-rewards grade``: let a language model write and score reports of graded quality.

Let a language model write candidate reports of graded quality. For each reference and each tier (range of total scores)
of a scoring system, it writes one or more reports, each with a sub-score for each criterion. `train er2score` learns
from these reports.

--dry-run sends nothing: it counts the reports to request, estimates tokens, cost and time, and shows one prompt.

Each answer is checked and appended to --output as one JSON line: reference, candidate, scores by criterion, total, the
requested tier, whether the total is in the tier (in_tier), and the judge. After an interruption, repeat the command: it
requests only what --output lacks.

Reports are sent to this machine only unless the judge has allow_remote: true.

Examples:
  rrg-rewards grade reports.csv --report-column report --output graded.jsonl --dry-run \
      --judge "{name: openai, model: my-model, price: [2.5, 10]}"
  rrg-rewards grade reports.csv --output graded.jsonl --max-reports 20 \
      --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1, temperature: 0.7}"
  rrg-rewards grade reports.csv --output graded.jsonl --system mrscore --per-tier 2 \
      --judge "{name: openai, model: gpt-x, base_url: https://api.example.org/v1, allow_remote: true, \
      concurrency: 4, max_retries: 8}"
  rrg-rewards grade reports.csv --output graded.jsonl --system mine.yaml --dry-run

exit codes: 0 success, 1 reports were requested but none was written, 2 wrong command line, 130 interrupted
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rrg_rewards.analysis.settings import GradingSettings
from rrg_rewards.cli.answers import AnswerCommand, add_answer_options
from rrg_rewards.cli.options import add_command_parser, add_settings, add_table_argument, settings_from
from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from rrg_rewards.analysis.grading import GradingRun
    from rrg_rewards.data.tables.table import Table


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``grade`` to the command line."""
    parser = add_command_parser(commands, "grade", _run, summary, __doc__)
    add_table_argument(parser, "REPORTS", "reference reports")
    add_settings(parser, GradingSettings)
    add_answer_options(parser, "reports", model=True)


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.analysis.grading import GradingRun, choose_system, read_references

    settings, command = settings_from(args, GradingSettings), settings_from(args, AnswerCommand)
    judge = command.model("writes no reports")
    choose_system(settings)  # Raises before the table is read.

    def make_run(table: "Table") -> "GradingRun":
        return GradingRun(read_references(table, settings, terminal), args.output, judge, settings)

    return command.run(judge, make_run, terminal, grid=_grid)


def _grid(run: "GradingRun") -> "Grid":
    """Return a table of the reports by tier."""
    from rrg_rewards.utilities.grids import printed_table

    held_by_tier, in_tier, rows = run.held_by_tier, run.in_tier, []
    for name, wanted in run.wanted_by_tier.items():
        held, written = held_by_tier[name], run.written_by_tier[name]
        share = f"{in_tier[name] / (held + written):.0%}" if held + written else "-"
        rows.append((name, f"{wanted}", f"{held}", f"{written}", share))
    headings = ("tier", "requested", "in the output", "written now", "in tier")
    return printed_table(str(Path(run.output)), headings, [rows])
