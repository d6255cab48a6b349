"""Options, checks and outputs that several commands share."""

import argparse
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from inspect import cleandoc
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

from rrg_rewards.analysis.settings import Batches, RewardChoice, Seed
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.utilities.files import is_same_file
from rrg_rewards.utilities.names import shown
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import (
    SettingError,
    Settings,
    setting,
    setting_choices,
    setting_kinds,
    setting_problem,
)
from rrg_rewards.utilities.texts import printable

if TYPE_CHECKING:
    from rrg_rewards.analysis.input_tables import TableSink
    from rrg_rewards.data.tables.table import Table
    from rrg_rewards.judges.base import Judge
    from rrg_rewards.pages.page import Page

S = TypeVar("S")


class UsageError(Exception):
    """An error in the command line that argparse does not detect; the exit code is 2."""


class OtherRun(Exception):  # noqa: N818 (no error)
    """Raised by :class:`RunInstead` with the arguments, before argparse misses those that the command requires."""


class RunInstead(argparse.Action):
    """An option whose ``const`` is run in place of the command."""

    def __call__(self, _: Any, namespace: argparse.Namespace, values: Any, *__: Any) -> None:
        """End the parsing, with ``const`` as what is run."""
        setattr(namespace, self.dest, values)
        namespace.run = self.const
        raise OtherRun(namespace)


