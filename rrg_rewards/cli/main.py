"""``rrg-rewards``: the command line.

Clinical metrics for radiology report generation. Run COMMAND --help for the help of a command.

Examples:
  rrg-rewards label reports.csv --text-column report_text --schema ct_rate --output labels.csv
  rrg-rewards findings reports.csv --text-column report_text --output findings.jsonl
  rrg-rewards score pairs.csv --metrics crg --prediction-column prediction --reference-column reference
  rrg-rewards compare baseline.csv new.csv --metrics crg
  rrg-rewards agreement rated.csv --scores crg,rouge --human rating
  rrg-rewards sensitivity reports.csv --reference-column report_text --metrics crg,crimson
  rrg-rewards grade reports.csv --output graded.jsonl --dry-run
  rrg-rewards count pairs.csv --output counts.jsonl --dry-run
  rrg-rewards pairs samples.csv --reward recommended --margin 0.2 --output pairs.jsonl
  rrg-rewards generate heldout.jsonl --model runs/sft --output predictions.jsonl
  rrg-rewards attack pairs.csv --reward crg --honest-column prediction
  rrg-rewards fit reports.csv --reward recommended --reference-column report_text --output reward.json
  rrg-rewards train crepe --config crepe/minilm_phantom
  rrg-rewards serve --config reward.json
  rrg-rewards recipes ls

SIGTERM and SIGHUP end a command as Ctrl-C does.

exit codes: 0 success, 1 error in the data or the run, 2 wrong command line, 129 SIGHUP, 130 interrupted, 141 closed
pipe, 143 SIGTERM
"""

import argparse
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from rrg_rewards.cli.options import CommandParser, OtherRun, UsageError, with_options
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.utilities.files import outputs_as_private_as_inputs
from rrg_rewards.utilities.run_log import RunWarning
from rrg_rewards.utilities.settings import SettingError
from rrg_rewards.utilities.signals import ending_signals, signals_as_interrupts
from rrg_rewards.utilities.texts import PlaceholderWarning, printable
from rrg_rewards.version import __version__

COMMANDS = {
    "label": "label the abnormalities in reports",
    "findings": "write the findings of reports as JSON lines",
    "score": "score predicted against reference reports",
    "compare": "compare systems, with paired tests",
    "agreement": "compare metrics with human judgements",
    "sensitivity": "test whether metrics react to errors, and tolerate other words",
    "grade": "let a language model write reports of graded quality",
    "count": "let a language model count the errors of existing reports",
    "judge": "let a judge evaluate report pairs, to train and compare judges",
    "finebench": "make the questions of CT-FineBench",
    "pairs": "turn sampled completions into preference data for DPO and KTO",
    "attack": "search for texts that earn most without looking at the image",
    "fit": "fit a reward to the training references, and write its settings as JSON",
    "train": "train a learned metric",
    "generate": "generate reports for a table",
    "serve": "serve a reward over HTTP",
    "recipes": "list, find, copy and check training recipes",
    "sample-data": "write two small tables of synthetic studies, to try the commands on",
    "convert": "convert models and tables of reports",
    "demo": "train a small CT-CHAT on this machine, with the recommended reward",
}
"""The commands, each with its line in the help. Only the module of the chosen one is imported."""


