"""``rrg-rewards recipes``: list, copy, locate and check recipes and settings of judges, and write the pages of runs.

Show, copy and check the training recipes of the package. A recipe is a YAML file that describes one run. Its header
lists the prerequisites, the launch command and the expected result. The recipes judges/... are settings of judges, for
--judge.

A reward named module:function in a recipe runs the code of the module, also when the recipe is only checked. Check and
run recipes that you did not write with --no-plugins, which refuses such names.

Examples:
  rrg-rewards recipes ls
  rrg-rewards recipes cp judges/crimson_gpt5
  rrg-rewards recipes cp ct_chat/mini_grpo_crg my_run.yaml
  rrg-rewards recipes validate my_run.yaml
  accelerate launch --config_file $(rrg-rewards recipes path accelerate_configs/zero2) ...
"""

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

from rrg_rewards.cli.options import Outputs, PageOptions, Plugins, UsageError, add_command_parser, add_settings
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.utilities.plugins import refuse_paths


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``recipes`` to the command line."""
    parser = commands.add_parser("recipes", help=summary, description=__doc__)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    add_command_parser(actions, "ls", _list, "list recipes", "List the recipes.")

    example = "\n\nExample:\n  rrg-rewards recipes"
    text = f"Copy a recipe, to edit it.{example} cp ct_chat/mini_grpo_crg my_run.yaml"
    cp = add_command_parser(actions, "cp", _copy, "copy a recipe", text)
    cp.add_argument("name", metavar="NAME", help="recipe, as listed by ls")
    cp.add_argument("destination", metavar="DEST", nargs="?", default=".", help="file or folder (default: .)")
    add_settings(cp, Outputs, "overwrite")

    text = f"Print the path of a recipe.{example} path accelerate_configs/zero2"
    path = add_command_parser(actions, "path", _path, "print the path of a recipe", text)
    path.add_argument("name", metavar="NAME", help="recipe, as listed by ls, or accelerate_configs/{ddp,zero2,zero3}")

    text = f"Check the keys, values and rewards of recipes. No model or data is loaded.{example} validate my_run.yaml"
    validate = add_command_parser(actions, "validate", _validate, "check recipes", text)
    add_settings(validate, Plugins)
    validate.add_argument("files", metavar="FILE", nargs="*", help="recipes to check (default: all that ls lists)")

    text = (
        "Write the page of a run again: learning curves, held-out evaluation, reward watch, the result of an attack\n"
    )
    text += "(FOLDER/attack.json, as rrg-rewards attack --json writes it) and, with --with-text, examples."
    text += f"{example} page runs/grpo --with-text"
    page = add_command_parser(actions, "page", _page, "write the page of a run", text)
    page.add_argument("folder", metavar="FOLDER", help="output folder of the run")
    html = {"help": "file to write (default: FOLDER/run.html, which is replaced)"}
    add_settings(page, PageOptions, "html", "with_text", html=html, with_text={"help": "show held-out reports"})
    add_settings(page, Outputs, "overwrite", overwrite={"help": "replace the file of --html if it exists"})


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
    from rrg_rewards.data.tables.writers import open_output

    source = _find(args.name)
    destination = Path(args.destination)
    if destination.is_dir():
        destination /= source.name
    with open_output(destination, args.overwrite) as file:
        file.write(source.read_bytes())
    terminal.note(f"copied {args.name} to {destination}")
    return 0


def _validate(args: argparse.Namespace, terminal: Terminal) -> int:
    if args.no_plugins:
        refuse_paths()
    recipes = _recipes()
    listed = {name: Path(path) for name, path, _ in recipes.list_recipes()}
    files = [listed.get(file, Path(file)) for file in args.files] or list(listed.values())
    wrong = 0
    for file in files:
        try:
            launched = recipes.validate_recipe(file)
        except (ValueError, TypeError, OSError) as error:
            wrong += 1
            terminal.error(f"{file}: {str(error).removeprefix(f'{file}: ')}")
            continue
        terminal.show(f"{file}: ok ({launched})")
    if wrong < len(files):
        terminal.note("keys, values and rewards were checked; tables and models were not read")
    return 1 if wrong else 0


def _page(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.pages.page import write_page
    from rrg_rewards.pages.run_page import run_page

    path = args.html or str(Path(args.folder) / "run.html")
    write_page(run_page(args.folder, args.with_text), path, args.overwrite or args.html is None)
    terminal.note(f"wrote {path}")
    return 0
