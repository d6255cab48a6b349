"""A reward of a server: the same rewards, and what happens if servers fail."""

import asyncio
import math
import pickle

import numpy as np
import pytest
from served import Faults, LengthReward, Served

from rrg_rewards.rewards import RemoteReward, RemoteRewardWarning, compose, make_reward
from rrg_rewards.rewards.base import is_asynchronous
from rrg_rewards.rewards.compose import RewardPart
from rrg_rewards.rewards.unrewarded import NoRewardError
from rrg_rewards.training.policy.rewards import RewardSet, TrainerState

QUICK = {"first_pause": 0.0}


def call(reward, *args, **columns):
    return asyncio.run(reward(*args, **columns))


def rewarded(reward, completions=("a b", "a b c"), references=("a", "a")):
    return call(reward, list(completions), reference=list(references))


def test_remote_reward_equals_the_served_reward():
    own = make_reward("crimson", age_column="PatientAge")
    completions = ["Large left pneumothorax.", [{"role": "assistant", "content": "Cardiomegaly."}], [], ""]
    columns = {
        "report": ["Large right pneumothorax.", "No effusion.", "Normal.", None],
        "PatientAge": [np.int64(66), math.nan, 5, None],
    }
    with Served(own) as served:
        reward = RemoteReward(
            served.url, reference_column="report", context_columns={"PatientAge": "PatientAge"}, batch_size=3
        )
        scores = reward.score(completions, **columns)
        assert reward.signature == f"remote|{own.signature}"
    expected = own.score(completions, reference=columns["report"], PatientAge=columns["PatientAge"])
    assert scores.value.tolist() == pytest.approx(expected.value.tolist(), nan_ok=True)
    assert scores.details.keys() == expected.details.keys()
    for name, values in expected.details.items():
        assert scores.details[name].tolist() == pytest.approx(values.tolist(), nan_ok=True), name


def test_remote_reward_keeps_the_order_over_many_requests():
    with Served(max_batch=8) as served:
        reward = RemoteReward(served.url, batch_size=7, concurrency=5)
        words = list(range(1, 101))
        rewards = rewarded(reward, [" ".join("a" * count) for count in words], ["a"] * 100)
    assert rewards == [count - 1.0 for count in words]


def test_remote_reward_sends_a_column_of_prompts_as_it_is():
    seen = []

    class Noting(LengthReward):
        def score(self, completions, **columns):
            seen.append(list(columns["prompts"]))
            return super().score(completions, **columns)

    with Served(Noting(columns=("reference", "prompts"))) as served:
        reward = RemoteReward(served.url, context_columns=["prompts"])
        for prompts in (["Study 7. <think>", "Study 8."], np.array(["Study 7.", "Study 8."])):
            assert call(reward, ["a b", "a"], reference=["a", "a"], prompts=prompts) == [1.0, 0.0]
            assert seen[-1] == list(prompts)


def test_remote_reward_without_completions():
    with Served() as served:
        assert rewarded(RemoteReward(served.url), [], []) == []


def test_remote_reward_is_none_for_unscorable_completions(recwarn):
    logged = {}
    with Served() as served:
        reward = RemoteReward(served.url)
        rewards = call(reward, ["a b", "a", []], reference=["a", None, "a"], log_metric=logged.__setitem__)
    assert rewards == [1.0, None, None]
    assert logged == {"remote/half": 0.5, "remote/failed": 0.0, "remote/unscorable": pytest.approx(2 / 3)}
    assert not [warning for warning in recwarn if warning.category is RemoteRewardWarning]


@pytest.mark.parametrize("fault", [500, 503, 408, 429, {"retry-after": "0"}, "cut", b"no JSON", b"[]", b"{}"])
def test_remote_reward_repeats_failed_requests(fault):
    faults = Faults(fault, fault)
    with Served(faults=faults) as served:
        reward = RemoteReward(served.url, **QUICK)
        if fault == b"{}":
            with pytest.warns(RemoteRewardWarning, match="malformed 2"):
                assert rewarded(reward) == [None, None]
        else:
            assert rewarded(reward) == [1.0, 2.0]
            assert faults.num_requests == 3


def test_remote_reward_counts_completions_without_a_reply():
    logged, faults = {}, Faults(*[503] * 3)
    with Served(faults=faults) as served:
        reward = RemoteReward(served.url, batch_size=2, concurrency=1, max_retries=2, log_details=True, **QUICK)
        columns = {"reference": ["a"] * 3, "log_metric": logged.__setitem__}
        with pytest.warns(RemoteRewardWarning, match=r"2 of 3 completions .* \(status 2; first: .* HTTP 503\)"):
            assert call(reward, ["a b", "a b c", "a b c d"], **columns) == [None, None, 3.0]
    assert logged["remote/failed"] == logged["remote/failed_status"] == pytest.approx(2 / 3)
    assert logged["remote/failed_connection"] == 0


