"""A reward server: replies, refusals, and what stays secret."""

import base64
import logging
from concurrent.futures import ThreadPoolExecutor

import pytest
from crimson_servers import crimson_server
from fault_server import completion
from scripted_judge import ScriptedJudge
from served import LengthReward, Served
from tiny_crepe import random_pairs, save_tiny_crepe

from rrg_rewards.judges import OpenAIJudge, ReportPair
from rrg_rewards.metrics import CRIMSON
from rrg_rewards.rewards import AsyncMetricReward, make_reward


@pytest.mark.parametrize(("path", "status"), [("/reward", 404), ("/health", 405)])
def test_app_names_the_right_paths_and_methods(server, path, status):
    found, reply, _ = server.post(path, {})
    assert found == status
    assert "POST /rewards, /get_reward," in reply["error"]
    assert "GET /health, /info, /metrics" in reply["error"]


def test_app_returns_the_rewards_of_the_reward_itself():
    reward = make_reward("crimson", age_column="age")
    completions = ["Large left pneumothorax.", "Cardiomegaly.", ""]
    columns = {"reference": ["Large right pneumothorax.", "No effusion.", "Normal."], "age": [66, None, 5]}
    with Served(reward) as served:
        reply = served.post("/rewards", {"completions": completions, **columns})[1]
    scores = reward.score(completions, **columns)
    assert reply["rewards"] == reward.rewards(scores)
    assert reply["signature"] == reward.signature
    for name, values in scores.details.items():
        assert reply["scores"][name] == pytest.approx(values.tolist(), nan_ok=True), name


def test_app_serves_a_model_on_a_device(tmp_path):
    reward = make_reward("crepe", model=str(save_tiny_crepe(tmp_path / "model")), device="cpu")
    completions, references = random_pairs(6, seed=3)
    with Served(reward, max_batch=4) as served:
        reply = served.post("/rewards", {"completions": completions, "reference": [*references[:-1], None]})[1]
    assert reply["rewards"] == pytest.approx(reward(completions, reference=[*references[:-1], None]), nan_ok=True)
    assert reply["rewards"][-1] is None


def test_app_fails_only_the_request_of_a_refused_value(server):
    server.reward.gate.clear()
    bodies = [
        {"completions": ["a b"], "reference": ["a"]},
        {"completions": ["a", "secret"], "reference": ["a", 3.5]},
        {"completions": ["a bug"], "reference": ["a"]},
        {"completions": ["a b c"], "reference": ["a"]},
    ]
    with ThreadPoolExecutor(4) as threads:
        replies = [threads.submit(server.post, "/rewards", body) for body in bodies]
        server.reward.gate.set()
        first, refused, bug, last = [reply.result() for reply in replies]
    assert (first[1]["rewards"], last[1]["rewards"]) == ([1.0], [2.0])
    assert refused[0] == 422
    assert refused[1]["error"].startswith(
        "the reward refuses the values of completion 1: ValueError in _value (served.py"
    )
    assert bug[0] == 500
    assert bug[1]["error"].startswith("the reward failed on completion 0: KeyError in _value (served.py")
    assert "secret" not in refused[1]["error"] + bug[1]["error"]


def test_app_replies_to_an_infinite_reward_with_an_error():
    reward = LengthReward()
    reward._reward = lambda value: value if value < 2 else float("inf")
    with Served(reward) as served:
        body = {"completions": ["a b", "a b c"], "reference": ["a", "a"]}
        status, reply, _ = served.post("/rewards", body)
    assert (status, reply["error"][:40]) == (500, "the reward failed on completion 1: Arith")


def test_app_writes_no_text_to_a_log(caplog, capfd):
    caplog.set_level(logging.DEBUG, logger="uvicorn")
    with Served(missing=0.0) as served:
        served.post("/rewards?report=secret", {"completions": ["a bug"], "reference": ["secret"]})
        served.post("/rewards", b'{"completions": ["secret"')
        served.post("/secret", {})
        served.post("/remote_rm", {"response": "secret", "label": 0.5})
        # Not an error of the reward: the reply itself fails.
        served.reward.__class__ = type("Broken", (LengthReward,), {"signature": property(lambda self: {}["secret"])})
        status, reply, _ = served.post("/rewards", {"completions": ["secret"], "reference": ["secret"]})
    assert status == 500
    output = capfd.readouterr()
    assert "KeyError in <lambda>" in caplog.text
    assert "secret" not in caplog.text + output.out + output.err + reply["error"]


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (None, 401),
        ("Bearer wrong", 401),
        ("Bearer", 401),
        ("Basic ???", 401),
        ("Basic é", 401),
        ("Bearer é", 401),
        ("Digest s3cret", 401),
        ("Bearer s3cret", 200),
        ("bearer s3cret", 200),
        ("Basic " + base64.b64encode(b"any:s3cret").decode(), 200),
        ("Basic " + base64.b64encode(b"s3cret:any").decode(), 401),
    ],
)
def test_app_needs_a_token_for_everything_but_health(authorization, status):
    headers = {} if authorization is None else {"Authorization": authorization}
    with Served(token="s3cret", missing=0.0) as served:
        assert served.get("/health")[:2] == (200, {"status": "ok"})
        for path in ("/info", "/metrics"):
            assert served.get(path, **headers)[0] == status
        body = {"completions": ["a"], "reference": ["a"]}
        assert served.post("/rewards", body, **headers)[0] == status
        assert len(served.reward.batches) == (status == 200)


