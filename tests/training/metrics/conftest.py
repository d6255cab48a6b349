"""Recipes of tiny learned metrics."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_backbone import PROMPT, save_tiny_backbone
from tiny_records import save_tiny_encoder, tiny_records, write_records
from training_runs import write_recipe

Recipe = Callable[..., Path]


@pytest.fixture
def make_recipe(tmp_path: Path) -> Callable[[str], Recipe]:
    """Return a function that makes, for a task, the function that writes its recipe; dotted keys change it."""

    def make(task: str) -> Recipe:
        if task == "crepe":
            model: dict[str, Any] = {"encoder": str(save_tiny_encoder(tmp_path / "encoder", dropout=0.1))}
        else:
            save_tiny_backbone(tmp_path / "backbone")
            model = {"backbone": str(tmp_path / "backbone"), "prompt": PROMPT, "max_length": 64}
        write_records(tmp_path / "errors.jsonl", tiny_records(60, per_reference=2 if task == "crepe" else 3))
        return lambda **changes: write_recipe(tmp_path, model, changes)

    return make
