"""Prompts and references from the rows of a table, for training and held-out evaluation."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset, load_dataset

from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import FORMATS, Table, TableError
from rrg_rewards.recipes._arguments import DataArguments, make_prompt, prompt_columns, prompt_placeholders
from rrg_rewards.utilities.features import FEATURE_ENDINGS, check_features

logger = logging.getLogger(__name__)

_LABELS = "labels"
_IMAGE = "image"


@dataclass(frozen=True)
class RecipeData:
    """Training and held-out rows, with ``prompt``, ``image`` (if there are images) and the rewards' columns.

    Args:
        train: Rows to train on.
        heldout: Rows to evaluate on.
        dropped: Number of dropped rows for each reason.
        columns: All columns of the data set and of the held-out file. The rows have those that are read.
    """

    train: Any
    heldout: Any
    dropped: Mapping[str, int]
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def load_table(name: str) -> Table:
    """Load a CSV, JSONL or Parquet file, recognised by its extension, or a data set from the Hub.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is malformed or has no rows.
    """
    if is_file_name(name):
        if not Path(name).is_file():
            raise FileNotFoundError(f"{name}: no such file")
        table = read_table(name)
    else:
        rows = load_dataset(name, split="train")
        table = Table({column: list(rows[column]) for column in rows.column_names}, source=name)
    if not len(table):
        raise TableError(f"{name}: no rows")
    return table


def load_recipe_data(arguments: DataArguments, columns: Sequence[str]) -> RecipeData:
    """Load and filter the rows of a recipe, make their prompts, and split them.

    Args:
        arguments: The recipe's arguments.
        columns: Columns to keep in addition to the prompt and the image.

    Raises:
        ValueError: If a column is missing (the message names the existing columns), or if no row is usable.
    """
    dropped = {"blank input or reference": 0, "no image": 0, "input too long": 0}
    all_columns: dict[str, list[Any]] = {}

    def prepare(name: str) -> Any:
        table = load_table(name)
        for column, cells in table.columns.items():
            all_columns.setdefault(column, []).extend(cells)
        # Relative paths in a file refer to its folder, so that the folder can be moved.
        folder = Path(name).parent if is_file_name(name) else Path()
        return _prepare(table, arguments, columns, dropped, folder)

    rows = prepare(arguments.dataset)
    if arguments.heldout_file is not None:
        train, heldout = rows, prepare(arguments.heldout_file)
    elif len(rows) < 2:
        raise TableError(f"data set {arguments.dataset} has one usable row, too few to hold any out")
    else:
        parts = rows.train_test_split(arguments.heldout_fraction, seed=arguments.heldout_seed)
        train, heldout = _without(parts["train"], parts["test"], dropped), parts["test"]
    if not len(train):
        raise TableError(
            f"{arguments.dataset}: 0 rows to train on; left out: {dropped}. Rows with the input of a held-out row are "
            "not trained on: add rows with other inputs, or set heldout_file"
        )
    evaluated = heldout.select(range(min(arguments.heldout_rows, len(heldout))))
    counts = len(train), len(heldout), len(evaluated)
    logger.info("%d rows to train on, %d held out, %d of these to evaluate on; left out: %s", *counts, dropped)
    return RecipeData(train, evaluated, dropped, all_columns)


def is_file_name(name: str) -> bool:
    """Return whether a data set is named by a file of a known format."""
    return Path(name).suffix.lower() in FORMATS


def _without(train: Any, heldout: Any, dropped: dict[str, int]) -> Any:
    """Return the training rows whose input is not held out, because data sets contain the same report repeatedly."""
    seen = set(_inputs(heldout))
    kept = [row for row, key in enumerate(_inputs(train)) if key not in seen]
    dropped["same input held out"] = len(train) - len(kept)
    return train.select(kept)


def _inputs(rows: Any) -> list[str]:
    images = rows[_IMAGE] if _IMAGE in rows.column_names else [None] * len(rows)
    return [json.dumps(key) for key in zip(rows["prompt"], images, strict=True)]


def _prepare(
    table: Table, arguments: DataArguments, columns: Sequence[str], dropped: dict[str, int], folder: Path
) -> Any:
    if arguments.label_columns:
        table = table.with_columns({_LABELS: _labels(table, arguments.label_columns)})
    reads_input = "input" in prompt_placeholders(arguments)
    for column in sorted(
        {*prompt_columns(arguments), *columns, *([arguments.image_column] if arguments.image_column else [])}
    ):
        table.column(column)
    texts = {arguments.target_column, *([arguments.input_column] if reads_input else [])}
    for column in sorted(texts & set(table.names)):
        table.warn_of_placeholders(column)
    rows, system = [], arguments.system_text
    for cells in zip(*table.columns.values(), strict=True):
        row = dict(zip(table.names, cells, strict=True))
        if reads_input:
            row["input"] = row[arguments.input_column]
        reason = _reason_to_drop(row, arguments)
        if reason is None:
            image = {_IMAGE: str(folder / row[arguments.image_column])} if arguments.image_column else {}
            rows.append(
                {"prompt": make_prompt(row, arguments, system), **{column: row[column] for column in columns}, **image}
            )
        else:
            dropped[reason] += 1
    if not rows:
        raise TableError(f"{table.source}: no usable row among {len(table)}; left out: {dropped}")
    _check_images([row[_IMAGE] for row in rows if _IMAGE in row], table)
    return Dataset.from_list(rows)


def _check_images(paths: Sequence[str], table: Table) -> None:
    missing = [path for path in paths if not Path(path).is_file()]
    if missing:
        raise TableError(f"{table.source}: {len(missing)} of {len(paths)} images are missing, such as {missing[0]}")
    for path in paths:
        # Otherwise the run would fail only when it samples the row.
        if path.endswith(FEATURE_ENDINGS):
            check_features(path)


def _reason_to_drop(row: Mapping[str, Any], arguments: DataArguments) -> str | None:
    text = str(row.get("input", "-") or "")
    # The reference column is optional, because some rewards read only labels.
    reference = row.get(arguments.target_column, "-")
    if not text.strip() or not str(reference or "").strip():
        return "blank input or reference"
    if arguments.image_column is not None and not row[arguments.image_column]:
        return "no image"
    if arguments.max_input_words is not None and len(text.split()) > arguments.max_input_words:
        return "input too long"
    return None


def _labels(table: Table, columns: Sequence[str]) -> Sequence[Any]:
    """Return the labels of each row in the order of ``columns``, or ``None`` for a row without labels (unscorable)."""
    if len(columns) > 1:
        return [None if labels is None else list(labels) for labels in table.labels(columns)]
    rows = []
    for row, cell in enumerate(table.column(columns[0])):
        try:
            rows.append(json.loads(cell) if isinstance(cell, str) else cell)
        except ValueError as error:
            raise TableError(
                f"{table.where(row)}, column {columns[0]!r}: must be a list of 0 and 1, got {cell!r}"
            ) from error
    return rows
