"""Catalog of recipes: all YAML files in this folder and its subfolders, except launcher configurations.

Beside training runs, the files of the folder ``judges`` are settings of judges.
"""

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.yaml_files import read_user_yaml

_ROOT = Path(__file__).resolve().parent
_HEADER_PARTS = ("Prerequisites:", "Launch:", "Expect:")
# Configurations of `accelerate launch`, which are not recipes.
_LAUNCHERS = "accelerate_configs"
_LAUNCH = re.compile(r"-m (rrg_rewards\.recipes\.[\w.]+)|(?:rrg-rewards|-m rrg_rewards) train (\w+)")


def header_of(path: str | Path) -> list[str]:
    """Return the comment lines at the start of a YAML file, without ``#``."""
    header = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        header.append(line.lstrip("#").strip())
    return header


def list_recipes() -> list[tuple[str, Path, str]]:
    """Return ``(name, path, description)`` of each recipe, sorted by name.

    The description is the first line of the file's header.

    Example:
        >>> from rrg_rewards.recipes import list_recipes
        >>> [name for name, path, description in list_recipes() if name.startswith("smollm2/")]
        ['smollm2/impression_grpo_crg', 'smollm2/impression_policy', 'smollm2/impression_sft']
    """
    return [
        (name, path, (header_of(path) or [""])[0])
        for name, path in _files().items()
        if not name.startswith(f"{_LAUNCHERS}/")
    ]


def _files() -> dict[str, Path]:
    return {path.relative_to(_ROOT).with_suffix("").as_posix(): path for path in sorted(_ROOT.rglob("*.yaml"))}


def recipe_path(name: str) -> Path:
    """Return the path of a recipe, or of a launcher configuration such as ``accelerate_configs/zero2``.

    Raises:
        ValueError: For an unknown name, with the nearest known one.

    Example:
        >>> from rrg_rewards.recipes import recipe_path
        >>> recipe_path("smollm2/impression_grpo_crg").name
        'impression_grpo_crg.yaml'
    """
    known = _files()
    if name not in known:
        raise ValueError(unknown_name_message("recipe", name, known))
    return known[name]


def validate_recipe(path: str | Path) -> str:
    """Validate a recipe with the parser of its script, without loading a model or data.

    The launch line in the header names either a script, whose function ``validate`` checks keys, values and rewards, or
    a task of ``rrg-rewards train``. A file with the key ``name`` has the settings of a judge
    (:func:`rrg_rewards.judges.get_judge`). The header of a recipe of this package must also contain the parts
    ``Prerequisites:`` and ``Expect:``.

    Args:
        path: A YAML file.

    Returns:
        The script, the task, or ``"judge"``.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the launch line names nothing that exists, or a key or value is invalid.

    Example:
        >>> from rrg_rewards.recipes import recipe_path, validate_recipe
        >>> validate_recipe(recipe_path("smollm2/impression_grpo_crg"))
        'rrg_rewards.recipes.grpo'
    """
    if not Path(path).is_file():
        raise FileNotFoundError("no such file")
    _check_header(Path(path))
    if "name" in read_user_yaml(path):
        import_module("rrg_rewards.judges.registry").get_judge(str(path))
        return "judge"
    script, task = _launched(Path(path))
    if script is not None:
        module = import_module(script) if find_spec(script) is not None else None
        validate = getattr(module, "validate", None)
        if validate is None:
            raise ValueError(f"the launch line's script {script} does not exist, or has no function validate")
        validate(path)
        return script
    import_module("rrg_rewards.training.metrics.cli").validate(task, path)
    return f"rrg-rewards train {task}"


def _check_header(path: Path) -> None:
    """Raise if a recipe of this package lacks a part of the header."""
    header = " ".join(header_of(path))
    missing = [part for part in _HEADER_PARTS if part not in header]
    if missing and path.resolve().is_relative_to(_ROOT):
        raise ValueError(f"the header comment lacks {', '.join(missing)}")


def _launched(path: Path) -> tuple[str | None, str | None]:
    """Return the script of a recipe, or the task of ``rrg-rewards train``, by its launch line."""
    launch = _LAUNCH.search(" ".join(header_of(path)).partition("Launch:")[2])
    if launch is None:
        raise ValueError(
            "the header has no line 'Launch:' with a script, as in 'python -m rrg_rewards.recipes.grpo', or with a "
            "task, as in 'rrg-rewards train crepe'"
        )
    return launch[1], launch[2]
