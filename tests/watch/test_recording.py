"""Recorded rewards return the same values, and their calls are recorded."""

import asyncio
import inspect
import pickle

import pytest
from gullible_judge import GullibleJudge

from rrg_rewards.judges.base import JudgeWarning
from rrg_rewards.metrics import CRIMSON
from rrg_rewards.rewards import AsyncMetricReward, MetricReward, make_reward
from rrg_rewards.watch import RewardRecorder


def plain(completions, **columns):
    return [float(len(completion)) for completion in completions]


async def awaited(completions, **columns):
    return [None for _ in completions]


def test_reward_recorder_shows_a_trainer_the_reward_itself():
    reward = make_reward("crg", prior=0.2, reference_column="report")
    recorded, function, coroutine = RewardRecorder().wrap([reward, plain, awaited])
    assert (recorded.__name__, function.__name__, coroutine.__name__) == ("crg", "plain", "awaited")
    assert recorded.signature == reward.signature
    assert recorded.columns == ("report",)
    assert recorded.metric is reward.metric
    kinds = [inspect.iscoroutinefunction(type(each).__call__) for each in (recorded, function, coroutine)]
    assert kinds == [False, False, True]
    call = {"completions": ["Cardiomegaly."], "report": ["Cardiomegaly."]}
    assert recorded(**call) == reward(**call)
    assert recorded(call["completions"], report=call["report"]) == reward(**call)
    with pytest.raises(AttributeError):
        _ = recorded.no_such_thing
    assert pickle.loads(pickle.dumps(recorded)).signature == reward.signature


def test_reward_recorder_notes_only_what_happens_in_a_step():
    recorder = RewardRecorder(["report", "age"])
    first, second = recorder.wrap([plain, make_reward("rouge", reference_column="report")])
    call = {"completions": ["a b"], "report": ["a b"], "other": [1]}
    first(**call)
    assert recorder.take().completions == []
    recorder.active = True
    for _ in range(2):
        first(**call)
        second(**call)
    batch = recorder.take()
    assert batch.completions == ["a b"] * 2
    assert batch.columns == {"report": ["a b"] * 2}
    assert batch.rewards == {"plain": [3.0] * 2, "rouge": [1.0] * 2}
    assert recorder.take().rewards == {}


def test_reward_recorder_counts_and_logs_failures_of_judges():
    judge = {"fail_on": {"broken": "malformed"}}
    logged = []
    call = {
        "completions": ["broken", "edema", "broken", "edema"],
        "reference": ["edema"] * 4,
        "log_metric": lambda name, value: logged.append((name, value)),
    }
    at_once = MetricReward(CRIMSON(judge=GullibleJudge(**judge)), name="at_once")
    waits = AsyncMetricReward(CRIMSON(judge=GullibleJudge(waits=True, **judge)), name="waits")
    recorder = RewardRecorder()
    first, second = recorder.wrap([at_once, waits])
    recorder.active = True
    with pytest.warns(JudgeWarning):
        first(**call)
    with pytest.warns(JudgeWarning):
        asyncio.run(second(**call))
    batch = recorder.take()
    assert batch.judge_failures == {"at_once": 2.0, "waits": 2.0}
    assert batch.rewards["waits"] == batch.rewards["at_once"] == [None, 1.0, None, 1.0]
    assert ("at_once/failed", 0.5) in logged
    assert ("waits/failed", 0.5) in logged


def test_reward_recorder_refuses_equal_names():
    with pytest.raises(ValueError, match="must differ in name"):
        RewardRecorder().wrap([plain, plain])
