"""The dialects of a reward server."""

import re

import pytest
from served import LengthReward, Served

from rrg_rewards.rewards import make_reward

CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n{}"


def test_rewards_dialect_keeps_the_order_and_has_null_for_unscorable(server):
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
def test_rewards_dialect_reads_the_field_reference_as_the_column_of_references(sent):
    reward = make_reward("rouge", reference_column="report")
    with Served(reward, reference_column="report") as served:
        reply = served.post("/rewards", {"completions": ["Small effusion."], sent: ["Small effusion."]})[1]
    assert reply["rewards"] == [1.0]


def test_rewards_dialect_replaces_no_column_by_one_named_reference():
    reward = LengthReward(columns=("reference", "report"))
    with Served(reward, reference_column="report") as served:
        status, reply, _ = served.post("/rewards", {"completions": ["a"], "reference": ["a"]})
    assert (status, reply["error"][:26]) == (422, "the request lacks 'report'")


def test_rewards_dialect_accepts_an_empty_batch(server):
    assert server.post("/rewards", {"completions": [], "reference": []})[1]["rewards"] == []


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
def test_openrlhf_dialect_finds_the_completion(server, query, prompt, reward):
    reply = server.post("/get_reward", {"query": [query], "prompts": [prompt], "labels": ["a"]})[1]
    assert reply == {"rewards": [reward], "scores": [reward], "extra_logs": {"scorable": [1.0]}}


def test_openrlhf_dialect_cannot_carry_null(server):
    reply = server.post("/get_reward", {"query": ["pa"], "prompts": ["p"], "labels": [None]})[1]
    assert reply == {"rewards": [-9.5], "scores": [-9.5], "extra_logs": {"scorable": [0.0]}}


def test_openrlhf_dialect_has_scores_in_a_range():
    with Served(missing=-1.0, score_range=(-1, 3)) as served:
        body = {"query": ["pa b", "pa b c d e f", "pa"], "prompts": ["p"] * 3, "labels": ["a", "a", None]}
        reply = served.post("/get_reward", body)[1]
    assert (reply["rewards"], reply["scores"]) == ([1.0, 5.0, -1.0], [0.5, 1.0, 0.0])
    assert reply["extra_logs"] == {"scorable": [1.0, 1.0, 0.0]}


def test_openrlhf_dialect_guesses_no_completion(server):
    body = {"query": ["a b"], "prompts": ["another prompt"], "labels": ["a"]}
    status, reply, _ = server.post("/get_reward", body)
    assert status == 422
    assert reply["error"].startswith("query[0]: the completion was not found")


def test_slime_dialect_returns_a_number_or_an_object(server):
    body = {"prompt": "Report.", "response": "a b c", "label": "a"}
    assert server.post("/remote_rm", body)[1] == 2.0
    assert server.post("/remote_rm/scores", body)[1] == {"score": 2.0, "scorable": 1.0, "half": 1.0}
    assert server.post("/remote_rm", {**body, "label": None})[1] == -9.5


@pytest.mark.parametrize("body", [{}, {"labels": "a"}, {"label": '{"a":' * 100_000}, {"label": {"referense": "a"}}])
@pytest.mark.parametrize("path", ["/remote_rm", "/remote_rm/scores"])
def test_slime_dialect_refuses_a_wrong_label(server, path, body):
    status, reply, _ = server.post(path, {"prompt": "Report.", "response": "a b c", **body})
    assert status == 422
    assert "label" in reply["error"]


def test_llama_factory_dialect_looks_references_up_by_prompt(server):
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
def test_llama_factory_dialect_guesses_no_reference(server, message, error):
    status, reply, _ = server.post("/v1", {"model": "model", "messages": [message]})
    assert status == 422
    assert re.search(error, reply["error"])


def test_dialects_without_null_need_a_missing_reward():
    with Served() as served:
        status, reply, _ = served.post("/remote_rm", {"response": "a", "label": "a"})
        assert (status, served.reward.batches) == (422, [])
        assert "start the server with `missing`" in reply["error"]
        reply = served.post("/v1", {"messages": []})[1]
    assert "`missing`" in reply["error"]


def test_llama_factory_dialect_says_what_to_do_without_a_table():
    with Served(missing=0.0) as served:
        status, reply, _ = served.post("/v1", {"messages": ["a"]})
    assert status == 422
    assert "start the server with `prompts`" in reply["error"]


@pytest.mark.parametrize("label", ['{"reference": "a", "age": 3}', {"reference": "a", "age": 3}])
def test_dialects_read_labels_that_pack_several_columns(label):
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
        ({"reference": []}, 422, "the request lacks 'completions'"),
        ({"completions": "a", "reference": ["a"]}, 422, "completions must be a list, got str"),
        ({"completions": ["a"]}, 422, "the request lacks 'reference'"),
        ({"completions": ["a"], "reference": []}, 422, "reference has 0 values"),
        ({"completions": ["a", 3], "reference": ["a", "a"]}, 422, "completions[1]"),
        ({"completions": [None], "reference": ["a"]}, 422, "completions[0]"),
    ],
)
def test_dialects_refuse_malformed_requests(server, body, status, error):
    got, reply, _ = server.post("/rewards", body)
    assert got == status
    assert error in reply["error"]