class _StoreOnce(argparse.Action):
    """Store the value of an option, and refuse a second one. By default, argparse drops the first silently."""

    is_given = False

    def __call__(
        self,
        parser: Any,  # noqa: ARG002 (argparse's)
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if self.is_given and option_string is not None:
            raise argparse.ArgumentError(self, "is given more than once")
        self.is_given = True
        setattr(namespace, self.dest, values)


class _Assign(argparse.Action):
    """Collect the values ``KEY=VALUE`` of an option in a mapping. Its metavar is their form."""

    def __call__(
        self,
        parser: Any,  # noqa: ARG002 (argparse's)
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        key, equals, text = values.partition("=")
        if not equals:
            raise argparse.ArgumentError(None, f"argument {option_string}: must be {self.metavar}, got {shown(values)}")
        # The name of a column is a text; other values are YAML.
        value = text if self.metavar == "NAME=COLUMN" else _parse_yaml(text, f"argument {option_string}", values)
        setattr(namespace, self.dest, {**getattr(namespace, self.dest), key: value})


def _parse_yaml(text: str, where: str, given: str) -> Any:
    from rrg_rewards.utilities.yaml_files import parse_yaml

    try:
        return parse_yaml(text)
    except ValueError as error:
        raise argparse.ArgumentError(None, f"{where}: cannot read the value of {shown(given)}: {error}") from error


class CommandParser(argparse.ArgumentParser):
    """Parser that keeps the line breaks of its description and accepts no abbreviated options.

    Args:
        description: Docstring of the command. A title that begins with its name is left out, and the part from the
            line that begins with ``Example`` follows the options.
        options: Other arguments of ``ArgumentParser``.
    """

    def __init__(self, *, description: str | None, **options: Any) -> None:
        text = cleandoc(description or "")
        title, _, body = text.partition("\n\n")
        text, found, examples = (body if title.startswith("``rrg-rewards") else text).partition("\nExample")
        layout = argparse.RawDescriptionHelpFormatter
        super().__init__(
            description=text, epilog=found + examples, formatter_class=layout, allow_abbrev=False, **options
        )
        for name in (None, "store"):
            self.register("action", name, _StoreOnce)

    @property
    def options(self) -> list[str]:
        """Names of the options, with their dashes."""
        return [name for action in self._actions for name in action.option_strings]

    def error(self, message: str) -> NoReturn:
        """Show a message and after it the arguments that are required, and exit with code 2."""
        groups = [group for group in self._mutually_exclusive_groups if group.required]
        of_groups = [action for group in groups for action in group._group_actions]
        needed = [one for one in self._actions if one.required or not one.option_strings or one in of_groups]
        usage = self._get_formatter()
        usage.add_usage(None, needed, groups)
        options = "" if self._subparsers else " [OPTIONS]"
        text = f"{self.prog}: error: {printable(message)}\n{usage.format_help().strip()}{options}\n"
        self.exit(2, f"{text}{self.prog} --help explains all arguments\n")


def add_settings(parser: Any, settings: type, *names: str, **changes: Mapping[str, Any]) -> None:
    """Add an option for each field of a settings dataclass.

    Args:
        parser: Parser or group of options.
        settings: A dataclass whose fields are made by :func:`~rrg_rewards.utilities.settings.setting`, and whose types
            are no texts.
        names: Fields, in the order of their options. Default: all fields that have a help, those of base classes last.
        changes: Changed arguments of ``add_argument``, by field.

    Example:
        >>> from rrg_rewards.analysis import PairColumns
        >>> parser = argparse.ArgumentParser()
        >>> add_settings(parser, PairColumns, "prediction_column", "context")
        >>> settings_from(parser.parse_args(["--context", "age=patient_age"]), PairColumns).context
        {'age': 'patient_age'}
    """
    declared = {one.name: one for one in fields(settings) if one.metadata.get("help")}
    # A class shows its own settings first.
    own_first = dict.fromkeys(name for kind in settings.__mro__ for name in vars(kind).get("__annotations__", {}))
    for name in names or (name for name in own_first if name in declared):
        option = {**_option(declared[name]), **changes.get(name, {})}
        option["help"] = with_options(option["help"])
        parser.add_argument(f"--{name.replace('_', '-')}", **option)


def _option(declared: "Field[Any]") -> dict[str, Any]:
    """Return the arguments of ``add_argument`` for a field."""
    given, kinds = declared.metadata, setting_kinds(declared.type)
    option: dict[str, Any] = {"help": given["help"] + _default_text(declared)}
    if bool in kinds:
        return {**option, "action": "store_true"}
    if declared.default is MISSING and declared.default_factory is MISSING:
        option["required"] = True
    elif declared.default is not MISSING:
        option["default"] = declared.default
    if "metavar" in given:
        option["metavar"] = given["metavar"]
    if "form" in given:
        return {**option, "action": _Assign, "default": {}, "metavar": given["form"]}
    if "separator" in given:
        return {**option, "type": lambda text: tuple(part.strip() for part in text.split(given["separator"]))}
    if Sequence in kinds:
        default = option.get("default")
        return {**option, "action": "append", "default": None if default is None else list(default)}
    if Literal in kinds:
        return {**option, "choices": setting_choices(declared.type)}
    number = next((kind for kind in (float, int) if kind in kinds), None)
    return option if number is None else {**option, "type": _number_reader(declared, number)}


def _default_text(declared: "Field[Any]") -> str:
    """Return the default of a number, a text or a list of texts for the help, unless that says it."""
    value = declared.default
    if (
        isinstance(value, bool)
        or "(default" in declared.metadata["help"]
        or not isinstance(value, int | float | str | tuple)
    ):
        return ""
    text = ",".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)
    return f" (default: {text})" if text else ""


def with_options(text: str, known: Container[str] | None = None) -> str:
    """Return a text of the library, which names settings in backticks, with the options of a command.

    Args:
        text: The text.
        known: The options of the command; names of others stay as they are. Default: all are options.

    Example:
        >>> with_options("requires `labeler=judge` and `text_column`")
        'requires --labeler judge and --text-column'
    """

    def option(found: re.Match[str]) -> str:
        name, equals, value = found[1].partition("=")
        name = f"--{name.replace('_', '-')}"
        return found[0] if known is not None and name not in known else f"{name}{' ' if equals else ''}{value}"

    return re.sub(r"`([a-z][a-z_]*(?:=[^`]+)?)`", option, text)


def _number_reader(declared: "Field[Any]", number: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return the function that parses a number and checks its range."""

    def read(text: str) -> Any:
        try:
            value = number(text)
        except ValueError:
            value = text
        if problem := setting_problem(declared, value):
            raise argparse.ArgumentTypeError(problem)
        return value

    return read


def settings_from(args: argparse.Namespace, settings: type[S], **changes: Any) -> S:
    """Make a settings object from the options of its fields.

    Args:
        args: Arguments of the command.
        settings: The dataclass.
        changes: Values of fields that differ from the options, or have none.

    Raises:
        SettingError: If the settings are invalid.
    """
    given = {one.name: getattr(args, one.name) for one in fields(settings) if hasattr(args, one.name)}  # type: ignore[arg-type]
    return settings(**{**given, **changes})


def add_shared_options(parser: argparse.ArgumentParser, *names: str, **changes: Mapping[str, Any]) -> None:
    """Add shared options to a command.

    Args:
        parser: Parser of the command.
        names: Fields, in the order of their options.
        changes: Changed arguments of ``add_argument``, by field; a field that is not among the names follows them.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_shared_options(parser, "json", seed={"default": 7})
        >>> parser.parse_args([])
        Namespace(json=None, seed=7)
    """
    add_settings(parser, _Shared, *names, *(name for name in changes if name not in names), **changes)


def destination(judge: "Judge | None") -> list[str]:
    """Return a line that names the machine to which reports would be sent; none for a model in this process."""
    address = getattr(judge, "address", None)
    return [] if address is None else [f"reports would be sent to {address.host}"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class InputTable(Settings):
    """The table that a command reads."""

    table: str
    format: str | None = None

    def read(self, log: RunLog) -> "Table":
        """Read the table, and warn if it has no rows."""
        from rrg_rewards.data.tables.readers import read_table

        table = read_table(self.table, self.format)
        if not len(table):
            log.warn(f"{self.table} has a header and no rows")
        return table


def add_table_argument(parser: argparse.ArgumentParser, metavar: str, content: str) -> None:
    """Add the positional argument that names the input table."""
    endings = ".csv, .tsv, .jsonl, .parquet, .json, .xlsx"
    parser.add_argument("table", metavar=metavar, help=f"table of {content} ({endings}); - is standard input")


def add_reward_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add ``--config``, a file of settings of a reward, or ``--reward`` with the options ``names``."""
    given = parser.add_mutually_exclusive_group(required=True)
    add_settings(given, RewardFile, "reward", "config")
    add_settings(parser, RewardFile, *names)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RewardFile(RewardChoice):
    """A reward by name, or in a file of settings."""

    reward: str | None = setting(None, "reward, for example crg", metavar="NAME")  # type: ignore[assignment]
    config: str | None = setting(None, "YAML file of settings, or what rrg-rewards fit has written", metavar="FILE")
    reference_column: str | None = setting(  # type: ignore[assignment]
        None, "column of references (default: reference)", metavar="NAME"
    )
    device: str | None = setting(None, "device of the reward's model, for example cuda or cuda:1", metavar="NAME")

    def __post_init__(self) -> None:
        super().__post_init__()
        for declared in fields(self) if self.config is not None else ():
            default = declared.default if declared.default_factory is MISSING else declared.default_factory()
            if declared.name != "config" and getattr(self, declared.name) != default:
                raise SettingError(declared.name, "has no effect with `config`; put it into the file")


def add_command_parser(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace, Terminal], int],
    help: str,  # noqa: A002 (as in argparse)
    description: str | None = None,
) -> CommandParser:
    """Add the parser of a command, with the options of every command.

    ``run`` runs the command and returns its exit code, ``help`` is one line for the list of commands, and
    ``description`` contains description and examples as in :class:`CommandParser`; by default the docstring of ``run``.
    """
    parser: CommandParser = commands.add_parser(name, help=help, description=description or run.__doc__)
    common = parser.add_argument_group("options of every command")
    common.add_argument("--quiet", action="store_true", help="show no progress bars, notes or warnings")
    common.add_argument("--traceback", action="store_true", help="show the traceback of an error")
    parser.set_defaults(run=run, parser=parser)
    return parser


