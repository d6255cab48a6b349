"""``rrg-rewards pairs``: sampled completions as preferences, for trainers that learn from them."""

import argparse
import json
import math
import warnings
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.options import (
    UsageError,
    add_common_options,
    check_outputs,
    new_parser_options,
    positive_int,
    read_input,
)
from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rrg_rewards.data.preferences import Preferences
    from rrg_rewards.data.tables import Table
    from rrg_rewards.rewards.base import Reward

__all__ = ["add_command"]

_DESCRIPTION = """\
Turn sampled completions into preference data by any reward. The table has several rows for each prompt: the prompt, one
completion, the reference report, and what else the reward reads. Of the completions of one prompt the best is chosen
over the worst (--per-prompt N: the second best over the second worst, too), if its reward is higher by --margin.

Written for TRL: --trainer dpo gives rows of prompt, chosen and rejected; --trainer kto rows of prompt, completion and
label, from the same pairs, or with --threshold from every completion on its own. --conversational makes messages of
plain prompts and completions; prompts that are messages already (JSONL, Parquet) stay so.

Completions that the reward cannot score (no reference, a judge that failed) are in no pair and counted; prompts whose
completions tie are declined and counted. The summary also says whether what is chosen is longer than what is rejected:
where it is, length may be what is learned.
"""

_EXAMPLE = """\
examples:
  rrg-rewards pairs samples.csv --reward crg --set prior=0.2 --margin 0.2 --output pairs.jsonl
  rrg-rewards pairs samples.jsonl --reward crimson --context age=PatientAge --trainer kto --output kto.parquet
  rrg-rewards pairs samples.csv --reward crg --per-prompt 2 --group-column study --keep image --output pairs.jsonl
  rrg-rewards pairs samples.csv --reward composed --output pairs.jsonl \\
      --set "parts=[{name: crg, prior: 0.2}, {name: repetition, weight: 0.1}]"

Rows are of one prompt where the prompt and the reference are the same. Where prompts are alike and images differ, say
by --group-column what tells studies apart. --set takes every option of the reward, as make_reward does.
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``pairs`` to the command line."""
    parser = commands.add_parser(
        "pairs",
        help="turn sampled completions into preference data for DPO and KTO",
        description=_DESCRIPTION,
        epilog=_EXAMPLE,
        **new_parser_options(),
    )
    parser.add_argument(
        "table", metavar="SAMPLES", help="table of completions (.csv, .jsonl, .parquet); - is standard input"
    )
    parser.add_argument("--reward", required=True, metavar="NAME", help="reward that says which is better, as in crg")
    parser.add_argument(
        "--output",
        required=True,
        metavar="FILE",
        help="preferences to write (.jsonl, .parquet, .csv); - is standard output",
    )
    parser.add_argument("--trainer", choices=("dpo", "kto"), default="dpo", help="whose format (default: dpo)")
    _add_column_options(parser)
    _add_reward_options(parser)
    _add_choice_options(parser)
    parser.add_argument("--json", metavar="FILE", help="write a summary as JSON to FILE; - is standard output")
    parser.add_argument(
        "--format",
        choices=("csv", "jsonl", "parquet"),
        help="format of standard input and output, and of files whose ending tells nothing (default: csv for -)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace output files that exist")
    parser.add_argument(
        "--batch-size", type=positive_int, default=256, metavar="N", help="completions scored at once (default: 256)"
    )
    add_common_options(parser)
    parser.set_defaults(run=_run, parser=parser)


def _add_column_options(parser: argparse.ArgumentParser) -> None:
    for name in ("prompt", "completion", "reference"):
        parser.add_argument(
            f"--{name}-column", default=name, metavar="NAME", help=f"column of {name}s (default: %(default)s)"
        )
    parser.add_argument(
        "--group-column", metavar="NAME", help="what rows of one prompt share (default: prompt, reference)"
    )
    parser.add_argument(
        "--keep", action="append", default=[], metavar="COLUMN", help="keep a column, as images; may be repeated"
    )


def _add_reward_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--labeler", metavar="NAME", help="labeler of a reward that uses one: rules:SCHEMA or radbert:CHECKPOINT"
    )
    parser.add_argument(
        "--judge",
        metavar="JUDGE",
        help="judge of a reward that uses one: rules, openai:MODEL, local:MODEL, or a mapping",
    )
    parser.add_argument(
        "--context",
        action="append",
        default=[],
        metavar="NAME=COLUMN",
        help="give the reward's metric a further column, as in age=patient_age; may be repeated",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="set an option of the reward, as in prior=0.2; may be repeated",
    )


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}")
    return value


