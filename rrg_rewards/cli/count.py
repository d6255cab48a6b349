r"""``rrg-rewards count``: let a language model count the errors of existing reports.

Let a language model count the errors of existing candidate reports, as in the paper of CREPE: for each pair of a
reference and a candidate, the number of errors of six categories, and how many of them are clinically significant. Each
error has quotes, which must be in the reports. `train crepe` learns from these counts.

--dry-run sends nothing: it counts the pairs to request, estimates tokens, cost and time, and shows one prompt.

Each answer is checked and appended to --output as one JSON line: reference, candidate, counts (six numbers: false
findings, omitted findings, wrong locations, wrong severities, false comparisons, omitted comparisons), significant (the
significant ones), errors with their quotes, matched findings, and the judge. After an interruption, repeat the command:
it requests only what --output lacks.

With --prompt the language model gets the text of a file, such as the prompt that the paper prints, with both reports in
place of {reference_report} and {candidate_report}. It answers in the printed format: [Clinically Significant Errors]
and [Clinically Insignificant Errors] with a line "(a) <type>: <number>. <errors>" for (a) to (f), and [Matched
Findings]. Errors then have no quotes and are not compared with the reports.

Reports are sent to this machine only unless the judge has allow_remote: true.

Examples:
  rrg-rewards count pairs.csv --output counts.jsonl --dry-run \
      --judge "{name: openai, model: my-model, price: [2.5, 10]}"
  rrg-rewards count pairs.csv --output counts.jsonl --max-pairs 20 \
      --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1}"
  rrg-rewards count pairs.csv --prediction-column generated --reference-column report --output counts.jsonl \
      --judge local:Qwen/Qwen2.5-7B-Instruct

exit codes: 0 success, 1 counts were requested but none was written, 2 wrong command line, 130 interrupted
"""

import argparse
from typing import TYPE_CHECKING

from rrg_rewards.analysis.settings import CountingSettings
from rrg_rewards.cli.answers import AnswerCommand, add_answer_options
from rrg_rewards.cli.options import add_command_parser, add_settings, add_table_argument, settings_from
from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from rrg_rewards.analysis.counting import CountingRun
    from rrg_rewards.data.tables.table import Table


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``count`` to the command line."""
    parser = add_command_parser(commands, "count", _run, summary, __doc__)
    add_table_argument(parser, "PAIRS", "references and candidates")
    add_settings(parser, CountingSettings)
    add_answer_options(parser, "pairs", model=True)


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.analysis.counting import CountingRun, read_pairs

    settings, command = settings_from(args, CountingSettings), settings_from(args, AnswerCommand)
    judge = command.model("counts no errors")

    def make_run(table: "Table") -> "CountingRun":
        return CountingRun(read_pairs(table, settings, terminal), args.output, judge, settings)

    return command.run(judge, make_run, terminal, grid=_grid)


def _grid(run: "CountingRun") -> "Grid":
    """Return a table of the errors that were written, by category."""
    from rrg_rewards.utilities.grids import printed_table

    title = f"{run.output}: {run.written} pairs written, {run.num_held} before"
    rows = [(category, f"{row['errors']}", f"{row['significant']}") for category, row in run.categories.items()]
    return printed_table(title, ("category", "errors", "significant"), [rows])
