"""CREPE as a metric, and the predictor of `models.crepe`."""

import copy
import json
import logging
import os
import pickle
import random

import pytest
import torch
from tiny_crepe import plain_counts, random_pairs, save_tiny_crepe, tiny_bert_tokenizer
from transformers import AutoTokenizer

from rrg_rewards.metrics import CREPE, CrepeScores, make_metric
from rrg_rewards.models import CrepeConfig, CrepeModel
from rrg_rewards.rewards import CrepeReward
from rrg_rewards.schemas import ERROR_CATEGORIES

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
        "1 of 1 report pairs have more than 512 tokens and were cut; long_reports='chunks' reads all of them"
    ]


def test_crepe_chunks_are_clipped_each_and_summed(folder):
    reference = "heart is normal. small left effusion."
    candidate = "large left effusion. heart is large."
    whole = CREPE(folder, max_length=16, long_reports="chunks")

    found = counts_of(whole.score([candidate], [reference]))

    chunks = [("heart is normal.", "heart is large."), ("small left effusion.", "large left effusion.")]
    expected = sum(plain_counts(folder, second, first).clamp(min=0) for first, second in chunks).double()
    torch.testing.assert_close(found[0], expected, atol=1e-5, rtol=0)


def test_crepe_equal_pairs_run_once(folder, monkeypatch):
    seen = []
    forward = CrepeModel.forward
    monkeypatch.setattr(
        CrepeModel, "forward", lambda self, **batch: seen.append(len(batch["input_ids"])) or forward(self, **batch)
    )
    scores = CREPE(folder).score(["no mass", "a mass"] * 4, ["a mass"] * 8)

    assert sum(seen) == 2
    assert scores.value.view(4, 2).unique(dim=0).shape == (1, 2)


