"""GRPO recipes end to end, with a policy of random weights."""

import json
import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_labeler import save_tiny_labeler
from transformers import TrainerCallback

from rrg_rewards.recipes.grpo import main, parse, run
from rrg_rewards.rewards import CRGReward


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


@pytest.mark.parametrize(
    ("algorithm", "conversational"), [("grpo", False), pytest.param("rloo", True, marks=pytest.mark.slow)]
)
def test_grpo_two_rewards_train_and_log_under_two_names(
    recipe: Callable[..., Path], tmp_path: Path, algorithm: str, conversational: bool
) -> None:
    labeler = "keywords:edema effusion nodule"
    rewards = [
        {"name": "crg", "labeler": labeler, "label_column": "labels", "weight": 1.0},
        {"name": "crg", "as": "crg_fixed", "labeler": labeler, "prior": 0.2, "weight": 0.5},
    ]
    config = recipe(
        algorithm=algorithm, conversational=conversational, system_prompt="report", rewards=rewards, max_steps=3
    )
    main(["--config", str(config)])
    folder = tmp_path / "run"
    steps = [entry for entry in read(folder, "history.json") if "reward" in entry]
    assert [entry["step"] for entry in steps] == [1, 2, 3]
    for entry in steps:
        crg, fixed = entry["rewards/crg/mean"], entry["rewards/crg_fixed/mean"]
        assert entry["reward"] == pytest.approx(crg + 0.5 * fixed, rel=1e-4)
        assert entry["crg/unscorable"] == entry["crg_fixed/unscorable"] == 0
        assert 0 < entry["crg/prior"] < 1
        assert entry["crg/predicted_positives"] == pytest.approx(entry["crg/tp"] + entry["crg/fp"])

    described = read(folder, "run.json")
    assert [(reward["name"], reward["weight"]) for reward in described["rewards"]] == [("crg", 1), ("crg_fixed", 0.5)]
    assert described["rewards"][0]["signature"].startswith(
        "crg|reference:given|prediction:{words:edema,effusion,nodule}|prior:0."
    )
    assert described["rows"]["train"] + described["rows"]["heldout"] == 12
    assert described["config"]["algorithm"] == algorithm

    evaluation = read(folder, "evaluation.json")
    assert evaluation.keys() == {"before", "after", "change"}
    after = evaluation["after"]["crg"]
    numbers = {"crg", "precision", "recall", "label_f1", "predicted_positives"}
    assert after.keys() == {"score", "words", *numbers, "unscorable"}
    assert after["crg"]["low"] <= after["crg"]["estimate"] <= after["crg"]["high"]
    difference = after["recall"]["estimate"] - evaluation["before"]["crg"]["recall"]["estimate"]
    assert evaluation["change"]["crg"]["recall"]["estimate"] == pytest.approx(difference)
    assert len((folder / "heldout_after.jsonl").read_text().splitlines()) == described["rows"]["heldout"]


def test_grpo_the_logged_reward_is_the_metrics_score(recipe: Callable[..., Path], tmp_path: Path) -> None:
    seen: list[tuple[list[Any], list[Any], list[float | None]]] = []
    call = CRGReward.__call__

    def spy(self: CRGReward, completions: Any, **kwargs: Any) -> list[float | None]:
        values = call(self, completions, **kwargs)
        seen.append((completions, kwargs["impression"], values))
        return values

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CRGReward, "__call__", spy)
        trainer = run(*parse(["--config", str(recipe(heldout_rows=0))]))
    reward = trainer.reward_funcs[0]
    for completions, references, values in seen:
        texts = [completion[0]["content"] for completion in completions]
        assert values == reward.metric.score(texts, references).value.tolist()
    logged = [entry["rewards/crg/mean"] for entry in trainer.state.log_history if "rewards/crg/mean" in entry]
    means = [sum(value for value in values if value is not None) / len(values) for _, _, values in seen]
    assert logged == pytest.approx(means, rel=1e-5)


