"""Training scripts and recipes: each recipe is a YAML file that describes one run."""

if __name__ != "rrg_rewards.recipes":
    raise ImportError(f"import this package as rrg_rewards.recipes, not as {__name__}")

from rrg_rewards.recipes._catalog import list_recipes, recipe_path, validate_recipe
from rrg_rewards.recipes.generation import GeneratedReports, GenerationSettings, generate_reports

__all__ = [
    "GeneratedReports",
    "GenerationSettings",
    "generate_reports",
    "list_recipes",
    "recipe_path",
    "validate_recipe",
]