@pytest.mark.parametrize(("dtype", "error"), [("bfloat16", 0.15), ("float16", 0.02)])
def test_crepe_half_precision_is_near(folder, pairs, dtype, error):
    exact, near = (counts_of(CREPE(folder, dtype=kind).score(*pairs)) for kind in ("float32", dtype))

    assert not torch.equal(exact, near)
    assert (exact - near).abs().max() < error * exact.max()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_crepe_half_precision_is_that_of_autocast(folder, pairs, dtype):
    """Matrices that are converted once give the same result as autocast, which converts them in each forward."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = CrepeModel.from_pretrained(folder)
    given, loaded = CREPE(model, tokenizer, dtype=dtype), CREPE(folder, dtype=dtype)

    assert torch.equal(given.score(*pairs).value, loaded.score(*pairs).value)
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}


@pytest.mark.slow
def test_crepe_compiles(folder, pairs):
    candidates, references = (side[:3] for side in pairs)
    expected = CREPE(folder).score(candidates, references).value
    torch.testing.assert_close(
        CREPE(folder, compile=True).score(candidates, references).value, expected, atol=1e-5, rtol=0
    )


def test_crepe_corpus_value_is_the_mean_over_scored_pairs(folder, pairs):
    metric = CREPE(folder)
    candidates, references = ([*side[:8], extra] for side, extra in zip(pairs, (None, "a mass"), strict=True))
    metric.update(candidates[:3], references[:3])
    metric.update(candidates[3:], references[3:])
    metric.update([], [])

    scores = metric.score(candidates, references)
    assert scores.value.isnan().tolist() == [False] * 8 + [True]
    assert metric.compute().item() == pytest.approx(scores.value[:8].mean().item(), rel=1e-6)
    assert metric.compute().dtype == torch.float64
    assert metric.num_unscorable == 1
    assert list(metric.statistics()) == list(ERROR_CATEGORIES)
    for name, mean in metric.statistics().items():
        assert mean.item() == pytest.approx(scores.details[name][:8].mean().item(), rel=1e-5, abs=1e-6)
    assert scores.aggregate(*scores.sufficient_statistics).item() == pytest.approx(metric.compute().item(), rel=1e-6)
    assert sum(metric.statistics().values()).item() == pytest.approx(metric.compute().item())


def test_crepe_an_empty_candidate_is_scored_and_an_empty_reference_is_not(folder):
    scores = CREPE(folder).score(["", "no mass", None, "no mass"], ["a mass", " ", "a mass", None])

    assert scores.value.isnan().tolist() == [False, True, True, True]
    assert scores.details["false_finding"].isnan().tolist() == [False, True, True, True]
    expected = plain_counts(folder, "", "a mass").clamp(min=0).sum()
    assert scores.value[0].item() == pytest.approx(expected.item(), abs=1e-5)


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_crepe_nothing_scored_has_no_mean(folder):
    metric = CREPE(folder)
    metric.update([None], ["a mass"])

    assert metric.compute().isnan()
    assert all(mean.isnan() for mean in metric.statistics().values())


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


def test_crepe_pickles_to_kilobytes_and_copies_share_the_model(folder, pairs):
    metric = CREPE(folder, weights={"omitted_finding": 2.0})
    metric.update(*pairs)
    written = pickle.dumps(metric)

    again = pickle.loads(written)

    assert len(written) < 20_000
    assert "_model" not in vars(again.predictor)
    assert torch.equal(again.compute(), metric.compute())
    assert torch.equal(again.score(*pairs).value, metric.score(*pairs).value)
    assert metric.clone().predictor is metric.predictor
    assert again.predictor._model is metric.predictor._model, "a process loads the model once"
    assert not any("bert" in key for key in metric.state_dict())
    assert not list(metric.parameters())


def test_crepe_a_given_model_is_shared_by_copies_and_does_not_pickle(folder, pairs):
    model = CrepeModel.from_pretrained(folder)
    metric = CREPE(model, AutoTokenizer.from_pretrained(folder))

    assert copy.deepcopy(metric).predictor._model is model
    torch.testing.assert_close(metric.score(*pairs).value, CREPE(folder).score(*pairs).value)
    with pytest.raises(TypeError, match=r"CrepeModel given as an object cannot be pickled.*give the folder"):
        pickle.dumps(metric)


def test_crepe_a_given_model_in_training_is_evaluated_and_trains_on(folder, pairs):
    model = CrepeModel.from_pretrained(folder).train()
    metric = CREPE(model, AutoTokenizer.from_pretrained(folder))

    torch.testing.assert_close(metric.score(*pairs).value, CREPE(folder).score(*pairs).value)
    assert model.training
    assert model.bert.training
    assert all(parameter.requires_grad for parameter in model.parameters())


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


def test_crepe_made_by_name(folder):
    assert isinstance(make_metric("crepe", model=folder, dtype="bfloat16"), CREPE)
    with pytest.raises(ValueError, match=r"unknown crepe option 'modell'; did you mean 'model'"):
        make_metric("crepe", modell=folder)


def test_crepe_options_reach_the_predictor(folder):
    options = {
        "max_length": 64,
        "token_budget": 100,
        "dtype": "bfloat16",
        "device": "cpu",
        "revision": "main",
        "progress": True,
        "long_reports": "chunks",
        "compile": True,
    }
    assert vars(CREPE(folder, **options).predictor.options) == options
    assert vars(CrepeReward(folder, **options).metric.predictor.options) == options
    assert vars(CrepeReward(folder).metric.predictor.options) == vars(CREPE(folder).predictor.options)


def test_crepe_progress_is_shown_on_request(folder, capsys):
    CREPE(folder, progress=True).score(["no mass"], ["a mass"])
    shown = capsys.readouterr()
    assert "CREPE" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float8"}, "dtype must be one of auto, float32, bfloat16, float16, got 'float8'"),
        ({"long_reports": "windows"}, "'truncate' or 'chunks', got 'windows'"),
        ({"token_budget": 0}, "token_budget must be positive, got 0"),
        ({"max_lenght": 64}, "unknown argument 'max_lenght'; did you mean 'max_length'"),
        ({"max_length": 4096}, "max_length is 4096, but the encoder takes 512 tokens at most"),
        ({"weights": {"omited_finding": 2.0}}, "unknown error category 'omited_finding'; did you mean 'omitted_fi"),
        ({"weights": {"omitted_finding": -1}}, "weight of 'omitted_finding' must be finite and at least 0, got -1"),
    ],
)
def test_crepe_settings_without_a_meaning_are_refused(folder, options, message):
    with pytest.raises(ValueError, match=message):
        CREPE(folder, **options)


def test_crepe_bad_reports_and_models_are_refused(folder, tmp_path):
    metric = CREPE(folder)
    with pytest.raises(TypeError, match=r"preds\[1\] must be a report text, got int"):
        metric.score(["a mass", 3], ["a mass"] * 2)
    with pytest.raises(ValueError, match="preds and target must have the same length, got 1 and 2"):
        metric.update(["a mass"], ["a mass"] * 2)
    with pytest.raises(TypeError, match="crepe takes no column age"):
        metric.score(["a mass"], ["a mass"], age=[60])
    with pytest.raises(FileNotFoundError, match="no such folder"):
        CREPE(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="needs its tokenizer"):
        CREPE(CrepeModel.from_pretrained(folder))
    with pytest.raises(ValueError, match="must be a CrepeModel, a folder or a Hub id, got Linear"):
        CREPE(torch.nn.Linear(1, 1), tiny_bert_tokenizer())


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
