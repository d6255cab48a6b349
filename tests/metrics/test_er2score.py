"""ER²Score as a metric, and the predictor of `models.er2score`."""

import copy
import json
import logging
import pickle
import random
import shutil

import pytest
import torch
from tiny_crepe import random_pairs, save_tiny_crepe
from tiny_er2score import LORA, plain_rewards, save_tiny_er2score, tiny_llama_tokenizer

from rrg_rewards.metrics import ER2Score, ER2Scores, make_metric
from rrg_rewards.models import ER2ScoreModel
from rrg_rewards.schemas import get_scoring_system

PAIRS = 24
CRITERIA = get_scoring_system("radcliq").names


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("er2score")


@pytest.fixture(scope="module")
def folder(root):
    return save_tiny_er2score(root, lora=LORA)


@pytest.fixture(scope="module")
def weighted(root):
    """A model for a scoring system with a base, weights and deductions."""
    return save_tiny_er2score(root / "mrscore", "mrscore")


@pytest.fixture(scope="module")
def pairs():
    candidates, references = random_pairs(PAIRS, longest=40)
    # Groups of several sizes share a reference, some pairs are equal, one candidate is empty.
    references[1:8], references[9:11] = [references[0]] * 7, [references[8]] * 2
    candidates[2], candidates[5] = candidates[1], ""
    return candidates, references


@pytest.fixture(scope="module")
def plain(folder, pairs):
    """Rewards of each pair, one at a time, from code that is independent of the package."""
    return torch.stack([plain_rewards(folder, *pair) for pair in zip(*pairs, strict=True)]).double()


def sub_scores(scores):
    return torch.stack([*scores.details.values()], dim=1)


@pytest.mark.parametrize("share_prefix", [True, False])
@pytest.mark.parametrize("token_budget", [1, 500, 8192])
@pytest.mark.parametrize("order", [0, 1])
def test_er2score_equals_pair_by_pair_whatever_the_batches_and_the_order(
    folder, pairs, plain, share_prefix, token_budget, order
):
    rows = random.Random(order).sample(range(PAIRS), PAIRS)
    candidates, references = ([side[row] for row in rows] for side in pairs)

    metric = ER2Score(folder, token_budget=token_budget, share_prefix=share_prefix)
    scores = metric.score(candidates, references)

    # RadCliQ deducts each error: a reward is minus a number of errors.
    torch.testing.assert_close(sub_scores(scores), -plain[rows], atol=1e-4, rtol=0)
    torch.testing.assert_close(scores.value, plain[rows].sum(1), atol=1e-4, rtol=0)
    assert list(scores.details) == list(CRITERIA)
    assert plain.std(0).min() > 0.1, "pairs hardly differ: the test says little"


@pytest.mark.parametrize("token_budget", [8192, 600])
def test_er2score_a_shared_reference_is_run_once(folder, monkeypatch, token_budget):
    candidates, _ = random_pairs(8)
    reference = "small left effusion. " * 10
    metric = ER2Score(folder, token_budget=token_budget)
    prompts = metric.predictor.encoder([reference] * 8, candidates)
    seen = []
    forward = type(metric.predictor._model.backbone).forward

    def noted(self, input_ids, **rest):
        seen.append(input_ids.shape)
        return forward(self, input_ids=input_ids, **rest)

    monkeypatch.setattr(type(metric.predictor._model.backbone), "forward", noted)
    metric.score(candidates, [reference] * 8)

    assert seen[0] == (1, len(prompts[0].prefix))
    assert sum(rows for rows, _ in seen[1:]) == 8
    assert max(length for _, length in seen[1:]) == max(len(prompt.suffix) for prompt in prompts)
    # The cached prefix counts once for each candidate that continues from it.
    kept = len(prompts[0].prefix)
    assert all(rows * (length + kept) <= token_budget or rows == 1 for rows, length in seen[1:])
    assert (len(seen) > 3) == (token_budget == 600)


