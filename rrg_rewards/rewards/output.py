"""The number that a reward returns for a score: the score itself, or a sub-score with its sign."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.names import shown, unknown_name_message

OUTPUT_OPTIONS = frozenset({"key", "sign"})
"""Options of :func:`rrg_rewards.rewards.make_reward` that select the output of any reward."""


@dataclass(frozen=True)
class RewardOutput:
    """What a reward returns for a score.

    Args:
        key: Name of the sub-score in ``Scores.details`` that is the reward; ``None`` for the score itself.
        sign: 1 if a higher sub-score is better, -1 if a lower one is. Required with ``key``, because no sub-score says
            so itself.

    Raises:
        ValueError: If ``key`` is given without ``sign`` or the reverse, or ``sign`` is neither 1 nor -1.
    """

    key: str | None = None
    sign: int | None = None

    def __post_init__(self) -> None:
        if self.key is None and self.sign is not None:
            raise ValueError(f"sign is {self.sign!r}, but there is no key: the sign of a score is that of its metric")
        if self.key is not None and self.sign not in (1, -1):
            raise ValueError(
                f"sign must be 1 (a higher {self.key!r} is better) or -1 (a lower one is), got {shown(self.sign)}"
            )

    @property
    def suffix(self) -> str:
        """What the settings add to the signature of the reward; empty by default."""
        return "" if self.key is None else f"|key:{self.key}|key_sign:{self.sign:+d}"

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
        if self.sign is not None:
            values = [self.sign * value for value in values]
            return [None if math.isnan(value) else value for value in values]
        return [None if math.isnan(value) else convert(value) for value in values]
