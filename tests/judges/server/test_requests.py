"""Settings and requests of OpenAIJudge, their response formats, and counts in replies."""

import dataclasses
import inspect
import json

import pytest
from fault_server import (
    GOOD,
    ITEMS,
    FaultServer,
    completion,
    evaluate,
    kinds,
    make_judge,
    raw,
    reply_bytes,
    says,
    status,
)
from tiny_task import LengthTask, good_answer

from rrg_rewards.judges import OpenAIJudge
from rrg_rewards.judges.base import AnswerError
from rrg_rewards.judges.server.requests import ServerSettings, answer_key, reply_text, reply_tokens
from rrg_rewards.judges.server.usage import estimated_tokens
from rrg_rewards.utilities.settings import SettingError


def test_request_body():
    with FaultServer() as server:
        judge = make_judge(server, seed=7, max_tokens=9, api_key="secret", extra_body={"top_k": 1})
        # Half a surrogate pair, which no request can hold.
        evaluate(judge, ["a\ud800"])
    request = server.requests[0]
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer secret"
    task = LengthTask()
    assert request.body == {
        "model": "tiny",
        "messages": task.messages("a\ufffd"),
        "temperature": 0.0,
        "max_tokens": 9,
        "seed": 7,
        "top_k": 1,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "length", "schema": task.schema, "strict": True},
        },
    }


def test_request_body_without_settings_left_to_the_server():
    with FaultServer() as server:
        judge = make_judge(server, seed=None, max_tokens=None, temperature=None, response_format="text")
        evaluate(judge, ["a"])
    assert server.requests[0].body.keys() == {"model", "messages"}


def refuse_formats(*accepted):
    """A server that accepts some response formats only."""

    async def behave(request, writer):
        sent = request.body.get("response_format", {"type": "text"})
        name = "schema_object" if "schema" in sent else sent["type"]
        if name in accepted:
            await says()(request, writer)
        else:
            detail = [{"loc": ["body", "response_format"], "msg": "unexpected", "input": request.body}]
            await status(422, {"detail": detail})(request, writer)

    return behave


@pytest.mark.parametrize(
    ("accepted", "refusals"), [("json_schema", 0), ("schema_object", 1), ("json_object", 2), ("text", 3)]
)
def test_format_choice_finds_the_strictest_accepted_format(accepted, refusals):
    with FaultServer(otherwise=refuse_formats(accepted)) as server:
        judge = make_judge(server, concurrency=1)
        assert evaluate(judge, ITEMS) == GOOD
        assert len(server.requests) == 4 + refusals
        assert evaluate(judge, ["eeeee"]) == [5]
        assert len(server.requests) == 5 + refusals


def test_is_format_refusal_of_an_internal_error():
    body = {"error": {"message": "1 validation error: body -> response_format -> type", "type": "internal"}}
    with FaultServer({"a": [status(500, body)]}) as server:
        judge = make_judge(server)
        assert evaluate(judge, ["a"]) == [1]
        asked = [request.body["response_format"]["type"] for request in server.requests]
        assert asked == ["json_schema", "json_object"]


def test_format_choice_without_an_accepted_format():
    with FaultServer(otherwise=refuse_formats()) as server:
        assert kinds(evaluate(make_judge(server), ["a"])) == ["status"]
        assert len(server.requests) == 4


def test_format_choice_keeps_a_format_that_was_given_or_accepted():
    with FaultServer(otherwise=refuse_formats("text")) as server:
        judge = make_judge(server, response_format="json_object")
        assert kinds(evaluate(judge, ["a"])) == ["status"]
        assert len(server.requests) == 1
    with FaultServer({"bb": [status(400, {"error": {"message": "response_format: too long"}})]}) as server:
        judge = make_judge(server)
        assert evaluate(judge, ["a"]) == [1]
        assert kinds(evaluate(judge, ["bb"])) == ["status"]
        assert len(server.requests) == 2


def test_is_format_refusal_ignores_the_quoted_request():
    detail = [{"loc": ["body", "messages"], "msg": "too long", "input": {"response_format": {}}}]
    with FaultServer({"a": [status(422, {"detail": detail})]}) as server:
        assert kinds(evaluate(make_judge(server), ["a"])) == ["status"]
        assert len(server.requests) == 1


@pytest.mark.parametrize("tokens", [10**4000, -1, 1.5, "many", None])
def test_reply_tokens_ignores_impossible_counts(tokens):
    reply = completion(good_answer("a"))
    reply["usage"]["completion_tokens"] = tokens
    with FaultServer({"a": [raw(reply_bytes(reply))]}) as server:
        judge = make_judge(server, price=(1.0, 1.0))
        assert evaluate(judge, ["a"]) == [1]
    assert (judge.usage.prompt_tokens, judge.usage.completion_tokens) == (100, 0)
    assert judge.usage.cost == 1e-4