def test_app_describes_the_reward_in_info(server):
    info = server.get("/info")[1]
    assert (info["reward"], info["signature"], info["columns"]) == ("length", "length", ["reference"])
    assert info["max_completions"] == server.options.max_pending


def test_app_counts_requests_and_outcomes():
    with Served() as served:
        served.post("/rewards", {"completions": ["a", "b", "c"], "reference": ["a", "a", None]})
        served.post("/rewards", {"completions": ["a"]})
        status, text, headers = served.get("/metrics")
    assert status == 200
    assert headers.get_content_type() == "text/plain"
    lines = text.splitlines()
    assert 'rrg_rewards_completions_total{outcome="scored"} 2.0' in lines
    assert 'rrg_rewards_completions_total{outcome="unscorable"} 1.0' in lines
    assert 'rrg_rewards_requests_total{path="/rewards",status="200"} 1.0' in lines
    assert 'rrg_rewards_requests_total{path="/rewards",status="422"} 1.0' in lines
    assert 'rrg_rewards_request_seconds_count{path="/rewards"} 2.0' in lines
    assert "rrg_rewards_batch_completions_sum 3.0" in lines
    assert "rrg_rewards_waiting_completions 0.0" in lines


def test_app_counts_what_the_judge_of_the_reward_has_used():
    # The first pair is the one that the server scores when it starts.
    pairs = [ReportPair("Clear lungs.", "Clear lungs."), ReportPair("Small left effusion.", "Large right effusion.")]
    with crimson_server(pairs, lambda body, answer: (200, completion(answer))) as model:
        judge = OpenAIJudge("m", base_url=model.url, price=(1.0, 4.0))
        with Served(AsyncMetricReward(CRIMSON(judge=judge))) as served:
            body = {"completions": [pairs[1].candidate], "reference": [pairs[1].reference]}
            for _ in range(2):
                assert served.post("/rewards", body)[1]["failures"] == [None]
            lines = served.get("/metrics")[1].splitlines()
            assert served.get("/metrics")[1].splitlines()[-1] == lines[-1]
        calls = len(model.requests)
    assert calls == 3
    assert f'rrg_rewards_judge_calls_total{{judge="judge"}} {calls}.0' in lines
    assert f'rrg_rewards_judge_prompt_tokens_total{{judge="judge"}} {calls * 100}.0' in lines
    assert f'rrg_rewards_judge_completion_tokens_total{{judge="judge"}} {calls * 10}.0' in lines
    cost = next(line for line in lines if line.startswith("rrg_rewards_judge_cost_total{"))
    assert float(cost.split()[-1]) == pytest.approx(calls * 140e-6)


@pytest.mark.filterwarnings("ignore::rrg_rewards.judges.base.JudgeWarning")
def test_app_counts_a_failure_of_the_judge_and_replies_with_null():
    reward = AsyncMetricReward(CRIMSON(judge=ScriptedJudge(waits=True, fail_on={"scar": "deadline"})))
    with Served(reward, missing=-1.0) as served:
        body = {"completions": ["edema", "scar", "nodule"], "reference": ["edema", "scar", "edema"]}
        reply = served.post("/rewards", body)[1]
        assert served.post("/remote_rm/scores", {"response": "scar", "label": "scar"})[1]["scorable"] == 0.0
        lines = served.get("/metrics")[1].splitlines()
    assert (reply["rewards"][0], reply["rewards"][1]) == (1.0, None)
    assert reply["rewards"][2] < 0
    assert reply["failures"] == [None, "deadline", None]
    assert 'rrg_rewards_completions_total{outcome="failed_deadline"} 2.0' in lines
