"""Page of the recipes: description, header and keys of each YAML file."""

from rrg_rewards.recipes import list_recipes


def recipes_page() -> str:
    """Return the page as Markdown."""
    parts = [
        "# Recipes",
        "A recipe is a YAML file that describes one training run. Its header lists the prerequisites, the launch line "
        "and the expected result. `rrg-rewards recipes cp NAME my_run.yaml` copies one, and `rrg-rewards recipes "
        "validate my_run.yaml` checks it. The output of a run is described in [TRL](trl.md#recipes), and that of a "
        "learned metric in [training CREPE](training_crepe.md) and [training ER²Score](training_er2score.md).",
    ]
    folder = ""
    for name, path, description in list_recipes():
        if (first := name.partition("/")[0]) != folder:
            folder = first
            parts.append(f"## {folder}")
        yaml = path.read_text(encoding="utf-8").rstrip()
        parts.append(f'### {name.partition("/")[2]}\n\n{description}\n\n```yaml title="{name}.yaml"\n{yaml}\n```')
    return "\n\n".join(parts) + "\n"