def test_er2score_equal_pairs_run_once(folder, monkeypatch):
    seen = []
    forward = ER2ScoreModel.forward
    monkeypatch.setattr(
        ER2ScoreModel,
        "forward",
        lambda self, input_ids, *rest, **more: seen.append(len(input_ids)) or forward(self, input_ids, *rest, **more),
    )
    scores = ER2Score(folder).score(["no mass", "a mass"] * 4, ["a mass"] * 8)

    assert sum(seen) == 2
    assert scores.value.view(4, 2).unique(dim=0).shape == (1, 2)


def test_er2score_a_total_has_the_base_and_sub_scores_their_own_unit(weighted, pairs):
    scores = ER2Score(weighted).score(*pairs)

    system = get_scoring_system("mrscore")
    found = [
        system.base + sum(factor * value for factor, value in zip(system.factors, row, strict=True))
        for row in sub_scores(scores).tolist()
    ]
    assert scores.value.tolist() == pytest.approx(found)
    assert scores.value.std() > 1


def test_er2score_weights_name_what_counts(folder, weighted, pairs, plain):
    found = ER2Score(folder, weights={"omitted_finding": 3.0, "wrong_severity": 0.5}).score(*pairs)

    expected = 3 * plain[:, CRITERIA.index("omitted_finding")] + 0.5 * plain[:, CRITERIA.index("wrong_severity")]
    torch.testing.assert_close(found.value, expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(sub_scores(found), -plain, atol=1e-4, rtol=0)
    # A reward includes the weight of its criterion; a weighted sum has no base.
    lesions = ER2Score(weighted, weights={"lesion_description": 1}).score(*pairs)
    torch.testing.assert_close(lesions.value, -20 * lesions.details["lesion_description"])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_er2score_half_precision_is_near(folder, pairs, dtype):
    exact, near = (sub_scores(ER2Score(folder, dtype=kind).score(*pairs)) for kind in ("float32", dtype))

    assert not torch.equal(exact, near)
    assert (exact - near).abs().max() < 0.1 * exact.abs().max()
    assert ER2Score(folder, dtype=dtype).predictor._model.head.weight.dtype == torch.float32


def test_er2score_corpus_value_is_the_mean_over_scored_pairs(folder, pairs):
    metric = ER2Score(folder)
    candidates, references = ([*side[:8], extra] for side, extra in zip(pairs, (None, "a mass"), strict=True))
    metric.update(candidates[:3], references[:3])
    metric.update(candidates[3:], references[3:])
    metric.update([], [])

    scores = metric.score(candidates, references)
    assert scores.value.isnan().tolist() == [False] * 8 + [True]
    assert metric.compute().item() == pytest.approx(scores.value[:8].mean().item(), rel=1e-5)
    assert metric.compute().dtype == torch.float64
    assert metric.num_unscorable == 1
    for name, mean in metric.statistics().items():
        assert mean.item() == pytest.approx(scores.details[name][:8].mean().item(), rel=1e-4, abs=1e-5)
    assert -sum(metric.statistics().values()).item() == pytest.approx(metric.compute().item())


def test_er2score_an_empty_candidate_is_scored_and_an_empty_reference_is_not(folder):
    scores = ER2Score(folder).score(["", "no mass", None, "no mass"], ["a mass", " ", "a mass", None])

    assert scores.value.isnan().tolist() == [False, True, True, True]
    assert scores.details["false_finding"].isnan().tolist() == [False, True, True, True]
    assert scores.value[0].item() == pytest.approx(plain_rewards(folder, "", "a mass").sum().item(), abs=1e-4)
    assert [bool(text) for text in scores.explanations["sub_scores"]] == [True, False, False, False]


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_er2score_nothing_scored_has_no_mean(folder):
    metric = ER2Score(folder)
    metric.update([None], ["a mass"])

    assert metric.compute().isnan()
    assert all(mean.isnan() for mean in metric.statistics().values())


def test_er2score_explanations_name_the_sub_scores():
    details = {"false_finding": [0.6], "wrong_location": [-0.04]}
    scores = ER2Scores(torch.zeros(1), {name: torch.tensor(values) for name, values in details.items()})

    assert scores.explanations == {"sub_scores": ["false finding 0.6, wrong location -0.0"]}


def test_er2score_long_pairs_are_cut_and_told_of_once(folder, caplog):
    metric = ER2Score(folder, max_length=120)
    long = "small left effusion. " * 100

    with caplog.at_level(logging.WARNING):
        found = metric.score([long, long + "no mass", "a mass"], [long, long, "a mass"])
        metric.score([long], ["a mass"])

    assert not found.value.isnan().any()
    assert found.value[0] == pytest.approx(found.value[1].item(), abs=1e-5), "what is cut away counts nothing"
    assert [record.message for record in caplog.records] == [
        "2 of 3 report pairs have more than 120 tokens and were cut; each report keeps its first tokens; max_length "
        "sets the limit"
    ]
    assert "effusion" not in caplog.text


def test_er2score_options_reach_the_predictor(folder, root):
    options = {
        "max_length": 64,
        "token_budget": 100,
        "dtype": "bfloat16",
        "device": "cpu",
        "revision": "main",
        "progress": True,
        "backbone": root / "backbone",
        "share_prefix": False,
    }
    assert vars(ER2Score(folder, **options).predictor.options) == options


def test_er2score_pickles_to_kilobytes_and_copies_share_the_model(folder, pairs):
    metric = ER2Score(folder, weights={"omitted_finding": 2.0}, share_prefix=False)
    metric.update(*pairs)
    written = pickle.dumps(metric)

    again = pickle.loads(written)

    assert len(written) < 20_000
    assert "_model" not in vars(again.predictor)
    assert torch.equal(again.compute(), metric.compute())
    assert torch.equal(again.score(*pairs).value, metric.score(*pairs).value)
    assert again.predictor.options.share_prefix is False
    assert metric.clone().predictor is metric.predictor
    assert again.predictor._model is metric.predictor._model, "a process loads the model once"
    assert not list(metric.parameters())


def test_er2score_a_given_model_is_shared_by_copies_and_does_not_pickle(folder, pairs):
    model = ER2ScoreModel.from_pretrained(folder).train()
    metric = ER2Score(model)

    assert copy.deepcopy(metric).predictor._model is model
    torch.testing.assert_close(metric.score(*pairs).value, ER2Score(folder).score(*pairs).value, atol=1e-4, rtol=0)
    assert model.training
    assert any(value.requires_grad for value in model.parameters())
    with pytest.raises(TypeError, match=r"ER2ScoreModel given as an object cannot be pickled.*give the folder"):
        pickle.dumps(metric)


def test_er2score_signature_names_weights_backbone_system_and_prompt(folder, weighted, root, tmp_path):
    metric = ER2Score(folder)
    name = metric.predictor._weights_hash
    assert metric.signature.startswith(f"er2score|model:model@{name}+llama|system:radcliq@")
    assert "|prompt:e79a3977|max_length:1024|dtype:float32|version:" in metric.signature
    assert "|weights:0,2,0,0,0,0|" in ER2Score(folder, weights={"omitted_finding": 2}).signature
    assert "+" not in ER2Score(weighted).signature
    elsewhere = shutil.copytree(root / "llama", tmp_path / "elsewhere")
    assert ER2Score(folder, backbone=elsewhere).signature.startswith(f"er2score|model:model@{name}+elsewhere|system:")

    other = save_tiny_er2score(tmp_path, lora=LORA, prompt="{reference} against {candidate} gives")
    signatures = {metric.signature, ER2Score(other).signature, ER2Score(folder, max_length=99).signature}
    assert len(signatures) == 3
    model = ER2ScoreModel.from_pretrained(folder)
    before = ER2Score(model).signature
    with torch.no_grad():
        model.head.bias += 1
    assert ER2Score(model).signature != before


def test_er2score_the_scoring_system_that_is_asked_for_is_the_models_or_an_error(folder, tmp_path):
    assert ER2Score(folder, scoring_system="radcliq").scoring_system == get_scoring_system("radcliq")
    with pytest.raises(ValueError, match=r"has the scoring system 'radcliq' \(0 -1 false_finding, .*, not 'mrscore'"):
        ER2Score(folder, scoring_system="mrscore")
    own = {**get_scoring_system("radcliq").to_dict(), "name": "mine", "direction": "add", "tiers": None}
    (tmp_path / "mine.yaml").write_text(json.dumps(own))
    with pytest.raises(ValueError, match=r"not 'mine' \(0 \+1 false_finding"):
        make_metric("er2score", model=str(folder), scoring_system=str(tmp_path / "mine.yaml"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float8"}, "dtype must be one of auto, float32, bfloat16, float16, got 'float8'"),
        ({"token_budget": 0}, "token_budget must be positive, got 0"),
        ({"max_length": 4096}, "max_length is 4096, but the backbone takes 1024 tokens at most"),
        ({"weights": {"omited_finding": 2.0}}, "unknown criterion 'omited_finding'; did you mean 'omitted_fi"),
        ({"weights": {"omitted_finding": -1}}, "weight of 'omitted_finding' must be finite and at least 0, got -1"),
        ({"weights": {"omitted_finding": "2"}}, "weight of 'omitted_finding' must be finite and at least 0, got '2'"),
        ({"weights": [1, 2]}, "weights must be numbers by criterion, got list"),
        ({"weights": {}}, "weights must name at least one criterion"),
    ],
)
def test_er2score_settings_without_a_meaning_are_refused(folder, options, message):
    with pytest.raises(ValueError, match=message):
        ER2Score(folder, **options)


def test_er2score_bad_reports_and_models_are_refused(folder, weighted, tmp_path):
    metric = ER2Score(folder)
    with pytest.raises(TypeError, match=r"preds\[1\] must be a report text, got int"):
        metric.score(["a mass", 3], ["a mass"] * 2)
    with pytest.raises(ValueError, match="preds and target must have the same length, got 1 and 2"):
        metric.update(["a mass"], ["a mass"] * 2)
    with pytest.raises(TypeError, match="er2score takes no column age"):
        metric.score(["a mass"], ["a mass"], age=[60])
    with pytest.raises(FileNotFoundError, match="no such folder"):
        ER2Score(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"contains no head\.safetensors, so it is not an ER2Score model"):
        ER2Score(save_tiny_crepe(tmp_path / "crepe"))
    with pytest.raises(ValueError, match="must be an ER2ScoreModel, a folder or a Hub id, got Linear"):
        ER2Score(torch.nn.Linear(1, 1), tiny_llama_tokenizer())
    model = ER2ScoreModel.from_pretrained(weighted)
    model.tokenizer = None
    with pytest.raises(ValueError, match="needs its tokenizer"):
        ER2Score(model)
    assert not ER2Score(model, tiny_llama_tokenizer()).score(["a"], ["a"]).value.isnan().any()


@pytest.mark.usefixtures("folder")
def test_er2score_a_model_that_overflows_is_an_error_and_no_pair_that_cannot_be_scored(root, pairs, tmp_path):
    model = ER2ScoreModel.from_backbone(root / "llama")
    with torch.no_grad():
        for value in model.backbone.parameters():
            value *= 300
    model.save_pretrained(tmp_path)

    assert ER2Score(tmp_path).score(*pairs).scored.all()
    with pytest.raises(ValueError, match="not finite in float16; bfloat16 has the range of float32"):
        ER2Score(tmp_path, dtype="float16").score(*pairs)


def test_er2score_progress_is_shown_on_request(folder, capsys):
    ER2Score(folder, progress=True).score(["no mass"], ["a mass"])
    shown = capsys.readouterr()
    assert "ER2Score" in shown.err
    assert shown.out == ""
