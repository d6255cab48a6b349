"""Judges by name, mapping and text."""

import pytest

from rrg_rewards.judges import OpenAIJudge, RuleJudge, get_judge


def test_get_judge_and_its_signature():
    judge = get_judge({"name": "openai", "model": "m", "base_url": "http://localhost:1/v1", "extra_body": {"top_k": 1}})
    assert isinstance(judge, OpenAIJudge)
    assert judge.signature.startswith("openai|model:m|host:loopback|temperature:0.0|max_tokens:2048|seed:0|")
    assert judge.signature != get_judge("openai:m").signature
    assert get_judge("openai:m").signature == OpenAIJudge("m", base_url="http://127.0.0.1:9/v1").signature
    assert get_judge({"name": "openai", "model": "m", "seed": 1}, seed=3).arguments()["seed"] == 3
    assert get_judge("openai:m", price=(1, 2)).arguments()["price"] == (1, 2)
    with pytest.raises(TypeError, match="seed cannot be set on a judge object"):
        get_judge(judge, seed=3)


def test_get_judge_reads_a_mapping_as_text():
    text = "{name: openai, model: m, seed: 1, extra_body: {top_k: 1}}"
    mapping = {"name": "openai", "model": "m", "seed": 1, "extra_body": {"top_k": 1}}
    assert get_judge(text).arguments() == get_judge(mapping).arguments()
    assert get_judge(text, seed=3).settings.seed == 3
    assert isinstance(get_judge(" {name: rules}"), RuleJudge)


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        ("{name: openai, api_key: secret", "^cannot read a judge's settings as a mapping: .* is not YAML$"),
        ("{model: m}", "a judge's settings must have a name, one of cascade, local, openai, rules; got 'model'"),
        ("{}", "must have a name, .*; got nothing"),
        ("{name: opnai, model: m}", "unknown judge 'opnai'; did you mean 'openai'"),
        ({"model": "m"}, "a judge's settings must have a name"),
    ],
)
def test_get_judge_rejects(judge, message):
    with pytest.raises(ValueError, match=message):
        get_judge(judge)
    with pytest.raises(TypeError, match="judge must be a name, a mapping or a judge, got list"):
        get_judge(["rules"])


def test_get_judge_reads_a_file(tmp_path):
    path = tmp_path / "judge.yaml"
    path.write_text("name: openai\nmodel: m.yaml\nseed: 1\n")
    assert get_judge(str(path)).signature == get_judge({"name": "openai", "model": "m.yaml", "seed": 1}).signature
    assert get_judge(str(path), seed=3).settings.seed == 3
    assert get_judge("openai:m.yaml").settings.model == "m.yaml"
    with pytest.raises(FileNotFoundError, match=r"jugde\.yaml: no such file; did you mean .*judge.yaml"):
        get_judge(str(tmp_path / "jugde.yaml"))
    path.write_text("model: m")
    with pytest.raises(ValueError, match=r"judge\.yaml: a judge's settings must have a name, .*; got 'model'"):
        get_judge(str(path))
    for text in ("- name", "name: openai\napi_key: secret\napi_key: secret", "{name: secret"):
        path.write_text(text)
        with pytest.raises(ValueError, match="must be a mapping in YAML without repeated keys") as error:
            get_judge(str(path))
        assert "secret" not in str(error.value)
        assert error.value.__suppress_context__
    path.write_text("name: openai\nmodel: ]")
    with pytest.raises(ValueError, match=r"judge\.yaml, line 2, column 8: the settings"):
        get_judge(str(path))
