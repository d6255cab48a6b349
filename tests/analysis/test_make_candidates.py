"""Candidates of the four regimes, and the most similar other report."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rrg_rewards.analysis.candidates import REGIMES, make_candidates, nearest_others
from rrg_rewards.data import phantom_rows

REPORTS = list(dict.fromkeys(row["impression"] for row in phantom_rows(60, style="compact") if any(row["labels"])))


def letters(reports: Sequence[str]) -> Tensor:
    counts = torch.tensor([[report.count(letter) for letter in "abcdefghij"] for report in reports]).float()
    return torch.nn.functional.normalize(counts, dim=1)


@settings(max_examples=30)
@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=12), st.integers(0, 99))
def test_nearest_others_by_brute_force(texts: list[str], seed: int) -> None:
    vectors = torch.from_numpy(np.random.default_rng(seed).normal(size=(len(texts), 3)))
    found = nearest_others(texts, vectors)
    for row, other in enumerate(found):
        allowed = [column for column, text in enumerate(texts) if text != texts[row]]
        if other is None:
            assert not allowed
        else:
            assert other in allowed
            best = max(float(vectors[row] @ vectors[column]) for column in allowed)
            assert float(vectors[row] @ vectors[other]) == pytest.approx(best)


def test_make_candidates_of_each_regime() -> None:
    generated = {row: f"Report {row}." for row in range(0, len(REPORTS), 2)}
    made, declined = make_candidates(
        REPORTS, REGIMES, generated=generated, encoder=letters, per_report=2, modality="ct"
    )
    nearest = nearest_others(REPORTS, letters(REPORTS))
    counts = Counter(regime for _, regime, _ in made)
    assert set(counts) == set(REGIMES)
    assert counts.total() + declined.total() == 2 * len(REPORTS)
    for row, regime, candidate in made:
        if regime == "generated":
            assert candidate == generated[row]
        elif regime == "matched":
            assert candidate == REPORTS[nearest[row] or 0]
        elif regime == "random":
            assert candidate in REPORTS
            assert candidate != REPORTS[row]
        else:
            assert candidate not in generated.values()
    # Half of the reports have no generated one.
    assert declined["generated"] > 0
    assert len({(row, candidate) for row, _, candidate in made}) == len(made)


def test_make_candidates_depends_on_the_seed_only() -> None:
    first, again, other = (make_candidates(REPORTS, seed=seed)[0] for seed in (0, 0, 1))
    assert first == again != other


def test_make_candidates_rejects() -> None:
    with pytest.raises(ValueError, match="regime 'matchd'"):
        make_candidates(["a"], ["matchd"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="the regime matched needs an encoder"):
        make_candidates(["a"], ["matched"])
    with pytest.raises(ValueError, match="the regime generated needs reports of a model"):
        make_candidates(["a"], ["generated"])
    with pytest.raises(ValueError, match="at least one of"):
        make_candidates(["a"], [])
    assert make_candidates(["a", "a"], ["random"]) == ([], {"random": 2})
    assert make_candidates([], ["random"]) == ([], {})
