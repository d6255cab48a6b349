"""CRIMSON with a judge on a server, as a reward in a trainer: a real client, a real server, checked answers."""

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_server import FaultServer, completion, reply_bytes
from scripted_judge import evaluate_words

from rrg_rewards.judges import registry as judges
from rrg_rewards.judges.base import ReportPair
from rrg_rewards.recipes.grpo import parse, run
from rrg_rewards.rewards import AsyncMetricReward

pytest.importorskip("openai")


def asked_pair(messages: list[dict[str, str]]) -> ReportPair:
    """The reports of a conversation."""
    blocks = re.findall(r"<(?:reference|candidate)_report>\n\[\w+\] (.*) \[/\w+\]\n</", messages[-1]["content"])
    reference, candidate = map(json.loads, blocks)
    return ReportPair(reference, candidate)


def answer(pair: ReportPair) -> str:
    """Return the scripted judge's evaluation, with the requested ids."""
    evaluation = evaluate_words(pair).to_dict()
    named = {finding["id"]: f"R{place}" for place, finding in enumerate(evaluation["reference_findings"], start=1)}
    named |= {finding["id"]: f"P{place}" for place, finding in enumerate(evaluation["predicted_findings"], start=1)}
    text = json.dumps(evaluation)
    for old, new in named.items():
        text = text.replace(json.dumps(old), json.dumps(new))
    return text


def answers(failing: int | None = None) -> Any:
    """Answer correctly, except each ``failing``-th request, which gets nonsense and a refusal in turn."""
    count = itertools.count(1)
    faults = itertools.cycle([reply_bytes(completion("I find no errors.")), reply_bytes({"error": {}}, code=400)])

    async def behave(request: Any, writer: Any) -> None:
        good = failing is None or next(count) % failing
        writer.write(reply_bytes(completion(answer(request.item))) if good else next(faults))

    return behave


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(judges._JUDGES, "scripted", "scripted_judge:ScriptedJudge")


def train(recipe: Callable[..., Path], server: FaultServer, cache: Path) -> Any:
    settings = {"base_url": server.url, "max_retries": 0, "max_reasks": 0, "cache": str(cache), "max_tokens": None}
    rewards = [
        {"name": "crimson", "judge": "scripted"},
        {
            "name": "crimson",
            "as": "asked",
            "log_details": True,
            "judge": {"name": "openai", "model": "tiny", **settings},
        },
    ]
    options = {"max_steps": 3, "multi_objective_aggregation": "normalize_then_sum"}
    return run(*parse(["--config", str(recipe(rewards=rewards, **options))]))


def steps(trainer: Any) -> list[dict[str, Any]]:
    return [entry for entry in trainer.state.log_history if "reward" in entry]


def test_grpo_with_crimson_server_the_servers_answers_are_the_reward(
    recipe: Callable[..., Path], tmp_path: Path
) -> None:
    with FaultServer(otherwise=answers(), item_of=asked_pair) as server:
        trainer = train(recipe, server, tmp_path / "cache")
    assert isinstance(trainer.reward_funcs[1], AsyncMetricReward)
    for entry in steps(trainer):
        assert entry["rewards/asked/mean"] == entry["rewards/crimson/mean"]
        assert entry["asked/credit"] == entry["crimson/credit"]
        assert entry["asked/failed"] == 0
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text())["after"]
    assert evaluation["asked"]["score"] == evaluation["crimson"]["score"]
    # Equal pairs are judged once, in training and in both evaluations.
    assert set(server.asked.values()) == {1}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:crimson. the judge failed")
def test_grpo_with_crimson_server_what_the_server_fails_on_is_counted_and_training_goes_on(
    recipe: Callable[..., Path], tmp_path: Path
) -> None:
    with FaultServer(otherwise=answers(failing=3), item_of=asked_pair) as server:
        trainer = train(recipe, server, tmp_path / "cache")
    assert len(steps(trainer)) == 3
    kinds = ("deadline", "connection", "status", "malformed", "inconsistent")
    for entry in steps(trainer):
        assert entry["asked/failed"] == pytest.approx(sum(entry[f"asked/failed_{kind}"] for kind in kinds))
        assert entry["asked/unscorable"] == pytest.approx(entry["asked/failed"])
        assert entry["crimson/failed"] == 0
    assert 0 < sum(entry["asked/failed"] for entry in steps(trainer)) < 3


@pytest.mark.filterwarnings("ignore:crimson. the judge failed")
def test_grpo_with_crimson_server_a_server_that_is_gone_ends_nothing(
    recipe: Callable[..., Path], tmp_path: Path
) -> None:
    with FaultServer() as server:
        pass
    trainer = train(recipe, server, tmp_path / "cache")
    assert [entry["asked/failed_connection"] for entry in steps(trainer)] == [1, 1, 1]
    assert all(-1 < entry["rewards/crimson/mean"] <= 1 for entry in steps(trainer))
