"""Rewards of judged metrics, synchronous and asynchronous: values, logs and failures."""

import asyncio
import inspect
import pickle
from typing import Any

import pytest
from scripted_judge import ScriptedJudge
from words import WordLabeler

from rrg_rewards.judges import registry as judges
from rrg_rewards.metrics import CRIMSON, ReportCRG
from rrg_rewards.rewards import AsyncMetricReward, MetricReward, make_reward
from rrg_rewards.rewards.registry import check_reward_options

COMPLETIONS = ["edema", [{"role": "assistant", "content": "nodule"}], "", "left effusion", []]
COLUMNS = {"reference": ["edema", "nodule, edema", "edema", "right effusion", "edema"], "years": [1, 2, None, 4, 5]}
EXPECTED = [1, 0.25 / 0.75, 0, 0.5, None]
DEADLINE: dict[str, Any] = {"nodule": "deadline"}


def judge(**options: Any) -> dict[str, Any]:
    return {"name": "scripted", **options}


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(judges._JUDGES, "scripted", ("scripted_judge", "ScriptedJudge"))


def call(reward: MetricReward, **options: Any) -> list[float | None]:
    result: Any = reward(COMPLETIONS, **COLUMNS, **options)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def test_a_judge_that_never_waits_makes_a_plain_reward() -> None:
    reward = make_reward("crimson", judge="scripted")
    assert type(reward) is MetricReward
    assert call(reward) == EXPECTED


def test_a_judge_that_is_waited_for_makes_an_asynchronous_reward() -> None:
    reward = make_reward("crimson", judge=judge(waits=True), name="asked")
    assert type(reward) is AsyncMetricReward
    # TRL uses this check.
    assert inspect.iscoroutinefunction(reward.__call__)
    assert reward.__name__ == "asked"
    assert call(reward) == EXPECTED
    assert reward.score(COMPLETIONS, **COLUMNS).value.tolist()[:4] == EXPECTED[:4]


@pytest.mark.filterwarnings("ignore:crimson. the judge failed")
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("fail_on", [{}, DEADLINE, {"": "status"}])
def test_both_log_the_same_names_whatever_fails(waits: bool, fail_on: Any) -> None:
    logged: dict[str, float] = {}
    table: dict[str, list[str]] = {}
    options = {"log_explanations": True, "log_details": True}
    reward = make_reward("crimson", judge=judge(waits=waits, fail_on=fail_on), **options)
    values = call(reward, log_metric=logged.__setitem__, log_extra=table.__setitem__)
    count = {"nodule": 1, "": 4}.get(next(iter(fail_on), ""), 0) if fail_on else 0
    assert values.count(None) == 1 + count
    assert logged["crimson/failed"] == count / 5
    assert logged["crimson/unscorable"] == (1 + count) / 5
    assert logged["crimson/failed_deadline"] == (count / 5 if fail_on == DEADLINE else 0)
    means = {f"crimson/{name}" for name in CRIMSON(ScriptedJudge()).statistics()}
    assert logged.keys() == {
        *(means if count < 4 else ()),
        *(f"crimson/failed_{kind}" for kind in ("deadline", "connection", "status", "malformed", "inconsistent")),
        "crimson/failed",
        "crimson/unscorable",
    }
    assert table.keys() == {f"crimson/{name}" for name in ("missed", "invented", "misdescribed", "failure")}
    assert all(len(texts) == 5 for texts in table.values())


@pytest.mark.filterwarnings("ignore:crimson. the judge failed")
@pytest.mark.parametrize("waits", [False, True])
def test_crimson_logs_the_few_numbers_that_a_user_reads(waits: bool) -> None:
    logged: dict[str, float] = {}
    call(make_reward("crimson", judge=judge(waits=waits, fail_on=DEADLINE)), log_metric=logged.__setitem__)
    main = ("credit", "reference_weight", "false_findings", "missing_findings", "attribute_errors")
    assert logged.keys() == {f"crimson/{name}" for name in (*main, "failed", "unscorable")}
    assert logged["crimson/failed"] == 0.2


def test_context_columns_reach_the_judge_and_the_signature() -> None:
    reward = make_reward("crimson", judge="scripted", context_columns={"age": "years"})
    assert reward.columns == ("reference", "years")
    assert call(reward) == EXPECTED
    contexts = [pair.context for pair in reward.metric.judge.asked[0]]
    assert contexts == [(("age", "1"),), (("age", "2"),), (), (("age", "4"),)]
    assert "|context:age|sign:+1" in reward.signature
    assert "context" not in make_reward("crimson", judge="scripted").signature
    with pytest.raises(ValueError, match="reads the column 'indication', which the data set lacks"):
        call(make_reward("crimson", judge="scripted", context_columns=["age", "indication"], name="x"), age=[1] * 5)


def test_a_bug_of_the_judge_raises() -> None:
    class Broken(ScriptedJudge):
        def _answers(self, items: Any) -> Any:
            raise RuntimeError("a bug")

    for waits in (False, True):
        with pytest.raises(RuntimeError, match="a bug"):
            call(make_reward("crimson", judge=Broken(waits)))


@pytest.mark.parametrize("waits", [False, True])
def test_pickles_are_small_and_equal(waits: bool) -> None:
    reward = make_reward("crimson", judge=judge(waits=waits), context_columns={"age": "years"})
    data = pickle.dumps(reward)
    assert len(data) < 10_000
    again = pickle.loads(data)
    assert (type(again), again.__name__, again.signature) == (type(reward), "crimson", reward.signature)
    assert call(again) == EXPECTED


def test_rewards_that_are_awaited_run_beside_each_other() -> None:
    """Each of two judges answers only after the other was called; sequential calls would never return."""
    asked: list[asyncio.Event] = []

    class Meeting(ScriptedJudge):
        async def evaluate(self, task: Any, items: Any) -> list[Any]:
            if not asked:
                asked.append(asyncio.Event())
                await asked[0].wait()
            else:
                asked[0].set()
            return self._answers(items)

    async def both() -> Any:
        rewards = [make_reward("crimson", judge=Meeting(waits=True)) for _ in range(2)]
        return await asyncio.wait_for(asyncio.gather(*(reward(COMPLETIONS, **COLUMNS) for reward in rewards)), 30)

    assert asyncio.run(both()) == [EXPECTED, EXPECTED]


def test_only_a_metric_with_a_judge_is_awaited() -> None:
    with pytest.raises(TypeError, match="metric must be a metric with a judge, got ReportCRG; use MetricReward"):
        AsyncMetricReward(ReportCRG(WordLabeler(), prior=0.2))  # type: ignore[arg-type]


def test_options_are_checked_without_making_a_judge() -> None:
    check_reward_options("crimson", judge={"name": "nobody"}, context_columns=["age"], prompt="own")
    with pytest.raises(ValueError, match="option of reward 'crimson' 'juge'; did you mean 'judge'"):
        check_reward_options("crimson", juge="rules")
    with pytest.raises(ValueError, match="unknown judge 'nobody'"):
        make_reward("crimson", judge={"name": "nobody"})
