"""``rrg-rewards recipes``: list, find, copy and check training recipes."""

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

from rrg_rewards.cli.options import UsageError, add_common_options, new_parser_options
from rrg_rewards.cli.terminal import Terminal

__all__ = ["add_command"]

_DESCRIPTION = """\
Training recipes that come with the package. One YAML file is one run; its header says what it needs, how to launch it
and what to expect.
"""

_EXAMPLE = """\
examples:
  rrg-rewards recipes ls
  rrg-rewards recipes cp NAME my_run.yaml
  rrg-rewards recipes validate my_run.yaml
  accelerate launch --config_file $(rrg-rewards recipes path accelerate_configs/zero2) ...
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``recipes`` to the command line."""
    parser = commands.add_parser(
        "recipes",
        help="list, find, copy and check training recipes",
        description=_DESCRIPTION,
        epilog=_EXAMPLE,
        **new_parser_options(),
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    ls = actions.add_parser("ls", help="list recipes", description="List the recipes.", **new_parser_options())
    ls.set_defaults(run=_list, parser=ls)

    description = "Copy a recipe to edit it.\n\nexample:\n  rrg-rewards recipes cp NAME my_run.yaml"
    cp = actions.add_parser("cp", help="copy a recipe", description=description, **new_parser_options())
    cp.add_argument("name", metavar="NAME", help="recipe, as ls names it")
    cp.add_argument("destination", metavar="DEST", nargs="?", default=".", help="file or folder (default: .)")
    cp.add_argument("--overwrite", action="store_true", help="replace a file that exists")
    cp.set_defaults(run=_copy, parser=cp)

    description = "Show where a recipe's file is.\n\nexample:\n  rrg-rewards recipes path accelerate_configs/zero2"
    path = actions.add_parser("path", help="show where a recipe is", description=description, **new_parser_options())
    path.add_argument("name", metavar="NAME", help="recipe as ls names it, or accelerate_configs/{ddp,zero2,zero3}")
    path.set_defaults(run=_path, parser=path)

    description = "Check recipes without running them.\n\nexample:\n  rrg-rewards recipes validate my_run.yaml"
    validate = actions.add_parser("validate", help="check recipes", description=description, **new_parser_options())
    validate.add_argument("files", metavar="FILE", nargs="*", help="recipes to check (default: all that ls names)")
    validate.set_defaults(run=_validate, parser=validate)
    for action in (ls, cp, path, validate):
        add_common_options(action)


def _recipes() -> Any:
    return import_module("rrg_rewards.recipes")


def _list(args: argparse.Namespace, terminal: Terminal) -> int:  # noqa: ARG001 (every command takes both)
    recipes = _recipes().list_recipes()
    width = max((len(name) for name, _, _ in recipes), default=0)
    terminal.show(*(f"{name:{width}}  {description}" for name, _, description in recipes))
    return 0


def _find(name: str) -> Path:
    try:
        return Path(_recipes().recipe_path(name))
    except ValueError as error:
        raise UsageError(str(error)) from error


def _path(args: argparse.Namespace, terminal: Terminal) -> int:
    terminal.show(str(_find(args.name)))
    return 0


def _copy(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.data.writers import open_output

    source = _find(args.name)
    destination = Path(args.destination)
    if destination.is_dir():
        destination /= source.name
    with open_output(destination, args.overwrite) as file:
        file.write(source.read_bytes())
    terminal.note(f"copied {args.name} to {destination}")
    return 0


def _validate(args: argparse.Namespace, terminal: Terminal) -> int:
    recipes = _recipes()
    listed = {name: Path(path) for name, path, _ in recipes.list_recipes()}
    files = [listed.get(file, Path(file)) for file in args.files] or list(listed.values())
    wrong = 0
    for file in files:
        try:
            recipes.validate_recipe(file)
        except (ValueError, OSError) as error:
            wrong += 1
            terminal.error(f"{file}: {error}")
        else:
            terminal.show(f"{file}: ok")
    return 1 if wrong else 0
