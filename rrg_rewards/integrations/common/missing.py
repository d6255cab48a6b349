"""Numbers for completions that have no reward."""

from collections.abc import Hashable, Sequence

from rrg_rewards.integrations.common.settings import Missing


class MissingRewards:
    """Replaces missing rewards by a number or by the mean of other rewards.

    The mean is that of the other completions of the same group in the call; without any, of the call; without any, of
    all earlier calls.

    Args:
        missing: The number, or ``"mean"``.

    Example:
        >>> replace = MissingRewards("mean")
        >>> replace([1.0, 2.0, None, 6.0], groups=["a", "a", "a", "b"])
        [1.0, 2.0, 1.5, 6.0]
        >>> replace([None], groups=["a"])
        [3.0]
    """

    def __init__(self, missing: Missing) -> None:
        self.missing = missing
        self._sum, self._count = 0.0, 0

    def __call__(self, rewards: Sequence[float | None], groups: Sequence[Hashable]) -> list[float]:
        """Return the rewards of a call with numbers in the place of ``None``.

        Args:
            rewards: ``N`` rewards.
            groups: The group of each, equal for the completions of one study.

        Raises:
            ValueError: If the mean is asked for and this process has scored no completion yet.
        """
        known = [(group, reward) for group, reward in zip(groups, rewards, strict=True) if reward is not None]
        self._sum += sum(reward for _, reward in known)
        self._count += len(known)
        return [
            self._replacement(group, known) if reward is None else reward
            for group, reward in zip(groups, rewards, strict=True)
        ]

    def _replacement(self, group: Hashable, known: Sequence[tuple[Hashable, float]]) -> float:
        if self.missing != "mean":
            return float(self.missing)
        others = [reward for own, reward in known if own == group] or [reward for _, reward in known]
        if others:
            return sum(others) / len(others)
        if not self._count:
            raise ValueError(
                "missing is mean, but this process has scored no completion yet, and the first one is unscorable; "
                "give a number, and check the judge and the references"
            )
        return self._sum / self._count
