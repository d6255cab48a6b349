"""``rrg-rewards recipes``."""

import sys
from types import ModuleType

import pytest

from rrg_rewards.utilities.names import unknown_name_message


@pytest.fixture
def recipes(monkeypatch, tmp_path):
    folder = tmp_path / "recipes"
    folder.mkdir()
    names = ("tiny/grpo_crg", "tiny/sft")
    paths = {name: folder / f"{name.split('/')[1]}.yaml" for name in names}
    for name, path in paths.items():
        path.write_text(f"# {name}\nlr: 1\n")

    def recipe_path(name):
        if name not in paths:
            raise ValueError(unknown_name_message("recipe", name, paths))
        return paths[name]

    def validate_recipe(path):
        if "lr" not in path.read_text():
            raise ValueError("key 'lr' is missing")
        return "script"

    module = ModuleType("rrg_rewards.recipes")
    module.list_recipes = lambda: [(name, path, f"Recipe {name} [CPU]") for name, path in paths.items()]
    module.recipe_path, module.validate_recipe = recipe_path, validate_recipe
    monkeypatch.setitem(sys.modules, "rrg_rewards.recipes", module)
    return paths


def test_ls_lists_one_recipe_a_line(run, recipes):
    result = run("recipes", "ls", "--quiet")
    expected = ["tiny/grpo_crg  Recipe tiny/grpo_crg [CPU]", "tiny/sft       Recipe tiny/sft [CPU]"]
    assert (result.code, result.out.splitlines(), result.err) == (0, expected, "")


def test_cp_copies_to_a_file_a_folder_or_here(run, recipes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("recipes", "cp", "tiny/sft").code == 0
    assert run("recipes", "cp", "tiny/sft", "mine.yaml").code == 0
    assert (tmp_path / "sft.yaml").read_text() == (tmp_path / "mine.yaml").read_text() == "# tiny/sft\nlr: 1\n"
    result = run("recipes", "cp", "tiny/grpo_crg", "mine.yaml")
    assert result.code == 1
    assert "mine.yaml: exists already; pass --overwrite" in result.err
    assert run("recipes", "cp", "tiny/grpo_crg", "mine.yaml", "--overwrite").code == 0
    assert (tmp_path / "mine.yaml").read_text() == "# tiny/grpo_crg\nlr: 1\n"


def test_cp_of_an_unknown_recipe_names_the_nearest(run, recipes):
    result = run("recipes", "cp", "tiny/sfd")
    assert result.code == 2
    assert "unknown recipe 'tiny/sfd'; did you mean 'tiny/sft'?" in result.err


def test_validate_checks_the_files_given_or_all(run, recipes, tmp_path):
    result = run("recipes", "validate")
    assert (result.code, result.out) == (0, "".join(f"{path}: ok (script)\n" for path in recipes.values()))
    (tmp_path / "bad.yaml").write_text("rate: 1\n")
    result = run("recipes", "validate", tmp_path / "bad.yaml", tmp_path / "none.yaml", recipes["tiny/sft"])
    assert result.code == 1
    assert result.out == f"{recipes['tiny/sft']}: ok (script)\n"
    assert f"{tmp_path / 'bad.yaml'}: key 'lr' is missing" in result.err
    assert "none.yaml" in result.err
    (tmp_path / "bad.yaml").write_text("rate: [1\n")
    assert run("recipes", "validate", tmp_path / "bad.yaml").err.count("bad.yaml") == 1
