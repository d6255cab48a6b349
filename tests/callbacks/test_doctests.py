"""The examples in docstrings of rrg_rewards.callbacks: pytest itself would import its folder as `callbacks`."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import rrg_rewards.callbacks as package

MODULES = [f"{package.__name__}.{module.name}" for module in pkgutil.iter_modules(package.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    found = doctest.testmod(import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert found.failed == 0
    assert found.attempted > 0