def test_remote_reward_with_a_missing_server():
    with Served() as served:
        url = served.url
    reward = RemoteReward(url, max_retries=1, **QUICK)
    with pytest.warns(RemoteRewardWarning, match="connection 2"):
        assert rewarded(reward) == [None, None]
    with pytest.raises(ConnectionError, match="http://127"):
        _ = reward.signature


@pytest.mark.filterwarnings("ignore::rrg_rewards.rewards.RemoteRewardWarning")
def test_remote_reward_stops_a_run_without_rewards():
    faults = Faults(*[503] * 5)
    with Served(faults=faults) as served:
        reward = RemoteReward(served.url, max_retries=0, max_unrewarded_calls=2)
        assert rewarded(reward) == [None, None]
        with pytest.raises(NoRewardError, match="2 calls"):
            rewarded(reward)
        unlimited = RemoteReward(served.url, max_retries=0, max_unrewarded_calls=None)
        assert [rewarded(unlimited) for _ in range(3)] == [[None, None]] * 3
        assert rewarded(reward) == [1.0, 2.0]
        # An empty call says nothing, and a reward begins the count anew.
        assert rewarded(reward, [], []) == []
        assert rewarded(reward, ["a"], [None]) == [None]
    with pytest.raises(ValueError, match="max_unrewarded_calls"):
        RemoteReward("http://localhost:8787", max_unrewarded_calls=0)


def test_remote_reward_of_a_sub_score():
    with Served() as served:
        url = served.url
        keyed = make_reward("remote", urls=url, key="half", sign=-1, max_retries=0, **QUICK)
        both = compose([RewardPart(keyed), {"name": "repetition"}])
        assert rewarded(keyed) == [-0.5, -1.0]
        assert asyncio.run(both.score_async([], reference=[])).value.tolist() == []
        with pytest.raises(ValueError, match="unknown key"):
            rewarded(make_reward("remote", urls=url, key="halves", sign=1))
    with pytest.warns(RemoteRewardWarning, match="connection 2"):
        assert rewarded(keyed) == [None, None]


def test_remote_reward_calls_another_address():
    with Served() as gone:
        url = gone.url
    with Served() as served:
        reward = RemoteReward([url, served.url], max_retries=0, batch_size=1)
        assert rewarded(reward, ["a b"] * 6, ["a"] * 6) == [1.0] * 6


def test_remote_reward_calls_all_addresses():
    with Served() as one, Served() as other:
        rewarded(RemoteReward([one.url, other.url], batch_size=1), ["a b"] * 10, ["a"] * 10)
        assert [sum(map(len, served.reward.batches)) for served in (one, other)] == [5, 5]


def test_remote_reward_fails_completions_at_the_deadline():
    with Served() as served:
        served.reward.gate.clear()
        reward = RemoteReward(served.url, batch_size=1, deadline=0.3)
        with pytest.warns(RemoteRewardWarning, match=r"deadline 2; first: no reward within 0.3 s"):
            assert rewarded(reward) == [None, None]
        served.reward.gate.set()


def test_remote_reward_fails_completions_at_the_timeout():
    with Served() as served:
        served.reward.gate.clear()
        reward = RemoteReward(served.url, timeout=0.3, max_retries=0)
        with pytest.warns(RemoteRewardWarning, match=r"deadline 2; first: no reply within 0.3 s"):
            assert rewarded(reward) == [None, None]
        served.reward.gate.set()


def test_remote_reward_divides_requests_that_are_too_long():
    completions = ["a " * 20, "a " * 400, *["a " * 20] * 6]
    with Served(max_request_bytes=300) as served:
        reward = RemoteReward(served.url)
        with pytest.warns(RemoteRewardWarning, match="status 1; first: .* too long"):
            assert rewarded(reward, completions, ["a"] * 8) == [19.0, None, *[19.0] * 6]


def test_remote_reward_raises_refusals(monkeypatch):
    with Served(token="s3cret") as served:
        reward = RemoteReward(served.url, token_variable="MY_TOKEN")
        with pytest.raises(ValueError, match="HTTP 401"):
            rewarded(reward)
        monkeypatch.setenv("MY_TOKEN", "s3cret")
        assert rewarded(reward) == [1.0, 2.0]
        with pytest.raises(ValueError, match=r"HTTP 422.* 'reference'"):
            call(RemoteReward(served.url, reference_column=None, token_variable="MY_TOKEN"), ["a"])
        with pytest.raises(ValueError, match=r"HTTP 422.* completion 1: ValueError"):
            rewarded(reward, ["a", "a"], ["a", 3.5])
        with pytest.raises(ValueError, match="HTTP 404"):
            rewarded(RemoteReward(served.url + "/other", token_variable="MY_TOKEN"))


