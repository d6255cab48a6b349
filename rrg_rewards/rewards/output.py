"""The number that a reward returns for a score: which score, its sign, and a linear transform with bounds."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.checks import is_finite
from rrg_rewards.utilities.names import unknown_name_message

OUTPUT_OPTIONS = frozenset({"key", "sign", "transform"})
"""Options of :func:`rrg_rewards.rewards.make_reward` that select and transform the output of any reward."""


@dataclass(frozen=True)
class RewardTransform:
    r"""A linear function of a reward with bounds.

    .. math::
        f(r) = \min(\max(a r + b,\ \text{low}),\ \text{high})

    Args:
        scale: :math:`a`, not 0. A negative number reverses the order of completions.
        shift: :math:`b`.
        clip: The bounds, of which one may be ``None``; ``None`` for no bounds.

    Raises:
        ValueError: If a number is not finite, ``scale`` is 0, or the bounds are not increasing.

    Example:
        >>> transform = RewardTransform(scale=0.5, shift=1.0, clip=(0.0, None))
        >>> transform(-1.0), transform(-4.0)
        (0.5, 0.0)
    """

    scale: float = 1.0
    shift: float = 0.0
    clip: tuple[float | None, float | None] | None = None

    def __post_init__(self) -> None:
        if not (is_finite(self.scale) and self.scale and is_finite(self.shift)):
            raise ValueError(
                f"transform: scale must be a finite number other than 0, and shift a finite number, got {self.scale!r} "
                f"and {self.shift!r}"
            )
        if self.clip is not None and not _are_bounds(self.clip):
            raise ValueError(f"transform: clip must be two increasing numbers, or null for one, got {self.clip!r}")

    def __call__(self, reward: float) -> float:
        """Return the transformed reward."""
        value = self.scale * reward + self.shift
        low, high = self.clip or (None, None)
        value = value if low is None else max(value, low)
        return float(value if high is None else min(value, high))

    def __str__(self) -> str:
        low, high = self.clip or (None, None)
        bounds = "" if self.clip is None else f",clip:{_bound(low, '-inf')},{_bound(high, 'inf')}"
        return f"scale:{self.scale:g},shift:{self.shift:g}{bounds}"


@dataclass(frozen=True)
class RewardOutput:
    """What a reward returns for a score.

    Args:
        key: Name of the sub-score in ``Scores.details`` that is the reward; ``None`` for the score itself.
        sign: 1 if a higher sub-score is better, -1 if a lower one is. Required with ``key``, because no sub-score says
            so itself.
        transform: Applied to the reward, after the sign.

    Raises:
        ValueError: If ``key`` is given without ``sign`` or the reverse, or ``sign`` is neither 1 nor -1.
    """

    key: str | None = None
    sign: int | None = None
    transform: RewardTransform | None = None

    def __post_init__(self) -> None:
        if self.key is None and self.sign is not None:
            raise ValueError(f"sign is {self.sign!r}, but there is no key: the sign of a score is that of its metric")
        if self.key is not None and self.sign not in (1, -1):
            raise ValueError(
                f"sign must be 1 (a higher {self.key!r} is better) or -1 (a lower one is), got {self.sign!r}"
            )

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> "RewardOutput":
        """Make the output from the options ``key``, ``sign`` and ``transform``, a mapping.

        Raises:
            ValueError: If an option is invalid.
        """
        return cls(options.get("key"), options.get("sign"), _transform(options.get("transform")))

    @property
    def suffix(self) -> str:
        """What the settings add to the signature of the reward; empty by default."""
        key = "" if self.key is None else f"|key:{self.key}|key_sign:{self.sign:+d}"
        return key if self.transform is None else f"{key}|transform:{self.transform}"

    def values(self, scores: Scores) -> Tensor:
        """Return the scores that the reward is made of, ``(N,)``; NaN if a row has none.

        Raises:
            ValueError: If a row has a score, and there is no sub-score of this name.
        """
        # A served reward has no sub-scores while no server answers.
        if self.key is None or (self.key not in scores.details and not scores.scored.any()):
            return scores.value
        if self.key not in scores.details:
            raise ValueError(unknown_name_message("key (sub-score) of a reward", self.key, scores.details))
        return scores.details[self.key]

    def rewards(self, scores: Scores, convert: Callable[[float], float]) -> list[float | None]:
        """Return the rewards of ``N`` scores; ``None`` where there is none.

        Args:
            scores: The scores.
            convert: Conversion of a score to a reward, which is not used for sub-scores.
        """
        values = self.values(scores).tolist()
        return [None if math.isnan(value) else self._reward(value, convert) for value in values]

    def _reward(self, value: float, convert: Callable[[float], float]) -> float:
        reward = convert(value) if self.sign is None else self.sign * value
        return reward if self.transform is None else self.transform(reward)


def _transform(setting: Any) -> RewardTransform | None:
    if setting is None or isinstance(setting, RewardTransform):
        return setting
    if not isinstance(setting, Mapping):
        raise ValueError(f"transform must be a mapping with scale, shift and clip, got {setting!r}")
    known = [field.name for field in fields(RewardTransform)]
    for name in setting:
        if name not in known:
            raise ValueError(unknown_name_message("key of transform", str(name), known))
    clip = setting.get("clip")
    return RewardTransform(**{**setting, "clip": tuple(clip) if isinstance(clip, list) else clip})


def _are_bounds(clip: Any) -> bool:
    if not isinstance(clip, tuple) or len(clip) != 2:
        return False
    given = [bound for bound in clip if bound is not None]
    return bool(given) and all(map(is_finite, given)) and (len(given) == 1 or given[0] < given[1])


def _bound(value: float | None, infinite: str) -> str:
    return infinite if value is None else f"{value:g}"
