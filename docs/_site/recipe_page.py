"""Page of the recipes: keys of their own, and description, header and keys of each YAML file."""

from dataclasses import MISSING, fields
from typing import Any

from rrg_rewards.recipes import list_recipes
from rrg_rewards.recipes._arguments import PPOArguments, RecipeArguments, SupervisedArguments


def recipes_page() -> str:
    """Return the page as Markdown."""
    parts = [
        "# Recipes",
        "A recipe is a YAML file that describes one training run. Its header lists the prerequisites, the launch line "
        "and the expected result. `rrg-rewards recipes cp NAME my_run.yaml` copies one, and `rrg-rewards recipes "
        "validate my_run.yaml` checks it. The output of a run is described in [TRL](trl.md#recipes), and that of a "
        "learned metric in [training CREPE and ER²Score](training_metrics.md).",
    ]
    parts += ["## Keys", *_keys()]
    folder = ""
    for name, path, description in list_recipes():
        if (first := name.partition("/")[0]) != folder:
            folder = first
            parts.append(f"## {folder}")
        yaml = path.read_text(encoding="utf-8").rstrip()
        parts.append(f'### {name.partition("/")[2]}\n\n{description}\n\n```yaml title="{name}.yaml"\n{yaml}\n```')
    return "\n\n".join(parts) + "\n"


def _keys() -> list[str]:
    """Return tables of the keys that are not TRL's, those of a second script without the keys of the first."""
    scripts = {"grpo": RecipeArguments, "sft": SupervisedArguments, "ppo": PPOArguments}
    known: set[str] = set()
    parts = ["All other keys are those of the arguments of TRL's trainers, which `--help` of a script lists, too."]
    for script, arguments in scripts.items():
        rows = [_row(one) for one in fields(arguments) if one.name not in known]
        known |= {one.name for one in fields(arguments)}
        title = f"`rrg_rewards.recipes.{script}`" + ("" if script == "grpo" else ", further keys")
        parts.append("\n".join([f"| {title} | Default | Meaning |", "|---|---|---|", *rows]))
    return parts


def _row(one: Any) -> str:
    default = "required" if one.default is MISSING and one.default_factory is MISSING else "`[]`"
    if one.default is not MISSING:
        default = "none" if one.default is None else f"`{one.default!r}`"
    return f"| `{one.name}` | {default} | {one.metadata['help'].replace('%%', '%')} |"
