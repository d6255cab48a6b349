"""``rrg-rewards count``: let a language model count the errors of existing reports."""

import argparse
from typing import TYPE_CHECKING

from rrg_rewards.analysis.judge_settings import CountingSettings, JudgeLimits
from rrg_rewards.cli.options import (
    OVERWRITE_SUMMARY,
    Outputs,
    add_appended_output,
    add_command_parser,
    add_model_options,
    add_settings,
    add_shared_options,
    add_table_argument,
    model_from,
    read_input,
    settings_from,
    show_dry_run,
)
from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from rrg_rewards.analysis.counting import CountingRun

_DESCRIPTION = """\
Let a language model count the errors of existing candidate reports, as in the paper of CREPE: for each pair of a
reference and a candidate, the number of errors of six categories, and how many of them are clinically significant. Each
error has quotes, which must be in the reports. `train crepe` learns from these counts.

--dry-run sends nothing: it counts the pairs to request, estimates tokens, cost and time, and shows one prompt.

Each answer is checked and appended to --output as one JSON line: reference, candidate, counts (six numbers: false
findings, omitted findings, wrong locations, wrong severities, false comparisons, omitted comparisons), significant (the
significant ones), errors with their quotes, matched findings, and the judge. Ctrl-C stops after the running calls; a
second Ctrl-C stops immediately. Repeat the same command to request the pairs that --output does not contain yet.

Reports are sent to this machine only unless the judge has allow_remote: true.

examples:
  rrg-rewards count pairs.csv --output counts.jsonl --dry-run --price-in 2.5 --price-out 10
  rrg-rewards count pairs.csv --output counts.jsonl --max-pairs 20 \\
      --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1}"
  rrg-rewards count pairs.csv --prediction-column generated --reference-column report --output counts.jsonl \\
      --judge local:Qwen/Qwen2.5-7B-Instruct

exit codes: 0 success, 1 counts were requested but none was written, 2 wrong command line, 130 interrupted
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``count`` to the command line."""
    parser = add_command_parser(commands, "count", _run, summary, _DESCRIPTION)
    add_table_argument(parser, "PAIRS", "references and candidates")
    add_settings(parser, CountingSettings, "reference_column", "prediction_column")
    add_appended_output(parser, "pairs that it contains are not requested again")
    add_settings(parser, CountingSettings, "max_pairs", "source")
    add_model_options(parser)
    add_shared_options(parser, "json", "format", overwrite=OVERWRITE_SUMMARY)


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.analysis.answers import stop_at_interrupt
    from rrg_rewards.analysis.counting import CountingRun, read_pairs

    limits, settings = settings_from(args, JudgeLimits), settings_from(args, CountingSettings)
    outputs = settings_from(args, Outputs, is_appended=True)
    outputs.check()
    judge = model_from(args, limits, "counts no errors")
    pairs = read_pairs(read_input(args, terminal), settings, terminal)
    run = CountingRun(pairs, args.output, judge, settings)
    if judge is None or args.dry_run:
        show_dry_run(run, limits, outputs, terminal)
        return 0
    with stop_at_interrupt(judge, terminal, "rrg-rewards count"):
        run.request(terminal)
    outputs.write_summary(run.to_dict())
    terminal.show(_grid(run), stderr=outputs.json == "-")
    run.log_outcome(terminal)
    return run.exit_code


def _grid(run: "CountingRun") -> "Grid":
    """Return a table of the errors that were written, by category."""
    from rich.table import Table as Grid

    title = f"{run.output}: {run.written} pairs written, {run.num_held} before"
    grid = Grid(title=title, title_justify="left")
    grid.add_column("category")
    grid.add_column("errors", justify="right")
    grid.add_column("significant", justify="right")
    for category, row in run.categories.items():
        grid.add_row(category, f"{row['errors']}", f"{row['significant']}")
    return grid
