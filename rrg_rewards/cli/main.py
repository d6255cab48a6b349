"""The ``rrg-rewards`` command."""

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from rrg_rewards.cli.options import UsageError, new_parser_options
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.version import __version__

__all__ = ["COMMANDS", "main"]

COMMANDS = (
    "label",
    "score",
    "grade",
    "finebench",
    "pairs",
    "train",
    "recipes",
    "convert",
    "demo",
)

_EXAMPLE = """\
examples:
  rrg-rewards label reports.csv --text-column report_text --schema ct_rate --output labels.csv
  rrg-rewards score pairs.csv --metrics crg --prediction-column prediction --reference-column reference
  rrg-rewards grade reports.csv --output graded.jsonl --dry-run
  rrg-rewards pairs samples.csv --reward crg --margin 0.2 --output pairs.jsonl
  rrg-rewards train crepe --config crepe/minilm_phantom
  rrg-rewards recipes ls

exit codes: 0 done, 1 the data or the run failed, 2 the command line is wrong, 130 interrupted, 141 pipe closed
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rrg-rewards",
        description="Clinical metrics for radiology report generation. COMMAND --help explains each command.",
        epilog=_EXAMPLE,
        **new_parser_options(),
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        import_module(f"rrg_rewards.cli.{name}").add_command(commands)
    return parser


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; what a command hands on to another parser is in ``more``."""
    parser = _parser()
    args, more = parser.parse_known_args(argv)
    if more and not getattr(args, "takes_more", False):
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    args.more = more
    return args


def _drop_standard_output() -> None:
    """Send what is still buffered nowhere, so that the interpreter does not fail on it at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(args: argparse.Namespace) -> int:
    terminal = Terminal(quiet=args.quiet)
    try:
        code: int = args.run(args, terminal)
        sys.stdout.flush()
        return code
    except UsageError as error:
        parser: argparse.ArgumentParser = args.parser
        parser.error(str(error))
    except KeyboardInterrupt:
        terminal.error("interrupted")
        return 130
    except BrokenPipeError:
        _drop_standard_output()
        return 141  # what the shell reports for a program that a closed pipe ended
    except Exception as error:  # the one place where a user meets an error: one line, not a traceback
        if args.traceback:
            traceback.print_exc()
        elif isinstance(error, (ValueError, OSError, ImportError)):
            terminal.error(str(error))
        else:
            terminal.error(f"{type(error).__name__}: {error} (run again with --traceback to see where)")
        return 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments without the program's name; default: those of the process.

    Returns:
        Exit code: 0 done, 1 the data or the run failed, 2 the command line is wrong, 130 interrupted.

    Example:
        >>> main(["--version"])
        rrg-rewards ...
        0
    """
    try:
        return _run(_parse(argv))
    except SystemExit as stop:  # argparse ends help, --version and usage errors so
        return stop.code if isinstance(stop.code, int) else 1


if __name__ == "__main__":
    sys.exit(main())
