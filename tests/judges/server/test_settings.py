"""Settings of OpenAIJudge."""

import dataclasses
import inspect
import json

import pytest

from rrg_rewards.judges import OpenAIJudge
from rrg_rewards.judges.server.settings import ServerSettings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"concurrency": 0}, "concurrency must be at least 1, got 0"),
        ({"timeout": 0}, "timeout must be positive, got 0"),
        ({"timeout": float("nan")}, "timeout must be positive, got nan"),
        ({"batch_deadline": -1}, "batch_deadline must be positive"),
        ({"max_retries": -1}, "max_retries must be at least 0"),
        ({"max_tokens": 0}, "max_tokens must be positive"),
        ({"response_format": "json_shema"}, "did you mean 'json_schema'"),
        ({"extra_body": {"model": "x"}}, "extra_body must not set model"),
        ({"extra_body": {"x": {1}}}, "extra_body must be JSON"),
        ({"price_cached": 0.1}, "price_cached must be a price beside those in price, got 0.1"),
        ({"price": (1.0, 2.0), "price_cached": -0.1}, "price_cached must be a price beside those in price, got -0.1"),
        ({"requests_per_minute": 0}, "requests_per_minute must be positive, got 0"),
    ],
)
def test_server_settings_reject_values_out_of_range(settings, message):
    with pytest.raises(ValueError, match=message):
        OpenAIJudge("m", **settings)
    with pytest.raises(ValueError, match="model must be the name"):
        OpenAIJudge("")


def test_server_settings_show_no_key():
    settings = dataclasses.replace(ServerSettings("m", api_key="sk-secret"), run=1)
    assert settings.key() == "sk-secret"
    assert "secret" not in f"{settings!r} {dataclasses.asdict(settings)}"
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps(dataclasses.asdict(settings))


def test_server_settings_name_a_key_that_no_header_can_carry(monkeypatch):
    with pytest.raises(ValueError, match=r"^api_key must contain printable ASCII .* character 3 of 9 is EN DASH$"):
        OpenAIJudge("m", api_key="sk\u2013secret")
    monkeypatch.setenv("MY_KEY", "sk-secret\n")
    with pytest.raises(ValueError, match=r"^environment variable MY_KEY must .* character 10 of 10 is U\+000A$"):
        ServerSettings("m", api_key_variable="MY_KEY").key()


def test_server_settings_name_the_nearest_argument():
    with pytest.raises(TypeError, match="unknown argument 'concurency'; did you mean 'concurrency'"):
        OpenAIJudge("tiny", concurency=3)


def test_server_settings_are_the_parameters_of_openai_judge():
    parameters = inspect.signature(OpenAIJudge).parameters
    assert set(OpenAIJudge("tiny").arguments()) | {"api_key"} == set(parameters)
    assert parameters["timeout"].default == 60.0
