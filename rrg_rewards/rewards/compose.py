"""Several rewards as one: weighted, gated, normalised and clipped."""

import asyncio
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from rrg_rewards.metrics.base import Scores
from rrg_rewards.rewards.base import Completion, Reward
from rrg_rewards.rewards.running import RunningMoments
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["AsyncComposedReward", "ComposedReward", "Gate", "RewardPart", "compose"]


@dataclass(frozen=True)
class Gate:
    """When a part of a composed reward counts: where another part's reward is high enough.

    Args:
        on: Name of the other part.
        at_least: Least reward of the other part, as that gives it, with which the gate is open.
        otherwise: What the gated part counts where the gate is closed.

    Example:
        >>> Gate(on="crg", at_least=0.0).otherwise
        0.0
    """

    on: str
    at_least: float
    otherwise: float = 0.0


@dataclass(frozen=True)
class RewardPart:
    r"""A reward, and how it enters a composed one: normalised, then clipped, then weighed.

    Args:
        reward: The reward.
        weight: Its factor in the sum; 0 for a part that only gates others.
        normalize: Whether its running mean is taken off and it is divided by its running standard deviation.
        clip: Least and greatest value.
        gate: When it counts at all; default: always.

    Raises:
        ValueError: If the weight is not finite, or the clip does not rise.
    """

    reward: Reward
    weight: float = 1.0
    normalize: bool = False
    clip: tuple[float, float] | None = None
    gate: Gate | None = None
    moments: RunningMoments = field(default_factory=RunningMoments, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not math.isfinite(self.weight):
            raise ValueError(f"the weight of part {self.name!r} must be finite, got {self.weight}")
        if self.clip is not None and not (len(self.clip) == 2 and self.clip[0] < self.clip[1]):
            raise ValueError(f"the clip of part {self.name!r} must be two rising numbers, got {self.clip}")

    @property
    def name(self) -> str:
        """Name of the part: its reward's."""
        return self.reward.__name__

    @property
    def signature(self) -> str:
        """What exactly the part adds."""
        shaped = [f"{self.weight:g}*{{{self.reward.signature}}}"]
        shaped += ["normalized"] if self.normalize else []
        shaped += [f"clip:{self.clip[0]:g},{self.clip[1]:g}"] if self.clip is not None else []
        if self.gate is not None:
            shaped.append(f"gate:{self.gate.on}>={self.gate.at_least:g},else:{self.gate.otherwise:g}")
        return "|".join(shaped)

    def value(self, reward: float | None, gate: float | None) -> float | None:
        """What the part adds for a completion, before its weight.

        Args:
            reward: The part's reward.
            gate: The reward of the part that the gate is on.

        Returns:
            A number, or ``None`` if it takes a reward that is missing.
        """
        if self.gate is not None:
            if gate is None:
                return None
            if gate < self.gate.at_least:
                return self.gate.otherwise
        if reward is None:
            return None
        if self.normalize:
            reward = (reward - self.moments.mean) / self.moments.deviation
        return reward if self.clip is None else min(max(reward, self.clip[0]), self.clip[1])


class ComposedReward(Reward):
    r"""A weighted sum of rewards, each normalised, clipped and gated as its part says.

    .. math::
        r = \sum_k w_k\, g_k\, \operatorname{clip}\Bigl(\frac{r_k - \bar r_k}{s_k}\Bigr)

    A missing reward (``None``) makes the sum ``None``, so that a trainer leaves the completion out: trainers that add
    up separate rewards count a missing one as 0, which favours or punishes the completion for it. Only a reward behind
    a closed gate is not missed. Each part is called once, whatever depends on it.

    Running means and deviations are those of all earlier batches, in all processes, and are 0 and 1 in the first one.
    :class:`rrg_rewards.callbacks.TrainerRewardStateCallback` (TRL) and
    :class:`rrg_rewards.callbacks.RewardStateCallback` (Lightning) share them after each step, and save them with
    checkpoints.

    Logged besides what the parts log: ``{name}/{part}``, the mean that a part adds with its weight,
    ``{name}/open_{part}``, the share of completions for which its gate is open, and ``{name}/unscorable``.

    Args:
        parts: The parts, or mappings as in YAML: ``name`` and options as :func:`rrg_rewards.rewards.make_reward` takes
            them, ``as`` (name under which the part is logged), ``weight``, ``normalize``, ``clip`` and ``gate`` (a
            mapping of ``on``, ``at_least`` and ``otherwise``).
        reference_column: Column of references of parts that are given as mappings and name none.
        name: ``__name__`` of the reward.

    Raises:
        ValueError: If there is no part, two have the same name, a gate is on no other part, or an option is unknown.
        TypeError: If a part is asynchronous: then it takes an :class:`AsyncComposedReward`.

    Example:
        Fluency counts only where the clinical reward is positive:

        >>> from rrg_rewards.rewards import ComposedReward
        >>> reward = ComposedReward([
        ...     {"name": "crg", "prior": 0.2},
        ...     {"name": "rouge", "weight": 0.5, "gate": {"on": "crg", "at_least": 0.0}},
        ... ], reference_column="report")
        >>> report = ["Small hiatal hernia.", "Small hiatal hernia."]
        >>> reward(completions=["Hiatal hernia.", "Small heart."], report=report)
        [0.677..., -0.277...]
    """

    _awaits = False

    def __init__(
        self,
        parts: Sequence[RewardPart | Mapping[str, Any]],
        *,
        reference_column: str | None = "reference",
        name: str = "composed",
    ) -> None:
        super().__init__(name)
        self.parts = tuple(part if isinstance(part, RewardPart) else _part(part, reference_column) for part in parts)
        names = [part.name for part in self.parts]
        if not names:
            raise ValueError(f"reward {name!r} needs at least one part")
        if repeated := sorted({one for one in names if names.count(one) > 1}):
            raise ValueError(f"reward {name!r} has two parts called {repeated[0]!r}; give one another name (as: ...)")
        for part in self.parts:
            others = [one for one in names if one != part.name]
            if part.gate is not None and part.gate.on not in others:
                raise ValueError(f"part {part.name!r}: {unknown_name_message('gate on part', part.gate.on, others)}")
        waited = [part.name for part in self.parts if is_asynchronous(part.reward)]
        if waited and not self._awaits:
            raise TypeError(f"part {waited[0]!r} is asynchronous: compose it by compose() or make_reward('composed')")

    @property
    def signature(self) -> str:
        """What exactly is rewarded."""
        return " + ".join(part.signature for part in self.parts)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the data set that the parts read."""
        return tuple(dict.fromkeys(column for part in self.parts for column in part.reward.columns))

    def fit(self, **columns: Sequence[Any]) -> Self:
        """Let each part learn what it needs of the training set."""
        for part in self.parts:
            part.reward.fit(**{column: columns[column] for column in part.reward.columns if column in columns})
        return self

    def score(self, completions: Sequence[Completion], **columns: Any) -> Scores:
        """Sums and what each part adds, without touching running statistics."""
        scored = [part.reward.rewards(part.reward.score(completions, **columns)) for part in self.parts]
        return self._compose(scored)

    def state_dict(self) -> dict[str, Any]:
        """Running statistics and states of the parts, by name."""
        return {
            part.name: {"reward": part.reward.state_dict(), "moments": part.moments.state_dict()} for part in self.parts
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave.

        Raises:
            ValueError: If the state is of other parts.
        """
        names = [part.name for part in self.parts]
        if list(state) != names:
            raise ValueError(f"the state of reward {self.__name__!r} is of parts {list(state)}, but it has {names}")
        for part in self.parts:
            part.reward.load_state_dict(state[part.name]["reward"])
            part.moments.load_state_dict(state[part.name]["moments"])

    def synchronize(self) -> None:
        """Share running statistics with all processes, each of which calls it."""
        for part in self.parts:
            part.reward.synchronize()
            if part.normalize:
                part.moments.synchronize()

    def __call__(
        self,
        completions: Sequence[Completion],
        *,
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Reward completions; see :class:`rrg_rewards.rewards.Reward`."""
        given = {"log_metric": log_metric, "log_extra": log_extra, **columns}
        return self._finish_parts([part.reward(completions, **given) for part in self.parts], log_metric)

    def _finish_parts(
        self, rewards: Sequence[Sequence[float | None]], log_metric: Callable[[str, float], None] | None
    ) -> list[float | None]:
        """Compose a batch's rewards by part, log them, and only then take them into the running statistics."""
        composed = self._finish(self._compose(rewards), log_metric, None)
        for part, own in zip(self.parts, rewards, strict=True):
            if part.normalize:
                part.moments.add(reward for reward in own if reward is not None)
        return composed

    def _compose(self, rewards: Sequence[Sequence[float | None]]) -> Scores:
        by_name = {part.name: own for part, own in zip(self.parts, rewards, strict=True)}
        details = {}
        for part in self.parts:
            own = by_name[part.name]
            gates: Sequence[float | None] = [None] * len(own) if part.gate is None else by_name[part.gate.on]
            values = [part.value(*pair) for pair in zip(own, gates, strict=True)]
            if part.weight:
                details[part.name] = _tensor(None if value is None else part.weight * value for value in values)
            if part.gate is not None:
                at_least = part.gate.at_least
                details[f"open_{part.name}"] = _tensor(None if gate is None else gate >= at_least for gate in gates)
        added = [details[part.name] for part in self.parts if part.weight]
        total = torch.stack(added).sum(0) if added else torch.zeros(len(rewards[0]), dtype=torch.float64)
        return Scores(total, details)


class AsyncComposedReward(ComposedReward):
    """A composed reward whose parts wait for a judge, all at the same time.

    Args:
        parts: As :class:`ComposedReward` takes them; asynchronous ones are awaited together.
        options: As :class:`ComposedReward` takes them.
    """

    _awaits = True

    # Trainers tell asynchronous rewards by their __call__ being a coroutine function.
    async def __call__(  # type: ignore[override]
        self,
        completions: Sequence[Completion],
        *,
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Reward completions, to be awaited."""
        given = {"log_metric": log_metric, "log_extra": log_extra, **columns}

        async def call(reward: Any) -> list[float | None]:
            called = reward(completions, **given)
            rewarded: list[float | None] = await called if inspect.isawaitable(called) else called
            return rewarded

        rewards = await asyncio.gather(*(call(part.reward) for part in self.parts))
        return self._finish_parts(rewards, log_metric)


def compose(
    parts: Sequence[RewardPart | Mapping[str, Any]],
    *,
    reference_column: str | None = "reference",
    name: str = "composed",
) -> ComposedReward:
    """Compose rewards: a :class:`ComposedReward`, or an :class:`AsyncComposedReward` if a part is asynchronous.

    Takes what :class:`ComposedReward` takes.

    Example:
        >>> from rrg_rewards.rewards import compose
        >>> compose([{"name": "rouge"}, {"name": "repetition", "weight": 0.1}]).columns
        ('reference',)
    """
    built = [part if isinstance(part, RewardPart) else _part(part, reference_column) for part in parts]
    waits = any(is_asynchronous(part.reward) for part in built)
    return (AsyncComposedReward if waits else ComposedReward)(built, name=name)


def is_asynchronous(reward: Any) -> bool:
    """Whether calling a reward gives something to be awaited.

    Example:
        >>> from rrg_rewards.rewards import make_reward
        >>> is_asynchronous(make_reward("crg", prior=0.2))
        False
    """
    return inspect.iscoroutinefunction(type(reward).__call__)


def _tensor(values: Iterable[float | None]) -> Tensor:
    return torch.tensor([math.nan if value is None else value for value in values], dtype=torch.float64)


def _part(setting: Mapping[str, Any], reference_column: str | None) -> RewardPart:
    # Rewards by name include composed ones.
    from rrg_rewards.rewards.registry import make_reward

    if not isinstance(setting, Mapping) or not isinstance(setting.get("name"), str):
        raise ValueError(f"parts: each must be a RewardPart, or a mapping with a name, got {setting!r}")
    options = {"reference_column": reference_column, **setting}
    name = options.pop("name")
    shaping = {key: options.pop(key) for key in ("weight", "normalize", "clip", "gate") if key in options}
    if "as" in options:
        options["name"] = options.pop("as")
    if isinstance(gate := shaping.get("gate"), Mapping):
        try:
            shaping["gate"] = Gate(**gate)
        except TypeError as error:
            raise ValueError(f"gate of part {name!r} must have on, at_least and maybe otherwise, got {gate}") from error
    if shaping.get("clip") is not None:
        shaping["clip"] = tuple(shaping["clip"])
    return RewardPart(make_reward(name, **options), **shaping)
