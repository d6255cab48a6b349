"""``rrg-rewards pairs``: turn sampled completions into preference data."""

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.options import (
    UsageError,
    add_command_parser,
    add_shared_options,
    add_table_argument,
    check_outputs,
    finite_number,
    positive_int,
    read_input,
    write_outputs,
)
from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rrg_rewards.data.records.preference_pairs import Preferences
    from rrg_rewards.data.tables.table import Table
    from rrg_rewards.rewards.base import Reward

__all__ = ["add_command"]

_DESCRIPTION = """\
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

examples:
  rrg-rewards pairs samples.csv --reward crg --set prior=0.2 --margin 0.2 --output pairs.jsonl
  rrg-rewards pairs samples.jsonl --reward crimson --context age=PatientAge --trainer kto --output kto.parquet
  rrg-rewards pairs samples.csv --reward crg --per-prompt 2 --group-column study --keep image --output pairs.jsonl
  rrg-rewards pairs samples.csv --reward composed --output pairs.jsonl \\
      --set "parts=[{name: crg, prior: 0.2}, {name: repetition, weight: 0.1}]"

Rows with the same prompt and the same reference belong to one prompt. If studies share the prompt and differ in their
images, name a column that identifies the study with --group-column. --set accepts every option of
the reward.
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``pairs`` to the command line."""
    parser = add_command_parser(commands, "pairs", _run, summary, _DESCRIPTION)
    add_table_argument(parser, "SAMPLES", "completions")
    parser.add_argument(
        "--reward", required=True, metavar="NAME", help="reward that ranks completions, for example crg"
    )
    output = {"required": True, "help": "preferences to write (.jsonl, .parquet, .csv); - is standard output"}
    add_shared_options(parser, output=output)
    parser.add_argument(
        "--trainer", choices=("dpo", "kto"), default="dpo", help="trainer whose format is written (default: dpo)"
    )
    for name in ("prompt", "completion", "reference"):
        parser.add_argument(
            f"--{name}-column", default=name, metavar="NAME", help=f"column of {name}s (default: %(default)s)"
        )
    parser.add_argument(
        "--group-column", metavar="NAME", help="column that identifies a prompt (default: prompt and reference)"
    )
    parser.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="COLUMN",
        help="copy a column to the output, for example images; may be repeated",
    )
    setting = {"metavar": "OPTION=VALUE", "help": "set an option of the reward, for example prior=0.2; may be repeated"}
    add_shared_options(parser, "labeler", "judge", "context", set=setting)
    _add_choice_options(parser)
    add_shared_options(parser, "json", "format", "overwrite", "batch-size")


def _add_choice_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--margin",
        type=finite_number,
        default=0.0,
        metavar="X",
        help="minimum difference of the rewards of a pair (default: any above 0)",
    )
    parser.add_argument(
        "--per-prompt",
        type=positive_int,
        default=1,
        metavar="N",
        help="maximum number of pairs per prompt (default: 1)",
    )
    parser.add_argument(
        "--threshold",
        type=finite_number,
        metavar="X",
        help="with --trainer kto: label every completion by whether its reward is above X, and leave out completions "
        "whose reward is within --margin of X",
    )
    parser.add_argument("--conversational", action="store_true", help="write prompts and completions as messages")
    parser.add_argument("--system-prompt", metavar="TEXT", help="system message of --conversational prompts")


def _check(args: argparse.Namespace) -> None:
    if args.margin < 0:
        raise UsageError(f"argument --margin: must be at least 0, got {args.margin}")
    if args.threshold is not None and args.trainer != "kto":
        raise UsageError("argument --threshold: requires --trainer kto")
    if args.system_prompt is not None and not args.conversational:
        raise UsageError("argument --system-prompt: needs --conversational")
    check_outputs(args)


def _rewards(
    args: argparse.Namespace,
    reward: "Reward",
    table: "Table",
    completions: Sequence[str | None],
    terminal: Terminal,
) -> tuple[list[float | None], dict[str, int]]:
    """Return the rewards of all completions, and the number of failures of a judge by kind."""
    from rrg_rewards.judges.base import JudgeWarning

    columns = {
        # In tables written by pandas, missing reports are NaN.
        name: table.texts(name) if name == args.reference_column else table.column(name)
        for name in reward.columns
    }
    reward.fit(**columns)
    rewards: list[float | None] = []
    failed: Counter[str] = Counter()
    with terminal.progress("scoring") as report, warnings.catch_warnings():
        # The command prints its own warning at the end.
        warnings.simplefilter("ignore", JudgeWarning)
        report(0, len(completions))
        for start in range(0, len(completions), args.batch_size):
            rows = slice(start, start + args.batch_size)
            scores = reward.score(completions[rows], **{name: cells[rows] for name, cells in columns.items()})  # type: ignore[arg-type]
            rewards += reward.rewards(scores)
            failed.update({kind: int(pairs.sum()) for kind, pairs in scores.failures.items()})
            report(len(scores), 0)
    return rewards, dict(+failed)


