"""CRIMSON in TRL's trainers, with CRG, and with a judge that is immediate, asynchronous, or fails."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rrg_rewards.judges import registry as judges
from rrg_rewards.recipes.grpo import main, parse, run, validate
from rrg_rewards.rewards import AsyncMetricReward, MetricReward

CRG = {"name": "crg", "labeler": "keywords:edema effusion nodule"}


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(judges._JUDGES, "scripted", "scripted_judge:ScriptedJudge")


def crimson(name: str = "crimson", **options: Any) -> dict[str, Any]:
    return {"name": "crimson", "as": name, "judge": {"name": "scripted", **options}}


def steps(trainer: Any) -> list[dict[str, Any]]:
    return [entry for entry in trainer.state.log_history if "reward" in entry]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["grpo", "rloo"])
def test_grpo_with_crimson_at_once_and_awaited_give_the_same_beside_crg(
    recipe: Callable[..., Path], algorithm: str
) -> None:
    rewards = [CRG, crimson("at_once"), {**crimson("awaited", waits=True), "weight": 0.5}]
    trainer = run(*parse(["--config", str(recipe(algorithm=algorithm, rewards=rewards, max_steps=3))]))
    assert [type(reward) for reward in trainer.reward_funcs[1:]] == [MetricReward, AsyncMetricReward]
    assert len(steps(trainer)) == 3
    for entry in steps(trainer):
        at_once, awaited = entry["rewards/at_once/mean"], entry["rewards/awaited/mean"]
        assert at_once == awaited
        assert entry["reward"] == pytest.approx(entry["rewards/crg/mean"] + 1.5 * at_once, rel=1e-4, abs=1e-6)
        assert entry["at_once/failed"] == entry["awaited/failed"] == entry["awaited/unscorable"] == 0
        for part in ("missing_findings", "false_findings", "credit"):
            assert entry[f"at_once/{part}"] == entry[f"awaited/{part}"]
    assert len({entry["rewards/awaited/mean"] for entry in steps(trainer)}) > 1


@pytest.mark.slow
def test_grpo_with_crimson_the_evaluation_and_the_run_say_what_was_rewarded(
    recipe: Callable[..., Path], table: Path, tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    table.write_text("".join(json.dumps({**row, "age": place or None}) + "\n" for place, row in enumerate(rows)))
    rewards = [CRG, {**crimson(waits=True), "context_columns": ["age"]}]
    config = recipe(rewards=rewards)
    validate(config)
    main(["--config", str(config)])
    described = json.loads((tmp_path / "run" / "run.json").read_text())["rewards"][1]
    assert described["columns"] == ["impression", "age"]
    assert described["signature"].startswith("crimson|judge:{scripted}|prompt:")
    assert "|context:age|" in described["signature"]
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert -1 < evaluation["after"]["crimson"]["score"]["estimate"] <= 1
    assert evaluation["after"]["crimson"]["unscorable"] == 0


@pytest.mark.filterwarnings("ignore:crimson. the judge failed")
@pytest.mark.parametrize("waits", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("fail_on", "failing"), [({"e": "deadline"}, "some"), ({"": "connection"}, "all")])
def test_grpo_with_crimson_training_goes_on_where_the_judge_fails(
    recipe: Callable[..., Path], waits: bool, fail_on: dict[str, str], failing: str
) -> None:
    rewards = [CRG, {**crimson(waits=waits, fail_on=fail_on), "log_details": True}]
    options = {"multi_objective_aggregation": "normalize_then_sum", "heldout_rows": 0, "max_steps": 3}
    trainer = run(*parse(["--config", str(recipe(rewards=rewards, **options))]))
    (kind,) = fail_on.values()
    shares = [entry["crimson/failed"] for entry in steps(trainer)]
    assert shares == [entry[f"crimson/failed_{kind}"] for entry in steps(trainer)]
    assert shares == [entry["crimson/unscorable"] for entry in steps(trainer)]
    assert len(shares) == 3
    assert all(share == 1 for share in shares) if failing == "all" else 0 < sum(shares) <= 3


def test_grpo_with_crimson_a_setting_that_is_wrong_is_told_when_the_recipe_is_checked(
    recipe: Callable[..., Path],
) -> None:
    with pytest.raises(ValueError, match="'scriptd'; did you mean 'scripted'"):
        validate(recipe(rewards=[{"name": "crimson", "judge": "scriptd"}]))
    with pytest.raises(ValueError, match="'juge'; did you mean 'judge'"):
        validate(recipe(rewards=[{"name": "crimson", "juge": "scripted"}]))
