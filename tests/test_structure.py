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

# Modules with one user, which lies in their folder, that are files of their own nevertheless.
OWN_FILES = {
    "rrg_rewards.data.tables.xlsx": "one format of tables, which needs a package of its own",
    "rrg_rewards.integrations.common.missing": "numbers for missing rewards, which know no trainers",
    "rrg_rewards.integrations.serve.access": "who may send requests",
    "rrg_rewards.integrations.serve.app": "imported in worker processes only",
    "rrg_rewards.integrations.serve.bodies": "bytes of requests, which know no endpoints",
    "rrg_rewards.integrations.serve.connections": "connections and their time, which know no requests",
    "rrg_rewards.integrations.serve.scorer": "batches of concurrent requests, without HTTP",
    "rrg_rewards.integrations.vllm.model": "imported by vLLM, when it loads a CT-CHAT",
    "rrg_rewards.integrations.vllm.processing": "prompts and volumes, which know no layers of the model",
    "rrg_rewards.judges.server.cache": "files and their locks, which know no server",
    "rrg_rewards.judges.server.client": "connections, which know no tasks and answers",
    "rrg_rewards.metrics.coco_java": "programs in Java, which know no metrics",
    "rrg_rewards.models.ct_chat.llava": "checkpoints of another code",
}


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
            if any(re.search(r"\bNamespace\b", kind) for kind in kinds):
                yield node


def test_one_function_below_a_run_takes_the_arguments_of_a_command():
    """A run takes the arguments and the terminal. What it computes takes settings, for use from Python."""
    wrong = {}
    for path in COMMANDS.glob("*.py"):
        below = [one.name for one in takers(path) if [given.arg for given in one.args.args] != ["args", "terminal"]]
        # The options that commands share translate arguments.
        if path.name not in ("options.py", "engines.py") and len(below) > 1:
            wrong[path.name] = below
    assert not wrong, f"more than one function besides the run takes argparse.Namespace: {wrong}"


def test_only_commands_take_the_arguments_of_the_command_line():
    paths = {name: path for name, path in modules().items() if COMMANDS not in path.parents}
    wrong = {name: found for name, path in paths.items() if (found := [one.name for one in takers(path)])}
    assert not wrong, f"takes argparse.Namespace: {wrong}"


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
    """Return the modules that one module of their folder imports and no other, if one file could contain both."""
    users: dict[str, set[Path]] = {name: set() for name in modules()}
    for path in modules().values():
        for source in (path, path.with_suffix(".pyi")):
            for name in imported(source) if source.exists() else ():
                if modules()[name] != path:
                    users[name].add(source)
    by_path = {path: name for name, path in modules().items()}
    others = [ROOT / "pyproject.toml", *(ROOT / "recipes").rglob("*.yaml")]
    texts = "".join(path.read_text(encoding="utf-8") for path in others)
    found = {}
    for name, path in modules().items():
        if len(users[name]) == 1 and path.stem != "__init__" and name not in texts:
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
    alone = {name: user for name, user in found.items() if name not in OWN_FILES}
    assert not alone, f"move the contents of a module into its only user, or give a reason in OWN_FILES: {alone}"
    assert not OWN_FILES.keys() - found, "OWN_FILES names modules with several users or without any"


def test_no_file_is_longer_than_a_reader_can_follow():
    folders = (*PACKAGES, "tests", "benchmarks", ".ci")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    long = {str(path.relative_to(ROOT)): num_lines(path) for path in paths if num_lines(path) > MOST_LINES}
    assert not long, f"split these files by topic: {long}"
