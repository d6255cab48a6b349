"""Settings of OpenAIJudge."""

import inspect

import pytest

from rrg_rewards.judges import OpenAIJudge


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


def test_server_settings_name_the_nearest_argument():
    with pytest.raises(TypeError, match="unknown argument 'concurency'; did you mean 'concurrency'"):
        OpenAIJudge("tiny", concurency=3)


def test_server_settings_are_the_parameters_of_openai_judge():
    parameters = inspect.signature(OpenAIJudge).parameters
    assert set(OpenAIJudge("tiny").arguments()) | {"api_key"} == set(parameters)
    assert parameters["timeout"].default == 60.0
