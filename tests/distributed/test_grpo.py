"""The recipe in two real processes; the tests fail if they cannot start."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.distributed.helpers import run_script
from tests.distributed.runs import LABELER, TINY_RUN, tiny_recipe

pytestmark = pytest.mark.distributed


@pytest.fixture
def config(tmp_path: Path) -> Path:
    rewards = [
        {"name": "crg", "labeler": LABELER},
        {"name": "crg", "as": "crg_fixed", "labeler": LABELER, "prior": 0.2},
    ]
    settings = {
        **TINY_RUN,
        "heldout_fraction": 0.25,
        "heldout_batch_size": 2,
        "rewards": rewards,
        "output_dir": str(tmp_path / "run"),
        "max_steps": 3,
        "per_device_train_batch_size": 3,
        "num_generations": 2,
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(tiny_recipe(tmp_path, **settings)))
    return path


def launch(config: Path, folder: Path) -> list[dict[str, Any]]:
    """Run a recipe in two processes and return their results by rank."""
    worker = Path(__file__).with_name("grpo_worker.py")
    run_script(worker, config, folder, processes=2)
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]


def test_two_processes_train_one_policy(config: Path, tmp_path: Path) -> None:
    first, second = launch(config, tmp_path)
    assert first["world_size"] == second["world_size"] == 2
    assert first["steps"] == second["steps"] == 3
    assert first["weights"] == second["weights"]
    assert first["priors"][0] == second["priors"][0]
    assert all(0 < result["priors"][1] < 1 for result in (first, second))

    steps = [entry for entry in first["history"] if "reward" in entry]
    for entry in steps:
        assert entry["reward"] == pytest.approx(entry["rewards/crg/mean"] + entry["rewards/crg_fixed/mean"], rel=1e-4)
        assert entry["crg/unscorable"] == 0
        assert entry["crg/predicted_positives"] == pytest.approx(entry["crg/tp"] + entry["crg/fp"])
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert evaluation["after"]["crg"]["unscorable"] == 0
    assert len((tmp_path / "run" / "heldout_after.jsonl").read_text().splitlines()) == 3

    # The same seed, once more.
    (tmp_path / "again").mkdir()
    config.write_text(config.read_text().replace(str(tmp_path / "run"), str(tmp_path / "again" / "run")))
    again, _ = launch(config, tmp_path / "again")
    times = ("step_time", "runtime", "per_second")
    histories = [
        [{key: value for key, value in entry.items() if not key.endswith(times)} for entry in result["history"]]
        for result in (first, again)
    ]
    assert histories[0] == histories[1]
    assert again["weights"] == first["weights"]


def test_processes_gate_alike_and_leave_out_what_is_missing(config: Path, tmp_path: Path) -> None:
    settings = yaml.safe_load(config.read_text())
    parts = [
        {"name": "crg", "labeler": LABELER, "clip": [-3, 3]},
        {"name": "repetition", "n_gram": 1, "weight": 0.5, "gate": {"on": "crg", "at_least": -1}},
    ]
    settings |= {"rewards": [{"name": "composed", "as": "total", "parts": parts}], "max_steps": 4}
    config.write_text(yaml.safe_dump(settings))
    first, second = launch(config, tmp_path)
    assert first["weights"] == second["weights"]
    for entry in [entry for entry in first["history"] if "reward" in entry]:
        assert entry["reward"] == pytest.approx(entry["total/crg"] + entry["total/repetition"], abs=1e-4)
        assert 0 <= entry["total/open_repetition"] <= 1


def test_training_goes_on_where_the_judge_of_one_process_fails(config: Path, tmp_path: Path) -> None:
    judge = {"name": "scripted", "waits": True, "fail_on": {"": "connection"}, "failing_rank": 1}
    settings = yaml.safe_load(config.read_text())
    settings["rewards"] = [
        {"name": "crg", "labeler": LABELER},
        {"name": "crimson", "judge": judge, "log_details": True},
    ]
    settings["multi_objective_aggregation"] = "normalize_then_sum"
    config.write_text(yaml.safe_dump(settings))
    first, second = launch(config, tmp_path)
    assert first["steps"] == second["steps"] == 3
    assert first["weights"] == second["weights"]
    steps = [entry for entry in first["history"] if "reward" in entry]
    assert len(steps) == 3
    for entry in steps:
        # Each process has as many completions, and only the second one's judge fails, on all of them.
        assert entry["crimson/failed"] == entry["crimson/failed_connection"] == entry["crimson/unscorable"] == 0.5
        assert entry["crimson/failed_deadline"] == 0
        # The means are those of the first process.
        assert entry["crimson/credit"] >= 0
        assert -1 < entry["rewards/crimson/mean"] <= 1
        assert entry["crg/unscorable"] == 0
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert evaluation["after"]["crimson"]["unscorable"] == 0
