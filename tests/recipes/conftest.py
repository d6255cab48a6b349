"""A table, a policy and a labeler small enough to run recipes on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_policy import save_tiny_policy

from rrg_rewards.labelers import registry

REPORTS = ["edema", "edema effusion", "nodule", "normal", "effusion nodule", "normal heart"]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(autouse=True)
def keywords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the labeler of the tests."""
    monkeypatch.setitem(registry._LABELERS, "keywords", "words:WordLabeler")


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw 50 samples for each interval: a thousand would take most of the time of a tiny run."""
    monkeypatch.setattr("rrg_rewards.recipes._evaluate._NUM_RESAMPLES", 50)


@pytest.fixture(scope="session")
def tiny_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "reports.jsonl"
    rows = [
        {
            "findings": f"{'lungs ' * copies}{report}",
            "impression": report,
            **{name: int(name in report) for name in ("edema", "effusion", "nodule")},
        }
        for copies in (1, 2)
        for report in REPORTS
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def recipe(tmp_path: Path, tiny_policy: Path, table: Path) -> Callable[..., Path]:
    """Write a recipe; keywords change its keys, and ``None`` removes a key."""

    def write(**changes: Any) -> Path:
        config: dict[str, Any] = {
            "model_name_or_path": str(tiny_policy),
            "dataset": str(table),
            "reference_column": "impression",
            "label_columns": ["edema", "effusion", "nodule"],
            "heldout_fraction": 0.25,
            "rewards": [{"name": "crg", "labeler": "keywords:edema effusion nodule"}],
            "output_dir": str(tmp_path / "run"),
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "max_steps": 2,
            "per_device_train_batch_size": 4,
            "num_generations": 4,
            "max_completion_length": 6,
            "logging_steps": 1,
            "report_to": "none",
            "disable_tqdm": True,
            **changes,
        }
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump({key: value for key, value in config.items() if value is not None}))
        return path

    return write
