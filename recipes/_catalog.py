"""Which recipes there are: every YAML file below this folder that is no launcher's configuration."""

import re
from importlib import import_module
from pathlib import Path

from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["header_of", "list_recipes", "recipe_path", "validate_recipe"]

_ROOT = Path(__file__).resolve().parent
_HEADER_PARTS = ("Prerequisites:", "Launch:", "Expect:")
# Read by `accelerate launch`: they say how processes are started, not what is run.
_LAUNCHERS = "accelerate_configs"
_LAUNCH = re.compile(r"-m (rrg_rewards\.recipes\.[\w.]+)|(?:rrg-rewards|-m rrg_rewards) train (\w+)")


def header_of(path: str | Path) -> list[str]:
    """Comment lines at the head of a YAML file, without the comment sign."""
    header = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        header.append(line.lstrip("#").strip())
    return header


def list_recipes() -> list[tuple[str, Path, str]]:
    """Recipes as ``(name, path, description)``, by name; the description is the first line of the file's header.

    Example:
        >>> from rrg_rewards.recipes import list_recipes
        >>> [name for name, path, description in list_recipes() if name.startswith("smollm2/")]
        ['smollm2/impression_grpo_crg']
    """
    return [
        (name, path, (header_of(path) or [""])[0])
        for name, path in _files().items()
        if not name.startswith(f"{_LAUNCHERS}/")
    ]


def _files() -> dict[str, Path]:
    return {path.relative_to(_ROOT).with_suffix("").as_posix(): path for path in sorted(_ROOT.rglob("*.yaml"))}


def recipe_path(name: str) -> Path:
    """Path of a recipe's YAML file, or of a launcher's (``accelerate_configs/zero2``).

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


def _validate_by_script(script: str, path: Path) -> None:
    try:
        module = import_module(script)
    except ModuleNotFoundError as error:
        if error.name != script:
            raise
        raise ValueError(f"the launch line's script {script} does not exist") from error
    if not hasattr(module, "validate"):
        raise ValueError(f"the launch line's script {script} has no function validate")
    module.validate(path)


def validate_recipe(path: str | Path) -> None:
    """Check a recipe by its script's own parser, without loading a model or data.

    The header must say prerequisites, launch line and what to expect; the launch line names the script, whose
    ``validate`` checks keys, values and rewards, or what ``rrg-rewards train`` is to train.

    Args:
        path: A YAML file.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: Naming the key that is wrong.

    Example:
        >>> from rrg_rewards.recipes import recipe_path, validate_recipe
        >>> validate_recipe(recipe_path("smollm2/impression_grpo_crg"))
    """
    if not Path(path).is_file():
        raise FileNotFoundError("no such file")
    header = " ".join(header_of(path))
    missing = [part for part in _HEADER_PARTS if part not in header]
    if missing:
        raise ValueError(f"the header comment lacks {', '.join(missing)}")
    launch = _LAUNCH.search(header.partition("Launch:")[2])
    if launch is None:
        raise ValueError(
            "the launch line names no script, as in 'python -m rrg_rewards.recipes.grpo', and no task of "
            "'rrg-rewards train', as in 'rrg-rewards train crepe'"
        )
    if launch[1] is not None:
        _validate_by_script(launch[1], Path(path))
    else:
        import_module("rrg_rewards.training.cli").validate(launch[2], path)
