"""A reward server: replies in every dialect, refusals, and what stays secret."""

import base64
import logging
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from scripted_judge import ScriptedJudge
from served import LengthReward, Served
from tiny_crepe import random_pairs, save_tiny_crepe

from rrg_rewards.integrations.serve.settings import ServerOptions
from rrg_rewards.metrics import CRIMSON
from rrg_rewards.rewards import AsyncMetricReward, make_reward

CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n{}"


@pytest.fixture(scope="module")
def server():
    prompts = {"Report study 1.": {"reference": "One."}, "Report study 2.": {"reference": "One two three."}}
    with Served(missing=-9.5, prompts=prompts) as served:
        yield served


def test_a_batch_keeps_its_order_and_has_null_for_unscorable(server):
    talk = [{"role": "user", "content": "Report."}, {"role": "assistant", "content": "a b c d"}]
    completions = ["a b c", talk, "a", []]
    status, reply, _ = server.post(
        "/rewards", {"completions": completions, "reference": ["a", "a", None, "a"], "study": [1, 2, 3, 4]}
    )
    assert status == 200
    assert reply == {
        "rewards": [2.0, 3.0, None, None],
        "scores": {"half": [1.0, 1.5, None, None]},
        "failures": [None] * 4,
        "signature": "length",
    }


@pytest.mark.parametrize("sent", ["reference", "report"])
def test_the_field_reference_is_the_column_of_references_of_the_settings(sent):
    reward = make_reward("rouge", reference_column="report")
    with Served(reward, reference_column="report") as served:
        reply = served.post("/rewards", {"completions": ["Small effusion."], sent: ["Small effusion."]})[1]
    assert reply["rewards"] == [1.0]


def test_a_column_named_reference_replaces_no_other_column():
    reward = LengthReward(columns=("reference", "report"))
    with Served(reward, reference_column="report") as served:
        status, reply, _ = served.post("/rewards", {"completions": ["a"], "reference": ["a"]})
    assert (status, reply["error"][:26]) == (422, "the request lacks 'report'")


@pytest.mark.parametrize(("path", "status"), [("/reward", 404), ("/health", 405)])
def test_a_wrong_path_or_method_is_told_the_right_ones(server, path, status):
    found, reply, _ = server.post(path, {})
    assert found == status
    assert "POST /rewards, /get_reward," in reply["error"]
    assert "GET /health, /info, /metrics" in reply["error"]


def test_an_empty_batch(server):
    assert server.post("/rewards", {"completions": [], "reference": []})[1]["rewards"] == []


def test_the_rewards_are_those_of_the_reward_itself():
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


def test_a_model_on_a_device(tmp_path):
    reward = make_reward("crepe", model=str(save_tiny_crepe(tmp_path / "model")), device="cpu")
    completions, references = random_pairs(6, seed=3)
    with Served(reward, max_batch=4) as served:
        reply = served.post("/rewards", {"completions": completions, "reference": [*references[:-1], None]})[1]
    assert reply["rewards"] == pytest.approx(reward(completions, reference=[*references[:-1], None]), nan_ok=True)
    assert reply["rewards"][-1] is None


@pytest.mark.parametrize(
    ("query", "prompt", "reward"),
    [
        ("Report the CT.\na b c<|im_end|>", "Report the CT.\n", 2.0),
        (
            CHAT.format("<|vision_start|><|image_pad|><|image_pad|> Report.", "a b c<|im_end|>\n"),
            CHAT.format("Report.", ""),
            2.0,
        ),
        # A policy that writes the start of an answer does not hide what it wrote before.
        (CHAT.format("<|image_pad|> Report.", "a b <|im_start|>assistant\na"), CHAT.format("Report.", ""), 1.0),
        ("p<think>a a a a a</think>a b", "p", 1.0),
    ],
)
def test_openrlhf(server, query, prompt, reward):
    reply = server.post("/get_reward", {"query": [query], "prompts": [prompt], "labels": ["a"]})[1]
    assert reply == {"rewards": [reward], "scores": [reward], "extra_logs": {"scorable": [1.0]}}


def test_openrlhf_cannot_carry_null(server):
    reply = server.post("/get_reward", {"query": ["pa"], "prompts": ["p"], "labels": [None]})[1]
    assert reply == {"rewards": [-9.5], "scores": [-9.5], "extra_logs": {"scorable": [0.0]}}


def test_openrlhf_filters_by_scores_in_a_range():
    with Served(missing=-1.0, score_range=(-1, 3)) as served:
        body = {"query": ["pa b", "pa b c d e f", "pa"], "prompts": ["p"] * 3, "labels": ["a", "a", None]}
        reply = served.post("/get_reward", body)[1]
    assert (reply["rewards"], reply["scores"]) == ([1.0, 5.0, -1.0], [0.5, 1.0, 0.0])
    assert reply["extra_logs"] == {"scorable": [1.0, 1.0, 0.0]}


def test_openrlhf_guesses_no_completion(server):
    body = {"query": ["a b"], "prompts": ["another prompt"], "labels": ["a"]}
    status, reply, _ = server.post("/get_reward", body)
    assert status == 422
    assert reply["error"].startswith("query[0]: the completion was not found")


def test_slime(server):
    body = {"prompt": "Report.", "response": "a b c", "label": "a"}
    assert server.post("/remote_rm", body)[1] == 2.0
    assert server.post("/remote_rm/scores", body)[1] == {"score": 2.0, "scorable": 1.0, "half": 1.0}
    assert server.post("/remote_rm", {**body, "label": None})[1] == -9.5


