"""Keyword arguments that are fields of dataclasses."""

import inspect
from dataclasses import dataclass

import pytest

from rrg_rewards.utilities.options import takes_options


@dataclass(frozen=True)
class Positive:
    rate: float = 1.0
    decay: float = 0.0

    def __post_init__(self):
        if self.rate <= 0:
            raise ValueError(f"rate must be positive, got {self.rate}")


class Thing:
    @takes_options(positive=Positive(rate=2.0))
    def __init__(self, name: str, *, flag: bool = False, positive: Positive):
        self.name, self.flag, self.positive = name, flag, positive


def test_fields_are_keyword_arguments_with_the_given_defaults():
    thing = Thing("a", decay=0.5, flag=True)
    assert (thing.name, thing.flag, thing.positive) == ("a", True, Positive(2.0, 0.5))


def test_the_signature_lists_the_fields():
    parameters = inspect.signature(Thing).parameters
    assert list(parameters) == ["name", "flag", "rate", "decay"]
    assert (parameters["rate"].default, parameters["rate"].annotation) == (2.0, float)


def test_values_are_checked_by_the_dataclass():
    with pytest.raises(ValueError, match="rate must be positive, got -1"):
        Thing("a", rate=-1)


@takes_options(positive=Positive())
def pass_on(name: str, *, positive: Positive, **others):
    return positive, others


def test_further_arguments_are_passed_on():
    assert list(inspect.signature(pass_on).parameters) == ["name", "rate", "decay", "others"]
    assert pass_on("a", rate=3.0, sync_on_compute=False) == (Positive(3.0), {"sync_on_compute": False})
    with pytest.raises(ValueError, match="unknown argument 'decai'; did you mean 'decay'"):
        pass_on("a", decai=1)


def test_an_unknown_argument_names_the_nearest_one():
    with pytest.raises(TypeError, match="unknown argument 'decai'; did you mean 'decay'"):
        Thing("a", decai=1)
