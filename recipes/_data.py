"""Rows of a table as prompts with references: what the trainer and the held-out evaluation read."""

import json
import logging
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset, load_dataset

from rrg_rewards.recipes._arguments import RecipeArguments

__all__ = ["RecipeData", "load_recipe_data", "load_table"]

logger = logging.getLogger(__name__)

_FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
_LABELS = "labels"


@dataclass(frozen=True)
class RecipeData:
    """Training and held-out rows, each with a ``prompt`` and the columns that rewards read.

    Args:
        train: Rows to train on.
        heldout: Rows to evaluate on.
        dropped: How many rows were left out, by reason.
    """

    train: Any
    heldout: Any
    dropped: Mapping[str, int]


def load_table(name: str, config: str | None = None, split: str = "train") -> Any:
    """Load a CSV, JSONL or Parquet file, told apart by its ending, or a data set on the Hub.

    Raises:
        FileNotFoundError: If the name ends like a file and there is none.
        ValueError: If the table has no row.
    """
    form = _FORMATS.get(Path(name).suffix.lower())
    if form is None:
        table = load_dataset(name, config, split=split)
    elif not Path(name).is_file():
        raise FileNotFoundError(f"data set {name} does not exist (looked in {Path.cwd()})")
    else:
        table = load_dataset(form, data_files=name, split="train")
    if not len(table):
        raise ValueError(f"data set {name} has no rows")
    return table


def load_recipe_data(arguments: RecipeArguments, reward_columns: Sequence[str]) -> RecipeData:
    """Load, filter, prompt and split the rows of a recipe.

    Args:
        arguments: The recipe's arguments.
        reward_columns: Columns that the rewards read.

    Raises:
        ValueError: If a column is missing, naming it and those that exist, or no row is left.
    """
    dropped = {"blank input or reference": 0, "input too long": 0}

    def prepare(name: str) -> Any:
        table = load_table(name, arguments.dataset_config, arguments.dataset_split)
        return _prepare(table, name, arguments, reward_columns, dropped)

    rows = prepare(arguments.dataset)
    if arguments.heldout_file is not None:
        train, heldout = rows, prepare(arguments.heldout_file)
    elif len(rows) < 2:
        raise ValueError(f"data set {arguments.dataset} has one usable row, too few to hold any out")
    else:
        parts = rows.train_test_split(arguments.heldout_fraction, seed=arguments.heldout_seed)
        train, heldout = parts["train"], parts["test"]
    logger.info("%d rows to train on, %d held out; left out: %s", len(train), len(heldout), dropped)
    return RecipeData(train, heldout.select(range(min(arguments.heldout_rows, len(heldout)))), dropped)


def _prepare(
    table: Any, name: str, arguments: RecipeArguments, reward_columns: Sequence[str], dropped: dict[str, int]
) -> Any:
    placeholders = [key for _, key, _, _ in string.Formatter().parse(arguments.prompt_template) if key is not None]
    label_columns = arguments.label_columns or []
    made = {"input"} if not label_columns else {"input", _LABELS}
    needed = {arguments.input_column, *label_columns, *(set(placeholders) - {"input"}), *(set(reward_columns) - made)}
    missing = sorted(needed - set(table.column_names))
    if missing:
        raise ValueError(
            f"data set {name} lacks the column {', '.join(map(repr, missing))}; it has "
            f"{', '.join(table.column_names)}. Set input_column, reference_column, label_columns, prompt_template or "
            "the reward's columns to names that exist"
        )
    rows = []
    for row in table:
        reason = _reason_to_drop(row, arguments)
        if reason is not None:
            dropped[reason] += 1
            continue
        if label_columns:
            row[_LABELS] = _labels(row, label_columns)
        rows.append({"prompt": _prompt(row, arguments), **{column: row[column] for column in reward_columns}})
    if not rows:
        raise ValueError(f"data set {name} has no usable row among {len(table)}: {dropped}")
    return Dataset.from_list(rows)


def _reason_to_drop(row: Mapping[str, Any], arguments: RecipeArguments) -> str | None:
    text = row[arguments.input_column]
    # A recipe whose rewards read labels only need not have references.
    reference = row.get(arguments.reference_column, text)
    if not str(text or "").strip() or not str(reference or "").strip():
        return "blank input or reference"
    if arguments.max_input_words is not None and len(str(text).split()) > arguments.max_input_words:
        return "input too long"
    return None


def _prompt(row: Mapping[str, Any], arguments: RecipeArguments) -> str | list[dict[str, str]]:
    text = arguments.prompt_template.format(**{**row, "input": row[arguments.input_column]})
    if not arguments.conversational:
        return text if arguments.system_prompt is None else f"{arguments.system_prompt}\n{text}"
    system = [] if arguments.system_prompt is None else [{"role": "system", "content": arguments.system_prompt}]
    return [*system, {"role": "user", "content": text}]


def _labels(row: Mapping[str, Any], columns: Sequence[str]) -> list[int] | None:
    """Labels of a row in the order of ``columns``; ``None``, which is unscorable, where one is blank."""
    if len(columns) == 1:
        values = row[columns[0]]
        values = json.loads(values) if isinstance(values, str) else values
    else:
        values = [row[column] for column in columns]
    if values is None or any(value is None for value in values):
        return None
    return [int(value) for value in values]
