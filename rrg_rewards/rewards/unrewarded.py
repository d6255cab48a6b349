"""Stop a run in which completions get no rewards any more."""

from rrg_rewards.utilities.names import shown

MAX_UNREWARDED_CALLS = 3
"""Default number of calls in a row without any reward after which a run stops."""


class NoRewardError(RuntimeError):
    """In several calls in a row, no completion had a reward."""


class UnrewardedCalls:
    """Counts calls in which no completion has a reward, and raises an error after several in a row.

    Trainers skip completions without a reward. A run whose judge or server has failed would go on without learning
    anything.

    Args:
        limit: Number of calls in a row; ``None`` for no limit.

    Raises:
        ValueError: If the limit is less than 1.

    Example:
        >>> calls = UnrewardedCalls(2)
        >>> for rewards in ([None], [None, 1.0], [None]):
        ...     calls.add(any(reward is not None for reward in rewards))
        >>> calls.add(False)
        Traceback (most recent call last):
        ...
        rrg_rewards.rewards.unrewarded.NoRewardError: no completion had a reward in 2 calls in a row: ...
    """

    def __init__(self, limit: int | None = MAX_UNREWARDED_CALLS) -> None:
        if limit is not None and not (isinstance(limit, int) and limit >= 1):
            raise ValueError(f"max_unrewarded_calls must be a whole number of at least 1, or None, got {shown(limit)}")
        self.limit = limit
        self._parts = 0.0

    def add(self, has_rewards: bool, parts: int = 1) -> None:
        """Count a call.

        Args:
            has_rewards: Whether a completion of the call has a reward.
            parts: Number of such calls that count as one, for trainers that pass completions one by one.

        Raises:
            NoRewardError: If there were too many calls in a row without a reward.
        """
        self._parts = 0.0 if has_rewards else self._parts + 1 / parts
        # The sum of many fractions may be less than a whole number.
        if self.limit is not None and self._parts > self.limit - 0.5 / parts:
            each = f" of {parts} completions" if parts > 1 else ""
            raise NoRewardError(
                f"no completion had a reward in {self.limit} calls{each} in a row: nothing can be learned from them. "
                "Check the column of references, and whether the judge or the reward server answers (the warnings "
                "before this error say what failed). If so many completions without a reward are expected, set "
                "max_unrewarded_calls to a larger number, or to null (None) for no limit"
            )