def _group(table: "Table", args: argparse.Namespace, prompts: Sequence[Any]) -> list[Hashable]:
    if args.group_column is not None:
        return [json.dumps(cell, default=str) for cell in table.column(args.group_column)]
    references = table.columns.get(args.reference_column, [None] * len(table))
    return [json.dumps(row, default=str) for row in zip(prompts, references, strict=True)]


def _prompt(prompt: Any, args: argparse.Namespace) -> Any:
    if not isinstance(prompt, str) or not args.conversational:
        return prompt
    system = [] if args.system_prompt is None else [{"role": "system", "content": args.system_prompt}]
    return [*system, {"role": "user", "content": prompt}]


def _completion(text: str | None, prompt: Any) -> Any:
    return text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]


def _columns(
    args: argparse.Namespace,
    table: "Table",
    prompts: Sequence[Any],
    completions: Sequence[str | None],
    rewards: Sequence[float | None],
    preferences: "Preferences",
    labels: Sequence[bool | None],
) -> dict[str, list[Any]]:
    """Return the columns of the output."""
    if args.trainer == "dpo":
        best, worst = ([pair[side] for pair in preferences.pairs] for side in (0, 1))
        columns = {
            "prompt": [prompts[row] for row in best],
            "chosen": [_completion(completions[row], prompts[row]) for row in best],
            "rejected": [_completion(completions[row], prompts[row]) for row in worst],
            "score_chosen": [rewards[row] for row in best],
            "score_rejected": [rewards[row] for row in worst],
        }
        rows = best
    else:
        rows = [row for row, label in enumerate(labels) if label is not None]
        columns = {
            "prompt": [prompts[row] for row in rows],
            "completion": [_completion(completions[row], prompts[row]) for row in rows],
            "label": [labels[row] for row in rows],
            "score": [rewards[row] for row in rows],
        }
    for name in args.keep:
        if name in columns:
            raise UsageError(f"argument --keep: {name!r} is already a column of the output")
        cells = table.column(name)
        columns[name] = [cells[row] for row in rows]
    return columns


def _labels(args: argparse.Namespace, rewards: Sequence[float | None], preferences: "Preferences") -> list[bool | None]:
    """Return KTO's labels: of every completion by a threshold, or of the completions in pairs."""
    from rrg_rewards.data.records.preference_pairs import label_desirable

    if args.threshold is not None:
        return label_desirable(rewards, args.threshold, args.margin)
    labels: list[bool | None] = [None] * len(rewards)
    for best, worst in preferences.pairs:
        labels[best], labels[worst] = True, False
    return labels


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.cli.pair_summary import pair_grid, pair_summary, warn_of_pairs
    from rrg_rewards.cli.reward_options import make_reward_from_options
    from rrg_rewards.data.records.preference_pairs import pair_completions
    from rrg_rewards.data.tables.table import Table

    _check(args)
    reward = make_reward_from_options(args)
    table = read_input(args, terminal)
    raw, completions = table.column(args.prompt_column), table.texts(args.completion_column)
    for row, prompt in enumerate(raw):
        if not isinstance(prompt, str | list) or not prompt:
            raise ValueError(f"{table.where(row)}, column {args.prompt_column!r}: must be a prompt, got none")
    prompts = [_prompt(prompt, args) for prompt in raw]
    rewards, failed = _rewards(args, reward, table, completions, terminal)
    preferences = pair_completions(
        _group(table, args, raw), completions, rewards, margin=args.margin, per_prompt=args.per_prompt
    )
    labels = _labels(args, rewards, preferences)
    columns = _columns(args, table, prompts, completions, rewards, preferences, labels)
    summary = pair_summary(args, reward, completions, rewards, preferences, labels)
    if not next(iter(columns.values())):
        raise ValueError(
            f"no preference: of {summary['prompts']} prompts {preferences.declined['tied']} tie and "
            f"{preferences.declined['single']} have less than two completions with a reward; sample more completions, "
            "or lower --margin"
        )
    try:
        write_outputs(args, Table(columns), summary)
    finally:
        warn_of_pairs(summary, failed, terminal)
        terminal.show(pair_grid(summary), reward.signature, stderr="-" in (args.output, args.json))
    return 0
