"""Running mean and standard deviation of a reward, identical in all processes."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from rrg_rewards.utilities.processes import gather_objects, num_processes

__all__ = ["RunningMoments"]

# After 100 unshared batches, assume that no callback shares the statistics.
_MAX_UNSHARED = 100


class RunningMoments:
    r"""Count, mean and standard deviation of all values so far.

    :meth:`synchronize` merges the new values of all processes. New values have no effect before, so all processes use
    the same statistics, even if a group of completions is distributed over processes. A single process merges new
    values immediately.

    .. math::
        \bar x = \frac{1}{n} \sum x_i, \qquad s = \sqrt{\frac{1}{n - 1} \sum (x_i - \bar x)^2}

    Partial statistics are merged by the formula of Chan et al., which avoids cancellation.

    Example:
        >>> moments = RunningMoments()
        >>> moments.add([1.0, 3.0])
        >>> moments.mean, round(moments.deviation, 4)
        (2.0, 1.4142)
    """

    def __init__(self) -> None:
        self._merged = (0.0, 0.0, 0.0)
        self._unshared = (0.0, 0.0, 0.0)
        self._unshared_batches = 0

    @property
    def count(self) -> int:
        """Number of values."""
        return int(self._merged[0])

    @property
    def mean(self) -> float:
        """Mean of the values; 0 without values."""
        return self._merged[1]

    @property
    def deviation(self) -> float:
        """Standard deviation of the values; 1 if there are fewer than two values or all are equal."""
        count, _, squares = self._merged
        return math.sqrt(squares / (count - 1)) if count > 1 and squares > 0 else 1.0

    def add(self, values: Iterable[float]) -> None:
        """Add values. With several processes, they have no effect before the next :meth:`synchronize`.

        Raises:
            RuntimeError: If several processes have not been synchronised for 100 batches.
        """
        self._unshared = _merge(self._unshared, _moments(values))
        if num_processes() == 1:
            self.synchronize()
            return
        self._unshared_batches += 1
        if self._unshared_batches > _MAX_UNSHARED:
            raise RuntimeError(
                f"running statistics were not shared between processes for {_MAX_UNSHARED} batches; give the trainer a "
                "TrainerRewardStateCallback (TRL) or RewardStateCallback (Lightning) of rrg_rewards.callbacks, which "
                "shares them after each step"
            )

    def synchronize(self) -> None:
        """Merge the new values of all processes; every process must call this method."""
        # Merge in the order of the ranks, so that the results are bit-equal in all processes.
        for part in gather_objects(self._unshared):
            self._merged = _merge(self._merged, part)
        self._unshared, self._unshared_batches = (0.0, 0.0, 0.0), 0

    def state_dict(self) -> dict[str, float]:
        """Return the merged statistics for a checkpoint."""
        count, mean, squares = self._merged
        return {"count": count, "mean": mean, "squares": squares}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the statistics that :meth:`state_dict` returned."""
        self._merged = (float(state["count"]), float(state["mean"]), float(state["squares"]))
        self._unshared, self._unshared_batches = (0.0, 0.0, 0.0), 0


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