def check_different(**files: str | None) -> None:
    """Raise if two outputs are one file, also by links.

    Args:
        files: The files by the names of their options.

    Raises:
        UsageError: With both options.
    """
    given = [(option, path) for option, path in files.items() if path is not None]
    for (first, one), (second, other) in combinations(given, 2):
        if is_same_file(one, other):
            files_text = repr(one) if one == other else f"{one!r} and {other!r}, which are one file"
            raise UsageError(f"--{first} and --{second} must differ, got {files_text}")


@dataclass(frozen=True, eq=False, repr=False)
class Outputs(Settings):
    """The files that a command writes. If ``is_appended``, it appends JSON lines to ``output``."""

    output: str | None = None
    json: str | None = setting(None, "write a summary as JSON to FILE; - is standard output", metavar="FILE")
    format: Literal["csv", "jsonl", "parquet"] | None = setting(
        None, "format of - (default: csv) and of files with an unknown ending"
    )
    overwrite: bool = setting(False, "replace output files that exist")
    spreadsheet_safe: bool = setting(
        False,
        "in CSV, write an apostrophe before texts that begin with = + - @, which a spreadsheet would compute",
    )
    is_appended: bool = False

    @property
    def sink(self) -> "TableSink | None":
        """The table that is written while its rows are computed."""
        from rrg_rewards.analysis.input_tables import TableSink

        if self.output is None:
            return None
        return TableSink(self.output, self.format, self.overwrite, self.spreadsheet_safe)

    @property
    def hides_results(self) -> bool:
        """Whether printed results belong on standard error, because standard output contains data."""
        return "-" in (self.output, self.json)

    def check(self, **files: str | None) -> None:
        """Raise before any work is done if a file cannot be written, or two of them are the same.

        Args:
            files: Files of further options, such as ``latex``, by the name of the option; none may be ``-``.

        Raises:
            UsageError: If two options name the same file.
            TableError: If a file exists or its folder does not.
        """
        from rrg_rewards.data.tables.table import table_format
        from rrg_rewards.data.tables.writers import check_output
        from rrg_rewards.utilities.imports import require

        if self.is_appended and (self.output is None or self.output == "-" or table_format(self.output) != "jsonl"):
            raise UsageError(f"argument --output: must be a file of JSON lines (.jsonl), got {self.output!r}")
        if self.spreadsheet_safe and (self.output is None or table_format(self.output, self.format) != "csv"):
            raise UsageError(f"argument --spreadsheet-safe: needs an --output of CSV, got {self.output}")
        for option, path in files.items():
            if path == "-":
                raise UsageError(f"argument --{option}: must be a file of its own, got {path!r}")
        named = {"output": self.output, "json": self.json, **files}
        check_different(**named)
        for option, path in named.items():
            if path is not None:
                check_output(path, self.overwrite or (self.is_appended and option == "output"))
        kind = None if self.output is None else table_format(self.output, self.format)
        if kind in ("parquet", "xlsx"):
            require({"parquet": "pyarrow", "xlsx": "openpyxl"}[kind], extra=kind)

    def write(self, table: "Table", summary: Mapping[str, Any]) -> None:
        """Write the summary and the table, if they are set.

        If one of them cannot be written, the other is written nevertheless, because both are results of a long run.
        """
        from rrg_rewards.data.tables.writers import write_table

        try:
            self.write_summary(summary)
        finally:
            if self.output is not None:
                write_table(table, self.output, self.format, self.overwrite, self.spreadsheet_safe)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write the summary, if it is set."""
        from rrg_rewards.data.tables.writers import write_json

        if self.json is not None:
            write_json(summary, self.json, self.overwrite)


@dataclass(frozen=True, eq=False, repr=False)
class Drawings(Settings):
    """Forms of a result for documents."""

    markdown: str | None = setting(None, "write the result as tables of Markdown to FILE", metavar="FILE")
    latex: str | None = setting(None, "write the result as a LaTeX tabular to FILE", metavar="FILE")


@dataclass(frozen=True, eq=False, repr=False)
class Plugins(Settings):
    """Whether code of the user's is refused."""

    no_plugins: bool = setting(False, "refuse rewards, metrics and functions by path (module:function)")


@dataclass(frozen=True, eq=False, repr=False)
class DryRun(Settings):
    """Whether only the requests to language models are counted."""

    dry_run: bool = setting(False, "send nothing; estimate the requests to language models")


@dataclass(frozen=True, eq=False, repr=False)
class PageOptions(Settings):
    """The page of ``--html``."""

    html: str | None = setting(None, "write a page with plots and a table of all rows to FILE", metavar="FILE")
    with_text: bool = setting(False, "let the page of `html` contain reports, findings and reasons of judges")
    id_column: str | None = setting(None, "column that names the rows of `html` (default: numbers)", metavar="NAME")

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("with_text", "id_column"):
            if self.html is None and getattr(self, option):
                raise SettingError(option, "needs `html`")

    def write(self, page: "Page", overwrite: bool) -> None:
        """Write the page."""
        from rrg_rewards.pages.page import write_page

        assert self.html is not None
        write_page(page, self.html, overwrite)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Shared(Batches, Seed, Outputs):
    """Options of several commands."""

    output: str | None = setting("-", "table to write; - is standard output", metavar="FILE")