def test_remote_reward_checks_columns_before_a_request():
    reward = RemoteReward("http://localhost:1", context_columns={"age": "PatientAge"})
    with pytest.raises(ValueError, match="'PatientAge'"):
        rewarded(reward)
    with pytest.raises(ValueError, match=r"'reference' .* got 1 and 2"):
        call(reward, ["a"], reference=["a", "a"], PatientAge=[1])
    with pytest.raises(TypeError, match="must be JSON, got object"):
        call(reward, ["a"], reference=["a"], PatientAge=[object()])


def test_remote_reward_rejects_servers_of_different_rewards():
    with Served(make_reward("crg", prior=0.2)) as one, Served(make_reward("crg", prior=0.3)) as other:
        reward = RemoteReward([one.url, other.url], batch_size=1)
        with pytest.raises(ValueError, match="serve different rewards"):
            rewarded(reward)


@pytest.mark.parametrize(
    "body",
    [
        b'{"rewards": [1.0], "scores": {}, "failures": [null, null], "signature": "x"}',
        b'{"rewards": [1.0, NaN], "scores": {}, "failures": [null, null], "signature": "x"}',
        b'{"rewards": [1.0, true], "scores": {}, "failures": [null, null], "signature": "x"}',
        b'{"rewards": [1.0, 2.0], "scores": {"a": [1.0]}, "failures": [null, null], "signature": "x"}',
        b'{"rewards": [1.0, 2.0], "scores": {}, "failures": [null, "odd"], "signature": "x"}',
        b'{"rewards": [1.0, 2.0], "scores": {}, "failures": [null, null]}',
        b'{"rewards": [1.0, 2.0], "scores": [], "failures": [null, null], "signature": "x"}',
    ],
)
def test_remote_reward_rejects_replies_of_another_form(body):
    with Served(faults=Faults(body)) as served:
        reward = RemoteReward(served.url)
        with pytest.warns(RemoteRewardWarning, match="malformed 2"):
            assert rewarded(reward) == [None, None]


def test_remote_reward_rejects_other_machines():
    with pytest.raises(ValueError, match=r"urls is on another machine, '10.0.0.3'"):
        RemoteReward(["http://localhost:8787", "http://10.0.0.3:8787"])
    assert RemoteReward("http://10.0.0.3:8787", allow_remote=True).columns == ("reference",)
    with pytest.raises(ValueError, match="token_variable"):
        RemoteReward("http://me:secret@localhost:8787")


def test_remote_reward_does_not_use_proxies_of_the_environment(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with Served() as served:
        assert rewarded(RemoteReward(served.url, max_retries=0)) == [1.0, 2.0]


def test_remote_reward_limits_replies(monkeypatch):
    monkeypatch.setattr("rrg_rewards.rewards.remote._MOST_BYTES", 50)
    with Served() as served, pytest.warns(RemoteRewardWarning, match="malformed 2; first: .* longer than 50 bytes"):
        assert rewarded(RemoteReward(served.url, max_retries=0)) == [None, None]


def test_remote_reward_among_other_rewards(monkeypatch):
    with Served() as served:
        remote = make_reward("remote", urls=served.url, reference_column="report", name="served")
        copy = pickle.loads(pickle.dumps(remote))
        composed = compose([RewardPart(copy, weight=2.0), {"name": "repetition"}])
        assert is_asynchronous(remote)
        assert composed.columns == ("report",)
        assert call(composed, ["a b c"], report=["a"]) == [4.0]
        assert call(make_reward("remote", urls=served.url), ["a b"], reference=["a"]) == [1.0]

        class Completions:
            def token_lists(self):
                return [[1], [2]]

        batch = {"report": ["a", None], "prompt": ["p", "p"]}
        table = RewardSet(remote)(batch, Completions(), ["a b", "a"], TrainerState(0, 1, 0.0))
    assert table.values[0].tolist() == [1.0]
    assert table.values[1].isnan().all()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"urls": []}, ValueError, "urls"),
        ({"batch_size": 0}, ValueError, "batch_size: must be"),
        ({"timeout": 0}, ValueError, "timeout: must be"),
        ({"retries": 3}, TypeError, "unexpected keyword argument 'retries'"),
        ({"context_columns": "age"}, TypeError, "context_columns"),
    ],
)
def test_remote_reward_rejects(options, error, message):
    with pytest.raises(error, match=message):
        RemoteReward(**{"urls": "http://localhost:8787", **options})


def test_a_misspelled_option_of_remote_names_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'max_retries'"):
        make_reward("remote", urls="http://localhost:8787", retries=3)
