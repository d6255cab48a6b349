"""The structure of the source: who takes the arguments of the command line, helpers with one user, long files."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMANDS = ROOT / "rrg_rewards" / "cli"
PACKAGES = {"rrg_rewards": "rrg_rewards", "callbacks": "rrg_rewards.callbacks", "recipes": "rrg_rewards.recipes"}
MOST_LINES = 600

# Modules whose texts are command lines of other programs: pip's, and those of Lightning's parser.
OTHER_COMMANDS = {
    "rrg_rewards.training.metrics.cli",
    "rrg_rewards.utilities.imports",
}

# Functions that run any command, or translate its arguments, and what argparse itself calls.
TRANSLATORS = {"main._run", "options.__call__", "options.settings_from"}


@cache
def modules() -> dict[str, Path]:
    """Return the modules of the package by name."""
    found = {}
    for folder, package in PACKAGES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *(part for part in parts if part != "__init__")))] = path
    return found


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def num_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def takers(path: Path) -> Iterator[ast.FunctionDef]:
    """Yield the functions of a module that take the arguments of the command line."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef):
            parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            kinds = [ast.unparse(one.annotation) for one in parameters if one.annotation is not None]
            if any(re.fullmatch(r"(\w+\.)?Namespace( \| None)?", kind) for kind in kinds):
                yield node


def test_no_function_below_a_run_takes_the_arguments_of_a_command():
    """A run takes the arguments and the terminal. What it calls takes settings, for use from Python."""
    wrong = {}
    for path in COMMANDS.glob("*.py"):
        below = [one.name for one in takers(path) if [given.arg for given in one.args.args] != ["args", "terminal"]]
        if others := {f"{path.stem}.{name}" for name in below} - TRANSLATORS:
            wrong[path.name] = others
    assert not wrong, f"takes argparse.Namespace below a run: {wrong}"


def test_only_commands_take_the_arguments_of_the_command_line():
    paths = {name: path for name, path in modules().items() if COMMANDS not in path.parents}
    wrong = {name: found for name, path in paths.items() if (found := [one.name for one in takers(path)])}
    assert not wrong, f"takes argparse.Namespace: {wrong}"


def documentation(path: Path) -> set[ast.Constant]:
    """Return the docstrings of a module."""
    bodies = [node.body for node in ast.walk(tree(path)) if isinstance(getattr(node, "body", None), list) and node.body]
    first = [body[0].value for body in bodies if isinstance(body[0], ast.Expr)]
    return {text for text in first if isinstance(text, ast.Constant)}


def test_only_the_command_line_speaks_of_options():
    """A message names the argument of Python in backticks; the command line makes an option of it."""
    wrong = {}
    for name, path in modules().items():
        if COMMANDS in path.parents or name.startswith("rrg_rewards.recipes") or name in OTHER_COMMANDS:
            continue
        texts = [one for one in ast.walk(tree(path)) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        named = [one.value for one in texts if re.search(r"(^|[^\w-])--[a-z]", one.value)]
        if found := [text for text in named if text not in {one.value for one in documentation(path)}]:
            wrong[name] = found
    assert not wrong, f"names an option of the command line: {wrong}"


# Options that end the command with a text, and those of every command.
NO_SETTINGS = {"--example", "--list", "--version", "--quiet", "--traceback"}


def test_an_option_is_declared_once_as_a_field_of_settings():
    """The field has the type, the default, the range and the help of the option, for Python too."""
    wrong = {}
    for path in COMMANDS.glob("*.py"):
        calls = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Call) and node.args]
        added = [one.args[0] for one in calls if getattr(one.func, "attr", "") == "add_argument"]
        names = {one.value for one in added if isinstance(one, ast.Constant) and str(one.value).startswith("-")}
        if by_hand := names - NO_SETTINGS:
            wrong[path.name] = by_hand
    assert not wrong, f"declare these options as fields of settings: {wrong}"


def imported(path: Path) -> set[str]:
    """Return the modules that a module or a stub imports, also inside functions and by their name in a text."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.update([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update(re.findall(r"\brrg_rewards(?:\.\w+)+", node.value))
    return found & modules().keys()


def helpers() -> dict[str, str]:
    """Return the modules that one module of their folder imports and no other, if one file could contain both.

    A module that another names only in a text is loaded by somebody else, as plug-ins are.
    """
    users: dict[str, set[Path]] = {name: set() for name in modules()}
    for path in modules().values():
        for source in (path, path.with_suffix(".pyi")):
            for name in imported(source) if source.exists() else ():
                if modules()[name] != path:
                    users[name].add(source)
    by_path = {path: name for name, path in modules().items()}
    others = [ROOT / "pyproject.toml", *(ROOT / "recipes").rglob("*.yaml")]
    texts = "".join(path.read_text(encoding="utf-8") for path in others)
    sources = "".join(path.read_text(encoding="utf-8") for path in modules().values())
    found = {}
    for name, path in modules().items():
        if len(users[name]) == 1 and path.stem != "__init__" and name not in texts and f"{name}:" not in sources:
            (user,) = users[name]
            if (
                user.parent == path.parent
                and user.stem != "__init__"
                and num_lines(user) + num_lines(path) <= MOST_LINES
            ):
                found[name] = by_path[user]
    return found


def test_a_helper_with_one_user_lies_in_the_file_of_its_user():
    found = helpers()
    assert not found, f"move the contents of a module into its only user: {found}"


def test_no_file_is_longer_than_a_reader_can_follow():
    folders = (*PACKAGES, "tests", "benchmarks", ".ci")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    long = {str(path.relative_to(ROOT)): num_lines(path) for path in paths if num_lines(path) > MOST_LINES}
    assert not long, f"split these files by topic: {long}"


def test_questions_take_findings_and_read_no_report_themselves():
    """Questions know findings with their attributes; the text of a report is divided and read in one place."""
    readers = {"tokens", "sentences", "statements", "clauses", "negation", "mentions", "phrases"}
    reading = {f"rrg_rewards.findings.reading.{name}" for name in readers}
    assert reading <= modules().keys()
    wrong = {
        name: found
        for name, path in modules().items()
        if name.startswith("rrg_rewards.questions") and (found := imported(path) & reading)
    }
    assert not wrong, f"take what they need from the findings of rrg_rewards.findings.reading.engine: {wrong}"
