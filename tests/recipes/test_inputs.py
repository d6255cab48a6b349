"""Inputs of a recipe that do not exist, and the commands that make them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rrg_rewards.recipes import check_inputs, list_recipes, missing_inputs, recipe_path
from rrg_rewards.utilities.yaml_files import read_user_yaml

_PHANTOM = "python -m rrg_rewards.recipes.ct_chat.phantom --output runs/mini_ct_chat"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _recipe(header: str = "", **keys: Any) -> Path:
    path = Path("my_run.yaml")
    path.write_text("".join(f"# {line}\n" for line in header.splitlines()) + yaml.safe_dump(keys))
    return path


def test_missing_inputs_of_a_recipe_of_this_package_are_in_the_order_of_its_commands() -> None:
    tables, model = missing_inputs(recipe_path("ct_chat/mini_grpo_crg"))
    assert tables.paths == {
        "dataset": ["runs/mini_ct_chat/train.jsonl"],
        "heldout_file": ["runs/mini_ct_chat/heldout.jsonl"],
    }
    assert tables.command == _PHANTOM
    assert model.paths == {"model_name_or_path": ["runs/mini_ct_chat/sft"]}
    assert model.command == "python -m rrg_rewards.recipes.sft --config ct_chat/mini_sft"


def test_missing_inputs_are_not_those_that_exist(empty_folder: Path) -> None:
    for name in ("train.jsonl", "heldout.jsonl"):
        path = empty_folder / "runs/mini_ct_chat" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (model,) = missing_inputs(recipe_path("ct_chat/mini_grpo_crg"))
    assert list(model.paths) == ["model_name_or_path"]
    (empty_folder / "runs/mini_ct_chat/sft").mkdir()
    assert missing_inputs(recipe_path("ct_chat/mini_grpo_crg")) == []


def test_check_inputs_names_the_commands_of_inputs_that_no_option_replaces(empty_folder: Path) -> None:
    path = recipe_path("ct_chat/mini_grpo_crg")
    with pytest.raises(FileNotFoundError, match=rf"^mini_grpo_crg.yaml: missing: .*{_PHANTOM}; missing: .*mini_sft$"):
        check_inputs(path, [])
    with pytest.raises(FileNotFoundError, match=r"^mini_grpo_crg.yaml: missing: runs/mini_ct_chat/sft "):
        check_inputs(path, ["--dataset=mine.jsonl", "--heldout-file", "rows.jsonl"])
    check_inputs(path, ["--dataset=mine.jsonl", "--heldout-file", "rows.jsonl", "--model_name_or_path", "mine"])
    path = recipe_path("er2score/smollm2_phantom")
    with pytest.raises(FileNotFoundError, match=r"\(model.backbone\); run: .*smollm2.prepare"):
        check_inputs(path, ["--data.sources", "[]"])
    check_inputs(path, ["--model.backbone", "mine"])


@pytest.mark.parametrize("name", [name for name, _, _ in list_recipes() if not name.startswith("judges/")])
def test_missing_inputs_of_each_recipe_name_a_command_unless_users_bring_their_own(name: str) -> None:
    missing = missing_inputs(recipe_path(name))
    assert missing
    own = {path for one in missing if one.command is None for paths in one.paths.values() for path in paths}
    users = {"data/reports.jsonl", "data/pairs.jsonl", "data/graded.jsonl"}
    assert own <= users | {"runs/crepe/pairs.jsonl", "runs/er2score/graded.jsonl"}
    # The Hub is not asked.
    names = [path for one in missing for paths in one.paths.values() for path in paths]
    assert not any("google/" in path or "meta-llama/" in path for path in names)


def test_missing_inputs_of_one_key_are_all_named() -> None:
    sources = [{"path": "first.jsonl"}, {"path": "second.jsonl"}, {"path": "first.jsonl"}]
    (missing,) = missing_inputs(_recipe(data={"sources": sources}))
    assert str(missing).startswith("missing: first.jsonl (data.sources.path), second.jsonl (data.sources.path);")


def test_missing_inputs_replace_the_placeholder_of_a_command() -> None:
    _, evaluations = missing_inputs(recipe_path("crimson/smollm2_phantom"))
    assert evaluations.paths == {"dataset": ["runs/crimson/train.jsonl"]}
    assert evaluations.command is not None
    assert evaluations.command.startswith("rrg-rewards judge label runs/crimson/train_pairs.jsonl ")
    assert evaluations.command.endswith(" --output runs/crimson/train.jsonl")


def test_missing_inputs_of_a_recipe_without_header_are_made_by_recipes_of_this_package() -> None:
    keys = read_user_yaml(recipe_path("smollm2/impression_policy"))
    commands = {one.command: one.paths for one in missing_inputs(_recipe(**keys))}
    assert commands == {
        "rrg-rewards convert lora runs/real_reports/sft_adapter --output runs/real_reports/sft": {
            "model_name_or_path": ["runs/real_reports/sft"]
        },
        "python -m rrg_rewards.recipes.smollm2.ct_rate REPORTS.csv --output runs/ct_rate_impressions.csv": {
            "dataset": ["runs/ct_rate_impressions.csv"]
        },
    }


def test_missing_inputs_of_names_on_the_hub_and_of_servers_are_none() -> None:
    assert missing_inputs(_recipe(model_name_or_path="google/medgemma-4b-it", dataset="owner/reports")) == []
    assert missing_inputs(_recipe(name="openai", model="gpt-5", base_url="http://localhost:8000/v1")) == []


def test_missing_inputs_without_a_command_say_what_to_do() -> None:
    judge = {"name": "local", "model": "./judge"}
    path = _recipe(dataset="mine.csv", system_prompt="prompt.txt", rewards=[{"name": "crimson", "judge": judge}])
    (missing,) = missing_inputs(path)
    expected = {"dataset": ["mine.csv"], "rewards.judge.model": ["./judge"], "system_prompt": ["prompt.txt"]}
    assert (missing.paths, missing.command) == (expected, None)
    assert str(missing).endswith("; see the prerequisites of the recipe, or set the key")


def test_missing_inputs_join_the_lines_of_a_command() -> None:
    header = "Prerequisites:\n  rrg-rewards generate a.csv --model m \\\n    --output data/b.csv (an hour)\nLaunch: x"
    (missing,) = missing_inputs(_recipe(header, dataset="data/b.csv"))
    assert str(missing) == (
        "missing: data/b.csv (dataset); run: rrg-rewards generate a.csv --model m --output data/b.csv"
    )
