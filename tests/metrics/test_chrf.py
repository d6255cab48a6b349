"""chrF against a brute-force version."""

from collections import Counter

import pytest

from rrg_rewards.metrics import ChrF, make_metric

PAIRS = [
    ("Small left pleural effusion.", "Small right pleural effusion."),
    ("No nodule.", "Nodule of 8 mm."),
    ("Normal.", "Normal."),
]


def brute_force(candidate: str, reference: str, order: int = 6, beta: float = 2.0) -> float:
    """Mean of the F of each order."""
    ours, theirs = candidate.replace(" ", ""), reference.replace(" ", "")
    scores = []
    for length in range(1, order + 1):
        first, second = (
            Counter(text[i : i + length] for i in range(len(text) - length + 1)) for text in (ours, theirs)
        )
        common = (first & second).total()
        precision = common / first.total() if first else 0.0
        recall = common / second.total() if second else 0.0
        scores.append(
            (1 + beta**2) * precision * recall / (beta**2 * precision + recall) if precision + recall else 0.0
        )
    return sum(scores) / order


@pytest.mark.parametrize(("candidate", "reference"), PAIRS)
def test_equals_the_formula(candidate: str, reference: str) -> None:
    assert float(ChrF().score([candidate], [reference]).value) == pytest.approx(
        brute_force(candidate, reference), abs=1e-6
    )


def test_each_pair_is_scored_by_itself() -> None:
    metric = make_metric("chrf", word_order=2)
    together = metric.score(*map(list, zip(*PAIRS, strict=True))).value
    assert together.tolist() == [float(metric.score([one], [other]).value) for one, other in PAIRS]
    assert together[2] == 1.0
    assert metric.score([""], ["Normal."]).value.tolist() == [0.0]
    assert "char_order:6|word_order:2|beta:2.0" in metric.signature
    with pytest.raises(ValueError, match="char_order must be at least 1"):
        ChrF(char_order=0)
