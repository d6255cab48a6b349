"""ER²Score as a metric, and the predictor of `models.er2score`."""

import json
import logging
import random
import shutil

import pytest
import torch
from tiny_crepe import random_pairs
from tiny_er2score import LORA, plain_rewards, save_tiny_er2score

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
