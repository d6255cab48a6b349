"""CREPE as a metric, and the predictor of `models.crepe`."""

import json
import logging
import os
import random

import pytest
import torch
from tiny_crepe import plain_counts, random_pairs, save_tiny_crepe, tiny_bert_tokenizer
from transformers import AutoTokenizer

from rrg_rewards.metrics import CREPE, CrepeScores
from rrg_rewards.models import CrepeConfig, CrepeModel

PAIRS = 24
PUBLISHED = os.environ.get("RRG_REWARDS_CREPE_MODEL")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_crepe(tmp_path_factory.mktemp("crepe") / "model")


@pytest.fixture(scope="module")
def pairs():
    candidates, references = random_pairs(PAIRS, longest=90)
    # Groups share a reference, some pairs are equal, one is longer than the limit, one candidate is empty.
    references[1:4] = [references[0]] * 3
    candidates[2], candidates[5] = candidates[1], ""
    candidates[6] = "small left effusion. " * 150
    return candidates, references


@pytest.fixture(scope="module")
def plain(folder, pairs):
    """Counts of each pair, one at a time, padded to 512, from code that is independent of the package."""
    return torch.stack([plain_counts(folder, *pair) for pair in zip(*pairs, strict=True)])


def counts_of(scores):
    return torch.stack([*scores.details.values()], dim=1)


def test_crepe_the_model_tells_pairs_apart(plain):
    assert plain.std(0).min() > 0.1
    assert (plain < 0).any(), "no count is clipped: the tests below say less"


@pytest.mark.parametrize("token_budget", [pytest.param(1, marks=pytest.mark.slow), 300, 8192])
@pytest.mark.parametrize("order", [0, 1])
def test_crepe_equals_pair_by_pair_whatever_the_batches_and_the_order(folder, pairs, plain, token_budget, order):
    rows = random.Random(order).sample(range(PAIRS), PAIRS)
    candidates, references = ([side[row] for row in rows] for side in pairs)

    scores = CREPE(folder, token_budget=token_budget).score(candidates, references)

    expected = plain[rows].clamp(min=0).double()
    torch.testing.assert_close(counts_of(scores), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(scores.value, expected.sum(1), atol=1e-5, rtol=0)


def test_crepe_a_pair_over_the_limit_is_scored_on_what_each_report_keeps(folder, pairs, caplog):
    candidate, reference = pairs[0][6], pairs[1][6]
    reference_tokens = len(tiny_bert_tokenizer()(reference, max_length=512, truncation=True)["input_ids"]) - 2
    # Each word and each full stop of the candidate is one token.
    kept = 512 - 3 - reference_tokens
    words = candidate.replace(".", " .").split()[:kept]
    metric = CREPE(folder)

    with caplog.at_level(logging.WARNING):
        found = counts_of(metric.score([candidate] * 2, [reference] * 2))
        metric.score([candidate], [reference])

    expected = plain_counts(folder, " ".join(words), reference).clamp(min=0).double()
    torch.testing.assert_close(found, expected.expand(2, -1), atol=1e-5, rtol=0)
    assert [record.message for record in caplog.records] == [
        "1 of 1 report pairs have more than 512 tokens and were cut; each report keeps its first tokens; "
        "max_length sets the limit"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_crepe_half_precision_is_that_of_autocast(folder, pairs, dtype):
    """Matrices that are converted once give the same result as autocast, which converts them in each forward."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = CrepeModel.from_pretrained(folder)
    given, loaded = CREPE(model, tokenizer, dtype=dtype), CREPE(folder, dtype=dtype)

    assert torch.equal(given.score(*pairs).value, loaded.score(*pairs).value)
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}


def test_crepe_weights_by_category(folder, pairs):
    plain_scores = CREPE(folder).score(*pairs)
    weighted = CREPE(folder, weights={"omitted_finding": 3.0, "false_comparison": 0.0}).score(*pairs)

    factors = torch.tensor([1.0, 3, 1, 1, 0, 1], dtype=torch.float64)
    torch.testing.assert_close(counts_of(weighted), counts_of(plain_scores))
    torch.testing.assert_close(weighted.value, (counts_of(plain_scores) * factors).sum(1))


def test_crepe_own_categories(tmp_path, pairs):
    tokenizer = tiny_bert_tokenizer()
    encoder = {"vocab_size": len(tokenizer), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    CrepeModel(CrepeConfig(encoder, ["missed", "invented"])).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)

    metric = CREPE(tmp_path, weights={"missed": 2.0})
    metric.update(*pairs)

    assert metric.statistics().keys() == {"missed", "invented"}
    assert metric.weights == (2.0, 1.0)


def test_crepe_explanations_name_likely_errors_most_first():
    details = {"false_finding": [0.6, 0.2], "wrong_location": [1.75, 0.49], "omitted_finding": [0.4, float("nan")]}
    scores = CrepeScores(torch.zeros(2), {name: torch.tensor(values) for name, values in details.items()})

    assert scores.explanations == {"errors": ["wrong location 1.8, false finding 0.6", ""]}


def test_crepe_signature_names_the_weights(folder, tmp_path):
    metric = CREPE(folder)
    assert metric.signature.startswith(f"crepe|model:model@{metric.predictor._weights_hash}|max_length:512|")
    assert "|weights:" not in metric.signature
    assert "|weights:2,1,1,1,1,1|" in CREPE(folder, weights={"false_finding": 2.0}).signature

    model = CrepeModel.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    before = CREPE(model, tokenizer).signature
    with torch.no_grad():
        model.error_regressors[0].bias += 1
    assert CREPE(model, tokenizer).signature != before


def test_crepe_a_checkpoint_that_does_not_fit_fails_at_the_first_pair(tmp_path):
    folder = save_tiny_crepe(tmp_path / "wrong")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_error_categories": 4}))

    with pytest.raises(ValueError, match=r"heads for 6 error categories, but its config\.json has 4"):
        CREPE(folder).score(["a"], ["a"])


@pytest.mark.skipif(
    PUBLISHED is None, reason="RRG_REWARDS_CREPE_MODEL does not name a copy of gihuncho/crepe-biomedbert"
)
def test_crepe_the_published_example():
    scores = CREPE(PUBLISHED).score(["Bilateral pleural effusions noted"], ["Normal chest radiograph"])

    expected = [1.5391030312, 0.7975516319, 0, 0.0265266001, 0, 0]
    assert counts_of(scores)[0].tolist() == pytest.approx(expected, abs=1e-5)
    assert scores.value.item() == pytest.approx(2.3631812632, abs=1e-5)
