"""Composed rewards compared with their equation for each completion."""

import asyncio
import math
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.metrics import Scores
from rrg_rewards.rewards import AsyncComposedReward, ComposedReward, Gate, Reward, RewardPart, compose, make_reward


class Fixed(Reward):
    """Returns the values of the column with its name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls = 0

    signature = "fixed"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.__name__,)

    def score(self, completions: Sequence[Any], **columns: Any) -> Scores:
        self.calls += 1
        values = [math.nan if value is None else value for value in self._column(columns, self.__name__)]
        return Scores(torch.tensor(values, dtype=torch.float64), {"seen": torch.ones(len(completions))})


class Waited(Fixed):
    async def __call__(self, completions, **given):  # type: ignore[override]
        await asyncio.sleep(0)
        return super().__call__(completions, **given)


def call(reward: Any, columns: Mapping[str, Sequence[float | None]], **given: Any) -> list[float | None]:
    rows = len(next(iter(columns.values())))
    rewarded = reward(completions=["x"] * rows, **columns, **given)
    return asyncio.run(rewarded) if asyncio.iscoroutine(rewarded) else rewarded


rewards_of = st.one_of(st.none(), st.integers(-8, 8).map(lambda n: n / 4))
rows = st.lists(st.tuples(rewards_of, rewards_of), min_size=1, max_size=8)


@given(rows, st.integers(-4, 4), st.integers(-4, 4), st.integers(-2, 2), st.sampled_from([-1.0, 0.0, 0.5]))
def test_composed_reward_weights_gates_and_missing_rewards(drawn, weight_a, weight_b, least, otherwise):
    a, b = Fixed("a"), Fixed("b")
    gate = Gate("a", at_least=least, otherwise=otherwise)
    reward = ComposedReward([RewardPart(a, weight_a), RewardPart(b, weight_b, clip=(-1, 1), gate=gate)])
    expected = []
    for one, two in drawn:
        if one is None:
            # The state of the gate is unknown; a part of weight 0 is not required.
            expected.append(None if weight_a or weight_b else 0.0)
        elif one < least:
            expected.append(weight_a * one + weight_b * otherwise)
        elif two is None:
            expected.append(None if weight_b else weight_a * one)
        else:
            expected.append(weight_a * one + weight_b * max(-1, min(1, two)))
    columns = {"a": [one for one, _ in drawn], "b": [two for _, two in drawn]}
    assert call(reward, columns) == expected
    assert reward.rewards(reward.score(["x"] * len(drawn), **columns)) == expected


class Halved(ComposedReward):
    def _reward(self, value: float) -> float:
        return value / 2


def test_composed_reward_of_a_subclass_by_path_is_of_the_subclass() -> None:
    reward = make_reward(f"{__name__}:Halved", parts=[{"name": "rouge"}], name="half")
    assert type(reward) is Halved
    assert reward(["Edema."], reference=["Edema."]) == [0.5]
    assert (reward.__name__, reward.columns) == ("half", ("reference",))


def test_composed_reward_each_part_is_called_once_and_logs_under_its_name():
    parts = [Fixed("a"), Fixed("b"), Fixed("c")]
    gates = [None, Gate("a", 0), Gate("a", 0)]
    logged: dict[str, float] = {}
    reward = ComposedReward([RewardPart(part, 0.5, gate=gate) for part, gate in zip(parts, gates, strict=True)])
    columns = {"a": [1.0, -1.0, None], "b": [2.0, 2.0, 2.0], "c": [4.0, 4.0, 4.0]}
    assert call(reward, columns, log_metric=logged.__setitem__) == [3.5, -0.5, None]
    assert [part.calls for part in parts] == [1, 1, 1]
    assert logged["composed/a"] == 0.0
    assert logged["composed/open_b"] == 0.5
    assert logged["composed/unscorable"] == pytest.approx(1 / 3)
    assert logged["composed/a/unscorable"] == pytest.approx(1 / 3)
    assert {"composed/b/seen", "composed/c/unscorable", "composed/b", "composed/open_c"} <= logged.keys()
    assert all(name.startswith("composed/") for name in logged)
    assert not any(math.isnan(value) for value in logged.values())


def test_composed_reward_asynchronous_parts_wait_together():
    parts = [RewardPart(Waited("a")), RewardPart(Fixed("b"), 2.0, gate=Gate("a", 0.0))]
    reward = compose(parts)
    assert isinstance(reward, AsyncComposedReward)
    assert asyncio.iscoroutinefunction(type(reward).__call__)
    assert call(reward, {"a": [1.0, -1.0], "b": [1.0, None]}) == [3.0, -1.0]
    with pytest.raises(TypeError, match="part 'a' is asynchronous"):
        ComposedReward(parts)


def test_composed_reward_a_judge_that_is_waited_for_makes_the_whole_asynchronous():
    judge = {"name": "openai", "base_url": "http://127.0.0.1:9", "model": "m"}
    parts = [{"name": "crimson", "judge": judge}, {"name": "repetition", "weight": 0.1}]
    pytest.importorskip("openai")
    assert isinstance(make_reward("composed", parts=parts), AsyncComposedReward)


def test_composed_reward_a_gate_in_yaml_needs_no_quotes():
    # YAML 1.1 reads the key `on` as true.
    parts = yaml.safe_load("[{name: crg, prior: 0.2}, {name: rouge, gate: {on: crg, at_least: 0}}]")
    assert "gate:crg>=0,else:0" in make_reward("composed", parts=parts).signature


def test_composed_by_name_as_in_yaml():
    reward = make_reward(
        "composed",
        reference_column="report",
        name="total",
        parts=[
            {"name": "crg", "prior": 0.2, "weight": 2},
            {"name": "rouge", "as": "fluency", "clip": [0, 0.5], "gate": {"on": "crg", "at_least": 0}},
            {"name": "repetition", "weight": 0.25},
        ],
    )
    assert reward.__name__ == "total"
    assert reward.columns == ("report",)
    assert [part.name for part in reward.parts] == ["crg", "fluency", "repetition"]
    assert "fluency" not in reward.signature
    assert "|clip:0,0.5|gate:crg>=0,else:0" in reward.signature
    (value,) = reward(completions=["Cardiomegaly."], report=["Cardiomegaly."])
    crg = make_reward("crg", prior=0.2)(completions=["Cardiomegaly."], reference=["Cardiomegaly."])[0]
    assert value == pytest.approx(2 * crg + 0.5)
    assert len(pickle.dumps(reward)) < 20_000


def test_composed_reward_fit_reaches_the_parts():
    reward = make_reward("composed", parts=[{"name": "crg"}, {"name": "overlong", "max_length": 5}])
    reward.fit(reference=["Cardiomegaly.", "Normal."])
    assert reward(completions=["Cardiomegaly."], reference=["Cardiomegaly."])[0] > 0


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "needs at least one part"),
        ([{"name": "crg"}, {"name": "crg"}], "the parts of .* must differ in name, got 'crg' and 'crg'"),
        ([{"name": "crg"}, {"name": "rouge", "as": "crg/tp"}], "got 'crg' and 'crg/tp'"),
        ([{"name": "crg", "as": "unscorable"}], "must differ in name, got 'unscorable'"),
        ([{"name": "crg", "gate": {"on": "crg", "at_least": 0}}], "part 'crg': unknown gate on part 'crg'"),
        ([{"name": "crg"}, {"name": "rouge", "gate": {"on": "cgr", "at_least": 0}}], "did you mean 'crg'"),
        ([{"name": "crg", "gate": {"at": 0}}], "gate of part 'crg' takes on, at_least and optional otherwise"),
        ([{"name": "crg", "weight": math.inf}], "weight of part 'crg' must be finite"),
        ([{"name": "crg", "clip": [1, 0]}], "clip of part 'crg' must be two increasing numbers"),
        ([{"name": "crgg"}], "unknown reward 'crgg'"),
        ([{"name": "crg", "priorr": 1}], "unknown option of reward 'crg' 'priorr'"),
        ([3], "must be a name, a mapping with a name"),
    ],
)
def test_composed_reward_parts_that_cannot_be(parts, message):
    with pytest.raises(ValueError, match=message):
        make_reward("composed", parts=parts)
