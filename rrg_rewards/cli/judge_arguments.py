"""Options of the commands that request answers of a judge and append them to a file."""

import argparse
import math
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.options import UsageError

if TYPE_CHECKING:
    from rrg_rewards.judges.base import Judge

__all__ = ["add_judge_arguments", "check_judge_outputs", "judge_from_arguments", "judge_limits", "limits_of"]


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text!r}")
    return number


def _not_negative(text: str) -> float:
    return 0.0 if text.strip() in ("0", "0.0") else _positive(text)


def add_judge_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the judge, its rates and its prices."""
    parser.add_argument(
        "--judge",
        metavar="JUDGE",
        help="openai:MODEL, local:MODEL, or a YAML mapping of a name and settings; required without --dry-run",
    )
    parser.add_argument("--price-in", type=_not_negative, metavar="X", help="price of a million prompt tokens")
    parser.add_argument("--price-out", type=_not_negative, metavar="X", help="price of a million completion tokens")
    parser.add_argument(
        "--requests-per-minute", type=_positive, metavar="N", help="maximum requests per minute (default: no limit)"
    )
    parser.add_argument(
        "--tokens-per-minute",
        type=_positive,
        metavar="N",
        help="maximum tokens per minute, of prompts and answers (default: no limit)",
    )


def limits_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the price and the rate limits of the command line.

    Raises:
        UsageError: If only one price is given.
    """
    if (args.price_in is None) != (args.price_out is None):
        raise UsageError("--price-in and --price-out go together")
    limits = {
        "price": None if args.price_in is None else (args.price_in, args.price_out),
        "requests_per_minute": args.requests_per_minute,
        "tokens_per_minute": args.tokens_per_minute,
    }
    return {name: value for name, value in limits.items() if value is not None}


def judge_from_arguments(args: argparse.Namespace, limits: dict[str, Any], lacks: str) -> "Judge | None":
    """Make the judge of the command line; ``None`` for a dry run without one.

    Args:
        args: Arguments.
        limits: Result of :func:`limits_of`.
        lacks: Why the judge must be a language model, for messages, such as ``writes no reports``.

    Raises:
        UsageError: If the judge is missing, unknown, or no language model.
    """
    from rrg_rewards.cli.judge_options import judge_from_option

    if args.judge is None:
        if not args.dry_run:
            raise UsageError("--judge is required unless --dry-run is set")
        return None
    judge = judge_from_option(args.judge, **limits)
    if judge.is_immediate:
        raise UsageError(f"argument --judge: {args.judge} {lacks}; name a language model, as in openai:MODEL")
    return judge


def judge_limits(judge: "Judge | None") -> dict[str, Any]:
    """Return the price and the rate limits in the judge's settings."""
    arguments = {} if judge is None else judge.arguments()
    return {name: arguments.get(name) for name in ("price", "requests_per_minute", "tokens_per_minute")}


def check_judge_outputs(args: argparse.Namespace) -> None:
    """Check ``--output`` and ``--json`` before any request.

    Raises:
        UsageError: If the output is not a file of JSON lines.
        TableError: If a folder is missing, or the summary exists.
    """
    from rrg_rewards.data.tables.table import table_format
    from rrg_rewards.data.tables.writers import check_output

    if args.output == "-" or table_format(args.output) != "jsonl":
        raise UsageError(f"argument --output: must be a file of JSON lines (.jsonl), got {args.output!r}")
    check_output(args.output, overwrite=True)
    if args.json is not None:
        check_output(args.json, args.overwrite)