def _parser(chosen: str | None) -> CommandParser:
    """Return the parser of the command line, in which only the chosen command has its options."""
    parser = CommandParser(prog="rrg-rewards", description=__doc__)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        if name == chosen:
            import_module(f"rrg_rewards.cli.{name.replace('-', '_')}").add_command(commands, summary)
        else:
            commands.add_parser(name, help=summary, description=summary)
    return parser


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; ``more`` contains arguments that a command passes to another parser."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    parser = _parser(next((argument for argument in arguments if not argument.startswith("-")), None))
    try:
        args, more = parser.parse_known_args(arguments)
    except OtherRun as other:
        args, more = other.args[0], []
    if more and not getattr(args, "takes_more", False):
        command: CommandParser = args.parser
        near = get_close_matches(more[0].partition("=")[0], command.options, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        command.error(f"unrecognized arguments: {' '.join(more)}{hint}")
    args.more = more
    return args


def _usage(error: UsageError | SettingError) -> str:
    """Return what is wrong with the command line, in which a setting is the option of its name."""
    problem = with_options(error.problem) if isinstance(error, SettingError) else str(error)
    setting = getattr(error, "setting", None)
    return problem if setting is None else f"argument --{setting.replace('_', '-')}: {problem}"


def _drop_standard_output() -> None:
    """Discard buffered output, so that the interpreter does not fail on a closed pipe at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _own_warnings(terminal: Terminal) -> Iterator[None]:
    """Show the warnings of this package like the other messages of a command, without the line of code."""
    with warnings.catch_warnings():
        show = warnings.showwarning
        shown: set[str] = set()

        def show_on_terminal(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
            # Outputs are checked before a run and again when they are written.
            if category is RunWarning and str(message) in shown:
                return
            shown.add(str(message))
            if category.__module__.startswith("rrg_rewards."):
                terminal.warn(str(message))
            else:
                show(message, category, *place, **options)

        for shown_always in (PlaceholderWarning, RunWarning):
            warnings.simplefilter("always", shown_always)
        warnings.showwarning = show_on_terminal
        yield


def _run(args: argparse.Namespace) -> int:
    terminal = Terminal(args.quiet, partial(with_options, known=args.parser.options))
    with signals_as_interrupts() as received, outputs_as_private_as_inputs():
        try:
            code = _outcome(args, terminal)
        except SystemExit as stop:  # Of usage errors, and of trainers that are interrupted.
            code = _exit_code(stop)
            # Training scripts handle signals themselves, and exit with this code after a checkpoint.
            received += [one for one in ending_signals() if 128 + one == code]
    if code and received:
        terminal.error(f"ended by {received[0].name}")
        return 128 + received[0]  # As a shell reports the end of a process by a signal.
    return code


def _exit_code(stop: SystemExit) -> int:
    return stop.code if isinstance(stop.code, int) else 1


def _outcome(args: argparse.Namespace, terminal: Terminal) -> int:
    """Run a command, show its error, and return its exit code."""
    # For module:Class in the working folder, which is not on the path of a console script. At the end, because its
    # files must not hide modules that are installed.
    if not {"", str(Path.cwd())} & {*sys.path}:
        sys.path.append(str(Path.cwd()))
    try:
        with _own_warnings(terminal):
            code: int = args.run(args, terminal)
        sys.stdout.flush()
        return code
    except (UsageError, SettingError) as error:
        parser: argparse.ArgumentParser = args.parser
        parser.error(_usage(error))
    except KeyboardInterrupt:
        terminal.error("interrupted")
        return 130
    except BrokenPipeError:
        _drop_standard_output()
        return 141  # As a shell reports for SIGPIPE.
    except Exception as error:  # Users get one line instead of a traceback.
        if args.traceback:
            sys.stderr.write(printable(traceback.format_exc()))
        elif isinstance(error, (ValueError, OSError, ImportError)):
            terminal.error(str(error))
        else:
            terminal.error(f"{type(error).__name__}: {error} (add --traceback to see where)")
        return 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments without the program name; ``None`` means those of the process.

    Returns:
        Exit code: 0 success, 1 error in the data or the run, 2 wrong command line, 129 SIGHUP, 130 interrupted, 141
        closed pipe, 143 SIGTERM.

    Example:
        >>> main(["--version"])
        rrg-rewards ...
        0
    """
    try:
        return _run(_parse(argv))
    except SystemExit as stop:  # argparse raises it after --help, --version and usage errors.
        return _exit_code(stop)


if __name__ == "__main__":
    sys.exit(main())