def test_llama_factory_looks_references_up_by_prompt(server):
    messages = [CHAT.format("Report study 2.", "a b c d e<|im_end|>"), CHAT.format("Report study 1.", "a b")]
    reply = server.post("/v1", {"model": "model", "messages": messages})[1]
    assert reply == {"scores": [2.0, 1.0], "scorable": [1.0, 1.0]}


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (CHAT.format("Report study 3.", "a"), r"prompt of messages\[0\] is not in the table"),
        (CHAT.format("Report study 1. And 2.", "a"), r"prompt of messages\[0\] is not in the table"),
        ("Report study 1. a", r"messages\[0\]: the text has no known start of an answer"),
    ],
)
def test_llama_factory_guesses_no_reference(server, message, error):
    status, reply, _ = server.post("/v1", {"model": "model", "messages": [message]})
    assert status == 422
    assert re.search(error, reply["error"])


def test_dialects_without_null_need_a_missing_reward():
    with Served() as served:
        status, reply, _ = served.post("/remote_rm", {"response": "a", "label": "a"})
        assert (status, served.reward.batches) == (422, [])
        assert "start the server with --missing NUMBER" in reply["error"]
        reply = served.post("/v1", {"messages": []})[1]
    assert "--missing" in reply["error"]


def test_v1_without_a_table_says_what_to_do():
    with Served(missing=0.0) as served:
        status, reply, _ = served.post("/v1", {"messages": ["a"]})
    assert status == 422
    assert "start the server with --prompts TABLE" in reply["error"]


@pytest.mark.parametrize("label", ['{"reference": "a", "age": 3}', {"reference": "a", "age": 3}])
def test_labels_pack_several_columns(label):
    with Served(LengthReward(columns=("reference", "age")), missing=0.0) as served:
        assert served.post("/remote_rm", {"response": "a b", "label": label})[1] == 1.0
        status, reply, _ = served.post("/remote_rm", {"response": "a b", "label": "a"})
    assert status == 422
    assert reply["error"].startswith("label lacks the column 'age'; a label must be the reference, or a JSON object")


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"", 400, "must be JSON"),
        (b'{"completions": ["a"', 400, "must be JSON"),
        (b"\xff\xfe", 400, "must be JSON"),
        (b"[" * 100_000, 400, "must be JSON"),
        (b"[]", 400, "must be a JSON object, got list"),
        ({"reference": []}, 422, "the request lacks 'completions', a list with a value"),
        ({"completions": "a", "reference": ["a"]}, 422, "completions must be a list, got str"),
        ({"completions": ["a"]}, 422, "the request lacks 'reference', a list with a value"),
        ({"completions": ["a"], "reference": []}, 422, "reference has 0 values, but the number of completions is 1"),
        ({"completions": ["a", 3], "reference": ["a", "a"]}, 422, r"completions[1] must be a text, or a list"),
        ({"completions": [None], "reference": ["a"]}, 422, r"completions[0] must be a text, or a list"),
    ],
)
def test_malformed_requests(server, body, status, error):
    got, reply, _ = server.post("/rewards", body)
    assert got == status
    assert error in reply["error"]


def test_only_the_request_of_a_refused_value_fails(server):
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


def test_an_infinite_reward_is_an_error():
    reward = LengthReward()
    reward._reward = lambda value: value if value < 2 else float("inf")
    with Served(reward) as served:
        body = {"completions": ["a b", "a b c"], "reference": ["a", "a"]}
        status, reply, _ = served.post("/rewards", body)
    assert (status, reply["error"][:40]) == (500, "the reward failed on completion 1: Arith")


def test_text_is_in_no_log(caplog, capfd):
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
def test_a_token_opens_everything_but_health(authorization, status):
    headers = {} if authorization is None else {"Authorization": authorization}
    with Served(token="s3cret", missing=0.0) as served:
        assert served.get("/health")[:2] == (200, {"status": "ok"})
        for path in ("/info", "/metrics"):
            assert served.get(path, **headers)[0] == status
        body = {"completions": ["a"], "reference": ["a"]}
        assert served.post("/rewards", body, **headers)[0] == status
        assert len(served.reward.batches) == (status == 200)


def test_info_describes_the_reward(server):
    info = server.get("/info")[1]
    assert (info["reward"], info["signature"], info["columns"]) == ("length", "length", ["reference"])
    assert info["max_completions"] == server.options.max_pending


def test_metrics_count_requests_and_outcomes():
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


@pytest.mark.filterwarnings("ignore::rrg_rewards.judges.base.JudgeWarning")
def test_a_failure_of_the_judge_is_null_and_counted():
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


@pytest.mark.parametrize(
    ("reward", "estimated"),
    [
        (("crg", {"prior": "running"}), "prior"),
        (("crg", {}), "prior"),
        (("composed", {"parts": [{"name": "rouge", "normalize": True}]}), "rouge.normalize"),
    ],
)
def test_nothing_is_estimated_while_serving(reward, estimated):
    name, options = reward
    with pytest.raises(ValueError, match=f"estimates {estimated} from data, but a server has no training set"):
        ServerOptions(make_reward(name, **options))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"timeout": 0}, "timeout must be positive"),
        ({"missing": float("nan")}, "missing must be a finite number"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"token": ""}, "token must be printable"),
        ({"max_request_bytes": 2**30}, "max_total_bytes must be at least"),
        ({"max_batch": 128, "max_pending": 64}, "max_pending must be at least max_batch 128"),
    ],
)
def test_settings_are_checked(option, message):
    with pytest.raises(ValueError, match=message):
        ServerOptions(LengthReward(), **option)
