"""ROUGE against torchmetrics and against the dynamic program, and its work on long reports."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics.functional.text import rouge_score

from rrg_rewards.metrics.nlg import ROUGE, longest_common_subsequence, rouge_f
from tests.helpers.operations import count_operations

words = st.lists(st.sampled_from(["a", "b", "c", "No", "mm", "12", "é.", "-", "\n"]), max_size=40)


def table_lcs(first: list[str], second: list[str]) -> int:
    row = [0] * (len(second) + 1)
    for one in first:
        above = row
        row = [0]
        for j, two in enumerate(second):
            row.append(above[j] + 1 if one == two else max(above[j + 1], row[j]))
    return row[-1]


@given(words, words)
def test_the_subsequence_is_that_of_the_dynamic_program(first: list[str], second: list[str]) -> None:
    assert longest_common_subsequence(first, second) == table_lcs(first, second)


@pytest.mark.parametrize("variant", ["rouge1", "rouge2", "rougeL"])
@given(words, words)
def test_rouge_is_that_of_torchmetrics(variant: str, first: list[str], second: list[str]) -> None:
    pred, target = " ".join(first), " ".join(second)
    expected = float(rouge_score(pred, target, rouge_keys=variant)[f"{variant}_fmeasure"])
    assert rouge_f(pred, target, variant) == pytest.approx(expected, abs=1e-6)


def test_twice_the_words_take_twice_the_operations() -> None:
    work = {}
    for size in (2_000, 4_000):
        pred, target = "a b c d " * size, "d a c b " * size
        work[size] = count_operations(lambda pred=pred, target=target: ROUGE().score([pred], [target]))
    assert work[4_000] < 2.1 * work[2_000]


def test_frequent_and_rare_words_count_alike() -> None:
    # Masks are kept for words with 64 or more occurrences.
    draw = random.Random(0)
    first, second = (draw.choices(["a", "b", *map(str, range(50))], [20, 20] + [1] * 50, k=400) for _ in range(2))
    assert first.count("a") > 64
    assert longest_common_subsequence(first, second) == table_lcs(first, second)
