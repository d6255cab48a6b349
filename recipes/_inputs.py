"""Input files and models that a recipe names, and the commands of headers that make them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rrg_rewards.data.tables.table import FORMATS
from rrg_rewards.recipes._catalog import header_of, list_recipes, recipe_path
from rrg_rewards.utilities.checks import check_model_source
from rrg_rewards.utilities.yaml_files import read_user_yaml

_TABLES = ("dataset", "heldout_file")
_MODELS = ("model_name_or_path", "encoder", "backbone", "model")
_PROGRAMS = ("python ", "rrg-rewards ", "accelerate ", "torchrun ", "hf ")
# A word that a user replaces, as in runs/crimson/PART.jsonl.
_PLACEHOLDER = re.compile(r"\b[A-Z]{3,}(?=\b|_)")
_OUTPUTS = (re.compile(r"--output[ =](\S+)"), re.compile(r"export_model\('([^']+)'\)"))
_CONFIG = re.compile(r"--config[ =](\S+)")


@dataclass(frozen=True)
class MissingInput:
    """Files and folders that a recipe reads and that do not exist, and the command that makes them.

    Args:
        paths: The files and folders, relative to the working folder, by their key, such as ``dataset`` or
            ``data.sources.path``. A list in a recipe can have several files of one key.
        command: The command; ``None`` if no header names one.

    Example:
        >>> print(MissingInput({"dataset": ["train.jsonl"]}, "python prepare.py --output train.jsonl"))
        missing: train.jsonl (dataset); run: python prepare.py --output train.jsonl
    """

    paths: Mapping[str, Sequence[str]]
    command: str | None = None

    def __str__(self) -> str:
        names = ", ".join(f"{path} ({key})" for key, paths in self.paths.items() for path in paths)
        remedy = (
            "see the prerequisites of the recipe, or set the key" if self.command is None else f"run: {self.command}"
        )
        return f"missing: {names}; {remedy}"


def missing_inputs(path: str | Path) -> list[MissingInput]:
    r"""Return the input files and model folders of a recipe that do not exist, with the commands that make them.

    Inputs are tables of ``dataset`` and ``heldout_file``, files of ``system_prompt``, the data of ``rrg-rewards train``
    and all models. Names that may be models or data sets on the Hub are not looked up there. The commands are those of
    the recipe's header, and of the recipes of this package that read or write the same files. They are in the order in
    which they have to run.

    Args:
        path: A YAML file that :func:`validate_recipe` accepts.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from rrg_rewards.recipes import missing_inputs
        >>> with TemporaryDirectory() as folder:
        ...     recipe = Path(folder) / "my_run.yaml"
        ...     header = "# Prerequisites:\n# python prepare.py --output data\n"
        ...     _ = recipe.write_text(f"{header}dataset: data/train.jsonl\n")
        ...     print(*missing_inputs(recipe))
        missing: data/train.jsonl (dataset); run: python prepare.py --output data
    """
    path = Path(path)
    commands = _commands(path, "Prerequisites:", "Launch:")
    missing: dict[str | None, dict[str, list[str]]] = {}
    for key, name, is_model in _inputs(read_user_yaml(path)):
        command = _longest(_made_by(name, commands)) or _of_other_recipes(path, name)
        if _is_missing(name, is_model, command is not None):
            names = missing.setdefault(command, {}).setdefault(key, [])
            names += [] if name in names else [name]
    # Commands of other recipes last.
    order = {_pattern(command): rank for rank, (command, _) in enumerate(commands)}

    def rank(command: str | None) -> int:
        ranks = (rank for pattern, rank in order.items() if command is not None and re.fullmatch(pattern, command))
        return next(ranks, len(order))

    return [MissingInput(missing[command], command) for command in sorted(missing, key=rank)]


def check_inputs(config: str | Path, options: Sequence[str]) -> None:
    """Check that the inputs of a recipe exist for which a header has a command.

    Args:
        config: The recipe's YAML file.
        options: The command line of a run. Its options replace keys of the file.

    Raises:
        FileNotFoundError: With the commands, in the order in which they have to run.
    """
    replaced = tuple(f"{name}." for name in option_names(options))
    missing = [
        str(one)
        for one in missing_inputs(config)
        if one.command is not None and not all(f"{key}.".startswith(replaced) for key in one.paths)
    ]
    if missing:
        raise FileNotFoundError(f"{Path(config).name}: {'; '.join(missing)}")


def option_names(argv: Sequence[str]) -> list[str]:
    """Return the names of the options of a command line, with underscores.

    Example:
        >>> option_names(["--config", "run.yaml", "--max-steps=3"])
        ['config', 'max_steps']
    """
    return [part[2:].partition("=")[0].replace("-", "_") for part in argv if part.startswith("--")]


def _is_missing(name: str, is_model: bool, is_made: bool) -> bool:
    """Whether an input does not exist. A model ``owner/name`` may be on the Hub, unless a command makes the folder."""
    if Path(name).exists():
        return False
    if not is_model or is_made:
        return True
    try:
        check_model_source(name)
    except FileNotFoundError:
        return True
    return False


def _inputs(node: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[str, str, bool]]:
    """Yield the key and name of each input, and whether it is a model."""
    if isinstance(node, list):
        for item in node:
            yield from _inputs(item, keys)
    if not isinstance(node, Mapping):
        return
    for name, value in node.items():
        key = ".".join((*keys, str(name)))
        if not isinstance(value, str):
            yield from _inputs(value, keys if name == "init_args" else (*keys, str(name)))
        elif (
            (name in _TABLES and Path(value).suffix.lower() in FORMATS)
            or (name == "path" and "data" in keys)
            or (name == "system_prompt" and Path(value).suffix in (".txt", ".py"))
        ):
            yield key, value, False
        # The model of a server is no folder.
        elif name in _MODELS and node.get("name") != "openai":
            yield key, value, True


def _commands(path: Path, start: str, end: str) -> list[tuple[str, str]]:
    """Return the commands of a part of the header, each with every output that it writes."""
    lines: list[str] = []
    for line in " \n".join(header_of(path)).partition(start)[2].partition(end)[0].splitlines():
        if lines and lines[-1].endswith("\\"):
            lines[-1] = f"{lines[-1][:-1].strip()} {line.strip()}"
        else:
            lines.append(line.strip())
    commands = []
    for line in lines:
        if line.startswith(_PROGRAMS):
            # An explanation may follow.
            command = re.sub(r" \([^()]*\)$", "", line)
            commands += [(command, output) for output in _outputs(command)]
    return commands


def _outputs(command: str) -> list[str]:
    outputs = [output for pattern in _OUTPUTS for output in pattern.findall(command)]
    for name in _CONFIG.findall(command):
        try:
            output = read_user_yaml(recipe_path(name)).get("output_dir")
        except ValueError:
            continue
        outputs += [] if output is None else [output]
    return outputs


def _pattern(text: str) -> str:
    """Return a regular expression in which placeholders match what they stand for."""
    parts = _PLACEHOLDER.split(text)
    return r"([^/\s]+?)".join(map(re.escape, parts))


def _made_by(name: str, commands: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the commands that write a file or its folder, with placeholders replaced, and what they write."""
    made = []
    for command, output in commands:
        match = re.fullmatch(f"{_pattern(output)}(/.*)?", name)
        if match is not None:
            *values, _ = match.groups()
            whole = command
            for word, value in zip(_PLACEHOLDER.findall(output), values, strict=True):
                whole = whole.replace(word, value)
            made.append((whole, output))
    return made


def _longest(made: list[tuple[str, str]]) -> str | None:
    """Return the command that writes the file itself rather than its folder."""
    return max(made, key=lambda command: len(command[1]), default=(None, ""))[0]


@cache
def _names_of_package_recipe(path: Path) -> frozenset[str]:
    return frozenset(name for _, name, _ in _inputs(read_user_yaml(path)))


def _of_other_recipes(path: Path, name: str) -> str | None:
    """Return the command of another recipe of this package that makes an input; ``None`` if there is none."""
    for _, other, _ in list_recipes():
        if other == path:
            continue
        if name in _names_of_package_recipe(other):
            made = _made_by(name, _commands(other, "Prerequisites:", "Launch:"))
        else:
            # The folder of a file says too little about a recipe that does not read the file.
            made = [maker for maker in _commands(other, "Launch:", "Expect:") if maker[1] == name]
        if made:
            return _longest(made)
    return None