def _add_choice_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--margin", type=_number, default=0.0, metavar="X", help="least difference of rewards (default: any above 0)"
    )
    parser.add_argument(
        "--per-prompt", type=positive_int, default=1, metavar="N", help="most pairs of one prompt (default: 1)"
    )
    parser.add_argument(
        "--threshold",
        type=_number,
        metavar="X",
        help="kto: label every completion by whether its reward is above X, and at least --margin away from it",
    )
    parser.add_argument("--conversational", action="store_true", help="write prompts and completions as messages")
    parser.add_argument("--system-prompt", metavar="TEXT", help="system message of --conversational prompts")


def _check(args: argparse.Namespace) -> None:
    if args.margin < 0:
        raise UsageError(f"argument --margin: must be at least 0, got {args.margin}")
    if args.threshold is not None and args.trainer != "kto":
        raise UsageError("argument --threshold: only --trainer kto takes completions on their own")
    if args.system_prompt is not None and not args.conversational:
        raise UsageError("argument --system-prompt: needs --conversational")
    check_outputs(args)


def _make_reward(args: argparse.Namespace) -> "Reward":
    import yaml

    from rrg_rewards.cli.judging import judge_from_option
    from rrg_rewards.rewards import make_reward

    options: dict[str, Any] = {}
    for text in args.set:
        option, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"argument --set: must be OPTION=VALUE, got {text!r}")
        try:
            options[option] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise UsageError(f"argument --set: cannot read the value of {text!r}") from error
    if args.labeler is not None:
        options["labeler"] = args.labeler
    if args.judge is not None:
        options["judge"] = judge_from_option(args.judge)
    if args.context:
        pairs = [text.partition("=") for text in args.context]
        if not all(equals for _, equals, _ in pairs):
            raise UsageError(f"argument --context: must be NAME=COLUMN, got {args.context[0]!r}")
        options["context_columns"] = {name: column for name, _, column in pairs}
    try:
        return make_reward(args.reward, reference_column=args.reference_column, **options)
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from error


def _rewards(
    args: argparse.Namespace,
    reward: "Reward",
    table: "Table",
    completions: Sequence[str | None],
    terminal: Terminal,
) -> tuple[list[float | None], dict[str, int]]:
    """Rewards of all completions, and how many a judge failed on by kind."""
    from rrg_rewards.metrics.judged import JudgeWarning

    columns = {
        # Missing reports are NaN in what pandas wrote.
        name: table.texts(name) if name == args.reference_column else table.column(name)
        for name in reward.columns
    }
    reward.fit(**columns)
    rewards: list[float | None] = []
    failed: dict[str, int] = {}
    with terminal.progress("scoring") as report, warnings.catch_warnings():
        # Told in the end, as this command tells things.
        warnings.simplefilter("ignore", JudgeWarning)
        report(0, len(completions))
        for start in range(0, len(completions), args.batch_size):
            rows = slice(start, start + args.batch_size)
            scores = reward.score(completions[rows], **{name: cells[rows] for name, cells in columns.items()})  # type: ignore[arg-type]
            rewards += reward.rewards(scores)
            for kind, pairs in scores.failures.items():
                failed[kind] = failed.get(kind, 0) + int(pairs.sum())
            report(len(scores), 0)
    return rewards, {kind: count for kind, count in failed.items() if count}


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
    """Columns of the output."""
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
            raise UsageError(f"argument --keep: {name!r} is a column of the output already")
        cells = table.column(name)
        columns[name] = [cells[row] for row in rows]
    return columns


def _labels(args: argparse.Namespace, rewards: Sequence[float | None], preferences: "Preferences") -> list[bool | None]:
    """Labels for KTO: of every completion by a threshold, or of those in pairs."""
    from rrg_rewards.data.preferences import desirable

    if args.threshold is not None:
        return desirable(rewards, args.threshold, args.margin)
    labels: list[bool | None] = [None] * len(rewards)
    for best, worst in preferences.pairs:
        labels[best], labels[worst] = True, False
    return labels


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.cli.pair_summary import pair_grid, pair_summary, warn_of_pairs
    from rrg_rewards.data.preferences import preference_pairs
    from rrg_rewards.data.tables import Table
    from rrg_rewards.data.writers import write_json, write_table

    _check(args)
    reward = _make_reward(args)
    table = read_input(args, terminal)
    raw, completions = table.column(args.prompt_column), table.texts(args.completion_column)
    for row, prompt in enumerate(raw):
        if not isinstance(prompt, str | list) or not prompt:
            raise ValueError(f"{table.where(row)}, column {args.prompt_column!r}: must be a prompt, got none")
    prompts = [_prompt(prompt, args) for prompt in raw]
    rewards, failed = _rewards(args, reward, table, completions, terminal)
    preferences = preference_pairs(
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
    write_table(Table(columns), args.output, args.format, args.overwrite)
    if args.json is not None:
        write_json(summary, args.json, args.overwrite)
    warn_of_pairs(summary, failed, terminal)
    terminal.show(pair_grid(summary), reward.signature, stderr="-" in (args.output, args.json))
    return 0
