"""Choices from a stream of uniform numbers."""

from collections import Counter

import numpy as np

from rrg_rewards.utilities.random_draws import Draws


def test_draws_same_generator_gives_the_same_choices():
    first, second = Draws(np.random.default_rng(3)), Draws(np.random.default_rng(3))
    assert [first.uniform() for _ in range(300)] == [second.uniform() for _ in range(300)]


def test_draws_options_are_equally_likely():
    draws = Draws(np.random.default_rng(0))
    counts = Counter(draws.pick("abcd") for _ in range(8000))
    # Four standard deviations of a count with p = 1/4.
    assert all(abs(counts[letter] - 2000) < 4 * (8000 * 3 / 16) ** 0.5 for letter in "abcd")


def test_draws_only_option_takes_no_number():
    draws, other = Draws(np.random.default_rng(0)), Draws(np.random.default_rng(0))
    draws.pick(["only"])
    assert draws.uniform() == other.uniform()


def test_draws_chances_at_the_ends():
    draws = Draws(np.random.default_rng(0))
    assert all(draws.chance(1.0) for _ in range(500))
    assert not any(draws.chance(0.0) for _ in range(500))


def test_draws_shuffled_keeps_items_and_leaves_the_list_alone():
    draws = Draws(np.random.default_rng(0))
    items = list(range(20))
    shuffled = draws.shuffled(items)
    assert items == list(range(20))
    assert shuffled != items
    assert sorted(shuffled) == items