@pytest.mark.parametrize(
    "details", [{"cached_tokens": 101}, {"cached_tokens": -1}, {"cached_tokens": True}, {}, 5, None]
)
def test_reply_tokens_of_impossible_or_missing_cached_tokens_are_none(details):
    tokens = reply_tokens({"usage": {"prompt_tokens": 100, "completion_tokens": 3, "prompt_tokens_details": details}})
    assert tokens == (100, 3, None)


@pytest.mark.parametrize("cached", [0, 64, 100])
def test_reply_tokens_reads_cached_tokens(cached):
    usage = {"prompt_tokens": 100, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": cached}}
    assert reply_tokens({"usage": usage}) == (100, 3, cached)


class FreeTask(LengthTask):
    """The same question, whose answer is free text."""

    name = "free"

    @property
    def schema(self):
        return {}


def test_request_body_of_a_task_with_free_text_has_no_format_and_settles_none():
    with FaultServer(otherwise=refuse_formats("json_object", "text")) as server:
        judge = make_judge(server)
        assert judge.evaluate_now(FreeTask(), ITEMS[:1]) == GOOD[:1]
        # The answer did not show which formats the server accepts.
        assert evaluate(judge, ITEMS[:1]) == GOOD[:1]
        assert judge.evaluate_now(FreeTask(), ITEMS[1:2]) == GOOD[1:2]
    formats = [request.body.get("response_format", {}).get("type") for request in server.requests]
    assert formats == [None, "json_schema", "json_object", "json_object", None]


def test_request_body_of_a_run_has_its_own_seed_unless_all_runs_share_one(tmp_path):
    with FaultServer() as server:
        for shared in (True, False):
            judge = make_judge(server, seed=42, seed_per_run=not shared, cache=tmp_path / str(shared))
            for run in (0, 1, 2):
                evaluate(judge.rerun(run), ["a"])
                evaluate(judge.rerun(run), ["a"])
    seeds = [request.body["seed"] for request in server.requests]
    assert seeds == [42, 42, 42, 42, 1042, 2042], "each run has its own entry in the cache"
    assert "seed_per_run:False" in OpenAIJudge("m", seed_per_run=False).signature
    assert "seed_per_run" not in OpenAIJudge("m").signature


def test_answer_key_tells_shared_seeds_from_own_ones():
    task = LengthTask()
    keys = [
        answer_key(ServerSettings("m", run=run, seed_per_run=own), task, "a") for run in (0, 1) for own in (True, False)
    ]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_reply_text_names_the_limit_that_reasoning_used_up():
    with pytest.raises(AnswerError, match="reasoning; raise max_tokens"):
        reply_text(completion("", "length"))
    with pytest.raises(AnswerError, match="was cut off; raise max_tokens"):
        reply_text(completion("{", "length"))
    with pytest.raises(AnswerError, match="contains no text"):
        reply_text(completion(""))


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("concurrency", 0, "got 0"),
        ("timeout", 0, "got 0"),
        ("timeout", float("nan"), "got nan"),
        ("batch_deadline", -1, "got -1"),
        ("max_retries", -1, "got -1"),
        ("max_tokens", 0, "got 0"),
        ("response_format", "json_shema", "did you mean 'json_schema'"),
        ("extra_body", {"model": "x"}, "must not set model"),
        ("extra_body", {"x": {1}}, "must be JSON"),
        ("price_cached", 0.1, "price$"),
        ("price_cached", -0.1, "got -0.1"),
    ],
)
def test_server_settings_reject_values_out_of_range(name, value, told):
    with pytest.raises(SettingError, match=told) as raised:
        OpenAIJudge("m", **{name: value})
    assert raised.value.setting == name


def test_server_settings_need_a_model():
    with pytest.raises(SettingError, match=r"^model: "):
        OpenAIJudge("")


def test_server_settings_show_no_key():
    settings = dataclasses.replace(ServerSettings("m", api_key="sk-secret"), run=1)
    assert settings.key() == "sk-secret"
    assert "secret" not in f"{settings!r} {dataclasses.asdict(settings)}"
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps(dataclasses.asdict(settings))


def test_server_settings_name_a_key_that_no_header_can_carry(monkeypatch):
    with pytest.raises(ValueError, match=r"^api_key .* character 3 of 9 is EN DASH$"):
        OpenAIJudge("m", api_key="sk\u2013secret")
    monkeypatch.setenv("MY_KEY", "sk-secret\n")
    with pytest.raises(ValueError, match=r"MY_KEY .* character 10 of 10 is U\+000A$"):
        ServerSettings("m", api_key_variable="MY_KEY").key()


def test_server_settings_name_the_nearest_argument():
    with pytest.raises(TypeError, match="'concurency'; did you mean 'concurrency'"):
        OpenAIJudge("tiny", concurency=3)


def test_server_settings_are_the_parameters_of_openai_judge():
    parameters = inspect.signature(OpenAIJudge).parameters
    assert set(OpenAIJudge("tiny").arguments()) | {"api_key"} == set(parameters)
    assert parameters["timeout"].default == 60.0


def test_estimated_tokens():
    assert estimated_tokens([]) == 0
    assert estimated_tokens(["abcd", ""]) == 5 + 4
