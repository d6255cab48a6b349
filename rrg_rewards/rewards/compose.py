"""Weighted sums of rewards with clipping and gates."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from rrg_rewards.judges.base import Judge
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.rewards.base import Reward, check_names, is_asynchronous, score_tensor
from rrg_rewards.rewards.completions import Completion
from rrg_rewards.rewards.registry import make_reward, name_and_options
from rrg_rewards.utilities.checks import is_finite
from rrg_rewards.utilities.names import unknown_name_message

SHAPING_OPTIONS = ("weight", "clip", "gate")
"""Options of a part of a composed reward, beside those of its reward."""


@dataclass(frozen=True)
class Gate:
    """A gate of a part of a composed reward, which is open if the reward of another part is high enough.

    Args:
        on: Name of the other part.
        at_least: Minimum unweighted reward of the other part for which the gate is open.
        otherwise: Value of the gated part if the gate is closed.

    Example:
        >>> Gate(on="crg", at_least=0.0).otherwise
        0.0
    """

    on: str
    at_least: float
    otherwise: float = 0.0


@dataclass(frozen=True)
class RewardPart:
    """A part of a composed reward: a reward that is clipped, then weighted.

    Args:
        reward: The reward.
        weight: Weight of the part in the sum; 0 for a part that is only used in gates.
        clip: Lower and upper bound, a sequence of two numbers.
        gate: Gate of the part. Default: no gate.

    Raises:
        ValueError: If the weight is not finite, or the lower bound is not below the upper bound.
    """

    reward: Reward
    weight: float = 1.0
    clip: tuple[float, float] | None = None
    gate: Gate | None = None

    def __post_init__(self) -> None:
        given: Any = self.clip
        if isinstance(given, list):  # As in YAML.
            object.__setattr__(self, "clip", tuple(given))
        if not is_finite(self.weight):
            raise ValueError(f"the weight of part {self.name!r} must be finite, got {self.weight!r}")
        if self.clip is not None and not _are_increasing(self.clip):
            raise ValueError(f"the clip of part {self.name!r} must be two increasing numbers, got {self.clip!r}")

    @property
    def name(self) -> str:
        """Name of the reward."""
        return self.reward.__name__

    @property
    def signature(self) -> str:
        """Signature of the reward with the settings of the part."""
        shaped = [f"{self.weight:g}*{{{self.reward.signature}}}"]
        shaped += [f"clip:{self.clip[0]:g},{self.clip[1]:g}"] if self.clip is not None else []
        if self.gate is not None:
            shaped.append(f"gate:{self.gate.on}>={self.gate.at_least:g},else:{self.gate.otherwise:g}")
        return "|".join(shaped)

    def value(self, reward: float | None, gate: float | None) -> float | None:
        """Return the unweighted contribution of the part for one completion.

        Args:
            reward: Reward of the part.
            gate: Reward of the part that the gate depends on.

        Returns:
            The contribution, or ``None`` if a required reward is missing.
        """
        if self.gate is not None:
            if gate is None:
                return None
            if gate < self.gate.at_least:
                return self.gate.otherwise
        return reward if reward is None or self.clip is None else min(max(reward, self.clip[0]), self.clip[1])


def _are_increasing(bounds: Any) -> bool:
    numbers = isinstance(bounds, tuple) and len(bounds) == 2 and all(isinstance(one, int | float) for one in bounds)
    return numbers and bounds[0] < bounds[1]


@dataclass(frozen=True, repr=False)
class ComposedScores(Scores):
    """Sums of a composed reward.

    Args:
        parts: The scores of each part by its name, of the same completions.

    Example:
        >>> import torch
        >>> value = torch.tensor([0.5, 1.0])
        >>> composed = ComposedScores(value, parts={"rouge": Scores(value)})
        >>> composed.take(torch.tensor([1])).parts["rouge"].value
        tensor([1.])
    """

    parts: Mapping[str, Scores] = field(default_factory=dict)

    _row_fields = ("parts",)


class ComposedReward(Reward):
    r"""A weighted sum of rewards, each clipped and gated.

    .. math::
        r = \sum_k w_k\, g_k\, \operatorname{clip}(r_k)

    If a reward is missing (``None``), the sum is ``None``, and trainers skip the completion. (Trainers that sum
    separate rewards count a missing reward as 0, which favours or penalises the completion.) A missing reward has no
    effect if the gate of its part is closed. Each part is called once per batch.

    Each part logs its values as ``{name}/{part}/...``. The composed reward also logs ``{name}/{part}``, the mean
    weighted contribution of a part; ``{name}/open_{part}``, the fraction of completions for which its gate is open; and
    ``{name}/unscorable``.

    Args:
        parts: The parts. A part may be a name, or a mapping, as in YAML, with ``name`` and options of
            :func:`rrg_rewards.rewards.make_reward`, ``as`` (name under which the part is logged), ``weight``,
            ``clip`` and ``gate`` (a mapping with ``on``, ``at_least`` and ``otherwise``).
        reference_column: Default column of references for parts that are mappings.
        report: How parts that are mappings extract the report, unless they say so themselves. Default: as each does
            alone. Each part reads the whole completion.
        name: Name under which trainers log the reward.

    Raises:
        ValueError: If there is no part, two parts have the same name, a gate depends on an unknown part, or an option
            is unknown.
        TypeError: If a part is asynchronous; use :class:`AsyncComposedReward`.

    Example:
        The reward for fluency counts only if the clinical reward is positive:

        >>> from rrg_rewards.rewards import ComposedReward
        >>> reward = ComposedReward([
        ...     {"name": "crg", "prior": 0.2},
        ...     {"name": "rouge", "weight": 0.5, "gate": {"on": "crg", "at_least": 0.0}},
        ... ], reference_column="report")
        >>> report = ["Small hiatal hernia.", "Small hiatal hernia."]
        >>> reward(completions=["Hiatal hernia.", "Small heart."], report=report)
        [0.677..., -0.277...]
    """

    _allows_asynchronous = False

    def __init__(
        self,
        parts: Sequence[RewardPart | Mapping[str, Any] | str],
        *,
        reference_column: str | None = "reference",
        report: str | None = None,
        name: str = "composed",
    ) -> None:
        super().__init__(name)
        self.parts = tuple(_parts(parts, reference_column, report))
        names = [part.name for part in self.parts]
        if not names:
            raise ValueError(f"reward {name!r} needs at least one part")
        gates = [f"open_{part.name}" for part in self.parts if part.gate is not None]
        check_names([*names, *gates, "unscorable"], f"the parts of {name!r}")
        for part in self.parts:
            others = [one for one in names if one != part.name]
            if part.gate is not None and part.gate.on not in others:
                raise ValueError(f"part {part.name!r}: {unknown_name_message('gate on part', part.gate.on, others)}")
        asynchronous = [part.name for part in self.parts if is_asynchronous(part.reward)]
        if asynchronous and not self._allows_asynchronous:
            raise TypeError(f"part {asynchronous[0]!r} is asynchronous; use compose() or make_reward('composed')")

    @classmethod
    def from_options(cls, **options: Any) -> "ComposedReward":
        """Make the reward; an asynchronous one for the options of an asynchronous part (:func:`compose`)."""
        return compose(**options) if cls is ComposedReward else cls(**options)

    @property
    def signature(self) -> str:
        """Signatures of the parts."""
        return " + ".join(part.signature for part in self.parts) + self.suffix

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the data set that the parts read."""
        return tuple(dict.fromkeys(column for part in self.parts for column in part.reward.columns))

    def warn_of_unread(self, given: Mapping[str, Any]) -> None:
        """Warn once for each part of columns that it could read and does not."""
        for part in self.parts:
            part.reward.warn_of_unread(given)

    def judges(self) -> Mapping[str, Judge]:
        """Return the judges of the parts, by the name of the part, with what the judge does if a part has several."""
        return {
            part.name if role == "judge" else f"{part.name}.{role}": judge
            for part in self.parts
            for role, judge in part.reward.judges().items()
        }

    def _fit(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Fit each part."""
        for part in self.parts:
            try:
                part.reward.fit(**{column: columns[column] for column in part.reward.columns if column in columns})
            except ValueError as error:
                raise ValueError(f"part {part.name!r} of reward {self.__name__!r}: {error}") from error

    def score(self, completions: Sequence[Completion], **columns: Any) -> Scores:
        """Return the sums and the contributions of the parts."""
        self.check_fitted()
        return self._compose_scores([part.reward.score(completions, **columns) for part in self.parts])

    async def score_async(self, completions: Sequence[Completion], **columns: Any) -> Scores:
        """Do the same as :meth:`score`; the judges of all parts answer concurrently."""
        self.check_fitted()
        scored = await asyncio.gather(*(part.reward.score_async(completions, **columns) for part in self.parts))
        return self._compose_scores(scored)

    @property
    def has_independent_rows(self) -> bool:
        """Whether the rows of all parts are independent, and no subclass differs."""
        own = type(self)
        called = own.__call__ in (ComposedReward.__call__, AsyncComposedReward.__call__)
        parts = all(part.reward.has_independent_rows for part in self.parts)
        return own.score is ComposedReward.score and called and parts

    @property
    def estimated(self) -> tuple[str, ...]:
        """Settings of the parts that are not fixed, such as ``"crg.prior"``."""
        return tuple(f"{part.name}.{setting}" for part in self.parts for setting in part.reward.estimated)

    def __call__(self, completions: Sequence[Completion], **columns: Any) -> list[float | None]:
        """Reward completions; see :meth:`Reward.__call__`."""
        rewards = [part.reward(completions, **self._for_parts(columns)) for part in self.parts]
        return self._finish_parts(rewards, completions, columns)

    def _for_parts(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of parts, whose logged names begin with the name of this reward."""
        self.check_fitted()

        def named(log: Callable[[str, Any], None]) -> Callable[[str, Any], None]:
            return lambda name, value: log(f"{self.__name__}/{name}", value)

        loggers = {name: named(columns[name]) for name in ("log_metric", "log_extra") if columns.get(name)}
        return {**columns, **loggers}

    def _compose_scores(self, scored: Sequence[Scores]) -> ComposedScores:
        rewards = [part.reward.rewards(own) for part, own in zip(self.parts, scored, strict=True)]
        composed = self._compose(rewards)
        by_name = {part.name: own for part, own in zip(self.parts, scored, strict=True)}
        return ComposedScores(composed.value, composed.details, by_name)

    def _extracted(self, completions: Sequence[Completion], prompts: Any) -> dict[str, float]:  # noqa: ARG002
        """Return nothing: each part extracts and logs."""
        return {}

    def _finish_parts(
        self,
        rewards: Sequence[Sequence[float | None]],
        completions: Sequence[Completion],
        columns: Mapping[str, Any],
    ) -> list[float | None]:
        """Log and return the composed rewards of a batch."""
        return self._finish(self._compose(rewards), completions, columns.get("log_metric"), None)

    def _compose(self, rewards: Sequence[Sequence[float | None]]) -> Scores:
        by_name = {part.name: own for part, own in zip(self.parts, rewards, strict=True)}
        details = {}
        for part in self.parts:
            own = by_name[part.name]
            gates: Sequence[float | None] = [None] * len(own) if part.gate is None else by_name[part.gate.on]
            values = [part.value(*pair) for pair in zip(own, gates, strict=True)]
            if part.weight:
                details[part.name] = score_tensor(None if value is None else part.weight * value for value in values)
            if part.gate is not None:
                at_least = part.gate.at_least
                details[f"open_{part.name}"] = score_tensor(
                    None if gate is None else gate >= at_least for gate in gates
                )
        added = [details[part.name] for part in self.parts if part.weight]
        total = torch.stack(added).sum(0) if added else torch.zeros(len(rewards[0]), dtype=torch.float64)
        return Scores(total, details)


class AsyncComposedReward(ComposedReward):
    """A composed reward whose asynchronous parts run concurrently.

    Args:
        parts: Parts of which some may be asynchronous; see :class:`ComposedReward`.
        options: Further arguments of :class:`ComposedReward`.
    """

    _allows_asynchronous = True

    # Trainers recognise an asynchronous reward because its __call__ is a coroutine function.
    async def __call__(  # type: ignore[override]
        self, completions: Sequence[Completion], **columns: Any
    ) -> list[float | None]:
        """Reward completions as :meth:`ComposedReward.__call__` does."""

        async def call(reward: Any) -> list[float | None]:
            called = reward(completions, **self._for_parts(columns))
            rewarded: list[float | None] = await called if inspect.isawaitable(called) else called
            return rewarded

        rewards = await asyncio.gather(*(call(part.reward) for part in self.parts))
        return self._finish_parts(rewards, completions, columns)


def compose(
    parts: Sequence[RewardPart | Mapping[str, Any] | str],
    *,
    reference_column: str | None = "reference",
    report: str | None = None,
    name: str = "composed",
) -> ComposedReward:
    """Make a :class:`ComposedReward`, or an :class:`AsyncComposedReward` if a part is asynchronous.

    The arguments are those of :class:`ComposedReward`.

    Example:
        >>> from rrg_rewards.rewards import compose
        >>> compose([{"name": "rouge"}, {"name": "repetition", "weight": 0.1}]).columns
        ('reference',)
    """
    built = [*_parts(parts, reference_column, report)]
    asynchronous = any(is_asynchronous(part.reward) for part in built)
    return (AsyncComposedReward if asynchronous else ComposedReward)(built, name=name)


def _parts(
    parts: Sequence[RewardPart | Mapping[str, Any] | str], reference_column: str | None, report: str | None
) -> Iterator[RewardPart]:
    """Make the parts that are settings."""
    default = {} if report is None else {"report": report}
    for part in parts:
        yield part if isinstance(part, RewardPart) else _part(part, reference_column, default)


def _part(setting: Any, reference_column: str | None, default: Mapping[str, str]) -> RewardPart:
    name, given = name_and_options(setting, reference_column)
    options = {**default, **given}
    shaping = {key: options.pop(key) for key in SHAPING_OPTIONS if key in options}
    if isinstance(gate := shaping.get("gate"), Mapping):
        try:
            # YAML 1.1, which TRL's parser reads, takes the key `on` for the value true.
            shaping["gate"] = Gate(**{"on" if key is True else key: value for key, value in gate.items()})
        except TypeError as error:
            raise ValueError(f"gate of part {name!r} takes on, at_least and optional otherwise, got {gate}") from error
    return RewardPart(make_reward(name, **options), **shaping)
