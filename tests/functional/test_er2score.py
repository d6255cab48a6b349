"""The margin reward enforcement loss compared with a loop over equation 1 of the paper."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from rrg_rewards.functional import margin_reward_enforcement_loss, margin_reward_enforcement_terms


def by_the_equation(r_w, r_l, s_w, s_l, lam=1.0, c=1e-2):
    """Individual and total term of each pair, in plain Python; and how often each branch was taken."""
    individual, total, branches = [], [], [0, 0, 0]
    for i in range(len(r_w)):
        terms, m = [], 0.0
        for j in range(len(r_w[i])):
            if math.isnan(s_w[i][j]) or math.isnan(s_l[i][j]):
                continue
            m_ij = s_w[i][j] - s_l[i][j]
            m += m_ij
            if s_w[i][j] != s_l[i][j]:
                t_w = 1 if m_ij > 0 else -1
                terms.append(max(0.0, -t_w * (r_w[i][j] - r_l[i][j]) + t_w * m_ij))
                branches[0 if m_ij > 0 else 1] += 1
            else:
                terms.append(max(0.0, abs(r_w[i][j] - r_l[i][j]) - c))
                branches[2] += 1
        known = [j for j in range(len(r_w[i])) if not math.isnan(s_w[i][j]) and not math.isnan(s_l[i][j])]
        individual.append(sum(terms) / len(known))
        total.append(max(0.0, -(sum(r_w[i][j] for j in known) - sum(r_l[i][j] for j in known)) + m))
    return individual, total, branches


def pairs(seed, number=40, criteria=6, dtype=torch.float64):
    """Random rewards, and error counts whose totals differ, the better report first."""
    generator = torch.Generator().manual_seed(seed)
    rewards = 3 * torch.randn(2, number, criteria, generator=generator, dtype=torch.float64)
    scores = -torch.randint(0, 4, (2, number, criteria), generator=generator).double()
    scores[0, :, 0] += scores[0].sum(1) == scores[1].sum(1)
    swap = scores[0].sum(1) < scores[1].sum(1)
    accepted = torch.where(swap[:, None], scores[1], scores[0])
    rejected = torch.where(swap[:, None], scores[0], scores[1])
    return tuple(values.to(dtype) for values in (*rewards, accepted, rejected))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("lam", "c"), [(1.0, 1e-2), (0.5, 0.0), (3.0, 0.7), (0.0, 1e-2)])
def test_equals_the_papers_equation(seed, lam, c):
    tensors = pairs(seed)
    individual, total, branches = by_the_equation(*(values.tolist() for values in tensors), lam, c)
    assert min(branches) > 10, branches

    found = margin_reward_enforcement_terms(*tensors, lam=lam, c=c, reduction="none")

    torch.testing.assert_close(found.individual, torch.tensor(individual, dtype=torch.float64))
    torch.testing.assert_close(found.total, torch.tensor(total, dtype=torch.float64))
    torch.testing.assert_close(found.loss, found.individual + lam * found.total)
    whole = margin_reward_enforcement_loss(*tensors, lam=lam, c=c)
    assert whole.item() == pytest.approx(sum(individual) + lam * sum(total), rel=1e-12)
    mean = margin_reward_enforcement_loss(*tensors, lam=lam, c=c, reduction="mean")
    assert mean.item() == pytest.approx(whole.item() / len(individual), rel=1e-12)


def test_each_branch_by_hand():
    # One criterion better by 2, one worse by 1, one equal; the accepted report is better by 1 in all.
    scores = torch.tensor([[0.0, -1.0, -3.0]]), torch.tensor([[-2.0, 0.0, -3.0]])
    rewards = torch.tensor([[1.5, 0.25, 0.51]]), torch.tensor([[0.0, 0.0, 0.0]])

    found = margin_reward_enforcement_terms(*rewards, *scores, c=0.01)

    assert found.individual.item() == pytest.approx((0.5 + 1.25 + 0.5) / 3)
    assert found.total.item() == 0
    assert found.loss.item() == pytest.approx(0.75)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_the_ablation_leaves_a_term_out(reduction):
    tensors = [values.requires_grad_() if i < 2 else values for i, values in enumerate(pairs(1))]
    both = margin_reward_enforcement_terms(*tensors, lam=0.5, reduction=reduction)
    criteria = margin_reward_enforcement_terms(*tensors, lam=0.5, total=False, reduction=reduction)
    total = margin_reward_enforcement_terms(*tensors, lam=0.5, individual=False, reduction=reduction)

    assert criteria.loss == both.individual
    assert total.loss == 0.5 * both.total
    torch.testing.assert_close(criteria.loss + total.loss, both.loss)
    # A term that is switched off is returned.
    assert criteria[1:] == both[1:] == total[1:]


@pytest.mark.parametrize(("individual", "total"), [(True, True), (True, False), (False, True)])
def test_gradient(individual, total):
    accepted, rejected, *scores = pairs(2, number=6, criteria=4)

    def loss(accepted, rejected):
        return margin_reward_enforcement_loss(accepted, rejected, *scores, individual=individual, total=total, lam=0.7)

    assert torch.autograd.gradcheck(loss, (accepted.requires_grad_(), rejected.requires_grad_()))


def test_gradient_pulls_towards_the_margins():
    rewards = torch.zeros(2, 1, 3, requires_grad=True)
    scores = torch.tensor([[0.0, -1.0, 0.0]]), torch.tensor([[-2.0, 0.0, 0.0]])

    margin_reward_enforcement_loss(*rewards, *scores, total=False).backward()

    # The gradient raises the accepted reward if it is better, lowers it if it is worse, and is 0 if both are equal.
    torch.testing.assert_close(rewards.grad[0, 0], torch.tensor([-1 / 3, 1 / 3, 0.0]))
    torch.testing.assert_close(rewards.grad[1], -rewards.grad[0])


def test_what_is_not_annotated_changes_neither_loss_nor_gradient():
    accepted, rejected, good, bad = pairs(3)
    wanting = torch.rand(good.shape, generator=torch.Generator().manual_seed(3)) < 0.3
    good, bad = good.clone(), bad.clone()
    good[wanting & (torch.arange(6) % 2 == 0)] = math.nan
    bad[wanting & (torch.arange(6) % 2 == 1)] = math.nan
    kept = [row for row in range(len(good)) if torch.nansum(good[row] - bad[row]) > 0]
    tensors = [values[kept] for values in (accepted, rejected, good, bad)]
    unknown = tensors[2].isnan() | tensors[3].isnan()
    assert unknown.any(1).sum() > 10
    individual, total, _ = by_the_equation(*(values.tolist() for values in tensors))
    tensors[0] = tensors[0].masked_fill(unknown, math.inf).requires_grad_()

    found = margin_reward_enforcement_terms(*tensors)
    found.loss.backward()

    assert found.individual.item() == pytest.approx(sum(individual), rel=1e-12)
    assert found.total.item() == pytest.approx(sum(total), rel=1e-12)
    assert (tensors[0].grad[unknown] == 0).all()
    assert tensors[0].grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_rewards_meet_exact_margins(dtype):
    tensors = pairs(4, dtype=torch.float32)
    narrow = [values.to(dtype) for values in tensors[:2]]
    # 101 - 100.5 would be 0 or 1 in bfloat16.
    scores = [tensors[2] + 101, tensors[3] + 100.5]

    found = margin_reward_enforcement_terms(*narrow, *scores)

    assert found.loss.dtype == torch.float32
    expected = margin_reward_enforcement_terms(*(values.double() for values in (*narrow, *scores)))
    for term, exact in zip(found, expected, strict=True):
        assert term.item() == pytest.approx(exact.item(), rel=1e-5)
    assert found.loss.item() == pytest.approx(margin_reward_enforcement_loss(*tensors[:2], *scores).item(), rel=0.02)


@given(st.integers(0, 2**31), st.sampled_from([torch.bfloat16, torch.float16]))
def test_half_precision_is_only_how_rewards_come(seed, dtype):
    tensors = pairs(seed, number=5, criteria=3, dtype=torch.float32)
    narrow = [values.to(dtype).requires_grad_() for values in tensors[:2]]
    wide = [values.detach().float().requires_grad_() for values in narrow]

    found = margin_reward_enforcement_loss(*narrow, *tensors[2:])
    expected = margin_reward_enforcement_loss(*wide, *tensors[2:])

    assert found == expected
    found.backward()
    expected.backward()
    for ours, theirs in zip(narrow, wide, strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad.to(dtype))


def test_scores_may_be_whole_numbers_and_need_no_gradient():
    rewards = torch.zeros(2, 1, 2, requires_grad=True)
    scores = torch.tensor([[0, -1]]), torch.tensor([[-2, -1]])

    loss = margin_reward_enforcement_loss(*rewards, *scores)

    assert loss.item() == pytest.approx(3.0)
    assert loss.requires_grad


finite = st.floats(-50, 50, width=32)


@st.composite
def scored(draw):
    """Scores of up to 5 pairs on up to 4 criteria: whole numbers in quarters, the better report first."""
    criteria = draw(st.integers(1, 4))
    rows = st.lists(st.integers(-40, 40), min_size=criteria, max_size=criteria)
    drawn = draw(st.lists(st.tuples(rows, rows), min_size=1, max_size=5))
    assume(all(sum(first) != sum(second) for first, second in drawn))
    ordered = [sorted(pair, key=sum, reverse=True) for pair in drawn]
    return tuple(torch.tensor([pair[side] for pair in ordered], dtype=torch.float64) / 4 for side in (0, 1))


@given(scored(), st.floats(0, 5), st.floats(0, 5))
def test_rewards_that_are_the_scores_cost_nothing(scores, lam, c):
    assert margin_reward_enforcement_loss(*scores, *scores, lam=lam, c=c) == 0


@given(scored(), st.data())
def test_a_constant_per_criterion_changes_nothing(scores, data):
    number, criteria = scores[0].shape
    rewards = torch.tensor(
        data.draw(st.lists(finite, min_size=2 * number * criteria, max_size=2 * number * criteria)),
        dtype=torch.float64,
    ).view(2, number, criteria)
    constants = torch.tensor(data.draw(st.lists(finite, min_size=criteria, max_size=criteria)), dtype=torch.float64)

    found = margin_reward_enforcement_loss(*rewards, *scores)

    assert found >= 0
    torch.testing.assert_close(margin_reward_enforcement_loss(*(rewards + constants), *scores), found)
    # The same for the scores.
    torch.testing.assert_close(margin_reward_enforcement_loss(*rewards, *(s + constants for s in scores)), found)


@given(scored(), st.randoms())
def test_the_order_of_pairs_and_of_criteria_does_not_matter(scores, random):
    generator = torch.Generator().manual_seed(random.randrange(2**31))
    rewards = torch.randn(2, *scores[0].shape, generator=generator, dtype=torch.float64)
    tensors = torch.stack([*rewards, *scores])
    rows, columns = (torch.randperm(size, generator=generator) for size in tensors.shape[1:])
    torch.testing.assert_close(
        margin_reward_enforcement_loss(*tensors[:, rows][:, :, columns]), margin_reward_enforcement_loss(*tensors)
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rejected_rewards": torch.zeros(2, 4)}, r"rejected_rewards .* accepted_rewards \(2, 3\), got \(2, 4\)"),
        ({"accepted_scores": torch.zeros(3)}, r"accepted_scores .* accepted_rewards \(2, 3\), got \(3,\)"),
        ({"rejected_scores": torch.zeros(1, 3)}, r"rejected_scores .* accepted_rewards \(2, 3\), got \(1, 3\)"),
        ({"accepted_rewards": torch.zeros(3)}, "accepted_rewards must"),
        ({"accepted_rewards": torch.zeros(0, 3)}, r"at least one pair and criterion, got \(0, 3\)"),
        ({"accepted_scores": torch.tensor([[1.0, 0, 0], [0, 0, 0]])}, "pair 1: .* above the rejected one, got 0 and 0"),
        ({"rejected_scores": torch.tensor([[2.0, 0, 0], [0, 0, 0]])}, "pair 0: .* above the rejected one, got 1 and 2"),
        ({"accepted_scores": torch.tensor([[math.nan] * 3, [1, 0, 0]])}, "pair 0: no criterion is annotated in both"),
        ({"rejected_scores": torch.full((2, 3), -math.inf)}, "rejected_scores must be finite"),
        ({"lam": -1.0}, "lam must"),
        ({"lam": math.nan}, "lam must"),
        ({"c": -0.01}, "c must"),
        ({"individual": False, "total": False}, "nothing to minimise"),
        ({"reduction": "total"}, "reduction must"),
    ],
)
def test_refuses_what_it_cannot_use(changed, message):
    arguments = {
        "accepted_rewards": torch.zeros(2, 3),
        "rejected_rewards": torch.zeros(2, 3),
        "accepted_scores": torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
        "rejected_scores": torch.zeros(2, 3),
        **changed,
    }
    with pytest.raises(ValueError, match=message):
        margin_reward_enforcement_loss(**arguments)
