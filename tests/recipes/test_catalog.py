"""Every recipe is valid, and the error for a wrong one names the key."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from accelerate.commands.config.config_args import load_config_from_file
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

import rrg_rewards.recipes
from rrg_rewards.recipes import list_recipes, recipe_path, validate_recipe

ROOT = Path(rrg_rewards.recipes.__file__).parent
LAUNCHERS = ROOT / "accelerate_configs"
RECIPES = sorted(path for path in ROOT.rglob("*.yaml") if path.parent != LAUNCHERS)
HEADER = """\
# What it does.
# Prerequisites: none
# Launch: python -m rrg_rewards.recipes.grpo --config recipe.yaml
# Expect: little
"""


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_validate_recipe_is_valid(path: Path) -> None:
    validate_recipe(path)


@pytest.mark.parametrize("path", sorted(LAUNCHERS.glob("*.yaml")), ids=lambda path: path.stem)
def test_accelerate_configs_launcher_is_one_that_accelerate_takes(path: Path) -> None:
    config = load_config_from_file(str(path))
    assert config.num_processes == 8
    stages = {"ddp": None, "zero2": 2, "zero3": 3}
    assert (config.deepspeed_config or {}).get("zero_stage") == stages[path.stem]
    assert recipe_path(f"accelerate_configs/{path.stem}") == path


def test_list_recipes_all_files_are_listed_and_described() -> None:
    recipes = list_recipes()
    assert [path for _, path, _ in recipes] == RECIPES
    assert all(len(description) > 20 for _, _, description in recipes)
    assert all(recipe_path(name) == path for name, path, _ in recipes)


def test_recipe_path_unknown_recipe_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'smollm2/impression_grpo_crg'"):
        recipe_path("smollm2/impression_grpo")


def test_catalog_importing_the_catalog_leaves_trl_alone() -> None:
    code = "import sys, rrg_rewards.recipes; sys.exit('trl' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture
def write(recipe: Callable[..., Path]) -> Callable[..., Path]:
    def with_header(header: str = HEADER, **changes: object) -> Path:
        path = recipe(**changes)
        path.write_text(header + path.read_text())
        return path

    return with_header


def test_validate_recipe_a_good_recipe_passes_and_leaves_the_environment(write: Callable[..., Path]) -> None:
    before = dict(os.environ)
    validate_recipe(write(env={"SOME_VARIABLE": "1"}))
    assert dict(os.environ) == before


ZERO3 = {"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}}


def test_validate_recipe_a_recipe_under_deepspeed_is_checked_without_joining_a_group(
    write: Callable[..., Path],
) -> None:
    before = dict(os.environ)
    # Twice: making a parser changes the types of the fields that it reads.
    for _ in range(2):
        validate_recipe(write(deepspeed=ZERO3))
    assert dict(os.environ) == before
    assert not torch.distributed.is_initialized()
    # Otherwise transformers would partition the next model that it makes.
    assert not is_deepspeed_zero3_enabled()


def test_validate_recipe_a_missing_deepspeed_names_its_extra(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    with pytest.raises(ModuleNotFoundError, match=r"\[deepspeed\]"):
        validate_recipe(write(deepspeed=ZERO3))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_ratee": 1e-4}, "'learning_ratee'; did you mean 'learning_rate'"),
        ({"learning_rate": "fast"}, "learning_rate.*'fast'"),
        ({"max_steps": [3]}, r"max_steps must be .*int.*, got \[3\]"),
        ({"algorithm": "ppo"}, "unknown algorithm 'ppo'"),
        ({"algorithm": "rloo", "scale_rewards": "group"}, "unknown key 'scale_rewards'"),
        ({"rewards": None}, "rewards is empty"),
        ({"rewards": [{"nam": "crg"}]}, "a reward must be a name, a mapping with a name"),
        ({"rewards": ["crgg"]}, "'crgg'; did you mean 'crg'"),
        ({"rewards": ["math:pow"], "no_plugins": True}, "'math:pow'"),
        ({"rewards": [{"name": "crg", "priorr": 1}]}, "'priorr'; did you mean 'prior'"),
        ({"rewards": [{"name": "crg", "weight": "much"}]}, "weight of 'crg' .* 'much'"),
        ({"rewards": [{"name": "crg", "prior": "bogus"}]}, "prior"),
        ({"rewards": [{"name": "crg", "labeler": "rule:x"}]}, "'rule'; did you mean 'rules'"),
        ({"rewards": ["crg", "crg"]}, "as: NAME"),
        ({"trust_remote_code": True}, "trust_remote_code"),
        ({"model_init_kwargs": {"trust_remote_code": True}}, "trust_remote_code"),
        ({"reward_weights": [1.0]}, "reward_weights"),
        ({"heldout_fraction": 1.5}, r"heldout_fraction"),
        ({"label_schema": "ct_rate"}, "label_schema"),
        ({"model_name_or_path": None}, "model_name_or_path"),
        ({"dataset": None}, "--dataset"),
        ({"num_generations": 3}, "num_generations"),
        ({"deepspeed": {"zero_optimization": {"stage": 3}}}, "stage3_gather_16bit_weights_on_model_save"),
        ({"deepspeed": "nowhere.json"}, "nowhere.json"),
    ],
)
def test_validate_recipe_a_wrong_recipe_is_told_by_its_key(
    write: Callable[..., Path], changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        validate_recipe(write(**changes))


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (HEADER.replace("rrg_rewards.recipes.grpo", "elsewhere"), "Launch:"),
        ("", "Launch:"),
        (HEADER.replace("recipes.grpo", "recipes.grpoo"), r"script rrg_rewards\.recipes\.grpoo does not exist"),
        (HEADER.replace("recipes.grpo", "recipes.phantom.policy"), "has no function validate"),
    ],
)
def test_validate_recipe_a_header_that_lacks_a_part_is_told(
    write: Callable[..., Path], header: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        validate_recipe(write(header=header))


def test_validate_recipe_a_recipe_of_the_package_needs_a_header(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(header="# What it does.\n")
    monkeypatch.setattr("rrg_rewards.recipes._catalog._ROOT", path.parent)
    with pytest.raises(ValueError, match="lacks Prerequisites:, Launch:, Expect:"):
        validate_recipe(path)


def test_validate_recipe_names_a_key_that_resembles_none(write: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match=r"'xyzzyxyzzy'"):
        validate_recipe(write(xyzzyxyzzy=1))


@pytest.mark.parametrize(("text", "message"), [("- a list", "mapping"), ("a: [", "while parsing a flow node")])
def test_validate_recipe_a_file_that_holds_no_mapping_is_told(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(HEADER + text)
    with pytest.raises(ValueError, match=message):
        validate_recipe(path)


def test_validate_recipe_checks_the_settings_of_a_judge(tmp_path: Path) -> None:
    path = tmp_path / "judge.yaml"
    path.write_text("name: openai\nmodel: m\nsead: 1\n")
    with pytest.raises(TypeError, match="did you mean 'seed'"):
        validate_recipe(path)
    path.write_text("name: openai\nmodel: m\nseed: 1\n")
    assert validate_recipe(path) == "judge"
    judges = [name for name, _, _ in list_recipes() if name.startswith("judges/")]
    assert len(judges) == 5
    assert {validate_recipe(recipe_path(name)) for name in judges} == {"judge"}
