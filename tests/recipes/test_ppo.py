"""PPO end to end; needs a version of TRL with PPO, which the environment of the other tests does not have."""

import json
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_policy import save_tiny_policy

from rrg_rewards.recipes.ppo import parse, validate
from tests.distributed.helpers import launch_and_wait

HAS_PPO = find_spec("trl.experimental.ppo") is not None
needs_ppo = pytest.mark.skipif(not HAS_PPO, reason="TRL has had no PPO since 1.13; .ci/run tests it in a second venv")
WORKER = Path(__file__).parents[1] / "distributed" / "ppo_worker.py"
WORDS = ["edema", "effusion", "nodule", "normal", "heart"]
# With this prior a true positive outweighs false ones, so that a policy learns to name findings with any seed and any
# order of floating-point sums.
LEARNABLE = {
    "rewards": [{"name": "crg", "labeler": "keywords:edema effusion nodule", "prior": 0.1}],
    "total_episodes": 50 * 16,
    "learning_rate": 3e-3,
    "kl_coef": 0.0,
}


@pytest.fixture
def ppo_recipe(tmp_path: Path) -> Callable[..., Path]:
    def write(**changes: Any) -> Path:
        table = tmp_path / "reports.jsonl"
        reports = [" ".join(WORDS[place] for place in range(5) if number >> place & 1) for number in range(1, 25)]
        rows = [{"findings": f"lungs {report}", "impression": report} for report in reports]
        # A repeated row: PPO's trainer cannot distinguish the two.
        table.write_text("".join(json.dumps(row) + "\n" for row in [*rows, rows[3]]))
        settings = {
            "model_name_or_path": str(save_tiny_policy(tmp_path / "policy")),
            "dataset": str(table),
            "reference_column": "impression",
            "conversational": False,
            "prompt_template": "{input} report",
            "heldout_fraction": 0.2,
            "heldout_batch_size": 4,
            "rewards": [{"name": "crg", "labeler": "keywords:edema effusion nodule", "prior": 0.4}],
            "output_dir": str(tmp_path / "run"),
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "total_episodes": 16,
            "per_device_train_batch_size": 8,
            "num_mini_batches": 1,
            "response_length": 6,
            "stop_token": "eos",
            "num_sample_generations": 0,
            "learning_rate": 1e-3,
            "report_to": "none",
            "save_strategy": "no",
            "disable_tqdm": True,
        }
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump({**settings, **changes}))
        return path

    return write


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


@needs_ppo
def test_ppo_recipe_two_steps(ppo_recipe: Callable[..., Path], tmp_path: Path) -> None:
    from rrg_rewards.recipes.ppo import main

    parts = [{"name": "crg", "labeler": "keywords:edema effusion nodule", "prior": 0.4}]
    rewards = [
        {"name": "crg", "labeler": "keywords:edema effusion nodule", "prior": 0.4},
        {"name": "composed", "parts": parts, "weight": 0.5},
    ]
    main(["--config", str(ppo_recipe(rewards=rewards))])
    folder = tmp_path / "run"
    steps = [entry for entry in read(folder, "history.json") if "objective/scores" in entry]
    assert len(steps) == 2
    assert all(0 <= entry["crg/unscorable"] <= 1 for entry in steps)
    described = read(folder, "run.json")
    assert described["rows"]["left out"]["same prompt"] + described["rows"]["left out"]["same input held out"] == 1
    assert [reward["weight"] for reward in described["rewards"]] == [1.0, 0.5]
    assert read(folder, "evaluation.json").keys() == {"before", "after", "change"}
    assert (folder / "model.safetensors").is_file()


@needs_ppo
def test_ppo_recipe_the_reward_rises(ppo_recipe: Callable[..., Path], tmp_path: Path) -> None:
    from rrg_rewards.recipes.ppo import main

    main(["--config", str(ppo_recipe(**LEARNABLE, per_device_train_batch_size=16, heldout_rows=0))])
    scores = [entry["objective/scores"] for entry in read(tmp_path / "run", "history.json") if "episode" in entry]
    assert len(scores) == 50
    assert sum(scores[-10:]) / 10 > sum(scores[:10]) / 10 + 0.5


@needs_ppo
def test_ppo_recipe_rows_that_fill_no_batch(ppo_recipe: Callable[..., Path]) -> None:
    from rrg_rewards.recipes.ppo import main

    with pytest.raises(ValueError, match="batch of 64"):
        main(["--config", str(ppo_recipe(per_device_train_batch_size=64))])


@needs_ppo
def test_ppo_recipe_two_processes_train_one_policy(ppo_recipe: Callable[..., Path], tmp_path: Path) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(WORKER.parents[1] / "helpers"), os.environ.get("PYTHONPATH", "")])
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [*launcher, str(WORKER), str(ppo_recipe(**LEARNABLE)), str(tmp_path)]
    launch_and_wait(command, environment, timeout=500)
    first, second = (read(tmp_path, f"rank{rank}.json") for rank in (0, 1))
    assert first["world_size"] == second["world_size"] == 2
    assert first["weights"] == second["weights"]
    scores = first["scores"]
    assert len(scores) == 50
    assert sum(scores[-10:]) / 10 > sum(scores[:10]) / 10 + 0.5


def test_ppo_recipe_without_ppo_it_says_what_to_do(ppo_recipe: Callable[..., Path]) -> None:
    if HAS_PPO:
        pytest.skip("this TRL has PPO")
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*\[ppo\]"):
        parse(["--config", str(ppo_recipe())])


def test_ppo_recipe_a_recipe_is_checked_with_and_without_ppo(ppo_recipe: Callable[..., Path]) -> None:
    validate(ppo_recipe())
    with pytest.raises(ValueError, match="'priorr'"):
        validate(ppo_recipe(rewards=[{"name": "crg", "priorr": 1}]))
    with pytest.raises(ValueError, match="PPO's trainer accepts text only"):
        validate(ppo_recipe(image_column="image", conversational=True))
