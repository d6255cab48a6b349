"""Prompts from the rows of tables."""

import csv
import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from rrg_rewards.metrics.base import UnreadColumnWarning
from rrg_rewards.recipes._arguments import RecipeArguments, SupervisedArguments
from rrg_rewards.recipes._data import load_recipe_data, load_table
from rrg_rewards.recipes._reinforcement import ReinforcementRun
from rrg_rewards.utilities.features import FeatureError, write_features
from rrg_rewards.utilities.texts import PlaceholderWarning

Make = Callable[..., RecipeArguments]
ROWS = [{"id": row, "findings": f"text {row}", "impression": f"short {row}", "a": row % 2, "b": 1} for row in range(10)]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def arguments(rows: list[dict[str, Any]] = ROWS, **changes: Any) -> RecipeArguments:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        options = {"dataset": str(path), "reference_column": "impression", "rewards": ["crg"], **changes}
        return RecipeArguments(**options)

    return arguments


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_load_table_formats_are_told_by_their_endings(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"rows.{form}"
    if form == "csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ROWS[0])
            writer.writeheader()
            writer.writerows(ROWS)
    elif form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    else:
        Dataset.from_list(ROWS).to_parquet(str(path))
    expected = {name: [str(row[name]) if form == "csv" else row[name] for row in ROWS] for name in ROWS[0]}
    assert load_table(str(path)).columns == expected


def test_load_table_a_missing_file_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        load_table("nowhere.csv")


def test_make_prompt_prompts_and_columns(make: Make) -> None:
    arguments = make(
        system_prompt="Be short.",
        prompt_template="{id}: {input} {{}}",
        label_columns=["b", "a"],
        heldout_fraction=0.3,
        heldout_rows=2,
    )
    data = load_recipe_data(arguments, ["impression", "labels"])
    assert len(data.train) == 7
    assert len(data.heldout) == 2
    for row in [*data.train, *data.heldout]:
        number = row["impression"].split()[1]
        assert row == {
            "prompt": [
                {"role": "system", "content": "Be short."},
                {"role": "user", "content": f"{number}: text {number} {{}}"},
            ],
            "impression": f"short {number}",
            "labels": [1, int(number) % 2],
        }


def test_make_prompt_a_system_prompt_from_a_file(make: Make, tmp_path: Path) -> None:
    (tmp_path / "system.txt").write_text("Be short.")
    (tmp_path / "conversation.py").write_text(
        'raise SystemExit\nconv_llama3 = Conversation(\n    system="<|begin_of_text|>Be "\n    "short.",\n)\n'
    )
    for name, text in (("system.txt", "Be short."), ("conversation.py", "<|begin_of_text|>Be short.")):
        data = load_recipe_data(make(system_prompt=str(tmp_path / name)), ["impression"])
        assert {row["prompt"][0]["content"] for row in data.train} == {text}
    (tmp_path / "conversation.py").write_text("conv_vicuna = Conversation(system='x')")
    with pytest.raises(ValueError, match=r"conv_llama3"):
        load_recipe_data(make(system_prompt=str(tmp_path / "conversation.py")), ["impression"])
    with pytest.raises(FileNotFoundError, match=r"nowhere\.txt"):
        load_recipe_data(make(system_prompt="nowhere.txt"), ["impression"])


def test_make_prompt_plain_prompts(make: Make) -> None:
    data = load_recipe_data(make(conversational=False, system_prompt="Be short."), ["impression"])
    assert all(row["prompt"].startswith("Be short.\ntext ") for row in data.train)


def test_load_recipe_data_split_is_the_same_for_one_seed_and_disjoint(make: Make) -> None:
    first, second, other = (load_recipe_data(make(heldout_seed=seed), ["impression"]) for seed in (1, 1, 2))
    assert first.heldout.to_list() == second.heldout.to_list()
    assert first.train.to_list() != other.train.to_list()
    assert not {row["impression"] for row in first.train} & {row["impression"] for row in first.heldout}


def test_load_recipe_data_heldout_file(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "heldout.jsonl"
    path.write_text(json.dumps({**ROWS[0], "findings": "other"}) + "\n")
    data = load_recipe_data(make(heldout_file=str(path)), ["impression"])
    assert len(data.train) == 10
    assert data.heldout["prompt"][0][0]["content"] == "other"


def test_load_recipe_data_no_row_to_train_on_is_told(make: Make) -> None:
    rows = [{**row, "findings": "the same"} for row in ROWS]
    with pytest.raises(ValueError, match=r"'same input held out': .*heldout_file"):
        load_recipe_data(make(rows), ["impression"])


def test_load_recipe_data_blank_and_long_rows_are_left_out_and_counted(make: Make) -> None:
    rows = [*ROWS, {**ROWS[0], "findings": " "}, {**ROWS[0], "impression": None}, {**ROWS[0], "findings": "a b c d"}]
    data = load_recipe_data(make(rows, max_input_words=3), ["impression"])
    assert data.dropped == {
        "blank input or reference": 2,
        "no image": 0,
        "input too long": 1,
        "same input held out": 0,
    }
    assert len(data.train) + len(data.heldout) == 10


def test_load_recipe_data_words_for_a_missing_report_are_trained_on_with_a_warning(make: Make) -> None:
    rows = [*ROWS, {**ROWS[0], "findings": "eleventh", "impression": "NaN"}]
    with pytest.warns(PlaceholderWarning, match="1 of 11 .* 'impression' of .*rows.jsonl .* 'NaN'"):
        data = load_recipe_data(make(rows), ["impression"])
    assert len(data.train) + len(data.heldout) == 11


@pytest.mark.parametrize(("age", "expected"), [(70, ["age"]), (None, []), ("n/a", [])])
def test_columns_with_values_that_no_reward_reads_are_told(make: Make, age: Any, expected: list[str]) -> None:
    rows = [{**row, "age": age, "sex": " "} for row in ROWS]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ReinforcementRun.prepare(make(rows, rewards=["crimson"]), "out")
    told = [str(one.message) for one in caught if one.category is UnreadColumnWarning]
    assert [re.findall(r"context_columns=\['(\w+)'\]", text) for text in told] == [[name] for name in expected]


@pytest.mark.parametrize("labels", [[[1, 0], None], ["[1, 0]", None]])
def test_load_recipe_data_one_label_column_of_lists(make: Make, labels: list[Any]) -> None:
    rows = [{**row, "truth": labels[row["id"] % 2]} for row in ROWS]
    data = load_recipe_data(make(rows, label_columns=["truth"]), ["impression", "labels"])
    for row in data.train:
        assert row["labels"] == ([1, 0] if int(row["impression"].split()[1]) % 2 == 0 else None)


def test_load_recipe_data_a_row_without_labels_is_unscorable(make: Make) -> None:
    rows = [{**row, "a": None, "b": None} if row["id"] < 9 else row for row in ROWS]
    data = load_recipe_data(make(rows, label_columns=["a", "b"]), ["labels"])
    labels = [*data.train["labels"], *data.heldout["labels"]]
    assert labels.count(None) == 9


@pytest.mark.parametrize(
    ("changes", "columns", "missing"),
    [
        ({"input_column": "finding"}, [], "'finding'"),
        ({"prompt_template": "{age} {input}"}, [], "'age'"),
        ({"label_columns": ["a", "c"]}, [], "'c'"),
        ({}, ["impression", "grade"], "'grade'"),
        ({}, ["labels"], "'labels'"),
    ],
)
def test_load_recipe_data_a_missing_column_is_named(
    make: Make, changes: dict[str, Any], columns: list[str], missing: str
) -> None:
    with pytest.raises(ValueError, match=f"unknown column {missing}.*Known: a, b, findings, id, impression"):
        load_recipe_data(make(**changes), columns)


def test_load_recipe_data_no_usable_row_raises(make: Make) -> None:
    with pytest.raises(ValueError, match="no usable row among 10"):
        load_recipe_data(make(max_input_words=1), ["impression"])
    with pytest.raises(ValueError, match="one usable row"):
        load_recipe_data(make(ROWS[:1]), ["impression"])


def test_load_recipe_data_prompts_that_are_held_out_are_not_trained_on(make: Make) -> None:
    rows = [{**ROWS[0], "findings": f"text {row % 5}"} for row in range(20)]
    data = load_recipe_data(make(rows, heldout_fraction=0.2), ["impression"])
    assert not {str(prompt) for prompt in data.train["prompt"]} & {str(prompt) for prompt in data.heldout["prompt"]}
    assert data.dropped["same input held out"] == 16 - len(data.train) > 0


def test_load_recipe_data_a_label_cell_that_is_no_list_is_named(make: Make) -> None:
    rows = [{**ROWS[0], "labels": "[1, 0]"}, {**ROWS[1], "labels": "1;0"}]
    with pytest.raises(ValueError, match=r"row 2 .*column 'labels': .* '1;0'"):
        load_recipe_data(make(rows, label_columns=["labels"]), ["labels"])


def test_load_recipe_data_images_are_found_beside_the_table(make: Make, tmp_path: Path) -> None:
    (tmp_path / "volumes").mkdir()
    rows = []
    for index, row in enumerate(ROWS):
        write_features(tmp_path / "volumes" / f"{index}.npz", np.zeros((1, 1, 1, 4), np.float16))
        # All prompts are equal; the images distinguish held-out rows from others.
        rows.append({**row, "volume": f"volumes/{index}.npz"})
    rows[1]["volume"] = str(tmp_path / "volumes" / "1.npz")
    data = load_recipe_data(
        make([*rows, {**ROWS[0], "volume": None}], image_column="volume", prompt_template="Report."), ["impression"]
    )
    assert data.dropped["no image"] == 1
    assert data.dropped["same input held out"] == 0
    images = [*data.train["image"], *data.heldout["image"]]
    assert sorted(images) == sorted(str(tmp_path / "volumes" / f"{index}.npz") for index in range(len(ROWS)))
    assert {prompt[0]["content"] for prompt in data.train["prompt"]} == {"Report."}


def test_load_recipe_data_missing_images_are_counted_and_named(make: Make, tmp_path: Path) -> None:
    rows = [{**row, "volume": f"{index}.npz"} for index, row in enumerate(ROWS)]
    with pytest.raises(ValueError, match=rf"{len(ROWS)} of {len(ROWS)} images are missing, such as .*0\.npz"):
        load_recipe_data(make(rows, image_column="volume"), ["impression"])
    with pytest.raises(ValueError, match="image_column"):
        make(rows, image_column="volume", conversational=False)


def test_load_recipe_data_blank_completions_are_left_out(tmp_path: Path) -> None:

    rows = [{**row, "short": "x"} for row in ROWS] + [{**ROWS[0], "short": None}, {**ROWS[0], "short": " "}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = SupervisedArguments(dataset=str(tmp_path / "rows.jsonl"), completion_column="short")
    data = load_recipe_data(arguments, ["short"])
    assert data.dropped["blank input or reference"] == 2
    assert len(data.train) + len(data.heldout) == 10


def test_load_recipe_data_torn_images_are_named_before_training(make: Make, tmp_path: Path) -> None:
    rows = [{**row, "volume": f"{index}.npz"} for index, row in enumerate(ROWS)]
    for row in rows:
        write_features(tmp_path / row["volume"], np.zeros((1, 1, 1, 4), np.float16))
    (tmp_path / "7.npz").write_bytes((tmp_path / "7.npz").read_bytes()[:-9])
    with pytest.raises(FeatureError, match=r"features of 7"):
        load_recipe_data(make(rows, image_column="volume"), ["impression"])
    # Not compressed only: of a compressed one the archive is looked at.
    np.savez_compressed(tmp_path / "7.npz", arr=np.zeros((1, 1, 1, 1, 4), np.float16))
    assert len(load_recipe_data(make(rows, image_column="volume"), ["impression"]).train) == 9