@pytest.mark.slow
def test_grpo_a_reward_that_loads_late_leaves_the_run_as_it_was(recipe: Callable[..., Path], tmp_path: Path) -> None:
    """A model draws random numbers when it is built; the samples of the policy must not depend on that."""
    late = {"name": "crg", "as": "late", "labeler": f"radbert:{save_tiny_labeler(tmp_path / 'labeler')}", "prior": 0.3}
    rewards = [{"name": "crg", "labeler": "keywords:edema effusion nodule", "prior": 0.3}]
    histories, weights = [], []
    for chosen in (rewards, [*rewards, {**late, "weight": 0.0}]):
        trainer = run(*parse(["--config", str(recipe(rewards=chosen, heldout_rows=0, max_steps=3))]))
        histories.append([entry for entry in trainer.state.log_history if "reward" in entry])
        weights.append(trainer.model.state_dict())
    without, with_late = histories
    assert len({entry["rewards/late/mean"] for entry in with_late}) > 1
    for key in ("reward", "rewards/crg/mean", "grad_norm", "num_tokens"):
        assert [entry[key] for entry in with_late] == [entry[key] for entry in without], key
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


def test_grpo_unscorable_rows_are_skipped(recipe: Callable[..., Path], table: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    for row in rows[::2]:
        row.update(edema=None, effusion=None, nodule=None)
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reward = {"name": "crg", "labeler": "keywords:edema effusion nodule", "label_column": "labels"}
    main(["--config", str(recipe(rewards=[reward], max_steps=4, shuffle_dataset=False, heldout_rows=0))])
    steps = [entry for entry in read(tmp_path / "run", "history.json") if "reward" in entry]
    shares = {entry["crg/unscorable"] for entry in steps}
    assert shares == {0, 1}
    for entry in steps:
        assert (entry["reward"] is None) == (entry["crg/unscorable"] == 1)
        assert math.isfinite(entry["grad_norm"])


def test_checkpoint_to_resume_a_checkpoint_of_other_processes_is_refused(
    recipe: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint = tmp_path / "run" / "checkpoint-7"
    checkpoint.mkdir(parents=True)
    (checkpoint / "complete").touch()
    for rank in range(2):
        (checkpoint / f"rng_state_{rank}.pth").write_bytes(b"")
    arguments = ["--config", str(recipe(heldout_rows=0, resume_from_checkpoint="auto"))]
    with pytest.raises(ValueError, match=r"checkpoint-7 .* 2 processes"):
        main(arguments)
    (checkpoint / "complete").unlink()
    main(arguments)


def test_grpo_three_and_three_steps_end_as_six(recipe: Callable[..., Path], tmp_path: Path) -> None:
    options = {"save_steps": 3, "heldout_rows": 0, "resume_from_checkpoint": "auto", "lr_scheduler_type": "constant"}
    whole = run(*parse(["--config", str(recipe(max_steps=6, output_dir=str(tmp_path / "whole"), **options))]))
    main(["--config", str(recipe(max_steps=3, **options))])
    assert (tmp_path / "run" / "checkpoint-3").is_dir()
    resumed = run(*parse(["--config", str(recipe(max_steps=6, **options))]))
    first, second = (
        [{key: value for key, value in entry.items() if key != "step_time"} for entry in trainer.state.log_history[:6]]
        for trainer in (whole, resumed)
    )
    assert [entry["step"] for entry in first] == [1, 2, 3, 4, 5, 6]
    assert second == first
    weights = zip(whole.model.parameters(), resumed.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in weights)


def test_grpo_a_run_that_the_system_ends_is_resumed(recipe: Callable[..., Path], tmp_path: Path) -> None:
    class End(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 1:
                os.kill(os.getpid(), signal.SIGTERM)

    options = {"max_steps": 4, "heldout_rows": 0, "resume_from_checkpoint": "auto"}
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        run(*parse(["--config", str(recipe(**options))]), callbacks=[End()])
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    assert [path.name for path in (tmp_path / "run").glob("checkpoint-*")] == ["checkpoint-2"]
    resumed = run(*parse(["--config", str(recipe(**options))]))
    whole = run(*parse(["--config", str(recipe(**options, output_dir=str(tmp_path / "whole")))]))
    weights = zip(resumed.model.parameters(), whole.model.parameters(), strict=True)
    assert resumed.state.global_step == 4
    assert all(torch.equal(first, second) for first, second in weights)


@pytest.mark.slow
def test_grpo_lora_trains_an_adapter(recipe: Callable[..., Path], tmp_path: Path) -> None:
    main(
        ["--config", str(recipe(use_peft=True, lora_target_modules=["q_proj", "v_proj"], heldout_rows=0, max_steps=1))]
    )
    assert (tmp_path / "run" / "adapter_model.safetensors").is_file()


def test_check_processes_processes_that_do_not_know_of_each_other_raise(
    recipe: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = parse(["--config", str(recipe())])
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="2 processes"):
        run(*arguments)
