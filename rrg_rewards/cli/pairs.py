r"""``rrg-rewards pairs``: turn sampled completions into preference data.

Turn sampled completions into preference data with any reward. The table has several rows per prompt, each with the
prompt, a completion, the reference report and the other columns that the reward reads. For each prompt, the completion
with the highest reward is chosen over the one with the lowest, if their rewards differ by at least --margin.
--per-prompt 2 also pairs the second highest with the second lowest, and so on.

The output has TRL's format. --trainer dpo writes prompt, chosen and rejected. --trainer kto writes prompt, completion
and label for the completions of these pairs, or for all completions with --threshold. --conversational converts plain
prompts and completions to messages; prompts that are already messages (JSONL, Parquet) are not changed.

Completions that the reward cannot score (no reference, or the judge failed) are counted and left out. Prompts whose
completions have equal rewards are counted and left out. A warning appears if chosen completions are much longer than
rejected ones, because a policy may then learn to write longer reports.

Examples:
  rrg-rewards pairs samples.csv --reward recommended --margin 0.2 --output pairs.jsonl
  rrg-rewards pairs samples.jsonl --reward crimson --context age=PatientAge --trainer kto --output kto.parquet
  rrg-rewards pairs samples.csv --reward crg --per-prompt 2 --group-column study --keep image --output pairs.jsonl
  rrg-rewards pairs samples.csv --reward composed --output pairs.jsonl \
      --set "parts=[{name: crg, prior: 0.2}, {name: repetition, weight: 0.1}]"

Rows with the same prompt and the same reference belong to one prompt. If studies share the prompt and differ in their
images, name a column that identifies the study with --group-column. --set accepts every option of
the reward.
"""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rrg_rewards.analysis.settings import PreferenceSettings, RewardChoice
from rrg_rewards.cli.options import (
    InputTable,
    Outputs,
    add_command_parser,
    add_settings,
    add_shared_options,
    add_table_argument,
    settings_from,
)
from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.table import Table as Grid


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``pairs`` to the command line."""
    parser = add_command_parser(commands, "pairs", _run, summary, __doc__)
    add_table_argument(parser, "SAMPLES", "completions")
    output = {"required": True, "help": "preferences to write (.jsonl, .parquet, .csv); - is standard output"}
    add_shared_options(parser, output=output)
    add_settings(parser, RewardChoice)
    add_settings(parser, PreferenceSettings)
    add_shared_options(parser, "json", "format", "overwrite", "spreadsheet_safe")


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    settings, outputs = settings_from(args, PreferenceSettings), settings_from(args, Outputs)
    outputs.check()
    from rrg_rewards.analysis.metric_choice import choose_reward
    from rrg_rewards.analysis.preference_pairs import make_preferences

    reward = choose_reward(settings_from(args, RewardChoice))
    table = settings_from(args, InputTable).read(terminal)
    data = make_preferences(table, reward, settings, terminal)
    summary = {**data.to_dict(), "table": args.table}
    try:
        outputs.write(data.table, summary)
    finally:
        terminal.show(_grid(summary), data.reward, stderr=outputs.hides_results)
    return 0


def _grid(summary: Mapping[str, Any]) -> "Grid":
    from rrg_rewards.utilities.grids import printed_table

    without = summary["prompts_without_pair"]
    words = (summary["mean_words_chosen"], summary["mean_words_rejected"])
    shown = {
        "pairs": summary["pairs"],
        "chosen, rejected": f"{summary['chosen']}, {summary['rejected']}",
        "completions without a reward": summary["unscorable"],
        "prompts whose completions tie": without["tied"],
        "prompts without two different completions": without["single"],
        "difference of rewards, mean": _short(summary["mean_difference"]),
        "words chosen, rejected, mean": ", ".join(map(_short, words)),
    }
    title = f"{summary['rows']} completions of {summary['prompts']} prompts"
    grid = printed_table(title, ("", ""), [[(name, str(value)) for name, value in shown.items()]])
    grid.show_header = False
    return grid


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
