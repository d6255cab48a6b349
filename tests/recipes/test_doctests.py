"""Doctests of the recipes, which pytest cannot collect: their folder lies outside the package that it maps to."""

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize("name", ["_catalog", "_rewards", "smollm2.ct_rate"])
def test_examples_run(name: str) -> None:
    result = doctest.testmod(import_module(f"rrg_rewards.recipes.{name}"), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0
