"""Running mean and deviation of a reward, the same in all processes."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import distributed

__all__ = ["RunningMoments"]

# Steps of rewards: one that shares nothing for so long was never going to.
_PATIENCE = 100


class RunningMoments:
    r"""Count, mean and standard deviation of all values seen so far.

    Values are held back until :meth:`synchronize`, which merges those of all processes: between two of its calls every
    process scales by the same numbers, wherever the completions of a group lie. One process alone merges as it goes.

    .. math::
        \bar x = \frac{1}{n} \sum x_i, \qquad s = \sqrt{\frac{1}{n - 1} \sum (x_i - \bar x)^2}

    merged by Chan et al.'s formula, which does not cancel.

    Example:
        >>> moments = RunningMoments()
        >>> moments.add([1.0, 3.0])
        >>> moments.mean, round(moments.deviation, 4)
        (2.0, 1.4142)
    """

    def __init__(self) -> None:
        self._merged = (0.0, 0.0, 0.0)
        self._held_back = (0.0, 0.0, 0.0)
        self._waiting = 0

    @property
    def count(self) -> int:
        """How many values the mean is of."""
        return int(self._merged[0])

    @property
    def mean(self) -> float:
        """Mean of the values; 0 where there are none."""
        return self._merged[1]

    @property
    def deviation(self) -> float:
        """Standard deviation of the values; 1 where there are fewer than two, or all are equal."""
        count, _, squares = self._merged
        return math.sqrt(squares / (count - 1)) if count > 1 and squares > 0 else 1.0

    def add(self, values: Iterable[float]) -> None:
        """Take values into account from the next synchronisation on; at once in a process that is alone.

        Raises:
            RuntimeError: If values of several processes have long been waiting to be shared.
        """
        self._held_back = _merge(self._held_back, _moments(values))
        if _processes() == 1:
            self.synchronize()
            return
        self._waiting += 1
        if self._waiting > _PATIENCE:
            raise RuntimeError(
                f"running statistics have waited {_PATIENCE} batches for other processes; give the trainer a "
                "TrainerRewardStateCallback (TRL) or RewardStateCallback (Lightning) of rrg_rewards.callbacks, which "
                "shares them after each step"
            )

    def synchronize(self) -> None:
        """Merge what all processes hold back; each must call it."""
        parts = [self._held_back]
        if _processes() > 1:
            device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
            own = torch.tensor(self._held_back, dtype=torch.float64, device=device)
            gathered = [torch.empty_like(own) for _ in range(_processes())]
            distributed.all_gather(gathered, own)
            parts = [tuple(part.tolist()) for part in gathered]
        # In the order of the processes, so that all get the same bits.
        for part in parts:
            self._merged = _merge(self._merged, part)
        self._held_back, self._waiting = (0.0, 0.0, 0.0), 0

    def state_dict(self) -> dict[str, float]:
        """What was merged, for a checkpoint."""
        count, mean, squares = self._merged
        return {"count": count, "mean": mean, "squares": squares}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        self._merged = (float(state["count"]), float(state["mean"]), float(state["squares"]))
        self._held_back, self._waiting = (0.0, 0.0, 0.0), 0


_Moments = tuple[float, float, float]


def _moments(values: Iterable[float]) -> _Moments:
    known = list(values)
    if not known:
        return 0.0, 0.0, 0.0
    mean = math.fsum(known) / len(known)
    return float(len(known)), mean, math.fsum((value - mean) ** 2 for value in known)


def _merge(one: _Moments, other: _Moments) -> _Moments:
    count = one[0] + other[0]
    if count == 0:
        return one
    apart = other[1] - one[1]
    mean = one[1] + apart * other[0] / count
    return count, mean, one[2] + other[2] + apart**2 * one[0] * other[0] / count


def _processes() -> int:
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
