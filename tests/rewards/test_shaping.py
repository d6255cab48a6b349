"""Rewards of form: tables of texts and their rewards."""

import math
import pickle

import pytest
import torch
from tiny_policy import save_tiny_policy

from rrg_rewards.rewards import FormatReward, LikelihoodReward, OverlongPenalty, RepetitionPenalty, make_reward


@pytest.mark.parametrize(
    ("length", "expected"), [(0, 0), (6, 0), (7, -0.25), (8, -0.5), (9, -0.75), (10, -1), (11, -1), (50, -1)]
)
def test_overlong(length, expected):
    reward = OverlongPenalty(max_length=10, buffer=4)
    assert reward([" ".join(["word"] * length)]) == [expected]
    tokens = OverlongPenalty(max_length=10, buffer=4, unit="tokens")
    assert tokens(["one word"], completion_ids=[[5] * length]) == [expected]


def test_overlong_without_a_buffer_is_a_step():
    assert OverlongPenalty(max_length=2)(["a b", "a b c"]) == [0.0, -1.0]


@pytest.mark.parametrize(
    ("text", "n", "expected"),
    [
        ("", 1, 0),
        ("one", 2, 0),
        ("No effusion. No effusion.", 2, 2 / 3 - 1),
        ("a a a a", 1, 1 / 4 - 1),
        ("a b c d a b c d", 4, 4 / 5 - 1),
        ("A b. a B", 2, 2 / 3 - 1),
        ("all words here differ", 1, 0),
    ],
)
def test_repetition(text, n, expected):
    assert RepetitionPenalty(n_gram=n)([text]) == [pytest.approx(expected)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Findings: Clear. \nImpression: Normal.", 1.0),
        ("FINDINGS:\nClear.\n\n  impression : Normal.", 1.0),
        ("Impression: Normal.\nFindings: Clear.", 0.5),
        ("Findings: Clear.", 0.5),
        ("Findings:\nImpression: Normal.", 0.5),
        ("Findings: Clear.\nImpression:", 0.5),
        ("The findings: clear. The impression: normal.", 0.0),
        ("Findings: a\nFindings: b\nImpression: c", 1.0),
        ("", 0.0),
    ],
)
def test_format(text, expected):
    assert FormatReward(["Findings", "Impression"])([text]) == [expected]


def test_the_longest_sequence_in_order_counts():
    reward = FormatReward(["A", "B", "C"])
    assert reward(["B: x\nA: x\nC: x"]) == [pytest.approx(2 / 3)]
    assert reward(["C: x\nB: x\nA: x"]) == [pytest.approx(1 / 3)]


def test_a_completion_without_an_answer_is_unscorable():
    logged = {}
    conversations = [[{"role": "user", "content": "x"}], [{"role": "assistant", "content": "a a"}]]
    reward = RepetitionPenalty(n_gram=1)
    assert reward(conversations, log_metric=logged.__setitem__) == [None, -0.5]
    assert logged == {"repetition/unscorable": 0.5}
    tokens = OverlongPenalty(max_length=1, unit="tokens")
    assert tokens(conversations, completion_ids=[[1, 2, 3], [4]]) == [None, 0.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OverlongPenalty(4, 5), r"buffer must be in \[0, max_length\], got 4, 5"),
        (lambda: OverlongPenalty(4, unit="letters"), "unit must be"),
        (lambda: OverlongPenalty(4, unit="tokens")(["x"]), "was given no completion_ids"),
        (lambda: OverlongPenalty(4, unit="tokens")(["x"], completion_ids=[]), "completion_ids"),
        (lambda: RepetitionPenalty(0), "n_gram must be positive"),
        (lambda: FormatReward([]), "sections must be a list"),
        (lambda: FormatReward(["Findings", " findings"]), "sections must differ"),
        (lambda: LikelihoodReward("gpt2", floor=1.0), "floor must be negative"),
        (lambda: LikelihoodReward("gpt2", max_length=1), "max_length must be at least 2"),
        (lambda: LikelihoodReward("gpt2", dtype="int8"), "dtype must be"),
    ],
)
def test_settings_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_by_name_with_and_without_a_reference_column():
    assert make_reward("repetition", n_gram=2).columns == ()
    assert make_reward("overlong", max_length=3)(["a b c d"]) == [-1.0]


def test_likelihood_is_the_mean_over_tokens(tmp_path):
    reward = LikelihoodReward(str(save_tiny_policy(tmp_path)), batch_size=2)
    texts = ["edema effusion", "normal heart normal lungs report", "nodule", ""]
    found = reward(texts)
    model, tokenizer = reward.language_model._model, reward.language_model._tokenizer
    for text, value in zip(texts[:3], found[:3], strict=True):
        ids = torch.tensor([[tokenizer.bos_token_id, *tokenizer(text, add_special_tokens=False)["input_ids"]]])
        # The loss of transformers is the mean over predicted tokens.
        assert value == pytest.approx(-model(ids, labels=ids).loss.item(), abs=1e-5)
    assert found[3] == -10.0
    assert reward(list(reversed(texts))) == pytest.approx(list(reversed(found)), abs=1e-5)


def test_likelihood_has_a_floor_and_a_limit(tmp_path):
    folder = str(save_tiny_policy(tmp_path))
    assert LikelihoodReward(folder, floor=-0.01)(["edema"]) == [-0.01]
    short, long = LikelihoodReward(folder, max_length=3), LikelihoodReward(folder)
    assert short(["edema nodule heart lungs"]) == pytest.approx(long(["edema nodule"]))


def test_likelihood_pickles_by_its_name(tmp_path):
    reward = LikelihoodReward(str(save_tiny_policy(tmp_path)))
    before = reward(["edema"])
    copy = pickle.loads(pickle.dumps(reward))
    assert copy(["edema"]) == before
    assert len(pickle.dumps(reward)) < 2000
    assert not math.isnan(before[0])
