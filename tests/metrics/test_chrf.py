"""chrF against torchmetrics."""

import random

import pytest
from torchmetrics.functional.text import chrf_score

from rrg_rewards.metrics import ChrF, make_metric

PAIRS = [
    ("Small left pleural effusion.", "Small right pleural effusion."),
    ("No nodule.", "Nodule of 8 mm."),
    ("Normal.", "Normal."),
]


WORDS = ["small", "left", "effusion.", "(new)", "No", "8", "mm,", "-", "a", "effusion"]


@pytest.mark.parametrize(("char_order", "word_order", "beta"), [(6, 0, 2.0), (6, 2, 2.0), (3, 1, 1.0)])
def test_equals_torchmetrics(char_order: int, word_order: int, beta: float) -> None:
    rng = random.Random(3)
    drawn = [tuple(" ".join(rng.choices(WORDS, k=rng.randint(0, 8))) for _ in range(2)) for _ in range(20)]
    metric = ChrF(char_order, word_order, beta)
    for candidate, reference in [*PAIRS, *drawn]:
        if reference.strip():
            expected = float(chrf_score([candidate], [[reference]], char_order, word_order, beta))
            assert metric.score([candidate], [reference]).value.item() == pytest.approx(expected, abs=1e-6)


def test_each_pair_is_scored_by_itself() -> None:
    metric = make_metric("chrf", word_order=2)
    together = metric.score(*map(list, zip(*PAIRS, strict=True))).value
    assert together.tolist() == [float(metric.score([one], [other]).value) for one, other in PAIRS]
    assert together[2].item() == pytest.approx(1.0, abs=1e-12)
    assert metric.score([""], ["Normal."]).value.tolist() == [0.0]
    assert "char_order:6|word_order:2|beta:2.0" in metric.signature
    with pytest.raises(ValueError, match="char_order must be at least 1"):
        ChrF(char_order=0)
