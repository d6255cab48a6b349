import math

import pytest
import torch

from rrg_rewards.functional import crepe_loss, crepe_score


def rows(seed, pairs=7, categories=6):
    generator = torch.Generator().manual_seed(seed)
    counts = 3 * torch.randn(pairs, categories, generator=generator, dtype=torch.float64)
    logits = 2 * torch.randn(pairs, categories, generator=generator, dtype=torch.float64)
    target = torch.randint(0, 4, (pairs, categories), generator=generator).double()
    return counts, logits, target


def by_hand(counts, logits, target, poisson=False):
    """Eq. 5 to 7 in plain Python: per category the mean over pairs, then the mean over categories."""
    regression, presence = [], []
    for column in range(counts.shape[1]):
        per_pair, per_pair_presence = [], []
        for count, logit, true in zip(
            counts[:, column].tolist(), logits[:, column].tolist(), target[:, column].tolist(), strict=True
        ):
            per_pair.append(count - true * math.log(count + 1e-8) if poisson else (count - true) ** 2)
            probability = 1 / (1 + math.exp(-logit))
            per_pair_presence.append(-math.log(probability if true > 0 else 1 - probability))
        regression.append(sum(per_pair) / len(per_pair))
        presence.append(sum(per_pair_presence) / len(per_pair_presence))
    return sum(regression) / len(regression), sum(presence) / len(presence)


@pytest.mark.parametrize("poisson", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_papers_equations(seed, poisson):
    counts, logits, target = rows(seed)
    counts = counts.exp() if poisson else counts
    regression, presence = by_hand(counts, logits, target, poisson)

    found = crepe_loss(counts, logits, target, poisson=poisson)

    assert found.regression.item() == pytest.approx(regression, rel=1e-12)
    assert found.presence.item() == pytest.approx(presence, rel=1e-12)
    # Eq. 7: the average of the two.
    assert found.loss.item() == pytest.approx((regression + presence) / 2, rel=1e-12)


def test_weight_moves_between_the_terms():
    counts, logits, target = rows(1)
    half = crepe_loss(counts, logits, target)

    assert crepe_loss(counts, logits, target, presence_weight=0).loss == half.regression
    assert crepe_loss(counts, logits, target, presence_weight=1).loss == half.presence
    fifth = crepe_loss(counts, logits, target, presence_weight=0.2)
    torch.testing.assert_close(fifth.loss, 0.8 * half.regression + 0.2 * half.presence)


def test_without_presence_logits_the_regression_is_left_alone():
    counts, logits, target = rows(2)

    found = crepe_loss(counts, None, target)

    assert found.presence is None
    assert found.loss == crepe_loss(counts, logits, target).regression


def test_what_is_not_annotated_changes_neither_loss_nor_gradient():
    counts, logits, target = rows(3)
    target[2, 4] = target[5, 0] = float("nan")
    counts.requires_grad_()
    logits.requires_grad_()

    found = crepe_loss(counts, logits, target)
    found.loss.backward()

    kept = ~target.isnan()
    flat = crepe_loss(counts.detach()[kept][:, None], logits.detach()[kept][:, None], target[kept][:, None])
    torch.testing.assert_close(found.loss.detach(), flat.loss)
    assert (counts.grad[~kept] == 0).all()
    assert (logits.grad[~kept] == 0).all()
    assert (counts.grad[kept] != 0).all()


def test_terms_of_each_count_average_to_the_loss():
    counts, logits, target = rows(4)
    target[0, 0] = float("nan")

    each = crepe_loss(counts, logits, target, reduction="none")
    mean = crepe_loss(counts, logits, target)

    assert each.loss.shape == counts.shape
    assert each.loss.isnan().nonzero().tolist() == [[0, 0]]
    for terms, expected in zip(each, mean, strict=True):
        torch.testing.assert_close(terms.nanmean(), expected)


def test_a_half_precision_prediction_takes_full_precision_targets():
    counts, logits, target = (values.float() for values in rows(5))

    found = crepe_loss(counts.bfloat16(), logits.bfloat16(), target)

    assert found.loss.item() == pytest.approx(crepe_loss(counts, logits, target).loss.item(), rel=0.02)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"presence_weight": 1.5}, "presence_weight must"),
        ({"reduction": "total"}, "reduction must"),
        ({"presence_logits": torch.zeros(2, 5)}, r"presence_logits .* \(2, 6\), got \(2, 5\)"),
        ({"target_counts": torch.zeros(6)}, r"target_counts .* \(2, 6\), got \(6,\)"),
        ({"predicted_counts": torch.zeros(6)}, "predicted_counts must"),
        ({"target_counts": torch.full((2, 6), float("nan"))}, "no annotated count"),
        ({"target_counts": torch.full((2, 6), -1.0)}, "at least 0"),
    ],
)
def test_refuses_what_it_cannot_use(changed, message):
    zeros = torch.zeros(2, 6)
    arguments = {"predicted_counts": zeros, "presence_logits": zeros, "target_counts": zeros, **changed}
    with pytest.raises(ValueError, match=message):
        crepe_loss(**arguments)


def test_score_clips_at_zero_before_it_sums():
    # The counts of the published example, with negative values instead of the clipped values.
    counts = torch.tensor([[1.5391030312, 0.7975516319, -0.2, 0.0265266001, -0.1, -0.01]], dtype=torch.float64)

    assert crepe_score(counts).item() == pytest.approx(2.3631812632, abs=1e-9)


def test_score_weighs_categories():
    counts = torch.tensor([[1.0, 2.0, -5.0], [0.5, 0.0, 1.0]])

    assert crepe_score(counts, torch.tensor([1.0, 0.5, 4.0])).tolist() == [2.0, 4.5]
    assert crepe_score(torch.zeros(0, 3)).shape == (0,)


def test_score_of_an_unknown_count_is_unknown():
    assert crepe_score(torch.tensor([[1.0, float("nan")]])).isnan().all()


@pytest.mark.parametrize("weights", [[1.0, -1.0], [1.0, float("nan")], [1.0, float("inf")]])
def test_score_refuses_weights_that_are_none(weights):
    with pytest.raises(ValueError, match="finite and at least 0"):
        crepe_score(torch.zeros(1, 2), torch.tensor(weights))


def test_score_refuses_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match="weights must"):
        crepe_score(torch.zeros(1, 2), torch.ones(3))
    with pytest.raises(ValueError, match="counts must"):
        crepe_score(torch.zeros(2))
